"""The tables that ``scope_cases.sql`` is asked of, in DuckDB."""

from __future__ import annotations

CASE_TABLES = (
    "CREATE TABLE s (id INT, ts TIMESTAMP, k INT, v DOUBLE, name VARCHAR, "
    "st STRUCT(a INT, k INT), l INT[])",
    "INSERT INTO s SELECT n, TIMESTAMP '2024-01-01' + to_minutes(n), n % 4, n * 0.5, "
    "chr((97 + n % 3)::INT), {'a': n + 1, 'k': n % 3}, [n, n + 1] FROM range(1, 9) AS t(n)",
    "CREATE TABLE r AS SELECT * FROM (VALUES (1, 'a', 10.0), (2, 'b', 20.0), (9, 'z', NULL)) "
    "AS t(k, label, v)",
    "CREATE TABLE q AS SELECT * FROM (VALUES (1, 10), (2, 20), (3, 30)) AS t(k, w)",
    "CREATE TABLE t AS SELECT n % 4 AS k, TIMESTAMP '2024-01-01' + to_minutes(n) AS ts, "
    "TIMESTAMP '2024-01-01' + to_minutes(n) AS at FROM range(1, 5) AS t(n)",
    'CREATE TABLE "Mixed" AS SELECT n AS "Key" FROM range(3) AS t(n)',
)
