"""Accepting rows: from whatever a producer has to Arrow batches of exactly the table's columns.

``rows`` reads the forms (Arrow, pandas, Polars, dicts, tuples), ``cast`` converts columns where
nothing is lost, ``defaults`` fills what is missing, ``single`` is the short way of one row, and
``files`` reads CSV, JSON and Parquet. Nothing here writes: the hot tier takes what is accepted.
"""
