"""The windows of newest rows, against a recomputation row by row."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tidemill.digests.arrays import NotPackable
from tidemill.types import Column, SqlType
from tidemill.views.kept import holding, newest
from tidemill.views.kept.coding import IndexedCodes, JoinedCodes, Run, codes_for
from tidemill.views.kept.holding import Numbers
from tidemill.views.kept.newest import NewestRows, alone, rows_held
from tidemill.views.kept.tagging import ROW, TIME

SCHEMA = pa.schema(
    [
        pa.field("ts", pa.timestamp("us"), nullable=False),
        pa.field("vid", pa.int32()),
        pa.field("lane", pa.string()),
        pa.field("_seq", pa.int64(), nullable=False),
    ]
)
KINDS = {"vid": "INTEGER", "lane": "VARCHAR"}
Row = dict[str, Any]


def columns(*names: str) -> list[Column]:
    return [Column(name, SqlType.parse(KINDS[name])) for name in names]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with duckdb.connect() as connection:
        connection.execute("SET arrow_lossless_conversion = true")
        connection.execute("SET threads = 1")

        def answer(sql: str, sources: Mapping[str, pa.Table]) -> pa.Table:
            for name, table in sources.items():
                connection.register(name, table)
            return connection.sql(sql).to_arrow_table()

        yield answer


def rows_of(random_: random.Random, count: int, lateness: int) -> list[Row]:
    return [
        {
            "ts": 10 * number - random_.randrange(lateness + 1),
            "vid": random_.choice([1, 2, 3, None]),
            "lane": random_.choice(["a", "b"]),
            "_seq": number,
        }
        for number in range(1, count + 1)
    ]


def table_of(rows: list[Row]) -> pa.Table:
    columns = {name: [row[name] for row in rows] for name in SCHEMA.names}
    times = pa.array(columns["ts"], pa.int64()).view(pa.timestamp("us"))
    arrays = [times, *(pa.array(columns[n], SCHEMA.field(n).type) for n in SCHEMA.names[1:])]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


class FailingCodes(IndexedCodes):
    """Meets a key that it cannot hold, with the third rows it is given."""

    calls = 0

    def find(self, rows: pa.Table) -> Numbers:
        self.calls += 1
        if self.calls == 3:
            raise NotPackable("two texts of one hash")
        return super().find(rows)


def check_order(windows: pa.Table) -> None:
    """The rows of a window stand together, the oldest first."""
    of = windows.column(ROW).to_pylist()
    stretches = [row for row, before in zip(of, [None, *of], strict=False) if row != before]
    assert len(stretches) == len(set(of))
    rows = windows.select([ROW, "ts", "_seq"]).to_pylist()
    for before, after in pairwise(rows):
        if before[ROW] == after[ROW]:
            assert (before["ts"], before["_seq"]) < (after["ts"], after["_seq"])


def wanted(rows: list[Row], new: list[Row], key: tuple[str, ...], count: int) -> set[Any]:
    found = set()
    for row in new:
        before = [
            each
            for each in rows
            if each["_seq"] <= row["_seq"]
            and each["ts"] <= row["ts"]
            and all(each[name] == row[name] for name in key)
        ]
        before.sort(key=lambda each: (each["ts"], each["_seq"]))
        found |= {(row["_seq"], each["_seq"]) for each in before[-count:]}
    return found


@pytest.mark.parametrize("steps_max", [newest.STEPS_MAX, 1])
@pytest.mark.parametrize("codes", ["indexed", "joined", "packed until the third batch"])
@pytest.mark.parametrize("seed", range(16))
def test_windows_are_what_they_would_be_row_by_row(
    seed: int, codes: str, steps_max: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "PIECE_ROWS", 8)
    monkeypatch.setattr(newest, "STEPS_MAX", steps_max)
    if codes == "joined":
        monkeypatch.setattr(newest, "codes_for", JoinedCodes)
    elif codes != "indexed":
        monkeypatch.setattr(newest, "codes_for", lambda key, _: FailingCodes(key))
    random_ = random.Random(seed)
    key = random_.choice([(), ("vid",), ("vid", "lane")])
    count = random_.choice([1, 2, 4])
    rows = rows_of(random_, 90, random_.choice([0, 0, 25, 300]))
    asked = []

    def older(until_us: int, seq: int) -> pa.Table:
        asked.append(seq)
        return table_of([row for row in rows if row["ts"] <= until_us and row["_seq"] <= seq])

    remembered = NewestRows(columns(*key), "ts", count, run, older)
    at = random_.randrange(30)
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in sorted(rows[:at], key=lambda each: (each["ts"], each["_seq"])):
        groups[tuple(row[name] for name in key)].append(row)
    remembered.begin(
        table_of([row for group in groups.values() for row in group[-rows_held(count) :]])
    )
    while at < len(rows):
        step = random_.randrange(1, random_.choice([2, 5, 25]))
        new = rows[at : at + step]
        found = remembered.windows(table_of(new))
        pairs = list(
            zip(found.column(ROW).to_pylist(), found.column("_seq").to_pylist(), strict=True)
        )
        assert len(set(pairs)) == len(pairs)
        assert set(pairs) == wanted(rows, new, key, count)
        check_order(found)
        by_seq = {row["_seq"]: row["ts"] for row in rows}
        times = found.column(TIME).combine_chunks().view(pa.int64()).to_pylist()
        assert times == [by_seq[seq] for seq, _ in pairs]
        at += step
        groups_now = {tuple(row[name] for name in key) for row in rows[:at]}
        assert remembered.rows <= len(groups_now) * rows_held(count)


def test_a_late_row_does_not_hide_those_that_were_dropped(run: Run) -> None:
    times = [5, 10, 11, 12, 3, 6]  # one key; windows of two rows, of which three are held
    rows = [{"ts": t, "vid": 1, "lane": "a", "_seq": n} for n, t in enumerate(times, 1)]

    def older(until_us: int, seq: int) -> pa.Table:
        return table_of([row for row in rows if row["ts"] <= until_us and row["_seq"] <= seq])

    remembered = NewestRows(columns("vid"), "ts", 2, run, older)
    remembered.begin(table_of(rows[1:4]))
    for at in (4, 5):
        found = remembered.windows(table_of(rows[at : at + 1]))
        pairs = zip(found.column(ROW).to_pylist(), found.column("_seq").to_pylist(), strict=True)
        assert set(pairs) == wanted(rows, rows[at : at + 1], ("vid",), 2)
        assert remembered.rows == 3


def test_rows_in_order_never_ask_the_stream(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "PIECE_ROWS", 16)

    def older(until_us: int, seq: int) -> pa.Table:
        raise AssertionError("the stream was asked")

    rows = rows_of(random.Random(1), 200, 0)
    remembered = NewestRows(columns("vid"), "ts", 2, run, older)
    remembered.begin(table_of([]))
    for at in range(0, 200, 10):
        remembered.windows(table_of(rows[at : at + 10]))
        held = remembered._held
        assert remembered.rows <= 4 * 3
        assert sum(len(piece) for piece in held._pieces) <= 2 * 4 * 3 + 10
        assert len(held.codes.array) <= 4 * 3 + 10


@pytest.mark.parametrize("kind", ["DECIMAL(9,2)", "BLOB", "UUID", "DOUBLE", "HUGEINT"])
def test_keys_of_any_type_are_numbered(run: Run, kind: str) -> None:
    codes = codes_for([Column("key", SqlType.parse(kind))], run)
    values = {"BLOB": "chr(65 + n)::BLOB", "UUID": "md5(n::VARCHAR)::UUID"}
    value = values.get(kind, f"(n - 3)::{kind}")

    def rows(low: int, high: int) -> pa.Table:
        select = f"SELECT if(n = 2, NULL, {value}) AS key, 100 - i AS _seq FROM "
        source = f"(SELECT i, (i % 7)::INTEGER AS n FROM range({low}, {high}) t(i))"
        return run(select + source, {})

    first, second = codes.find(rows(0, 12)), codes.find(rows(4, 20))
    assert len(set(first)) == 7
    assert list(first[:5]) == list(first[7:])
    assert list(second[:8]) == list(first[4:])
    assert set(second) == set(first)


def test_rows_without_a_window_stand_alone() -> None:
    rows = rows_of(random.Random(2), 3, 0)
    found = alone(table_of(rows), "ts")
    assert found.column(ROW).to_pylist() == [1, 2, 3]
    assert found.column(TIME) == found.column("ts")
