"""Any history of statements, appends, loads, moves, restarts and crashes, against a plain model.

Hypothesis draws the history and shrinks it when the warehouse and ``model.py`` disagree. Blocks,
segments and pending rows are tiny here, so that short histories seal, rotate and expire. Rows move
to files, files are compacted, dropped and vacuumed when the history says so, in this process.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sim.model import DELAY, V_MAX, Row, Table
from warehouses import compact, copy_warehouse, open_inline, quiet

from tidemill.clock import FakeClock, from_us
from tidemill.config import DATABASE_SETTINGS, Settings
from tidemill.engine import Database
from tidemill.errors import TidemillError
from tidemill.pipeline.compact import ExpireJob
from tidemill.pipeline.load import Load, LoadReport
from tidemill.pipeline.packages import list_packages

START = datetime(2024, 1, 1)
LONG_STEPS = 150
PARTITION = "20 seconds"
MARK_S = 2.0  # moments closer to each other than this are not told apart
MOMENTS_MAX = 4
SCHEMA = pa.schema(
    [("ts", pa.timestamp("us")), ("k", pa.int64()), ("v", pa.int64()), ("name", pa.string())]
)
CHOICES = {
    "late": ("accept", "divert", "reject"),
    "rejected": ("error", "divert"),
    "on_conflict": ("reject", "ignore", "replace"),
    "clock": ("wall", "event"),
    "max_future": ("1 hour", "forever"),
    "retention": ("forever", "forever", "1 minute"),
    "durability": ("sync", "batch", "none"),
}
COUNTERS = ("rows_in", "stored", "late", "rejected", "ignored", "late_stored", "replaced")
INDEXES = ("(k)", "(name)", "USING hash (k)", "USING hash (k, name)", "(ts)")

Drawn = tuple[Any, ...]

names = st.sampled_from(["a", "a", "b"])
# Seconds from the machine's clock: mostly near, some late, some too far ahead to be believed.
seconds = st.one_of(st.integers(-15, 5), st.sampled_from([-3_600, -70, 30, 3_600, 7_200]))
row_drawn = st.tuples(
    st.one_of(*[seconds] * 12, st.none()),
    st.integers(0, 4),
    st.one_of(*[st.integers(-5, 5)] * 12, st.none(), st.just(V_MAX + 1)),
    st.one_of(st.sampled_from(["x", "y", ""]), st.none()),
)
few_rows = st.lists(row_drawn, max_size=4)
drawn_packages = st.lists(st.lists(row_drawn, min_size=1, max_size=6), min_size=1, max_size=3)
many_rows = st.lists(row_drawn, min_size=10, max_size=30)
forms = st.sampled_from(["arrow", "dicts", "tuples", "single", "sql", "batches"])
drawn_settings = st.fixed_dictionaries({key: st.sampled_from(v) for key, v in CHOICES.items()})


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tidemill-machine-"))
        self.copies = 0
        self.index_count = 0
        self.path = self.folder / "0"
        self.clock = FakeClock(START)
        self.db = self._open(self.path)
        self.model: dict[str, Table] = {}
        self.cars: dict[int, str] = {}
        self.last: list[Drawn] = []
        self.loads: list[tuple[Path, dict[str, list[Row]]]] = []

    def _open(self, path: Path) -> Database:
        return open_inline(path, self.clock, segment_size="3 kB")

    def teardown(self) -> None:
        self.db.close()
        shutil.rmtree(self.folder)

    @property
    def now(self) -> datetime:
        return from_us(self.clock.now_us())

    # -- definitions

    @initialize(given=drawn_settings, has_key=st.booleans(), has_watermark=st.booleans())
    def begin(self, given: dict[str, str], has_key: bool, has_watermark: bool) -> None:
        self.db.sql("CREATE TABLE cars (id INT PRIMARY KEY, owner VARCHAR)")
        self.create("a", given, has_key, has_watermark, False)

    @rule(
        kind=st.sampled_from(["index", "index", "drop index", *["alter"] * 4, "create", "drop"]),
        name=names,
        data=st.data(),
    )
    def define(self, kind: str, name: str, data: st.DataObject) -> None:
        """One rule for all definitions, so that rows make most of a history."""
        if kind == "index":
            self.create_index(name, data.draw(st.sampled_from(INDEXES)))
        elif kind == "drop index":
            self.drop_index(name)
        elif kind == "alter":
            key = data.draw(st.sampled_from(sorted(CHOICES)))
            self.alter(name, key, data.draw(st.sampled_from(CHOICES[key])))
        elif kind == "create":
            flags = data.draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
            self.create(name, data.draw(drawn_settings), *flags)
        else:
            self.drop(name)

    def create(
        self, name: str, given: dict[str, str], has_key: bool, has_watermark: bool, or_replace: bool
    ) -> None:
        if not has_key:
            given = {key: value for key, value in given.items() if key != "on_conflict"}
        stated = {**given, "partition": PARTITION}
        written = ", ".join(f"{key} = '{value}'" for key, value in stated.items())
        columns = "ts TIMESTAMP, k BIGINT, v SMALLINT, name VARCHAR"
        columns += ", PRIMARY KEY (ts, k)" if has_key else ""
        delay = f"INTERVAL '{DELAY.seconds}' SECOND"
        columns += f", WATERMARK FOR ts AS ts - {delay}" if has_watermark else ""
        replace = "OR REPLACE " if or_replace else ""
        sql = f"CREATE {replace}STREAMING TABLE {name} ({columns}) WITH ({written})"
        if name in self.model and not or_replace:
            assert self._code(sql) == "duplicate_name"
            return
        self.db.sql(sql)
        self.model[name] = Table(has_key, has_watermark, {"on_conflict": "reject", **given})

    def drop(self, name: str) -> None:
        if name not in self.model:
            assert self._code(f"DROP TABLE {name}") == "unknown_name"
            return
        self.db.sql(f"DROP TABLE {name}")
        del self.model[name]

    def create_index(self, name: str, columns: str) -> None:
        index = f"i{self.index_count}"
        method, _, rest = columns.rpartition("(")
        sql = f"CREATE INDEX {index} ON {name} {method}({rest}"
        if name not in self.model:
            assert self._code(sql) == "unknown_name"
            return
        self.index_count += 1
        self.db.sql(sql)
        self.model[name].indexes.add(index)
        self._follow_retention(name)  # every definition lets the table look at the clock

    def drop_index(self, name: str) -> None:
        for index in sorted(self.model[name].indexes)[:1] if name in self.model else ():
            self.db.sql(f"DROP INDEX {index}")
            self.model[name].indexes.remove(index)
            self._follow_retention(name)

    def alter(self, name: str, key: str, value: str) -> None:
        sql = f"ALTER TABLE {name} SET ({key} = '{value}')"
        table = self.model.get(name)
        if table is None:
            assert self._code(sql) == "unknown_name"
        elif key == "on_conflict" and not table.has_key:
            assert self._code(sql) == "invalid_setting"
        else:
            self.db.sql(sql)
            table.settings[key] = value
            if not self._keeps_the_past(table):
                table.moments.clear()
            self._follow_retention(name)

    # -- rows

    @rule(name=names, drawn=few_rows, form=forms)
    def append(self, name: str, drawn: list[Drawn], form: str) -> None:
        self._append(name, drawn, form)

    @rule(name=names, drawn=many_rows, form=forms)
    def append_many(self, name: str, drawn: list[Drawn], form: str) -> None:
        self._append(name, drawn, form)

    @rule(name=names, times=st.integers(1, 12), drawn=row_drawn)
    def append_one_by_one(self, name: str, times: int, drawn: Drawn) -> None:
        for number in range(times):
            self._append(name, [(drawn[0], drawn[1] + number % 2, *drawn[2:])], "single")

    @rule(name=names, form=forms)
    def append_again(self, name: str, form: str) -> None:
        """The last batch again, whose keys exist now."""
        self._append(name, self.last, form)

    @rule(
        name=names,
        drawn=few_rows,
        form=st.sampled_from(["arrow", "dicts", "tuples"]),
        source=st.sampled_from(["s", "t"]),
        offset=st.integers(0, 6),
    )
    def append_from_source(
        self, name: str, drawn: list[Drawn], form: str, source: str, offset: int
    ) -> None:
        self._append(name, drawn, form, source, offset)

    def _append(
        self,
        name: str,
        drawn: list[Drawn],
        form: str,
        source: str | None = None,
        offset: int | None = None,
    ) -> None:
        self.last = drawn
        rows = [self._row(each) for each in drawn]
        if form in ("single", "sql"):
            rows = rows[:1] if form == "single" else rows
            if not rows:
                return
        table = self.model.get(name)
        if table is None:
            assert self._append_code(name, rows, form, source, offset) == "unknown_name"
            return
        expected = table.append(rows, self.now, source, offset)
        if isinstance(expected, str):
            assert self._append_code(name, rows, form, source, offset) == expected
            return
        found = self._send(name, rows, form, source, offset)
        assert found == (expected if isinstance(found, dict) else expected["stored"])

    def _row(self, drawn: Drawn) -> Row:
        second, k, v, text = drawn
        ts = None if second is None else self.now + timedelta(seconds=second)
        return Row(ts, k, v, text)

    def _send(
        self, name: str, rows: list[Row], form: str, source: str | None, offset: int | None
    ) -> dict[str, Any] | int:
        if form == "sql":
            values = ", ".join("(?, ?, ?, ?)" for _ in rows)
            params = [value for row in rows for value in row.values]
            result = self.db.sql(f"INSERT INTO {name} VALUES {values}", params)
            return int(result.message.removeprefix("INSERT "))
        given: Any = [asdict(row) for row in rows]
        if form == "arrow":
            given = pa.Table.from_pylist(given, SCHEMA)
        elif form == "batches":
            given = pa.Table.from_pylist(given, SCHEMA).to_batches(max_chunksize=3)
        elif form == "tuples":
            given = [row.values for row in rows]
        elif form == "single":
            given = given[0] if rows[0].k % 2 else rows[0].values
        return asdict(self.db.append(name, given, source=source, offset=offset))

    def _append_code(self, *arguments: Any) -> str:
        with pytest.raises(TidemillError) as caught:
            self._send(*arguments)
        return caught.value.code

    def _code(self, sql: str) -> str:
        with pytest.raises(TidemillError) as caught:
            self.db.sql(sql)
        return caught.value.code

    @rule(number=st.integers(0, 5), owner=st.sampled_from(["x", "y", None]))
    def change_car(self, number: int, owner: str | None) -> None:
        """A reference table changes at once; no owner means that the car goes."""
        is_known = number in self.cars
        if owner is None:
            found = self.db.sql("DELETE FROM cars WHERE id = ?", [number]).message
            assert found == f"DELETE {int(is_known)}"
            self.cars.pop(number, None)
            return
        if is_known:
            with pytest.raises(TidemillError, match="uplicate"):
                self.db.append("cars", [(number, owner)])
            self.db.sql("UPDATE cars SET owner = ? WHERE id = ?", [owner, number])
        else:
            self.db.append("cars", [(number, owner)])
        self.cars[number] = owner

    # -- history: none of this changes what is there

    @rule(
        name=names,
        kind=st.sampled_from(["flush", "move", "move", "compact", "vacuum", "expire", "late"]),
        share=st.floats(0, 1),
    )
    def keep(self, name: str, kind: str, share: float) -> None:
        """One rule for all work on history."""
        self.work(name, kind, share)

    def work(self, name: str, kind: str, share: float) -> None:
        if name not in self.model:
            assert self._code(f"FLUSH {name}") == "unknown_name"
            return
        table = self.db.catalog.snapshot().get(name)
        hot = self.db._hot[table.table_id]
        if kind == "flush":
            self.db.sql(f"FLUSH {name}")
        elif kind == "move":  # as the mover does: up to a row
            seqs = [row[0] for row in self.db.sql(f"SELECT _seq FROM {name}").fetchall()]
            upto = sorted(seqs)[int(share * (len(seqs) - 1))] if seqs else 0
            self.db._keeping.wait(self.db._keeping._submit_move(hot, upto, "the history"))
        elif kind == "compact":
            compact(self.db, name)
        elif kind == "expire":
            self.expire_files(name)
        elif kind == "late":  # a late row behind what has moved, in a revision of its own
            self.db.sql(f"FLUSH {name}")
            self._append(name, [(-30, 1, 1, "late"), (-50, 2, 2, "late")], "arrow")
            self.db.sql(f"FLUSH {name}")
        else:
            self._vacuum()
        self._check_rows(name, self.model[name])

    def _vacuum(self) -> None:
        orphan = self.path / "data" / "1" / "orphan.parquet"
        orphan.parent.mkdir(parents=True, exist_ok=True)
        orphan.touch()
        known = self.db.catalog.records.known_paths()
        self.db.sql("VACUUM")
        left = {path for path, *_ in self.db._keeping.storage.list("")}
        assert left == self.db.catalog.records.known_paths() <= known

    def expire_files(self, name: str) -> None:
        table = self.db.catalog.snapshot().get(name)
        retention = table.settings["retention"]
        now_us = self.db._hot[table.table_id].progress.now_us()
        if retention is not None and now_us is not None:
            bounds = now_us - retention, self.clock.now_us() - retention
            job = ExpireJob(table, self.db.catalog, *bounds)
            self.db._keeping.wait(self.db._keeping.submit(job, 0))
            self._follow_retention(name)

    @rule(name=names, packages=drawn_packages, is_strict=st.booleans(), again=st.booleans())
    def load(self, name: str, packages: list[list[Drawn]], is_strict: bool, again: bool) -> None:
        """COPY of packages, or a source's look at them; or of those of an earlier load."""
        if again and self.loads:
            folder, rows = self.loads[-1]
        else:
            folder, rows = self._write_packages(packages)
            self.loads.append((folder, rows))
        table = self.model.get(name)
        copy = f"COPY {name} FROM '{folder}/*.json' (FORMAT ndjson)"
        if table is None:
            assert self._code(copy) == "unknown_name"
            return
        expected = table.load(rows, self.now, is_strict)
        if isinstance(expected, str):
            assert self._code(copy) == expected
        elif is_strict:
            stored, rejected, known, _ = expected
            told = [f"{rejected} rejected"] if rejected else []
            were = "1 package was" if known == 1 else f"{known} packages were"
            told += [f"{were} loaded before"] if known else []
            message = f"COPY {stored}" + (f" ({', '.join(told)})" if told else "")
            assert self.db.sql(copy).message == message
        else:
            assert self._look(name, folder) == expected
        self._check_rows(name, table)

    def _write_packages(self, packages: list[list[Drawn]]) -> tuple[Path, dict[str, list[Row]]]:
        folder = self.folder / f"packages {len(self.loads)}"
        folder.mkdir()
        written: dict[str, list[Row]] = {}
        for number, drawn in enumerate(packages):
            path = folder / f"{number}.json"
            rows = written[str(path)] = [self._row(each) for each in drawn]
            lines = (json.dumps(asdict(row), default=str) for row in rows)
            path.write_text("".join(f"{line}\n" for line in lines))
        return folder, written

    def _look(self, name: str, folder: Path) -> tuple[int, int, int, int]:
        """What a source does with packages that it finds."""
        table = self.db.catalog.snapshot().get(name)
        packages = tuple(list_packages(f"{folder}/*.json"))
        storage = self.db._keeping.storage
        load = Load(table, storage, packages, "ndjson", None, {}, "feed")
        report = self.db._keeping.wait(self.db._loads._submit(load)).value
        assert isinstance(report, LoadReport)
        states = Counter(package.state for package in report.packages)
        return report.rows, report.rejected, states["known"], states["set_aside"]

    # -- the past

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remember(self, data: st.DataObject) -> None:
        self.note_moment(data.draw(st.sampled_from(sorted(self.model))))

    def note_moment(self, name: str) -> None:
        table = self.model[name]
        self.clock.advance(MARK_S)
        if self._keeps_the_past(table):
            table.moments = [*table.moments, (self.now, table.shown(self.now))][-MOMENTS_MAX:]
        self.clock.advance(MARK_S)

    @precondition(lambda self: any(table.moments for table in self.model.values()))
    @rule()
    def travel(self) -> None:
        for name, table in self.model.items():
            for moment, rows in table.moments:
                as_of = f"{name} FOR SYSTEM_TIME AS OF TIMESTAMP '{moment}'"
                query = f"SELECT _seq, ts, k, v, name FROM {as_of} ORDER BY _seq"
                wanted = [(seq, *row.values) for seq, row in rows.items()]
                assert self.db.sql(query).fetchall() == wanted, moment

    def _keeps_the_past(self, table: Table) -> bool:
        """Rows that retention drops from memory are gone for good."""
        return bool(table.settings["retention"] == "forever")

    # -- time

    @rule(by=st.sampled_from([0.5, 3.0, 20.0, 90.0]))
    def advance(self, by: float) -> None:
        self.clock.advance(by)

    @rule(kind=st.sampled_from(["expire", "expire", "restart", "crash", "crash and go on"]))
    def interrupt(self, kind: str) -> None:
        if kind == "expire":
            self.expire()
        elif kind == "restart":
            self.restart()
        else:
            self.crash(keep_copy=kind == "crash and go on")

    def expire(self) -> None:
        """What the keeper does every second."""
        for hot in self.db._hot.values():
            hot.expire()
        for name in self.model:
            self._follow_retention(name)

    def restart(self) -> None:
        self.db.close()
        self.db = self._open(self.path)
        self._check_recovered()

    def crash(self, keep_copy: bool) -> None:
        """A copy of the folder is what a killed process would leave."""
        self.copies += 1
        copy = self.folder / str(self.copies)
        copy_warehouse(self.path, copy)
        with self._open(copy) as twin:
            for name, table in self.model.items():
                assert table.shown(self.now).keys() <= set(_held(twin, name)) <= table.ever.keys()
        if keep_copy:
            self.db.close()
            shutil.rmtree(self.path)
            self.path = copy
            self.db = self._open(copy)
            self._check_recovered()
        else:
            shutil.rmtree(copy)

    def _check_recovered(self) -> None:
        assert all(found.torn_bytes == 0 for found in self.db.recovered)
        for name, table in self.model.items():
            table.restart()
            self._follow_retention(name)
        self.read_all()

    def _follow_retention(self, name: str) -> None:
        """Take over what retention dropped (or a restart brought back), if it may have."""
        table = self.model[name]
        found = _held(self.db, name)
        assert table.shown(self.now).keys() <= set(found) <= table.ever.keys()
        table.rows = {seq: table.ever[seq] for seq in found}
        if table.has_key:
            assert len({row.key for row in table.rows.values()}) == len(table.rows)
        late, rejected = self._aside(name)
        table.check_aside(table.late, late, self.now)
        table.check_aside(table.rejected, rejected, self.now)
        table.late, table.rejected = late, rejected

    def _aside(self, name: str) -> tuple[Counter[Any], Counter[Any]]:
        late = self.db.sql(f"SELECT ts, k, v, name, _at FROM {name}$late").fetchall()
        query = f"SELECT _reason, CAST(_row->>'k' AS INT), _at FROM {name}$rejected"
        rejected = self.db.sql(query).fetchall()
        return Counter(late), Counter((_kind(reason), *rest) for reason, *rest in rejected)

    # -- reading

    @rule()
    def read_all(self) -> None:
        """Everything that can be said of every table."""
        for name, table in self.model.items():
            self._check_rows(name, table)
            assert self._aside(name) == (table.late, table.rejected)
            self._check_counters(name, table)
        cars = dict(self.db.sql("SELECT id, owner FROM cars").fetchall())
        assert cars == self.cars

    def _check_rows(self, name: str, table: Table) -> None:
        found = self.db.sql(f"SELECT _seq, ts, k, v, name FROM {name} ORDER BY _seq").fetchall()
        assert found == [(seq, *row.values) for seq, row in table.shown(self.now).items()]
        assert _held(self.db, name) == list(table.rows)

    def _check_counters(self, name: str, table: Table) -> None:
        wanted = f"{', '.join(COUNTERS)}, expired, newest, watermark, accepts_rows"
        query = f"SELECT {wanted} FROM tidemill.ingest WHERE table_name = ?"
        *counts, expired, newest, watermark, accepts = self.db.sql(query, [name]).fetchall()[0]
        assert counts == [table.counters[counter] for counter in COUNTERS]
        assert counts[0] == sum(counts[1:4])
        shown = len(table.shown(self.now))
        assert expired == table.counters["stored"] - table.counters["replaced"] - shown
        assert newest == table.newest
        assert watermark == table.watermark(self.now)
        assert accepts

    @precondition(lambda self: self.model)
    @rule(
        data=st.data(),
        question=st.integers(0, 6),
        k=st.integers(0, 5),
        low=seconds,
        span=st.integers(0, 40),
    )
    def read_some(self, data: st.DataObject, question: int, k: int, low: int, span: int) -> None:
        self.ask(data.draw(st.sampled_from(sorted(self.model))), question, k, low, span)

    def ask(self, name: str, question: int, k: int, low: int, span: int) -> None:
        table = self.model[name]
        first = self.now + timedelta(seconds=low)
        last = first + timedelta(seconds=span)
        questions: list[tuple[str, list[Any], Any]] = [
            ("k = ?", [k], lambda r: r.k == k),
            ("k >= ? AND k < ?", [k, k + 2], lambda r: k <= r.k < k + 2),
            ("name = 'x'", [], lambda r: r.name == "x"),
            ("k IN (?, 1) AND name = 'y'", [k], lambda r: r.k in (k, 1) and r.name == "y"),
            ("ts BETWEEN ? AND ?", [first, last], lambda r: first <= r.time <= last),
            ("ts >= ? AND k = ?", [first, k], lambda r: r.time >= first and r.k == k),
            ("ts = ? OR name IS NULL", [first], lambda r: r.time == first or r.name is None),
        ]
        where, params, test = questions[question]
        found = self.db.sql(f"SELECT _seq FROM {name} WHERE {where} ORDER BY _seq", params)
        expected = [(seq,) for seq, row in table.shown(self.now).items() if test(row)]
        assert found.fetchall() == expected, where

    @precondition(lambda self: self.model)
    @rule(data=st.data(), count=st.integers(1, 12), size=st.integers(1, 100))
    def read_recent(self, data: st.DataObject, count: int, size: int) -> None:
        self.ask_recent(data.draw(st.sampled_from(sorted(self.model))), count, size)

    def ask_recent(self, name: str, count: int, size: int) -> None:
        table = self.model[name]
        moment, upper = table.moment(self.now), table.upper(self.now)
        if moment is None:
            return
        believed = [
            (row.time, seq, row)
            for seq, row in table.shown(self.now).items()
            if upper is None or row.time <= upper
        ]
        newest = [row for *_, row in sorted(believed, key=lambda b: b[:2], reverse=True)]
        columns = f"SELECT ts, k, v, name FROM RECENT({name}, "
        inside = [row.values for row in newest if row.time >= moment - timedelta(seconds=size)]
        found = self.db.sql(f"{columns}INTERVAL '{size}' SECOND)").fetchall()
        assert found == inside
        found = self.db.sql(f"{columns}rows => {count})").fetchall()
        assert found == [row.values for row in newest[:count]]
        found = self.db.sql(f"{columns}rows => 2, partition_by => k)").fetchall()
        ranks: Counter[int] = Counter()
        first_two = []
        for row in newest:
            ranks[row.k] += 1
            first_two += [row.values] if ranks[row.k] <= 2 else []
        assert Counter(found) == Counter(first_two)


