-- an alias of the SELECT list in WHERE, GROUP BY, HAVING, QUALIFY and beside it
SELECT k + 1 AS n FROM s WHERE n > 2 ORDER BY n
SELECT k + 1 AS n, n * 2 AS m FROM s ORDER BY ALL
SELECT k + 1 AS n, n * 2 AS m FROM s WHERE m > 6 ORDER BY ALL
SELECT k % 2 AS n, sum(v) AS t FROM s GROUP BY n HAVING t > 2 ORDER BY ALL
SELECT k % 2 AS n, sum(v) AS t, t / count(*) AS mean FROM s GROUP BY n ORDER BY ALL
SELECT id, row_number() OVER (PARTITION BY k ORDER BY id) AS n FROM s QUALIFY n = 1 ORDER BY id
SELECT id, k AS kk, sum(v) OVER (PARTITION BY kk) FROM s ORDER BY id
SELECT (k + 1) AS n FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.k = n) ORDER BY ALL
-- an alias that is also a column
SELECT -k AS k FROM s WHERE k > 2 ORDER BY k
SELECT -k AS k FROM s ORDER BY s.k
SELECT -k AS k FROM s ORDER BY k + 0
SELECT k + 1 AS v, v AS w FROM s ORDER BY id
SELECT name AS k, count(*) FROM s GROUP BY k ORDER BY ALL
SELECT upper(name) AS name, count(*) FROM s GROUP BY name ORDER BY ALL
SELECT k % 2 AS k, count(*) FROM s GROUP BY k ORDER BY ALL
SELECT k % 2 AS k, count(*) AS n FROM s GROUP BY ALL HAVING k = 1 ORDER BY ALL
SELECT max(v) AS v FROM s HAVING max(v) > 1
SELECT k AS v, sum(v) AS t FROM s GROUP BY k ORDER BY ALL
SELECT id AS k, row_number() OVER (ORDER BY k, id) AS n FROM s QUALIFY n < 4 ORDER BY ALL
SELECT -id AS id FROM s QUALIFY row_number() OVER (ORDER BY id) <= 2 ORDER BY ALL
SELECT k AS id, id AS k FROM s ORDER BY id, k
SELECT DISTINCT k % 2 AS k FROM s ORDER BY k
-- GROUP BY ALL, ORDER BY ALL, numbers
SELECT k, name, sum(v) FROM s GROUP BY ALL ORDER BY ALL
SELECT k, sum(v) FROM s GROUP BY 1 ORDER BY 2 DESC, 1
SELECT * FROM r ORDER BY ALL DESC
SELECT s.k, label, count(*) FROM s JOIN r ON s.k = r.k GROUP BY ALL ORDER BY ALL
SELECT k, k + 1 AS n, count(*) AS c FROM s GROUP BY ALL ORDER BY n DESC NULLS LAST
SELECT k, count(*) FROM s GROUP BY GROUPING SETS ((k), ()) ORDER BY ALL
SELECT k, name, count(*) FROM s GROUP BY CUBE (k, name) ORDER BY ALL
-- USING and NATURAL
SELECT k, label FROM s JOIN r USING (k) ORDER BY ALL
SELECT k, s.k, r.k FROM s FULL JOIN r USING (k) ORDER BY ALL
SELECT k, label FROM s RIGHT JOIN r USING (k) ORDER BY ALL
SELECT k FROM s FULL JOIN r USING (k) WHERE k = 9
SELECT * FROM s JOIN r USING (k) ORDER BY id
SELECT s.* FROM s JOIN r USING (k) ORDER BY id
SELECT r.* FROM s JOIN r USING (k) ORDER BY ALL
SELECT * FROM r NATURAL JOIN q ORDER BY ALL
SELECT k, label, w FROM r NATURAL JOIN q ORDER BY ALL
SELECT * FROM r NATURAL FULL JOIN q ORDER BY ALL
SELECT k, count(*) FROM s JOIN r USING (k) JOIN q USING (k) GROUP BY k ORDER BY ALL
SELECT * FROM s LEFT JOIN r USING (k) LEFT JOIN q USING (k) ORDER BY id
SELECT k FROM s FULL JOIN r USING (k) FULL JOIN q USING (k) ORDER BY ALL
SELECT * EXCLUDE (k) FROM s JOIN r USING (k) ORDER BY id
SELECT v FROM s SEMI JOIN r USING (k) ORDER BY ALL
SELECT * FROM s ANTI JOIN r USING (k) ORDER BY ALL
-- a field of a struct, or a column with its table
SELECT st.a FROM s ORDER BY id
SELECT st.a, st.k FROM s ORDER BY id
SELECT s.st.a FROM s ORDER BY id
SELECT s.st.a + st.k AS n FROM s WHERE st.k > 1 ORDER BY id
SELECT st.a FROM s AS st ORDER BY id
SELECT st.id FROM s AS st ORDER BY 1
SELECT st.st.a FROM s AS st ORDER BY st.id
SELECT st.k FROM s AS st ORDER BY id
SELECT k.k FROM r AS k ORDER BY 1
SELECT x.a FROM (SELECT {'a': 1} AS x) AS y
SELECT x.a FROM (SELECT {'a': 1} AS x) AS x
SELECT x.x FROM (SELECT {'x': 1} AS x) AS x
SELECT st['a'], l[1] FROM s ORDER BY id
SELECT sum(st.a) FROM s GROUP BY st.k ORDER BY ALL
SELECT st.* FROM s ORDER BY ALL
SELECT unnest(st) FROM s ORDER BY id
SELECT main.s.k FROM s ORDER BY ALL
SELECT memory.main.s.k FROM memory.main.s ORDER BY ALL
-- a whole row as a value
SELECT r FROM r ORDER BY r.k
SELECT s.k, r FROM s JOIN r ON s.k = r.k ORDER BY ALL
SELECT count(r) FROM s LEFT JOIN r ON s.k = r.k
SELECT r.k FROM (SELECT r FROM r) ORDER BY ALL
SELECT to_json(x) FROM r AS x ORDER BY x.k
-- stars
SELECT * EXCLUDE (st, l) FROM s ORDER BY id
SELECT * EXCLUDE (st, l) REPLACE (k * 2 AS k) FROM s ORDER BY id
SELECT * RENAME (k AS kk) FROM r ORDER BY kk
SELECT s.* EXCLUDE (st), r.label FROM s JOIN r ON s.k = r.k ORDER BY id
SELECT * EXCLUDE (s.k) FROM s JOIN r ON s.k = r.k ORDER BY ALL
SELECT COLUMNS('k|v') FROM s ORDER BY id
SELECT COLUMNS(c -> c LIKE 'n%') FROM s ORDER BY id
SELECT min(COLUMNS(* EXCLUDE (st, l))) FROM s
SELECT COLUMNS(*) + 1 FROM (SELECT k, v FROM s) ORDER BY ALL
SELECT id FROM s WHERE COLUMNS(['k', 'v']) > 1 ORDER BY id
SELECT * LIKE 'n%' FROM s ORDER BY ALL
SELECT count(*), count(COLUMNS('v')) FROM s
SELECT *, id FROM s ORDER BY id
SELECT *COLUMNS(['k', 'v']) FROM s ORDER BY id
SELECT coalesce(*COLUMNS(['k', 'v'])) FROM s ORDER BY ALL
-- lateral joins
SELECT s.id, x.n FROM s, LATERAL (SELECT count(*) AS n FROM r WHERE r.k = s.k) AS x ORDER BY ALL
SELECT id, n FROM s, (SELECT s.k + 1 AS n) ORDER BY ALL
SELECT id, n FROM s JOIN LATERAL (SELECT k + 1 AS n) ON true ORDER BY ALL
SELECT id, u FROM s, unnest(s.l) AS t(u) ORDER BY ALL
SELECT id, u FROM s, unnest(l) AS t(u) ORDER BY ALL
SELECT id, unnest FROM s, unnest(l) ORDER BY ALL
SELECT id, x.generate_series FROM s, generate_series(1, s.k) AS x ORDER BY ALL
SELECT s.id, y.label FROM s LEFT JOIN LATERAL (SELECT label FROM r WHERE r.k = s.k ORDER BY label LIMIT 1) AS y ON true ORDER BY ALL
-- correlated subqueries, also through two levels
SELECT id FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.k = s.k) ORDER BY id
SELECT id FROM s WHERE EXISTS (SELECT 1 FROM r WHERE label = name) ORDER BY id
SELECT id, (SELECT max(label) FROM r WHERE k = s.k) FROM s ORDER BY id
SELECT id, (SELECT count(*) FROM r WHERE r.k = (SELECT min(q.k) FROM q WHERE q.k = s.k AND q.w >= r.k)) FROM s ORDER BY id
SELECT id, (SELECT (SELECT id + r.k) FROM r ORDER BY r.k LIMIT 1) FROM s ORDER BY id
SELECT id FROM s x WHERE v = (SELECT max(v) FROM s WHERE k = x.k) ORDER BY id
SELECT id FROM s WHERE k IN (SELECT id FROM r) ORDER BY id
SELECT id FROM s WHERE id IN (SELECT max(id) FROM s AS t WHERE t.k = s.k GROUP BY name HAVING count(*) >= s.k) ORDER BY id
SELECT k FROM r WHERE k > ALL (SELECT k FROM q WHERE w < r.k) ORDER BY ALL
SELECT (SELECT sum(s.k)) FROM s
SELECT (SELECT v FROM (SELECT 1 AS one) LIMIT 1) FROM s ORDER BY ALL
-- WITH queries: names that hide tables, one another, themselves
WITH s AS (SELECT 1 AS one) SELECT * FROM s
WITH s AS (SELECT * FROM s WHERE k = 1) SELECT id FROM s ORDER BY id
WITH x AS (SELECT 1 AS a), y AS (SELECT a + 1 AS b FROM x) SELECT a, b FROM x, y
WITH x AS (SELECT 1 AS a) SELECT * FROM (WITH x AS (SELECT 2 AS a) SELECT a FROM x), x AS o
WITH x AS (SELECT 1 AS a) SELECT (WITH x AS (SELECT a + 1 AS a FROM x) SELECT a FROM x) FROM x
WITH x(p, q) AS (SELECT k, v FROM s) SELECT p, q FROM x ORDER BY ALL
WITH r AS (SELECT k FROM s) SELECT count(*) FROM r JOIN main.r AS t ON r.k = t.k
WITH s AS MATERIALIZED (SELECT k, count(*) AS n FROM s GROUP BY k) SELECT * FROM s ORDER BY ALL
WITH RECURSIVE x AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM x WHERE n < 4) SELECT * FROM x ORDER BY n
WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x WHERE n < 4), y AS (SELECT n FROM x) SELECT sum(n) FROM y
WITH RECURSIVE s AS (SELECT 1 AS k UNION ALL SELECT k + 1 FROM s WHERE k < 3) SELECT * FROM s ORDER BY k
WITH X AS (SELECT 1 AS A) SELECT x.a FROM x
WITH x AS (SELECT * FROM s) SELECT id FROM x WHERE k = 1 ORDER BY id
WITH x AS (SELECT k FROM s UNION ALL SELECT k FROM r) SELECT k, count(*) FROM x GROUP BY k ORDER BY ALL
SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS x(n, t) JOIN r ON r.k = x.n ORDER BY n
-- case and quotes
SELECT K, NAME FROM S ORDER BY ID
SELECT "K" FROM "S" ORDER BY "ID"
SELECT "Key", key FROM "Mixed" ORDER BY ALL
SELECT mixed."KEY" FROM Mixed ORDER BY ALL
SELECT k AS "K k" FROM s ORDER BY "k K"
SELECT "a b".k FROM s AS "a b" ORDER BY "A B".id
SELECT k AS K2 FROM s WHERE k2 > 1 ORDER BY ALL
SELECT K FROM s GROUP BY k ORDER BY ALL
-- FROM first, no FROM, no SELECT
FROM s SELECT k WHERE k > 1 ORDER BY id
FROM r ORDER BY k
FROM s, r SELECT s.k, label WHERE s.k = r.k ORDER BY ALL
FROM (FROM s SELECT k, v) SELECT max(v), k GROUP BY k ORDER BY ALL
SELECT 1 AS a, a + 1 AS b
TABLE r
VALUES (1), (2)
-- positional and ASOF joins, comma and JOIN
SELECT r.k, q.w FROM r POSITIONAL JOIN q
SELECT s.id, t.at FROM s ASOF JOIN t ON s.k = t.k AND s.ts >= t.at ORDER BY ALL
SELECT id, at FROM s ASOF JOIN t USING (k, ts) ORDER BY ALL
SELECT k, id FROM s ASOF LEFT JOIN t USING (k, ts) ORDER BY ALL
SELECT s.id, q.w FROM s, r JOIN q ON r.k = q.k WHERE s.k = r.k ORDER BY ALL
SELECT id FROM s, r, q WHERE s.k = r.k AND w = 10 AND q.k = label.length() ORDER BY ALL
SELECT x.id, y.id FROM s x JOIN s y ON x.k = y.k AND x.id < y.id ORDER BY ALL
SELECT * FROM (s JOIN r USING (k)) ORDER BY id
SELECT j.id, j.label FROM (s JOIN r ON s.k = r.k) AS j ORDER BY ALL
-- PIVOT and UNPIVOT
PIVOT s ON k USING sum(v) GROUP BY name ORDER BY name
SELECT name, "1" FROM (PIVOT s ON k IN (1, 2) USING sum(v) GROUP BY name) ORDER BY ALL
SELECT * FROM s PIVOT (sum(v) FOR k IN (1, 2) GROUP BY name) ORDER BY ALL
SELECT id, f, x FROM (SELECT id, k, v FROM s) UNPIVOT (x FOR f IN (k, v)) ORDER BY ALL
UNPIVOT (SELECT id, k, v FROM s) ON k, v INTO NAME f VALUE x ORDER BY ALL
-- lambdas, comprehensions, positional references, dot calls
SELECT list_transform(l, lambda k: k + 1) FROM s ORDER BY id
SELECT list_transform(l, lambda e: e + k) FROM s ORDER BY id
SELECT [k + 1 for k in l] FROM s ORDER BY id
SELECT [e + k for e in l if e > 1] FROM s ORDER BY id
SELECT #1 FROM s ORDER BY ALL
SELECT name.upper() FROM s ORDER BY id
SELECT s.name.upper().lower() FROM s ORDER BY id
SELECT list_reduce(l, lambda a, b: a + b + k) FROM s ORDER BY id
-- windows by name, frames, FILTER, ORDER BY within
SELECT id, sum(v) OVER w FROM s WINDOW w AS (PARTITION BY k ORDER BY id) ORDER BY id
SELECT k AS g, sum(v) FILTER (WHERE id > 1), list(name ORDER BY id) FROM s GROUP BY g ORDER BY ALL
SELECT id, k AS w, sum(v) OVER w FROM s WINDOW w AS (ORDER BY id) ORDER BY id
SELECT DISTINCT ON (k) k, id FROM s ORDER BY k, id DESC
SELECT DISTINCT ON (n) k % 2 AS n, id FROM s ORDER BY n, id
-- set operations
SELECT k FROM s UNION SELECT k FROM r ORDER BY k
SELECT k AS a FROM s UNION ALL SELECT v FROM s ORDER BY a
SELECT k, v FROM s UNION ALL BY NAME SELECT v, k FROM s ORDER BY ALL
SELECT id, k AS n FROM s UNION BY NAME SELECT k AS n, label FROM r ORDER BY ALL
(SELECT k FROM s ORDER BY id LIMIT 2) UNION ALL (SELECT k FROM r) ORDER BY k
SELECT * FROM s EXCEPT SELECT * FROM s WHERE k = 1 ORDER BY id
-- hidden columns
SELECT rowid, id FROM s ORDER BY rowid
SELECT s.rowid FROM s JOIN r ON s.k = r.k ORDER BY ALL
SELECT id FROM s WHERE rowid = 1
-- what DuckDB refuses
SELECT k FROM s, r
SELECT nothing FROM s
SELECT s.nothing FROM s
SELECT x.k FROM s
SELECT k + 1 AS n FROM s JOIN (SELECT n + 1 AS m) ON true
SELECT count(*) AS n FROM s WHERE n > 1
SELECT k FROM s JOIN r ON label = k2
SELECT id FROM s GROUP BY k
WITH x AS (SELECT * FROM y), y AS (SELECT 1) SELECT * FROM x
WITH x AS (SELECT 1), x AS (SELECT 2) SELECT * FROM x
SELECT s.k FROM s AS x
SELECT main.s.k FROM s AS x
SELECT k FROM (SELECT id FROM s)
SELECT id FROM s ORDER BY nothing
SELECT n FROM (SELECT k AS n FROM s) WHERE k = 1
SELECT label FROM s SEMI JOIN r USING (k)
SELECT id FROM s AS t(a, b) WHERE id = 1
SELECT * EXCLUDE (nothing) FROM s
SELECT x.id FROM s x, s x
-- what only DuckDB knows: columns of functions, files and macros; aliases that may not be read twice
SELECT range FROM range(3) ORDER BY ALL
SELECT range + k AS n FROM range(3), s ORDER BY ALL
SELECT k, n FROM s JOIN range(3) AS t(n) ON n = k ORDER BY ALL
SELECT name, database_name FROM duckdb_secrets(), s WHERE k = 1
SELECT table_name FROM duckdb_tables() ORDER BY ALL
SELECT k, table_name FROM s, duckdb_tables() WHERE k = 1 AND table_name = 'r' ORDER BY ALL
SELECT random() AS x, x FROM r
SELECT column_name FROM (DESCRIBE r) ORDER BY ALL
SELECT column_name, k FROM (SUMMARIZE r), q WHERE column_name = 'k' ORDER BY ALL
SELECT k FROM s WHERE k = (SELECT max(range) FROM range(3)) ORDER BY ALL
SELECT x FROM (SELECT unnest(l) AS x FROM s) ORDER BY ALL
SELECT generate_series FROM s, generate_series(1, 2) WHERE id = 1 ORDER BY ALL
SELECT k, sum(v) AS v FROM s GROUP BY k HAVING v > 1 ORDER BY v
SELECT k AS a, (SELECT count(*) FROM r WHERE r.k > a) AS n FROM s ORDER BY ALL
SELECT k, (SELECT max(x.k) FROM r AS x WHERE x.k > s.k AND EXISTS (SELECT 1 FROM q WHERE q.k = x.k AND q.w > s.id)) FROM s ORDER BY ALL
SELECT s.k FROM s, LATERAL (SELECT r.k AS n FROM r WHERE r.k = s.k AND r.v > (SELECT min(w) FROM q WHERE q.k >= s.k - 3)) AS x WHERE n = 1 ORDER BY ALL
SELECT k FROM s GROUP BY k HAVING sum(v) > (SELECT min(v) FROM r WHERE r.k = s.k) ORDER BY ALL
