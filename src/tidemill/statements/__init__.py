"""Statements: each is carried out here, always for its session.

``dispatch`` parses a text and gives each statement, as a ``call`` with its parameters and its
session, to the one that carries out its kind:

- ``querying``: SELECT and EXPLAIN, with ``caller`` for data frames and ``spark_route`` for Spark's
  SQL;
- ``showing``: SHOW and DESCRIBE; ``variables``: SET, RESET and SHOW of a ``session``;
- ``writing``: INSERT and append, by the ``targets`` that accept rows; ``changing``: UPDATE, DELETE;
- ``copying``: COPY FROM, with ``spooling`` for pipes; ``exporting``: COPY TO;
- ``definitions``: CREATE, ALTER, DROP;
- ``maintenance``: FLUSH, VACUUM, REFRESH, with ``verifying`` for checksums.
"""
