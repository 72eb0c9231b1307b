"""One query over everything: parse → bind → window → select → run.

``planner`` turns a query into a plan that names its scans; ``scans`` chooses the rows of each from
the hot tier; ``duck`` runs what is left in DuckDB; ``explain`` shows all of it. Reference tables
live in DuckDB's own storage (``references``), system tables are made when asked for (``system``).
"""
