"""One table over memory and files: what is promised does not depend on where a row lies.

Primary keys, rows set aside, sequence numbers, source offsets, newest rows, DROP and retention:
each is looked at before and after FLUSH, compaction and a restart, on each route.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from warehouses import ROUTES, compact, files_of, flush, open_inline, quiet

import tidemill
from tidemill.clock import FakeClock

NOW = dt.datetime(2024, 3, 1, 12)


class Warehouse:
    """A warehouse that can be restarted; ``ask`` asks on every route."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = FakeClock(NOW)
        self.db = open_inline(path, self.clock)

    def restart(self) -> None:
        self.db.close()
        self.db = open_inline(self.path, self.clock)

    def sql(self, text: str) -> str:
        return self.db.sql(text).message

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        answers = []
        for route in ROUTES:
            self.db.sql(f"SET route = '{route}'")
            answers.append(self.db.sql(query).fetchall())
        assert answers[0] == answers[1], query
        return answers[0]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Warehouse]:
    with quiet():
        made = Warehouse(tmp_path / "w")
        yield made
        made.db.close()


def upheavals(house: Warehouse, *tables: str) -> list[tuple[str, Callable[[], Any]]]:
    """What must change no answer, in an order that reaches every state."""
    return [
        ("restarted", house.restart),
        ("flushed", lambda: flush(house.db, *tables)),
        ("restarted after the flush", house.restart),
        ("compacted", lambda: compact(house.db, *tables)),
        ("restarted after the compaction", house.restart),
    ]


def at(seconds: int) -> dt.datetime:
    return NOW + dt.timedelta(seconds=seconds)


# -- primary keys

KEYED = (
    "CREATE STREAMING TABLE t (ts TIMESTAMP, k INT, v INT, PRIMARY KEY (k, ts)) WITH "
    "(on_conflict = '{}', clock = 'event', partition = '10 minutes', hot = '1 second', "
    "move = 'manual')"
)
ALL_KEYS = "SELECT ts, k, v FROM t ORDER BY ts, k"


def test_reject_knows_keys_of_files(house: Warehouse) -> None:
    house.sql(KEYED.format("reject"))
    house.db.append("t", [(at(0), 1, 1), (at(1_000), 1, 2)])
    flush(house.db, "t")
    for _, disturb in upheavals(house, "t"):
        for row in ((at(0), 1, 9), (at(1_000), 1, 9)):
            with pytest.raises(tidemill.TidemillError) as caught:
                house.db.append("t", [row, (at(2_000), 2, 0)])
            assert caught.value.code == "duplicate_key"
        disturb()
    assert house.ask(ALL_KEYS) == [(at(0), 1, 1), (at(1_000), 1, 2)]
    house.db.append("t", (at(0), 2, 3))
    assert house.ask("SELECT count(*) FROM t") == [(3,)]


def test_ignore_keeps_the_first_row_wherever_it_is(house: Warehouse) -> None:
    house.sql(KEYED.format("ignore"))
    house.db.append("t", [(at(0), 1, 1), (at(1_000), 1, 2)])
    flush(house.db, "t")
    wanted = [(at(0), 1, 1), (at(1_000), 1, 2)]
    for number, (state, disturb) in enumerate(upheavals(house, "t")):
        fresh = (at(2_000 + number), 5, number)
        house.db.append("t", [(at(0), 1, 9), fresh, (at(1_000), 1, 9)])
        wanted.append(fresh)
        assert house.ask(ALL_KEYS) == wanted, state
        disturb()
        assert house.ask(ALL_KEYS) == wanted, state


def test_replace_across_the_tiers(house: Warehouse) -> None:
    house.sql(KEYED.format("replace"))
    rows = {(at(60 * n), n % 3): n for n in range(40)}
    house.db.append("t", [(*key, v) for key, v in rows.items()])
    flush(house.db, "t")

    def wanted() -> list[tuple[Any, ...]]:
        return [(*key, v) for key, v in sorted(rows.items())]

    assert house.ask(ALL_KEYS) == wanted()
    for number in range(2):
        for state, disturb in upheavals(house, "t"):
            keys = list(rows)[number :: 7 + number]
            for key in keys:
                rows[key] += 100
            house.db.append("t", [(*key, rows[key]) for key in keys])
            assert house.ask(ALL_KEYS) == wanted(), f"before being {state}, round {number}"
            disturb()
            assert house.ask(ALL_KEYS) == wanted(), f"{state}, round {number}"
            assert house.ask("SELECT count(*), sum(v) FROM t") == [
                (len(rows), sum(rows.values()))
            ], f"{state}, round {number}"


