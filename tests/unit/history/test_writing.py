"""Files: what is in which, in which order, and what the catalog is told about them."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import pickle
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from history_kit import HOUR_US, LEAVES, NOW_US, build, make_batch, make_table, some_uuid, write
from scans import scan_sql

from tidemill.catalog.model import FILE_DELETES, FILE_LATE, FILE_REJECTED, NewFile
from tidemill.errors import DiskFullError, DurabilityError
from tidemill.history import open_file, parquet, writing
from tidemill.history.storage import Storage
from tidemill.history.window import Window
from tidemill.history.writing import (
    WriteSpec,
    write_deletes,
    write_in_time,
    write_rows,
    write_side,
)
from tidemill.stream.relation import side_sql
from tidemill.types import SqlType, literal

Duck = duckdb.DuckDBPyConnection
BY_K = make_table([("k", "BIGINT")], [("k",)])


def rows_of(duck: Duck, storage: Storage, table: Any, *files: NewFile) -> list[Any]:
    return duck.execute(
        "SELECT epoch_us(ts), * EXCLUDE (ts) "
        f"FROM ({scan_sql(storage, table, files, with_seq=True)})"
    ).fetchall()


def test_rows_go_to_their_partitions(storage: Storage, duck: Duck) -> None:
    times = [NOW_US + hour * HOUR_US + at for at in range(5) for hour in (2, 0, 1)]
    batch = make_batch(BY_K, [(time, at % 4) for at, time in enumerate(times)], first_seq=100)
    files = write(storage, BY_K, batch.slice(0, 7), batch.slice(7), job_id="j-1")
    assert [file.path for file in files] == [
        "1/20231114T220000Z/j-1-0.parquet",
        "1/20231114T230000Z/j-1-1.parquet",
        "1/20231115T000000Z/j-1-2.parquet",
    ]
    for hour, file in enumerate(files):
        found = rows_of(duck, storage, BY_K, file)
        low = NOW_US + hour * HOUR_US
        assert (file.lo_us, file.hi_us) == (low, low + HOUR_US)
        assert (file.time_min_us, file.time_max_us) == (low, low + 4)
        assert (file.rows, file.row_groups, file.origin, file.kind) == (5, 1, "load", "rows")
        seqs = [seq for *_, seq in found]
        assert (file.seq_min, file.seq_max) == (min(seqs), max(seqs))
        assert sorted(seqs) == [100 + at for at, time in enumerate(times) if low <= time < low + 5]
        assert file.bytes == Path(storage.place(file.path)).stat().st_size
        assert file.ranges == {"k": (min(k for _, k, _ in found), max(k for _, k, _ in found))}


def test_rows_are_ordered_by_index_then_time_then_arrival(storage: Storage, duck: Duck) -> None:
    chance = random.Random(7)
    rows = [(NOW_US + chance.randrange(9), chance.choice([1, 2, 3, None])) for _ in range(200)]
    (file,) = write(storage, BY_K, make_batch(BY_K, rows))
    found = rows_of(duck, storage, BY_K, file)
    assert found == sorted(found, key=lambda row: (row[1] is None, row[1] or 0, row[0], row[2]))


def test_without_an_index_the_primary_key_orders_rows_and_else_time() -> None:
    columns = [("a", "BIGINT"), ("b", "BIGINT")]
    keyed = WriteSpec.of(make_table(columns, primary_key=("b", "ts")))
    assert keyed.cluster == ("b",)
    assert keyed.ranged == ("b",)
    assert not keyed.filtered
    assert WriteSpec.of(make_table(columns)).cluster == ()
    both = WriteSpec.of(make_table(columns, [("A", "b")], primary_key=("ts", "b")))
    assert both.cluster == ("a", "b")
    assert both.filtered == {"b"}


@pytest.mark.parametrize("time_type", ["TIMESTAMP", "TIMESTAMP WITH TIME ZONE"])
def test_times_far_and_near(storage: Storage, duck: Duck, time_type: str) -> None:
    times = [
        -62_135_596_800_000_000,
        253_402_300_799_999_999,
        -1,
        0,
        2**63 - 1,
        1 - 2**63,
        -200_000_000_000_000_000,
    ]
    table = make_table([("k", "BIGINT")], time_type=time_type)
    files = write(storage, table, make_batch(table, [(time, 1) for time in times]))
    assert [file.time_min_us for file in files] == sorted(times)
    assert all(file.lo_us <= file.time_min_us <= file.hi_us for file in files)
    found = duck.execute(
        f"SELECT ts = 'infinity', ts = '-infinity', epoch_us(ts) "
        f"FROM ({scan_sql(storage, table, files)}) WHERE isfinite(ts) ORDER BY 3"
    ).fetchall()
    assert [row[2] for row in found] == sorted(times)[1:-1]


def test_hundreds_of_partitions(storage: Storage, duck: Duck) -> None:
    times = [NOW_US + (at * 7919 % 300) * HOUR_US for at in range(1_200)]
    batch = make_batch(BY_K, [(time, at) for at, time in enumerate(times)])
    joined = write(storage, BY_K, batch)
    assert len(joined) == 14  # a file for each day
    assert sum(file.rows for file in joined) == 1_200
    files = write(storage, BY_K, batch, range_us_max=0)
    assert len(files) == 300
    assert sorted(rows_of(duck, storage, BY_K, *files), key=lambda row: row[2]) == [
        (time, at, at + 1) for at, time in enumerate(times)
    ]


def test_large_partitions_are_cut_between_keys_in_order(storage: Storage) -> None:
    rows = [(NOW_US + at, at * 7919 % 1_000) for at in range(1_000)]
    files = write(
        storage, BY_K, make_batch(BY_K, rows), file_rows_max=400, row_group_rows=100, job_id="x"
    )
    assert [(f.rows, f.row_groups) for f in files] == [(400, 4), (400, 4), (200, 2)]
    assert [f.ranges["k"] for f in files] == [(0, 399), (400, 799), (800, 999)]


def test_memory_has_a_bound(storage: Storage, duck: Duck, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "PORTION_BYTES_MAX", 1_000)
    batch = make_batch(BY_K, [(NOW_US + at, at) for at in range(100)])
    files = write(storage, BY_K, *(batch.slice(at, 10) for at in range(0, 100, 10)))
    assert [file.rows for file in files] == [40, 40, 20]
    assert len({file.path for file in files}) == 3
    assert len(rows_of(duck, storage, BY_K, *files)) == 100


def test_nothing_makes_no_file(storage: Storage) -> None:
    assert write(storage, BY_K) == []
    assert write(storage, BY_K, make_batch(BY_K, [])) == []
    assert list(storage.list()) == []


def test_numbers_go_on_and_the_connection_is_kept(storage: Storage, duck: Duck) -> None:
    batch = make_batch(BY_K, [(NOW_US, 1)])
    (file,) = write_rows(storage, WriteSpec.of(BY_K), [batch], "j", 7, "move", duck)
    assert file.path.endswith("/j-7.parquet")
    assert file.origin == "move"
    assert duck.execute("SELECT 1").fetchall() == [(1,)]


def test_columns_of_other_names_are_a_bug(storage: Storage) -> None:
    batch = pa.RecordBatch.from_pydict({"ts": [1], "b": [1], "_seq": [1]})
    with pytest.raises(AssertionError):
        write(storage, BY_K, batch)


def test_a_specification_travels() -> None:
    spec = WriteSpec.of(make_table([("k", "BIGINT"), ("s", "STRUCT(a HUGEINT)")], [("k",)]))
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "1").touch()
    with pytest.raises(DurabilityError, match="could not be written"):
        write(Storage(str(tmp_path)), BY_K, make_batch(BY_K, [(NOW_US, 1)]))


def test_a_full_disk(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(open_file, "write_groups", full)
    with pytest.raises(DiskFullError):
        write(storage, BY_K, make_batch(BY_K, [(NOW_US, 1)]))


def test_deletes(storage: Storage, duck: Duck) -> None:
    spec = WriteSpec.of(BY_K)
    file = write_deletes(storage, spec, NOW_US, NOW_US + HOUR_US, [9, 3, 9, 5], "j", 2, "move")
    assert (file.kind, file.rows, file.seq_min, file.seq_max) == (FILE_DELETES, 3, 3, 9)
    found = duck.execute(f"FROM read_parquet({literal(storage.place(file.path))})").fetchall()
    assert found == [(3,), (5,), (9,)]


def test_rows_set_aside(storage: Storage, duck: Duck) -> None:
    tail = [pa.field("_reason", pa.string()), pa.field("_at", pa.timestamp("us"))]
    times = build(pa.timestamp("us"), [NOW_US, NOW_US + 24 * HOUR_US])
    reasons = pa.array(["late", "late"])
    late = pa.RecordBatch.from_arrays(
        [times, pa.array([1, 2]), reasons, times], schema=pa.schema([*BY_K.schema, *tail])
    )
    files = write_side(storage, BY_K, FILE_LATE, [late, late], [5, 7], "j", 0, "move")
    assert [(f.kind, f.rows, f.seq_min, f.seq_max, f.hi_us - f.lo_us) for f in files] == [
        (FILE_LATE, 2, 5, 7, 24 * HOUR_US)
    ] * 2
    found = duck.sql(side_sql(storage, BY_K, FILE_LATE, files))
    assert found.columns == ["ts", "k", "_reason", "_at"]
    assert len(found.fetchall()) == 4
    texts = build(pa.json_(), ['{"a": 1}'])
    rejected = pa.RecordBatch.from_arrays(
        [texts, reasons[:1], times[:1]], schema=pa.schema([pa.field("_row", pa.json_()), *tail])
    )
    files = write_side(storage, BY_K, FILE_REJECTED, [rejected], [9], "j", 2, "move")
    found = duck.sql(side_sql(storage, BY_K, FILE_REJECTED, files))
    assert [str(kind) for kind in found.types] == ["JSON", "VARCHAR", "TIMESTAMP"]
    assert found.fetchall()[0][:2] == ('{"a": 1}', "late")


VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "VARCHAR": ["", "a", "é" * 100, "\x00"],
    "BLOB": [b"", b"a", b"\xff" * 100],
    "UUID": [some_uuid(0), some_uuid(2**127), some_uuid(2**128 - 1)],
    "FLOAT": [0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf")],
    "DOUBLE": [0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf")],
    "DATE": [0, -1, 2**31 - 1],
    "TIME": [0, 86_400_000_000],
    "TIMESTAMP": [0, -1, 2**63 - 1, NOW_US],
    "TIMESTAMP WITH TIME ZONE": [0, -1, 1 - 2**63, NOW_US],
}
BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}


def values_of_index(kind: str) -> list[Any]:
    if kind in BITS:
        return [-(2 ** (BITS[kind] - 1)), -1, 0, 1, 2 ** (BITS[kind] - 1) - 1]
    if kind.removeprefix("U") in BITS:
        return [0, 1, 2 ** BITS[kind[1:]] - 1]
    if kind.startswith("DECIMAL"):
        return [None, *(pa.scalar(text).cast(pa.decimal128(38, 10)).as_py() for text in ("0", "1"))]
    return VALUES[kind]


@pytest.mark.parametrize("is_repeated", [False, True], ids=["once", "repeated"])
@pytest.mark.parametrize(
    "kind", [k for k in LEAVES if k not in ("HUGEINT", "UHUGEINT", "INTERVAL", "JSON")]
)
def test_filters_of_files_lose_nothing(
    storage: Storage, duck: Duck, kind: str, is_repeated: bool
) -> None:
    """Statistics and bloom filters agree with what SQL calls equal, less and greater."""
    table = make_table([("c", kind)], [("ts",), ("c",)])
    arrow = SqlType(kind).arrow
    values = values_of_index(kind)
    if pa.types.is_decimal(arrow):
        values = [None if v is None else round(v, arrow.scale) for v in values]
    files, held = [], []
    for at, value in enumerate(values):  # one or two in a file, so that every filter is sharp
        for part in ([value], [value, values[at - 1]]):
            rows = [(NOW_US, v) for v in [*part * (100 if is_repeated else 1), None]]
            job_id = f"j{at}-{len(part)}"
            files += write(storage, table, make_batch(table, rows), job_id=job_id)
            held += [v for _, v in rows]
    given = build(arrow, held)
    whole = pa.table({"c": given})  # noqa: F841  (DuckDB finds it by name)
    constants = duck.sql("SELECT DISTINCT CAST(c AS VARCHAR) FROM whole WHERE c IS NOT NULL")
    for (text,) in constants.fetchall():
        for op in ("=", "<", "<=", ">", ">=", "<>"):
            test = f"c {op} CAST({literal(text)} AS {kind})"
            expected = duck.execute(f"SELECT count(*) FROM whole WHERE {test}").fetchall()
            scan = scan_sql(storage, table, files)
            assert (
                duck.execute(f"SELECT count(*) FROM ({scan}) WHERE {test}").fetchall() == expected
            )


def layout(storage: Storage, duck: Duck, file: NewFile, name: str) -> tuple[Any, ...]:
    return duck.execute(
        "SELECT any_value(encodings), count(bloom_filter_offset), count(stats_min_value) "
        f"FROM parquet_metadata({literal(storage.place(file.path))}) WHERE path_in_schema = ?",
        [name],
    ).fetchall()[0]


def test_how_columns_are_laid_out(storage: Storage, duck: Duck) -> None:
    columns = [("k", "BIGINT"), ("s", "VARCHAR"), ("few", "INTEGER"), ("f", "DOUBLE")]
    table = make_table([*columns, ("g", "DOUBLE")], [("k",), ("s",), ("f",)])
    rows = [(NOW_US + at, at, f"s{at}", at % 3, at / 7, float("nan")) for at in range(5_000)]
    (file,) = write(storage, table, make_batch(table, rows), row_group_rows=1_000)
    assert file.row_groups == 5
    assert layout(storage, duck, file, "ts") == ("RLE, DELTA_BINARY_PACKED", 0, 5)
    assert layout(storage, duck, file, "k") == ("RLE, DELTA_BINARY_PACKED", 0, 5)
    assert layout(storage, duck, file, "s")[1:] == (5, 5)
    assert "RLE_DICTIONARY" in layout(storage, duck, file, "few")[0]
    assert layout(storage, duck, file, "f") == ("RLE, PLAIN", 0, 5)
    assert layout(storage, duck, file, "g") == ("RLE, PLAIN", 0, 0)


def test_a_name_with_a_dot_is_no_path(storage: Storage, duck: Duck) -> None:
    """The writer's options know columns by dotted paths: these two have the same."""
    table = make_table([("a.b", "BIGINT"), ("a", "STRUCT(b DOUBLE)")], [("a.b",)])
    rows = [(NOW_US, at, (value,)) for at, value in enumerate((1.0, float("nan")))]
    (file,) = write(storage, table, make_batch(table, rows))
    scan = scan_sql(storage, table, [file])
    found = duck.execute(f'SELECT "a.b" FROM ({scan}) WHERE a.b > 5').fetchall()
    assert found == [(1,)]