def _held(db: Database, name: str) -> list[int]:
    """The rows that memory and files hold, with those that the retention no longer shows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidemill.stream.image.horizon_us", lambda table, now_us: None)
        return [seq for (seq,) in db.sql(f"SELECT _seq FROM {name} ORDER BY _seq").fetchall()]


def _kind(reason: str) -> str:
    if reason.startswith("late:"):
        return "late"
    return "key" if reason.startswith("the primary key") else "bad"


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small blocks and segments; retention only when the history says so."""
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS", 8)
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS_MAX", 16)
    monkeypatch.setattr("tidemill.hot.tail.ROWS_PENDING_MAX", 4)
    monkeypatch.setattr("tidemill.hot.tier.EXPIRE_EVERY_S", 1e9)
    monkeypatch.setattr("tidemill.config.MEMORY_BYTES_MIN", 1)
    with quiet():
        yield


def test_any_history_agrees_with_the_model(tiny: None, sim_examples: int) -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=sim_examples,
            stateful_step_count=40,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_keys_stay_unique_when_a_restart_brings_expired_rows_back(
    tiny: None, tmp_path: Path
) -> None:
    """Their keys were free and were used again; the log still has both."""
    clock = FakeClock(START)
    rows = [{"ts": START, "k": k} for k in range(8)]
    query = "SELECT count(*), count(DISTINCT k), min(_seq) FROM t"
    with Database(tmp_path, Settings(DATABASE_SETTINGS, {}), clock) as db:
        db.sql(
            "CREATE STREAMING TABLE t (ts TIMESTAMP, k INT, PRIMARY KEY (ts, k)) "
            "WITH (retention = '1 minute')"
        )
        db.append("t", rows)
        clock.advance(120)
        db.sql("ALTER TABLE t SET (late = 'accept')")  # looks at the clock
        assert db.sql(query).fetchall() == [(0, 0, None)]
        db.append("t", rows)
        db.sql("ALTER TABLE t SET (retention = 'forever')")
        assert db.sql(query).fetchall() == [(8, 8, 9)]
    with Database(tmp_path, Settings(DATABASE_SETTINGS, {}), clock) as db:
        assert db.sql(query).fetchall() == [(8, 8, 9)]
        counted = "SELECT rows_in, stored, replaced, expired FROM tidemill.ingest"
        assert db.sql(counted).fetchall() == [(16, 16, 0, 8)]