def test_a_key_replaced_twice_in_memory_after_its_first_row_moved(house: Warehouse) -> None:
    house.sql(KEYED.format("replace"))
    house.db.append("t", (at(0), 1, 1))
    flush(house.db, "t")
    house.db.append("t", (at(0), 1, 2))
    house.db.append("t", (at(0), 1, 3))
    assert house.ask(ALL_KEYS) == [(at(0), 1, 3)]
    flush(house.db, "t")
    assert house.ask(ALL_KEYS) == [(at(0), 1, 3)]
    house.db.append("t", (at(0), 1, 4))
    house.restart()
    assert house.ask(ALL_KEYS) == [(at(0), 1, 4)]
    flush(house.db, "t")
    compact(house.db, "t")
    assert house.ask(ALL_KEYS) == [(at(0), 1, 4)]


# -- rows set aside

SIDES = {
    "t$late": "SELECT a, _seq FROM t$late ORDER BY a",
    "t$rejected": "SELECT _row, _reason, _at FROM t$rejected ORDER BY _row",
}


def test_rows_set_aside_move_with_the_others(house: Warehouse) -> None:
    house.sql(
        "CREATE STREAMING TABLE t (ts TIMESTAMP, a TINYINT, WATERMARK FOR ts AS ts - INTERVAL '10' "
        "SECOND) WITH (clock = 'event', late = 'divert', rejected = 'divert', move = 'manual')"
    )
    wanted: dict[str, list[tuple[Any, ...]]] = {}

    def check(state: str) -> None:
        for side, query in SIDES.items():
            assert house.ask(query.replace(", _seq", "")) == wanted[side], f"{side} {state}"
        counts = "SELECT rows_in, stored, rejected, late FROM tidemill.ingest"
        rows_in, stored, rejected, late = house.ask(counts)[0]
        assert rows_in == stored + rejected + late, state
        assert rejected == len(wanted["t$rejected"]), state
        assert late == len(wanted["t$late"]), state
        assert house.ask("SELECT count(*) FROM t") == [(stored,)], state

    wanted["t$late"], wanted["t$rejected"] = [], []
    for number, (state, disturb) in enumerate([("new", lambda: None), *upheavals(house, "t")]):
        fresh, late = at(100 * number), at(100 * number - 50)
        house.db.append("t", [(fresh, number)])
        house.db.append("t", [(late, 50 + number)])
        house.db.append("t", [(fresh, 1_000 + number)])
        wanted["t$late"].append((50 + number,))
        wanted["t$rejected"] = house.ask(SIDES["t$rejected"])
        assert len(wanted["t$rejected"]) == number + 1
        check(f"before it was {state}")
        disturb()
        check(state)


# -- sequence numbers and offsets


def test_sequence_numbers_stay_with_their_rows(house: Warehouse) -> None:
    house.sql(
        "CREATE STREAMING TABLE t (ts TIMESTAMP, k INT) WITH (clock = 'event', move = 'manual', "
        "partition = '10 minutes', hot = '1 second')"
    )
    house.sql("CREATE INDEX ON t (k)")
    arrived: list[int] = []
    for number, (state, disturb) in enumerate(upheavals(house, "t") * 2):
        keys = [7 * number + n for n in range(7)]
        house.db.append("t", [(at(400 * n - 30 * number), key) for n, key in enumerate(keys)])
        arrived += keys
        wanted = list(enumerate(arrived, 1))
        assert house.ask("SELECT _seq, k FROM t ORDER BY _seq") == wanted
        disturb()
        assert house.ask("SELECT _seq, k FROM t ORDER BY _seq") == wanted, state
        last = len(arrived)
        assert house.ask(f"SELECT k FROM t WHERE _seq > {last - 9} ORDER BY _seq") == [
            (key,) for _, key in wanted[-9:]
        ]


def test_source_offsets_are_remembered(house: Warehouse) -> None:
    house.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, k INT) WITH (move = 'manual')")
    for offset, (state, disturb) in enumerate(upheavals(house, "t") * 2):
        for known in range(offset):
            assert house.db.append("t", (at(known), known), source="p", offset=known).stored == 0
        house.db.append("t", (at(offset), offset), source="p", offset=offset)
        disturb()
        assert house.ask("SELECT k FROM t ORDER BY k") == [(n,) for n in range(offset + 1)], state


# -- the newest rows


