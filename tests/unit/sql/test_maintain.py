"""Split views: digests of random chunks, merged and read, must give what the query gives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from maintained import Streams, check_view

AGGREGATES = [
    "SELECT k, count(*), sum(n), avg(v) FROM s GROUP BY k",
    "SELECT count(*) FROM s",
    "SELECT count(*), sum(n), max(name) FROM s WHERE k = 99",
    "SELECT k, name, min(ts), max(ts) FROM s GROUP BY ALL",
    "SELECT K, count(*) AS c FROM s GROUP BY 1 HAVING count(*) > 3 ORDER BY c DESC, k LIMIT 2",
    "SELECT k + 1 AS kk, stddev(n), var_pop(d) FROM s GROUP BY k + 1",
    "SELECT name, count(DISTINCT k), sum(DISTINCT n) FROM s GROUP BY name",
    "SELECT k, string_agg(name, ',' ORDER BY n) FROM s WHERE n IS NOT NULL GROUP BY k",
    "SELECT k, arg_max(v, n), arg_min(name, n) FROM s GROUP BY k",
    "SELECT k, first(v ORDER BY n), last(name ORDER BY n) FROM s WHERE n > 0 GROUP BY k",
    "SELECT k, approx_count_distinct(n), histogram(flag) FROM s GROUP BY k",
    "SELECT k, sum(n) FILTER (WHERE flag) AS f, bool_or(flag) FROM s GROUP BY k",
    "SELECT k, sum(d), avg(d) FROM main.s GROUP BY k",
    "SELECT x.k, count(*) FROM s AS x GROUP BY x.k",
    "SELECT k, rank() OVER (ORDER BY count(*) DESC, k) AS r FROM s GROUP BY k",
    "SELECT k, count(*) AS c FROM s GROUP BY k QUALIFY row_number() OVER (ORDER BY c DESC, k) <= 2",
    "SELECT t, count(*) FROM (SELECT unnest(tags) AS t FROM s) GROUP BY t",
    "SELECT tag, count(*) FROM s, UNNEST(s.tags) AS x(tag) GROUP BY tag",
    "WITH a AS (SELECT k, n * 2 AS m FROM s) SELECT k, sum(m) FROM a GROUP BY k",
    "WITH g AS (SELECT k, count(*) AS c FROM s GROUP BY k) "
    "SELECT x.k, x.c, y.c AS other FROM g x JOIN g y ON x.k = y.k + 1",
    "SELECT max(c) FROM (SELECT k, count(*) AS c FROM s GROUP BY k)",
    "SELECT k0, s0 FROM (SELECT k AS k0, sum(n) AS s0 FROM s GROUP BY k)",
    "SELECT k, count(*) FROM s GROUP BY k ORDER BY k NULLS LAST",
    "SELECT date_trunc('minute', ts) AS minute, count(*) FROM s "
    "WHERE minute > TIMESTAMP '2024-03-11' AND minute::DATE = ts::DATE GROUP BY minute",
    "SELECT * FROM (SELECT count(*) FROM s) WHERE 1 = 1",
    "SELECT main.s.k, count(*) FROM s GROUP BY main.s.k",
    'SELECT "K" AS "Key", max("n") AS "m n" FROM "S" AS "T" GROUP BY "T"."k"',
]
ROWS = [
    "SELECT DISTINCT k, name FROM s",
    "SELECT DISTINCT * FROM (SELECT k, flag FROM s) ORDER BY k, flag",
    "SELECT DISTINCT label FROM s JOIN dim USING (k)",
    "SELECT * FROM s ORDER BY n DESC NULLS LAST, ts, k, d LIMIT 5",
    "SELECT k, v + 1 AS v FROM s WHERE v > 0 ORDER BY v, n, d LIMIT 4 OFFSET 2",
    "SELECT k, n FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts DESC, n, d) <= 2",
    "SELECT s.* FROM s ORDER BY _seq LIMIT 3",
    "SELECT ts, _seq FROM s ORDER BY ts DESC, _seq LIMIT 3",
]
REFERENCES = [
    "SELECT label, count(*), sum(n) FROM s JOIN dim ON s.k = dim.k GROUP BY label",
    "SELECT label, count(*) FROM s LEFT JOIN dim USING (k) GROUP BY label",
    "SELECT s.k, label, c FROM (SELECT k, count(*) AS c FROM s GROUP BY k) s JOIN dim USING (k)",
    "SELECT k, count(*) FROM s WHERE k IN (SELECT k FROM dim WHERE weight > 1) GROUP BY k",
    "SELECT k, count(*), (SELECT max(weight) FROM dim) AS w FROM s GROUP BY k",
    "SELECT zone, label, sum(n) FROM s, dim d, zones z WHERE s.k = d.k AND s.name = z.name "
    "GROUP BY ALL",
    "SELECT k, count(*) AS c FROM s GROUP BY k HAVING count(*) > (SELECT min(weight) FROM dim)",
    "SELECT label, c FROM dim LEFT JOIN (SELECT k, count(*) AS c FROM s GROUP BY k) g USING (k)",
    "SELECT count(*) FROM s SEMI JOIN dim USING (k)",
    "SELECT label FROM dim WHERE k IN (SELECT k FROM s GROUP BY k HAVING count(*) > 9)",
    "SELECT label, (SELECT max(n) FROM s) AS m FROM dim",
    "SELECT label, i, count(*) FROM s JOIN dim USING (k), range(2) r(i) GROUP BY ALL",
]
SEVERAL = [
    "SELECT a.k, c, m FROM (SELECT k, count(*) c FROM s GROUP BY k) a "
    "FULL JOIN (SELECT k, max(n) m FROM u GROUP BY k) b USING (k)",
    "SELECT k, count(*) AS c FROM s GROUP BY k UNION ALL SELECT k, count(*) FROM u GROUP BY k",
    "SELECT k FROM s GROUP BY k EXCEPT SELECT DISTINCT k FROM u",
    "SELECT (SELECT count(*) FROM s) AS a, (SELECT max(n) FROM u) AS b",
    "WITH a AS (SELECT k, sum(n) AS x FROM s GROUP BY k), b AS (SELECT k, avg(n) AS y FROM u "
    "GROUP BY k), c AS (SELECT name, count(*) AS z FROM s GROUP BY name) "
    "SELECT a.k, x, y, (SELECT max(z) FROM c) AS z FROM a JOIN b USING (k)",
    "SELECT k, sum(n) FROM s GROUP BY k HAVING sum(n) > (SELECT avg(n) FROM u)",
    "SELECT k, count(*), (SELECT count(*) FROM u) AS other FROM s GROUP BY k",
    "SELECT x.k, x.c + y.c AS c FROM (SELECT k, count(*) c FROM s GROUP BY k) x "
    "JOIN (SELECT k, count(*) c FROM s GROUP BY k) y USING (k)",
    "SELECT sum(c) FROM (SELECT count(*) c FROM s UNION ALL SELECT count(*) FROM u "
    "UNION ALL SELECT count(DISTINCT k) FROM u)",
    "SELECT k, n FROM (SELECT k, n FROM s ORDER BY n DESC NULLS LAST, _seq LIMIT 3) "
    "JOIN (SELECT DISTINCT k FROM u) USING (k)",
]
WINDOWS = [
    "SELECT window_start, window_end, count(*) FROM TUMBLE(s, ts, INTERVAL '5' MINUTE) "
    "GROUP BY ALL",
    "SELECT k, window_start, sum(n) FROM HOP(u, at, INTERVAL '1' MINUTE, INTERVAL '3' MINUTE) "
    "GROUP BY ALL",
    "SELECT window_start, count(*) FROM TUMBLE(s, ts, INTERVAL '5' MINUTE) "
    "WHERE window_end <= now() GROUP BY window_start",
    "SELECT window_end, count(*) FROM TUMBLE(u, at, INTERVAL '5' MINUTE) "
    "WHERE window_end <= now() GROUP BY window_end",
    "SELECT k, window_start, count(*) FROM HOP(s, ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE) "
    "WHERE window_start <= now() AND window_end > now() GROUP BY k, window_start",
    "SELECT k, count(*), avg(n) FROM RECENT(s, INTERVAL '5' MINUTE) GROUP BY k",
    "SELECT count(*), max(n) FROM RECENT(u, INTERVAL '7' MINUTE)",
    "SELECT label, count(*) FROM RECENT(s, INTERVAL '9' MINUTE) r JOIN dim d ON r.k = d.k "
    "GROUP BY label",
    "SELECT count(*) FROM RECENT(s, INTERVAL '1' MILLISECOND)",
    "SELECT DISTINCT name FROM RECENT(s, INTERVAL '3' MINUTE)",
    "SELECT * FROM RECENT(s, rows => 4)",
    "SELECT k, max(n) FROM RECENT(s, rows => 10) GROUP BY k",
    "SELECT avg(n) FROM RECENT(u, rows => 2, partition_by => k)",
    "SELECT k, ts, n FROM RECENT(s, rows => 1, partition_by => (k, name)) ORDER BY ALL",
    "SELECT ts, k, v FROM RECENT(s, INTERVAL '10' MINUTE) ORDER BY n DESC NULLS LAST, d LIMIT 3",
    "SELECT a.k, a.c, b.c AS before FROM "
    "(SELECT k, count(*) c FROM RECENT(s, INTERVAL '2' MINUTE) GROUP BY k) a JOIN "
    "(SELECT k, count(*) c FROM RECENT(s, INTERVAL '8' MINUTE) GROUP BY k) b USING (k)",
]
NOW = [
    "SELECT k, count(*) FROM s WHERE ts >= now() - INTERVAL '5' MINUTE GROUP BY k",
    "SELECT k, count(*) FROM s WHERE ts > now() - INTERVAL '5' MINUTE AND ts < now() GROUP BY k",
    "SELECT count(*) FROM s WHERE ts BETWEEN now() - INTERVAL '5' MINUTE AND now()",
    "SELECT count(*) FROM u WHERE at > now() - INTERVAL '6' MINUTE AND at <= now()",
    "SELECT count(*) FROM s WHERE now() - ts < INTERVAL '4' MINUTE",
    "SELECT count(*) FROM s WHERE ts + INTERVAL '4' MINUTE >= now() AND now() >= ts",
    "SELECT k, sum(n) FROM s WHERE ts <= now() GROUP BY k",
    "SELECT k, count(*) FROM s WHERE ts = date_trunc('minute', now()) GROUP BY k",
    "SELECT k, count(*) FROM s WHERE date_trunc('minute', ts) = date_trunc('minute', now()) "
    "GROUP BY k",
    "SELECT count(*) FROM s WHERE date_trunc('minute', ts) = date_trunc('minute', now())",
    "SELECT count(*) FROM s WHERE ts::DATE = current_date",
    "SELECT k, count(*) FROM s WHERE ts::DATE IN (current_date, current_date - 1) GROUP BY k",
    "SELECT k, count(*) FROM s WHERE hour(ts) >= hour(now()) OR k = 3 GROUP BY k",
    "SELECT k, count(*) FROM s WHERE due > now() GROUP BY k",
    "SELECT ts, count(*) FROM s WHERE ts > now() - INTERVAL '10' MINUTE GROUP BY ts",
    "SELECT date_trunc('minute', ts) AS m, count(*) FROM s "
    "WHERE ts >= now() - INTERVAL '10' MINUTE AND date_trunc('minute', ts) < date_trunc('minute', "
    "now()) GROUP BY m",
    "SELECT k, c FROM (SELECT k, count(*) AS c, max(ts) AS last FROM s GROUP BY k) "
    "WHERE last > now() - INTERVAL '12' MINUTE",
    "SELECT k, count(*), now() AS at FROM s GROUP BY k HAVING max(ts) < now()",
    "SELECT x.k, count(*) FROM (SELECT ts AS t, k, n FROM s) x "
    "WHERE x.t > now() - INTERVAL '8' MINUTE AND n > 3 GROUP BY x.k",
    "SELECT k, count(*) FROM (SELECT k, n FROM s WHERE ts > now() - INTERVAL '8' MINUTE) "
    "GROUP BY k",
    "WITH r AS (SELECT * FROM s WHERE ts > now() - INTERVAL '8' MINUTE) "
    "SELECT label, count(*) FROM r JOIN dim USING (k) GROUP BY label",
    "SELECT label, count(*) FROM (SELECT * FROM s WHERE s.ts > now() - INTERVAL '8' MINUTE "
    "AND due::DATE = today()) x JOIN dim d ON x.k = d.k GROUP BY label",
    "SELECT count(*) FROM s WHERE k IN (SELECT k FROM dim WHERE weight > minute(now()))",
    "SELECT DISTINCT k FROM s WHERE ts > now() - INTERVAL '5' MINUTE",
    "SELECT DISTINCT ts::DATE AS day FROM s WHERE ts::DATE >= current_date",
    "SELECT k, n FROM s WHERE ts > now() - INTERVAL '8' MINUTE "
    "ORDER BY n DESC NULLS LAST, d LIMIT 3",
    "SELECT k, n FROM s WHERE ts <= now() ORDER BY ts DESC, _seq DESC LIMIT 3",
    "SELECT k, n FROM s WHERE ts < now() "
    "QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts DESC, _seq DESC) = 1",
    "SELECT k, n FROM s WHERE ts >= now() - INTERVAL '8' MINUTE "
    "QUALIFY row_number() OVER (PARTITION BY k ORDER BY n DESC NULLS LAST, _seq) <= 2",
    "SELECT k, n FROM s WHERE minute(ts) = minute(now()) ORDER BY n DESC NULLS LAST, _seq LIMIT 2",
    "SELECT count(*) FROM s WHERE now() > TIMESTAMP '2024-03-11 00:00:00'",
    "SELECT date_trunc('minute', ts) AS m, count(*) FROM s WHERE m >= now() - INTERVAL '9' MINUTE "
    "GROUP BY m",
    "SELECT label, (SELECT count(*) FROM s WHERE ts > now() - INTERVAL '4' MINUTE) AS c FROM dim",
    "SELECT h0, count(*) FROM (SELECT k AS h0, ts FROM s) WHERE ts > now() - INTERVAL '5' MINUTE "
    "GROUP BY h0",
    "SELECT name, count(*) FROM s WHERE ts > now() - INTERVAL '1' MONTH AND ts > now() - INTERVAL "
    "'6' MINUTE GROUP BY name",
]
SESSIONS = [
    "SELECT k, window_start, window_end, count(*), sum(n) FROM "
    "SESSION(s, ts, INTERVAL '90' SECOND, partition_by => k) GROUP BY ALL",
    "SELECT window_start, count(*) AS c FROM SESSION(s, ts, INTERVAL '10' SECOND) GROUP BY 1 "
    "ORDER BY 1",
    "SELECT k, count(*), max(n) FROM SESSION(u, at, INTERVAL '3' MINUTE, partition_by => k) "
    "WHERE window_end <= now() GROUP BY k, window_start",
    "SELECT k, avg(n) FROM SESSION(s, ts, INTERVAL '1' MINUTE, partition_by => (k, name)) x "
    "WHERE x.k > 1 GROUP BY x.k",
    "SELECT k, max(w - v) FROM (SELECT k, window_start v, window_end w FROM "
    "SESSION(s, ts, INTERVAL '1' MINUTE, partition_by => k) GROUP BY ALL) GROUP BY k",
    "SELECT window_end, min(name), count(DISTINCT k) FROM "
    "SESSION(s, ts, INTERVAL '15' SECOND) GROUP BY window_end HAVING count(*) > 1",
    "SELECT date_trunc('hour', window_start) AS h, count(*) FROM "
    "SESSION(s, due, INTERVAL '5' MINUTE) GROUP BY h",
    "SELECT count(*) FROM SESSION(s, ts, INTERVAL '1' MINUTE)",
    "SELECT k, window_start, count(*), sum(n) FILTER (WHERE flag), first(v ORDER BY n) FROM "
    "SESSION(s, ts, INTERVAL '90' SECOND, partition_by => k) WHERE n > 20 AND k < 5 GROUP BY ALL",
    "SELECT count(*), max(n) FROM SESSION(s, ts, INTERVAL '1' MINUTE) WHERE name = 'none'",
    "SELECT window_end FROM SESSION(s, ts, INTERVAL '20' SECOND) WHERE flag OR v > 1 GROUP BY 1 "
    "HAVING count(*) > 1 ORDER BY max(n) NULLS LAST, 1",
]
QUERIES = [*AGGREGATES, *ROWS, *REFERENCES, *SEVERAL, *WINDOWS, *NOW, *SESSIONS]


@pytest.fixture(scope="module")
def streams() -> Iterator[Streams]:
    made = Streams(4)
    yield made
    made.close()


@pytest.mark.parametrize("query", QUERIES)
def test_the_parts_give_the_answer(streams: Streams, query: str) -> None:
    check_view(streams, query)