# -- long histories: Hypothesis draws short ones, which rarely fill a segment


class Long:
    """Draws a long history from a seed, with the frequencies of a working day."""

    def __init__(self, machine: Machine, seed: int) -> None:
        self._machine = machine
        self._draw = random.Random(seed)

    def run(self, steps: int) -> None:
        machine, draw = self._machine, self._draw
        machine.begin(self._settings(), draw.random() < 0.6, draw.random() < 0.6)
        for _ in range(steps):
            self._step(draw.choice("aaaab"), draw.random())
        machine.restart()

    def _step(self, name: str, chance: float) -> None:
        machine, draw = self._machine, self._draw
        if chance < 0.30:
            rows, source, offset = self._rows(draw.choice([1, 3, 8, 30])), None, None
            form = draw.choice(["arrow", "dicts", "tuples", "single", "sql", "batches"])
            if draw.random() < 0.3 and form not in ("single", "sql"):
                source, offset = draw.choice("st"), draw.randrange(30)
            machine._append(name, rows, form, source, offset)
        elif chance < 0.35:
            kinds = ["flush", "move", "move", "compact", "vacuum", "expire", "late"]
            machine.work(name, draw.choice(kinds), draw.random())
        elif chance < 0.38:
            packages = [self._rows(draw.choice([1, 5, 20])) for _ in range(draw.randint(1, 3))]
            machine.load(name, packages, draw.random() < 0.5, draw.random() < 0.2)
        elif chance < 0.40:
            if name in machine.model:
                machine.note_moment(name)
            machine.travel()
        elif chance < 0.45:
            machine.append_one_by_one(name, draw.randint(1, 12), self._rows(1)[0])
        elif chance < 0.48:
            machine.append_again(name, "arrow")
        elif chance < 0.62:
            machine.advance(draw.choice([0.5, 3.0, 8.0, 40.0]))
        elif chance < 0.70:
            self._define(name)
        elif chance < 0.75:
            machine.change_car(draw.randrange(6), draw.choice(["x", "y", None]))
        elif chance < 0.85:
            machine.expire()
        elif chance < 0.87:
            machine.restart()
        elif chance < 0.90:
            machine.crash(draw.random() < 0.5)
        elif machine.model:
            self._read(draw.choice(sorted(machine.model)))

    def _define(self, name: str) -> None:
        machine, draw = self._machine, self._draw
        kind = draw.random()
        if kind < 0.3:
            machine.create_index(name, draw.choice(INDEXES))
        elif kind < 0.4:
            machine.drop_index(name)
        elif kind < 0.9:
            key = draw.choice(sorted(CHOICES))
            machine.alter(name, key, draw.choice(CHOICES[key]))
        elif kind < 0.97:
            flags = [draw.random() < 0.5 for _ in range(3)]
            machine.create(name, self._settings(), *flags)
        else:
            machine.drop(name)

    def _read(self, name: str) -> None:
        machine, draw = self._machine, self._draw
        kind = draw.random()
        if kind < 0.6:
            machine.ask(name, draw.randrange(7), draw.randrange(6), self._second(), 20)
        elif kind < 0.9:
            machine.ask_recent(name, draw.randint(1, 40), draw.randint(1, 100))
        else:
            machine.read_all()

    def _settings(self) -> dict[str, str]:
        return {key: self._draw.choice(values) for key, values in CHOICES.items()}

    def _second(self) -> int:
        if self._draw.random() < 0.95:
            return self._draw.randint(-15, 5)
        return self._draw.choice([-3_600, -70, 30, 3_600, 7_200])

    def _rows(self, count: int) -> list[Drawn]:
        draw = self._draw
        is_clean = draw.random() < 0.7
        return [
            (
                None if not is_clean and draw.random() < 0.1 else self._second(),
                draw.randrange(5),
                V_MAX + 1 if not is_clean and draw.random() < 0.1 else draw.randint(-5, 5),
                draw.choice(["x", "y", "", None]),
            )
            for _ in range(count)
        ]


@pytest.mark.parametrize("number", range(5))
def test_long_history_agrees_with_the_model(tiny: None, number: int, sim_seed: int) -> None:
    machine = Machine()
    try:
        Long(machine, sim_seed + number).run(LONG_STEPS)
    finally:
        machine.teardown()