def test_the_newest_rows_may_be_in_files_or_in_memory(house: Warehouse) -> None:
    house.sql(
        "CREATE STREAMING TABLE t (ts TIMESTAMP, k INT) WITH (clock = 'event', move = 'manual', "
        "partition = '10 minutes', hot = '1 second', max_future = 'forever')"
    )
    rows: list[tuple[dt.datetime, int]] = []
    for number, (state, disturb) in enumerate(upheavals(house, "t") * 2):
        fresh = [(at(300 * number + 100 * n), 10 * number + n) for n in range(6)]
        late = [(at(40 * number), 1_000 + number)]
        house.db.append("t", fresh + late)
        rows += fresh + late
        disturb()
        by_time = [
            row
            for row, _ in sorted(
                zip(rows, range(len(rows)), strict=True), key=lambda pair: (pair[0][0], pair[1])
            )
        ][::-1]
        for count in (1, 3, 11, 100):
            newest = by_time[:count]
            assert house.ask(f"SELECT * FROM RECENT(t, rows => {count})") == newest, state
            order = f"ORDER BY ts DESC, _seq DESC LIMIT {count}"
            assert house.ask(f"SELECT ts, k FROM t {order}") == newest, state
            times = [(ts,) for ts, _ in newest]
            assert house.ask(f"SELECT ts FROM t ORDER BY ts DESC LIMIT {count}") == times, state
        low = by_time[0][0] - dt.timedelta(minutes=10)
        recent = [row for row in by_time if row[0] >= low]
        assert house.ask("SELECT * FROM RECENT(t, INTERVAL '10' MINUTE)") == recent, state


# -- tables come and go


def files_on_disk(house: Warehouse) -> list[str]:
    return [path for path, _, _ in house.db._keeping.storage.list("")]


def test_drop_takes_history_along(house: Warehouse) -> None:
    house.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, k INT) WITH (move = 'manual')")
    house.db.append("t", [(at(0), 1)])
    flush(house.db, "t")
    house.db.append("t", [(at(1), 2)])
    house.sql("DROP TABLE t")
    with pytest.raises(tidemill.TidemillError, match='"t" does not exist'):
        house.db.sql("SELECT * FROM t")
    house.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, other VARCHAR) WITH (move = 'manual')")
    for _, disturb in upheavals(house, "t"):
        assert house.ask("SELECT count(*), max(other) FROM t") == [(0, None)]
        disturb()
    house.db.append("t", [(at(2), "x")])
    flush(house.db, "t")
    assert house.ask("SELECT * FROM t") == [(at(2), "x")]
    house.clock.advance(3 * 86_400)
    house.sql("VACUUM")
    assert len(files_on_disk(house)) == files_of(house.db, "t") == 1
    assert house.ask("SELECT * FROM t") == [(at(2), "x")]


def test_create_or_replace_begins_anew(house: Warehouse) -> None:
    for number in range(3):
        house.sql("CREATE OR REPLACE STREAMING TABLE t (ts TIMESTAMP, k INT)")
        assert house.ask("SELECT count(*) FROM t") == [(0,)]
        house.db.append("t", [(at(0), number)])
        flush(house.db, "t")
        house.db.append("t", [(at(1), number)])
        assert house.ask("SELECT k, _seq FROM t ORDER BY ts") == [(number, 1), (number, 2)]
        house.restart()
        assert house.ask("SELECT k, _seq FROM t ORDER BY ts") == [(number, 1), (number, 2)]


def test_retention_drops_whole_partitions(house: Warehouse) -> None:
    house.sql(
        "CREATE STREAMING TABLE t (ts TIMESTAMP, k INT) WITH (retention = '1 hour', "
        "max_future = 'forever', clock = 'event', partition = '10 minutes', move = 'manual')"
    )
    house.db.append("t", [(at(60 * n), n) for n in range(180)])
    flush(house.db, "t")
    house.db._keeping.look()
    flush(house.db, "t")  # waits until the table's earlier jobs are done
    newest = at(60 * 179)
    (oldest,) = house.ask("SELECT min(ts) FROM t")[0]
    kept = dt.timedelta(hours=1)
    assert newest - kept - dt.timedelta(minutes=10) < oldest <= newest - kept
    assert house.ask("SELECT max(ts), count(*) FROM t") == [
        (newest, (newest - oldest) // dt.timedelta(minutes=1) + 1)
    ]


def test_flush_says_what_it_moved(house: Warehouse) -> None:
    house.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, k INT) WITH (move = 'manual')")
    assert house.sql("FLUSH t") == "FLUSH 0"
    house.db.append("t", [(at(n), n) for n in range(5)])
    assert house.sql("FLUSH t") == "FLUSH 5"
    assert house.sql("FLUSH t") == "FLUSH 0"
    house.db.append("t", [(at(9), 9)])
    assert house.sql("FLUSH") == "FLUSH 1"
    house.sql("CREATE TABLE c (k INT)")
    with pytest.raises(tidemill.TidemillError, match="has no history"):
        house.db.sql("FLUSH c")
    with pytest.raises(tidemill.TidemillError, match="does not exist"):
        house.db.sql("FLUSH missing")
