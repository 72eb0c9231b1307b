-- Linear Road in Tidemill: tolls, accidents, balances and past expenditure of cars on expressways.
--
-- Rows come in as position reports and requests; the answers are the tables entries (toll and accident
-- notifications), balances and expenditures. Everything between is a kept query whose answers can be
-- read like any table, now and years later. R1 to R9 are the rules in docs/linear-road.md.
--
--   reports ──► segment_minutes ──► conditions ─────────┐
--      │                                                ▼
--      ├──────► stops ──► accidents ──► ahead ──────► entries ──► charges ──► balances
--      └──────► crossings ──────────────────────────────┘                       ▲
--                              balance_requests ────────────────────────────────┘
--                              expenditure_requests ──► expenditures ◄── daily_tolls

CREATE STREAMING TABLE reports (
  ts TIMESTAMP, vid INTEGER, spd SMALLINT, xway SMALLINT, lane TINYINT, dir TINYINT, seg TINYINT, pos INTEGER
) WITH (clock = 'event', max_future = 'forever', partition = '10 minutes');
CREATE INDEX reports_by_seg ON reports (seg);  -- the first index: files are sorted by it
CREATE INDEX reports_by_vid ON reports (vid);

CREATE STREAMING TABLE balance_requests (ts TIMESTAMP, vid INTEGER, qid INTEGER)
  WITH (clock = 'event', max_future = 'forever', partition = '1 hour');
CREATE STREAMING TABLE expenditure_requests (ts TIMESTAMP, vid INTEGER, xway SMALLINT, qid INTEGER, day TINYINT)
  WITH (clock = 'event', max_future = 'forever', partition = '1 hour');
CREATE TABLE daily_tolls (vid INTEGER, day TINYINT, xway SMALLINT, toll INTEGER);

