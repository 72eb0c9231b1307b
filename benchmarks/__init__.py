"""Benchmarks: Tidemill beside its peers, on the same rows, in the same run (``make bench``).

``data`` makes the rows, ``systems`` are the contenders (one module each, all with the same face),
``harness`` runs each in a process of its own and summarises what it measured, ``report`` prints
and writes the results. ``ingest``, ``hot_queries`` and ``startup`` say what is measured and which
goals it is held to.
"""