def test_bloom_filters_have_the_size_of_what_is_in_a_row_group() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, 2, 2, 3, 4], "b": ["x"] * 5, "c": [1.0] * 5})
    assert parquet.layout_of(batch, ("a", "b", "c"), (3, 5)).blooms == {"a": 2, "b": 1}


def test_rows_of_several_partitions_can_be_brought_into_one(storage: Storage) -> None:
    day = NOW_US // (24 * HOUR_US) * 24 * HOUR_US
    spec = dataclasses.replace(WriteSpec.of(BY_K), bounds=(day, day + 24 * HOUR_US))
    batch = make_batch(BY_K, [(NOW_US, 1), (NOW_US + HOUR_US, 2)])
    (file,) = write_rows(storage, spec, [batch], "j", 0, "compact")
    assert (file.lo_us, file.hi_us, file.rows) == (day, day + 24 * HOUR_US, 2)
    with pytest.raises(AssertionError):
        write_rows(storage, dataclasses.replace(spec, bounds=(0, 1)), [batch], "j", 0, "compact")


def in_time(storage: Storage, table: Any, rows: list[Any], size: int, **more: Any) -> list[NewFile]:
    """Write rows in portions of so many."""
    bounds = rows[0][0], rows[-1][0] + 1
    spec = dataclasses.replace(WriteSpec.of(table), bounds=bounds, **more)
    whole = make_batch(table, rows)
    portions = [[whole.slice(at, size)] for at in range(0, len(rows), size)]
    return write_in_time(storage, spec, portions, len(rows), whole.nbytes, "j", "compact")


