"""Definitions: CREATE, ALTER and DROP, each one transaction of the catalog, one at a time.

``tables``, ``indexes``, ``views`` (and kept queries) and ``sources`` carry them out; ``making`` is
how a table comes and goes together with its storage; ``handlers`` puts them together.
"""