-- R3, R4: what each segment was like in each minute (its average speed in billionths of a mile an hour),
-- and what that makes it for the minute after.
CREATE STREAMING TABLE segment_minutes WITH (partition = '1 hour') AS
SELECT xway, dir, seg, count(*) AS cars, CAST((sum(speed) + count(*) // 2) // count(*) AS BIGINT) AS speed
FROM (
  SELECT window_end, xway, dir, seg, vid, CAST(round(avg(spd) * 1000000000) AS BIGINT) AS speed
  FROM TUMBLE(reports, ts, INTERVAL '1' MINUTE) GROUP BY window_start, window_end, xway, dir, seg, vid
)
GROUP BY window_end, xway, dir, seg
EMIT ON WINDOW CLOSE;

CREATE STREAMING TABLE conditions WITH (partition = '1 hour') AS
SELECT xway, dir, seg, CAST((sum(speed) + count(*)) // (count(*) * 1000000000) AS INTEGER) AS lav,
       coalesce(max(cars) FILTER (WHERE ts > now() - INTERVAL '1' MINUTE), 0) AS cars
FROM RECENT(segment_minutes, INTERVAL '4' MINUTE)  -- five answers: both ends belong to it
GROUP BY xway, dir, seg
EVERY INTERVAL '1' MINUTE;

-- R6: cars that stand where they stood in their last three reports, and the moment they do not any more.
CREATE STREAMING TABLE stops WITH (partition = '1 hour') AS
SELECT vid, xway, dir, seg, lane, pos,
       coalesce(PREV(pos) = pos AND PREV(lane) = lane AND PREV(xway) = xway AND PREV(dir) = dir
                AND PREV(ts) >= ts - INTERVAL '1' MINUTE, false) AS is_standing
FROM RECENT(reports, rows => 5, partition_by => vid)
WHERE ts = now() AND PREV(pos, 1) = PREV(pos, 2) AND PREV(lane, 1) = PREV(lane, 2) AND PREV(xway, 1) = PREV(xway, 2)
  AND PREV(dir, 1) = PREV(dir, 2) AND PREV(ts, 2) >= PREV(ts, 1) - INTERVAL '1' MINUTE
  AND PREV(pos, 2) = PREV(pos, 3) AND PREV(lane, 2) = PREV(lane, 3) AND PREV(xway, 2) = PREV(xway, 3)
  AND PREV(dir, 2) = PREV(dir, 3) AND PREV(ts, 3) >= PREV(ts, 2) - INTERVAL '1' MINUTE
EVERY ROW;

CREATE STREAMING TABLE accidents WITH (partition = '1 hour') AS
SELECT DISTINCT xway, dir, seg
FROM (
  SELECT window_end, xway, dir, seg, lane, pos
  FROM (
    SELECT window_end, vid, arg_max(xway, ts) AS xway, arg_max(dir, ts) AS dir, arg_max(seg, ts) AS seg,
           arg_max(lane, ts) AS lane, arg_max(pos, ts) AS pos, arg_max(is_standing, ts) AS is_standing
    FROM TUMBLE(stops, ts, INTERVAL '1' MINUTE) GROUP BY window_start, window_end, vid
  )
  WHERE is_standing GROUP BY ALL HAVING count(*) >= 2
)
EMIT ON WINDOW CLOSE;

-- R7: seen from the segments before it.
CREATE STREAMING TABLE ahead WITH (partition = '1 hour') AS
SELECT xway, dir, seg - away * (1 - 2 * dir) AS seg, arg_min(seg, away) AS accident
FROM RECENT(accidents, INTERVAL '30' SECOND), range(0, 5) AS zone(away)
GROUP BY xway, dir, seg - away * (1 - 2 * dir)
EVERY INTERVAL '1' MINUTE;

-- R2: reports from a segment that the car was not in before.
CREATE STREAMING TABLE crossings WITH (partition = '10 minutes') AS
SELECT vid, xway, dir, seg, lane,
       coalesce(PREV(xway) = xway AND PREV(dir) = dir AND PREV(ts) >= ts - INTERVAL '1' MINUTE, false) AS continues
FROM RECENT(reports, rows => 2, partition_by => vid)
WHERE ts = now() AND coalesce(PREV(seg) <> seg OR PREV(xway) <> xway OR PREV(dir) <> dir
               OR PREV(ts) < ts - INTERVAL '1' MINUTE, true)
EVERY ROW;

-- R5, R7: toll and accident notifications; those in lane 4 are for the books only.
CREATE STREAMING TABLE entries WITH (partition = '10 minutes') AS
SELECT c.vid, c.xway, c.seg, c.lane, c.continues, coalesce(s.lav, 0) AS lav, a.accident,
       CASE WHEN c.lane <> 4 AND a.accident IS NULL AND s.lav < 40 AND s.cars > 50
            THEN 2 * (s.cars - 50) * (s.cars - 50) ELSE 0 END AS toll
FROM crossings AS c
LEFT JOIN conditions AS s
  ON s.xway = c.xway AND s.dir = c.dir AND s.seg = c.seg AND s.ts > c.ts - INTERVAL '1' MINUTE
LEFT JOIN ahead AS a
  ON a.xway = c.xway AND a.dir = c.dir AND a.seg = c.seg AND a.ts > c.ts - INTERVAL '1' MINUTE
EVERY ROW;

-- R8: who enters the next segment pays for the one he leaves.
CREATE STREAMING TABLE charges WITH (partition = '10 minutes') AS
SELECT vid, PREV(toll) AS toll
FROM RECENT(entries, rows => 2, partition_by => vid) WHERE ts = now() AND continues AND PREV(toll) > 0
EVERY ROW;
CREATE INDEX charges_by_vid ON charges (vid);

CREATE STREAMING TABLE balances WITH (partition = '1 hour') AS
SELECT r.qid, CAST(coalesce(sum(c.toll), 0) AS BIGINT) AS balance  -- as of the second before
FROM balance_requests AS r LEFT JOIN charges AS c ON c.vid = r.vid AND c.ts < r.ts
GROUP BY r.qid
EVERY ROW;

-- R9
CREATE STREAMING TABLE expenditures WITH (partition = '1 hour') AS
SELECT r.qid, CAST(coalesce(sum(d.toll), 0) AS BIGINT) AS expenditure
FROM expenditure_requests AS r
LEFT JOIN daily_tolls AS d ON d.vid = r.vid AND d.day = r.day AND d.xway = r.xway
GROUP BY r.qid
EVERY ROW;