def test_portions_of_growing_time_become_one_file(storage: Storage, duck: Duck) -> None:
    """Whatever only later portions hold: NULLs, NaN, other values."""
    columns = [("k", "BIGINT"), ("s", "VARCHAR"), ("f", "DOUBLE"), ("h", "HUGEINT")]
    table = make_table([*columns, ("t", "VARCHAR")], [("k",), ("s",)])
    rows = [(NOW_US + at, at * 7919 % 1_000, "same", 1.0, 2**100, "x") for at in range(600)]
    rows += [(NOW_US + at, None, None, float("nan"), -at, None) for at in range(600, 700)]
    rows += [(NOW_US + at, -at, "other", 2.0, None, "y") for at in range(700, 1_000)]
    rows += [
        (NOW_US + at, -at, None, 2.0, None, "y" if at % 2 else None) for at in range(1_000, 1_100)
    ]
    (file,) = in_time(storage, table, rows, 200, row_group_rows=100)
    assert (file.rows, file.row_groups) == (1_100, 11)
    assert (file.time_min_us, file.time_max_us) == (NOW_US, NOW_US + 1_099)
    assert (file.seq_min, file.seq_max) == (1, 1_100)
    assert file.ranges == {"k": (-1_099, 999), "s": ("other", "same")}
    scan = scan_sql(storage, table, [file], with_seq=True)
    found = duck.execute(f"SELECT epoch_us(ts), * EXCLUDE (ts) FROM ({scan}) ORDER BY _seq")
    assert repr(found.fetchall()) == repr([(*row, at) for at, row in enumerate(rows, 1)])
    for test, count in (
        ("f > 5", 100),
        ("s IS NULL", 200),
        ("t IS NULL", 150),
        ("s = 'same'", 600),
        ("k < -1000", 99),
    ):
        assert duck.execute(f"SELECT count(*) FROM ({scan}) WHERE {test}").fetchall() == [(count,)]
    window = Window(table.columns[0], NOW_US + 350, NOW_US + 420)
    plan = f"EXPLAIN ANALYZE FROM ({scan_sql(storage, table, [file], window=window)})"
    assert "Row Groups Scanned: 4 / 11" in duck.execute(plan).fetchall()[0][1], "two portions"


