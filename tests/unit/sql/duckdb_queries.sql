select vid, count(*) filter (where spd > 3) c from t group by all order by all
select distinct on (vid) vid, spd from t order by vid, spd desc
select * exclude (l, st, m, j) replace (spd + 1 as spd) from t order by ts limit 3
select columns('v.*|spd') from t order by all limit 3
select min(columns(* exclude (l,st,m,j))) from t
select t.vid, u.q from t asof join u on t.vid = u.vid and t.ts >= u.ts order by all
select * from (pivot t on vid using sum(spd) group by s) order by s
pivot t on s using count(*), sum(spd) group by vid order by vid
select * from (unpivot (select 1 a, 2 b) on a, b into name n value v)
from t select vid where spd > 5 order by vid
select list_transform(l, lambda x: x * 2) from t order by ts limit 2
select list_filter(l, lambda x: x > 3), list_reduce(l, lambda a, b: a + b) from t order by ts limit 3
select [x * 2 for x in l if x > 1] from t order by ts limit 3
select st.a, st['b'], m['k'], l[1], l[-1], l[1:2], l[:1], l[2:], j->>'a', j->'$.a' from t order by ts limit 2
select unnest(l) from t order by 1 limit 3
select unnest(st) from t order by 1 limit 3
select unnest([{'a': 1, 'b': [1,2]}], recursive := true)
select vid, row_number() over (partition by vid order by ts) rn from t qualify rn = 1 order by vid
select sum(spd) over w from t window w as (partition by vid order by ts rows between 1 preceding and current row exclude ties) order by 1
select sum(spd) over (order by ts range between interval 5 seconds preceding and current row) from t order by 1
select first_value(spd ignore nulls) over (order by ts), lag(spd, 2, 0) over (order by ts), nth_value(spd, 2) over (order by ts) from t order by all
select vid, s, grouping(vid), sum(spd) from t group by grouping sets ((vid), (s), ()) order by all
select vid, s, sum(spd) from t group by cube (vid, s) order by all
select vid, s, sum(spd) from t group by rollup (vid, s) order by all
with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select * from r order by n
with x as materialized (select 1 a) select * from x
select * from t semi join u using (vid) order by ts
select * from t anti join u on t.vid = u.vid order by ts
select * from u positional join (select 1 as z)
select * from u, lateral (select u.q + 1 as w) order by all
select (select max(spd) from t where t.vid = u.vid) from u order by 1
select vid from t where vid = any (select vid from u) group by vid order by 1
select vid from t where (vid, s) in (select vid, s from t where spd > 20) group by all order by 1
select 1 as a union by name select 2 as b
select vid from t intersect all select vid from u order by 1
select arg_max(s, spd), max_by(s, spd), mode(vid), median(spd), quantile_cont(spd, 0.5), approx_count_distinct(vid), string_agg(s, ',' order by ts), list(vid order by ts), histogram(vid) from t
select bool_and(vid > 0), bit_or(vid), stddev_samp(spd), corr(spd, vid), first(s order by ts), any_value(1), count(distinct s), sum(distinct vid), product(1), entropy(vid), kurtosis(spd), skewness(spd) from t
select date_trunc('minute', ts), extract(epoch from ts), date_part('hour', ts), strftime(ts, '%Y-%m'), ts::date, epoch_ms(ts), date_diff('second', ts, timestamp '2024-01-02'), time_bucket(interval '5 seconds', ts), ts + interval 1 hour, age(timestamp '2024-01-02', ts), dayname(ts), last_day(ts), strptime('2024-01-01', '%Y-%m-%d'), make_date(2024,1,2), make_timestamp(1), to_timestamp(1), epoch_us(ts), datesub('minute', ts, timestamp '2024-01-03') from t order by ts limit 1
select coalesce(null, 1), nullif(1, 1), ifnull(null, 2), greatest(1, 2), least(1, 2), case vid when 1 then 'a' else 'b' end, if(vid = 1, 2, 3) from t order by ts limit 2
select 5 // 2, 5 % 3, 2 ** 3, 2 ^ 3, 5 / 2, -5 % 3, 5 & 3, 5 | 3, xor(5, 3), 1 << 3, ~5, @(-5)
select 'a' || 'b', 'abc' like 'a%', 'abc' ilike 'A%', 'abc' similar to 'a.*', 'abc' ~ 'a.c', regexp_matches('abc', 'b'), regexp_replace('abc', 'b', 'x', 'g'), regexp_extract('a1b', '([0-9])', 1), 'abc' glob 'a*', 'a%c' like 'a$%c' escape '$', starts_with('abc', 'a'), 'abc'[2], 'abc'[1:2], substring('abc', 2), split_part('a,b', ',', 2), printf('%d', 5), format('{}', 5), lpad('a', 3, 'x'), trim(both 'x' from 'xax'), position('b' in 'abc'), concat_ws(',', 'a', 'b'), string_split('a b', ' '), md5('a'), levenshtein('a', 'b'), chr(65), ascii('a'), hash('a')
select try_cast('x' as int), cast('5' as hugeint), '5'::uinteger, 1::bit, 'a'::blob, '\xAA'::blob, uuid() is not null, 1.5::decimal(5,1), 'NaN'::float, x'ab'
select struct_pack(a := 1, b := 'x'), row(1, 2), {'a': {'b': 1}}.a.b, map([1,2],['a','b']), map_keys(map{'a':1}), list_value(1,2), range(5), generate_series(1, 3), list_sort([3,1]), struct_extract({'a': 1}, 'a'), list_contains([1], 1), [1,2] || [3], len([1]), array_length([1]), list_zip([1],[2]), flatten([[1]]), union_value(k := 1), array_value(1,2)::int[2]
select * from range(3) r(i), generate_series(1, 2) g(j) order by all
select * from (values (1, 'a'), (2, 'b')) v(x, y)
select t.* from t using sample 100 percent (bernoulli) order by ts
select vid from t order by vid nulls first, ts desc limit 50%
select vid from t order by vid limit 3 offset 2
select typeof(interval '1' day), interval '1 day 2 hours', interval 5 minute, interval '1.5 hours', interval '90' second
select exists (select 1 from u), not exists (from u where false), vid in (1, 2), vid not in (1, 2), vid between 1 and 2, vid is distinct from 1, vid is not null, s is null from t order by ts limit 1
select json_extract(j, '$.a'), j.a, json_extract_string(j, 'a'), json_array_length('[1]'), to_json(st), json_keys(j), '{"a": [1]}'::json->'a'->0 from t order by ts limit 1
select "vid", 'it''s', E'a\nb', $$x'y$$, $tag$ a $tag$ from t order by ts limit 1
select a: 1, b: 'x'
select s, count(*) as "n n" from t group by s having count(*) > 1 order by "n n", s
select vid::varchar || s as k, k || 'x' as k2 from t where k2 like '0%' order by ts limit 2
select max(vid, 2), min(spd, 2), arg_min(s, spd, 2) from t
select list_aggregate([1,2], 'sum'), apply([1], lambda x: x), list_apply([1,2], lambda x, i: x + i)
select ts at time zone 'UTC', timestamptz '2024-01-01 00:00:00+02' at time zone 'America/New_York', timezone('UTC', ts) from t order by ts limit 1
select #1 from (select vid from t) order by #1 limit 1
summarize u
select date '2024-01-31' + interval 1 month, date '2024-01-01' - date '2023-01-01', timestamp '2024-01-01' - timestamp '2023-12-31', time '10:00:00'
select * from t where ts between '2024-01-01 00:00:02' and '2024-01-01 00:00:04' order by ts
select isodow(ts), week(ts), quarter(ts), yearweek(ts), date_add(date '2024-01-01', interval 1 day), date_sub('day', date '2024-01-01', date '2024-01-05'), datetrunc('day', ts), century(ts), julian(ts) from t order by ts limit 1
select * like 's%' from t order by 1 limit 1
select * rename (vid as v) from u order by all limit 1
select sum(x) filter (x > 1) from (values (1), (2)) z(x)
select list_sum([1,2]), list_distinct([1,1]), list_position([1,2], 2), list_slice([1,2,3],1,2), array_to_string(['a'],','), list_has_any([1],[1])
select ordinality from unnest([1,2]) with ordinality
select (1, 2) = (1, 2), row(1,2) < row(2,1), [1,2] = [1,2], {'a':1} = {'a':1}, {'a': 1}::row(a bigint)
select pi(), round(1.567, 2), floor(1.5), ceil(1.2), trunc(1.7), sign(-1), sqrt(4), ln(1), log(10), log2(8), exp(0), power(2,3), mod(5,3), gcd(4,6), even(3), factorial(4), isnan('nan'::double), degrees(1)
