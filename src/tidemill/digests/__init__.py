"""Digests: what a view remembers of a stream below its first grouping.

A digest's rows are partial results, one for each group: keys ``k0, k1, …`` and states ``s0, …``.
In memory they are held in one of two ways:

- ``dense``: an ``index`` from keys to slots, and ``cells``, arrays of counts, sums and extremes;
- ``levels``: partials that DuckDB computes and merges, eight to one.
"""