def test_more_than_a_file_holds_goes_to_several(storage: Storage, duck: Duck) -> None:
    table = make_table([("k", "BIGINT")])
    rows = [(NOW_US + at, at % 7) for at in range(1_000)]
    files = in_time(storage, table, rows, 300, row_group_rows=50, file_rows_max=450)
    assert [file.rows for file in files] == [350, 350, 300]
    assert [file.path.rpartition("-")[2] for file in files] == [f"{at}.parquet" for at in range(3)]
    ends = [(file.time_min_us, file.time_max_us) for file in files]
    assert all(last < first for (_, last), (first, _) in itertools.pairwise(ends))
    assert len(rows_of(duck, storage, table, *files)) == 1_000
    assert in_time(storage, table, rows[:1], 1)[0].rows == 1


def test_no_portion_makes_no_file(storage: Storage) -> None:
    spec = dataclasses.replace(WriteSpec.of(BY_K), bounds=(0, 1))
    assert write_in_time(storage, spec, [[]], 0, 0, "j", "compact") == []


def test_a_file_in_a_full_place_is_let_go(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second portion fails; nothing of the file stays open."""
    made: list[Any] = []
    create = Storage.create

    def noted(self: Storage, path: str) -> Any:
        made.append(create(self, path))
        return made[-1]

    groups = open_file.write_groups

    def full(writer: Any, rows: pa.RecordBatch, ends: Any) -> None:
        if rows.column("_seq")[0].as_py() > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        groups(writer, rows, ends)

    monkeypatch.setattr(Storage, "create", noted)
    monkeypatch.setattr(open_file, "write_groups", full)
    with pytest.raises(DiskFullError):
        in_time(storage, BY_K, [(NOW_US, 1), (NOW_US + 1, 1)], 1)
    assert [file.closed for file in made] == [True]


@pytest.mark.parametrize("kind", ["BIGINT", "VARCHAR", "UUID", "TIMESTAMP"])
def test_keys_that_come_and_go_have_bloom_filters(storage: Storage, duck: Duck, kind: str) -> None:
    """Sessions of a minute, whose numbers tell nothing of their time."""

    def key(number: int) -> Any:
        place = number * 7919 % 10_007
        return {"VARCHAR": f"s{place:05}", "UUID": some_uuid(place)}.get(kind, place)

    table = make_table([("k", kind)], [("k",)])
    rows = [(NOW_US + at * 100_000, key(at // 600 * 10 + at % 10)) for at in range(36_000)]
    (file,) = write(storage, table, make_batch(table, rows))
    assert file.row_groups == 6
    assert layout(storage, duck, file, "k")[1] == 6
    value = "'" + str(make_batch(table, rows[-1:]).column(1)[0]) + "'"
    plan = f"EXPLAIN ANALYZE FROM ({scan_sql(storage, table, [file])}) WHERE k = {value}"
    told = duck.execute(plan).fetchall()[0][1]
    assert "Row Groups Scanned: 1 / 6" in told, told


def test_keys_that_stay_have_none(storage: Storage, duck: Duck) -> None:
    every = [(NOW_US + at * 100_000, at % 10) for at in range(36_000)]
    (file,) = write(storage, BY_K, make_batch(BY_K, every))
    assert (file.row_groups, layout(storage, duck, file, "k")[1]) == (6, 0)
    once = [(time, at * 7919 % 36_007) for at, (time, _) in enumerate(every)]
    (file,) = write(storage, BY_K, make_batch(BY_K, once), job_id="once")
    assert (file.row_groups, layout(storage, duck, file, "k")[1]) == (6, 0), "as large as the keys"
    rising = [(time, at // 100) for at, (time, _) in enumerate(every)]
    (file,) = write(storage, BY_K, make_batch(BY_K, rising), job_id="rising")
    assert (file.row_groups, layout(storage, duck, file, "k")[1]) == (6, 0), "their ranges tell"
    nothing = [(time, None) for time, _ in every]
    (file,) = write(storage, BY_K, make_batch(BY_K, nothing), job_id="nothing")
    assert (file.row_groups, layout(storage, duck, file, "k")[1]) == (6, 0)
