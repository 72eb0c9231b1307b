"""One suite over both catalogs, SQLite and a real PostgreSQL: they must behave alike."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
import sqlalchemy as sa
from once import once

from tidemill.catalog.model import NewTable, Snapshot
from tidemill.catalog.store import Catalog
from tidemill.catalog.urls import parse_url
from tidemill.clock import FakeClock
from tidemill.errors import (
    CatalogError,
    ClosedError,
    DefinitionError,
    DuplicateNameError,
    OwnedError,
    SettingError,
    UnknownNameError,
)
from tidemill.types import Column, SqlType

Open = Callable[[], Catalog]
SECOND_US = 1_000_000


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'catalog.db'}"
    return request.getfixturevalue("postgres").new_url()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_000 * SECOND_US)


@pytest.fixture
def open_catalog(url: str, clock: FakeClock) -> Iterator[Open]:
    opened: list[Catalog] = []

    def open_one() -> Catalog:
        opened.append(Catalog.open(url, clock))
        return opened[-1]

    yield open_one
    for catalog in opened:
        catalog.close()


@pytest.fixture
def catalog(open_catalog: Open) -> Catalog:
    return open_catalog()


@pytest.fixture
def reopened(catalog: Catalog, open_catalog: Open) -> Callable[[], Catalog]:
    """What a restart sees."""

    def reopen() -> Catalog:
        catalog.close()
        return open_catalog()

    return reopen


def column(name: str, kind: str, **rest: object) -> Column:
    return Column(name, SqlType.parse(kind), **rest)


def stream(name: str = "cars", **changes: object) -> NewTable:
    columns = (
        column("ts", "timestamp", nullable=False),
        column("vid", "bigint"),
        column("spd", "int", default="0"),
    )
    return replace(NewTable(name, "streaming", columns, time_column="ts"), **changes)


def test_a_new_catalog_is_empty_and_has_snapshot_zero(catalog: Catalog) -> None:
    snapshot = catalog.snapshot()
    assert (snapshot.snapshot_id, dict(snapshot.tables)) == (0, {})
    assert len(catalog.catalog_id) == 32


def test_a_table_survives_a_restart_as_it_was(
    catalog: Catalog, reopened: Callable[[], Catalog]
) -> None:
    made = once(catalog).create_table(
        stream(
            primary_key=("vid", "ts"),
            watermark_delay_us=5 * SECOND_US,
            settings={"hot": "5 minutes", "late": "divert"},
        )
    )
    once(catalog).create_index(made.table_id, ["vid", "spd"], method="hash", unique=True)
    before, identity = catalog.snapshot(), catalog.catalog_id
    after = reopened()
    assert after.snapshot() == before
    assert after.catalog_id == identity
    table = after.snapshot().get("CARS")
    assert table.primary_key == ("vid", "ts")
    assert table.settings["hot"] == 300 * SECOND_US
    assert table.columns == made.columns
    assert [i.columns for i in table.indexes] == [("vid", "spd")]
    assert table.indexes[0].unique


TYPES = [
    *("boolean", "tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint"),
    *("uinteger", "ubigint", "uhugeint", "decimal(38,10)", "float", "double", "varchar", "blob"),
    *("date", "time", "timestamp", "timestamptz", "interval", "uuid", "json"),
    *("int[]", "varchar[][]", "int[3]", "map(varchar,int[])"),
    "struct(a int, b struct(c decimal(10,2), d varchar[]))",
    "map(varchar, struct(x double, y timestamp)[])",
    'struct("a ""quoted"" name" int, "ünï 🌊" varchar, "select" date)',
]


def test_every_type_comes_back(catalog: Catalog, reopened: Callable[[], Catalog]) -> None:
    columns = tuple(column(f"c{number}", kind) for number, kind in enumerate(TYPES))
    made = once(catalog).create_table(NewTable("every", "reference", columns))
    back = reopened().snapshot().get("every")
    assert back.columns == made.columns
    assert back.schema == made.schema


DEFAULTS = ["0", "NULL", "'it''s'", "now()", "[1, 2]", "'🌊\n\t%s %(x)s :name ?'", "{'a': 1}", ""]


def test_every_default_comes_back(catalog: Catalog, reopened: Callable[[], Catalog]) -> None:
    given = [*DEFAULTS, None]
    columns = tuple(
        column(f"c{n}", "varchar", default=text, nullable=n % 2 == 0)
        for n, text in enumerate(given)
    )
    constraints = ("CHECK (c0 <> '')", "UNIQUE (c1, c2)")
    once(catalog).create_table(NewTable("t", "reference", columns, constraints=constraints))
    back = reopened().snapshot().get("t")
    assert [each.default for each in back.columns] == given
    assert back.columns == columns
    assert back.constraints == constraints


HOSTILE = {
    "quotes": "a\"b'c`d",
    "injection": "x'); DROP TABLE tidemill_tables; --",
    "placeholders": "%s %(a)s :b ? $1 {x}",
    "spaces": "  \t\n ",
    "unicode": "Straße_テーブル_جدول",
    "emoji": "🌊👩‍👩‍👧‍👦",
    "long": "ö" * 10_000,
    "keyword": "select",
    "path": "../../etc/passwd",
    "backslash": "\\x00\\",
}


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_names(catalog: Catalog, reopened: Callable[[], Catalog], name: str) -> None:
    columns = (column("ts", "timestamp"), column(name, "int"))
    made = once(catalog).create_table(stream(name, columns=columns, primary_key=(name, "ts")))
    once(catalog).create_index(made.table_id, [name], name=name)
    once(catalog).create_index(made.table_id, [name])
    with pytest.raises(DuplicateNameError):
        once(catalog).create_table(stream(name.lower()))
    before = catalog.snapshot()
    after = reopened().snapshot()
    assert after == before
    assert after.get(name).columns[1].name == name
    assert after.get(name).indexes[0].name == name


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * 10_001])
def test_names_that_cannot_be(catalog: Catalog, name: str) -> None:
    good = once(catalog).create_table(stream("good"))
    before = catalog.snapshot()
    for attempt in (
        lambda: once(catalog).create_table(stream(name)),
        lambda: once(catalog).create_table(NewTable("t", "reference", (column(name, "int"),))),
        lambda: once(catalog).create_index(good.table_id, ["vid"], name=name),
        lambda: once(catalog).set_meta(name, "x"),
    ):
        with pytest.raises(DefinitionError):
            attempt()
    assert catalog.snapshot() is before


def test_text_that_postgres_cannot_hold_is_refused_by_both(catalog: Catalog) -> None:
    bad = (column("ts", "timestamp"), column("v", "varchar", default="'\0'"))
    with pytest.raises(DefinitionError, match="NUL"):
        once(catalog).create_table(stream(columns=bad))
    with pytest.raises(DefinitionError, match="NUL"):
        once(catalog).set_meta("key", "a\0")


def test_names_have_no_case(catalog: Catalog) -> None:
    made = once(catalog).create_table(stream("Cars"))
    with pytest.raises(DuplicateNameError, match="cARS"):
        once(catalog).create_table(stream("cARS"))
    once(catalog).create_index(made.table_id, ["VID"], name="By_Car")
    other = once(catalog).create_table(stream("other"))
    with pytest.raises(DuplicateNameError, match="bY_cAR"):
        once(catalog).create_index(other.table_id, ["vid"], name="bY_cAR")
    assert catalog.snapshot().find_index("by_car").columns == ("vid",)


def test_an_index_without_a_name_gets_a_free_one(catalog: Catalog) -> None:
    table_id = once(catalog).create_table(stream()).table_id
    names = [once(catalog).create_index(table_id, ["vid"]).name for _ in range(3)]
    assert names == ["cars_vid_idx", "cars_vid_idx1", "cars_vid_idx2"]


def test_bad_definitions_change_nothing(catalog: Catalog) -> None:
    table_id = once(catalog).create_table(stream()).table_id
    before = catalog.snapshot()
    ts, twice = column("ts", "timestamp"), column("TS", "int")
    attempts: list[tuple[type[Exception], Callable[[], object]]] = [
        (DefinitionError, lambda: once(catalog).create_table(stream("t", columns=()))),
        (DefinitionError, lambda: once(catalog).create_table(stream("t", columns=(ts, twice)))),
        (DefinitionError, lambda: once(catalog).create_table(stream("t", kind="view"))),
        (DefinitionError, lambda: once(catalog).create_table(stream("t", time_column=None))),
        (DefinitionError, lambda: once(catalog).create_table(stream("t", time_column="spd"))),
        (UnknownNameError, lambda: once(catalog).create_table(stream("t", time_column="tss"))),
        (DefinitionError, lambda: once(catalog).create_table(stream("t", watermark_delay_us=-1))),
        (DefinitionError, lambda: once(catalog).create_table(stream("t", primary_key=("vid",)))),
        (
            DefinitionError,
            lambda: once(catalog).create_table(stream("t", primary_key=("ts", "TS"))),
        ),
        (
            UnknownNameError,
            lambda: once(catalog).create_table(stream("t", primary_key=("ts", "x"))),
        ),
        (SettingError, lambda: once(catalog).create_table(stream("t", settings={"hott": "1 s"}))),
        (SettingError, lambda: once(catalog).create_table(stream("t", settings={"hot": "soon"}))),
        (UnknownNameError, lambda: once(catalog).drop_table(99)),
        (UnknownNameError, lambda: once(catalog).drop_index(99)),
        (UnknownNameError, lambda: once(catalog).create_index(99, ["vid"])),
        (UnknownNameError, lambda: once(catalog).create_index(table_id, ["vidd"])),
        (DefinitionError, lambda: once(catalog).create_index(table_id, [])),
        (DefinitionError, lambda: once(catalog).create_index(table_id, ["vid", "VID"])),
        (DefinitionError, lambda: once(catalog).create_index(table_id, ["vid"], method="gin")),
        (UnknownNameError, lambda: once(catalog).alter_settings(99, {"hot": "1 s"})),
        (SettingError, lambda: once(catalog).alter_settings(table_id, {"hott": "1 s"})),
        (SettingError, lambda: once(catalog).alter_settings(table_id, {"hott": None})),
        (SettingError, lambda: once(catalog).alter_settings(table_id, {"hot": "soon"})),
        (SettingError, lambda: once(catalog).alter_settings(table_id, {"partition": "2 hours"})),
        (SettingError, lambda: once(catalog).replace_table(stream(settings={"x": "1"}))),
    ]
    for kind, attempt in attempts:
        with pytest.raises(kind):
            attempt()
    assert catalog.snapshot() is before


def test_time_travel(catalog: Catalog, clock: FakeClock, reopened: Callable[[], Catalog]) -> None:
    seen: list[Snapshot] = [catalog.snapshot()]

    def step() -> None:
        seen.append(catalog.snapshot())
        clock.advance(10)

    clock.advance(10)
    first = once(catalog).create_table(stream(settings={"hot": "1 minute"}))
    step()
    once(catalog).alter_settings(first.table_id, {"hot": "2 minutes", "late": "reject"})
    step()
    index = once(catalog).create_index(first.table_id, ["vid"])
    step()
    once(catalog).alter_settings(first.table_id, {"hot": None})
    step()
    once(catalog).drop_index(index.index_id)
    step()
    second = once(catalog).replace_table(stream("CARS", columns=stream().columns[:2]))
    step()
    once(catalog).drop_table(second.table_id)
    step()
    once(catalog).create_table(stream())
    step()

    assert [s.snapshot_id for s in seen] == list(range(9))
    hot = [s.get("cars").given_settings.get("hot") for s in seen[1:6]]
    assert hot == ["1 minute", "2 minutes", "2 minutes", None, None]
    assert [len(s.get("cars").indexes) for s in seen[1:6]] == [0, 0, 1, 1, 0]
    assert [len(s.tables) for s in seen] == [0, 1, 1, 1, 1, 1, 1, 0, 1]
    assert len(seen[6].get("cars").columns) == 2
    for reopen in (lambda: catalog, reopened):
        each = reopen()
        for snapshot in seen:
            assert each.snapshot(snapshot.snapshot_id) == snapshot
            assert each.snapshot_at(snapshot.committed_at_us) == snapshot
            assert each.snapshot_at(snapshot.committed_at_us + 5 * SECOND_US) == snapshot
        with pytest.raises(UnknownNameError, match="snapshot 9"):
            each.snapshot(9)
        with pytest.raises(UnknownNameError):
            each.snapshot(-1)
        with pytest.raises(UnknownNameError):
            each.snapshot_at(seen[0].committed_at_us - 1)


def test_ids_are_never_used_twice(catalog: Catalog, reopened: Callable[[], Catalog]) -> None:
    first = once(catalog).create_table(stream())
    index = once(catalog).create_index(first.table_id, ["vid"])
    once(catalog).drop_table(first.table_id)
    after = reopened()
    second = once(after).create_table(stream())
    third = once(after).replace_table(stream())
    assert first.table_id < second.table_id < third.table_id
    assert once(after).create_index(third.table_id, ["vid"]).index_id > index.index_id


def test_a_transaction_is_one_snapshot(catalog: Catalog, reopened: Callable[[], Catalog]) -> None:
    with catalog.transaction() as change:
        made = change.create_table(stream())
        change.alter_settings(made.table_id, {"hot": "1 s"})
        change.alter_settings(made.table_id, {"hot": "2 s"})
        change.create_index(made.table_id, ["vid"], name="i")
        gone = change.create_table(stream("gone"))
        change.drop_table(gone.table_id)
        change.set_meta("k", "v")
        with pytest.raises(DuplicateNameError):
            change.create_table(stream("CARS"))
        assert catalog.snapshot().snapshot_id == 0
        assert change.snapshot.find("cars") is not None
    snapshot = catalog.snapshot()
    assert snapshot.snapshot_id == 1
    assert snapshot.get("cars").settings["hot"] == 2 * SECOND_US
    assert set(snapshot.tables) == {"cars"}
    after = reopened()
    assert after.snapshot() == snapshot
    assert after.records.get_meta("k") == "v"


def test_an_exception_undoes_the_whole_transaction(
    catalog: Catalog, reopened: Callable[[], Catalog]
) -> None:
    once(catalog).create_table(stream())
    before = catalog.snapshot()

    def fail() -> None:
        with catalog.transaction() as change:
            change.drop_table(before.get("cars").table_id)
            change.create_table(stream("other"))
            change.set_meta("k", "v")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert catalog.snapshot() is before
    assert catalog.records.get_meta("k") is None
    once(catalog).create_table(stream("next"))
    assert set(reopened().snapshot().tables) == {"cars", "next"}


def test_nothing_changed_is_no_snapshot(catalog: Catalog) -> None:
    made = once(catalog).create_table(stream(settings={"hot": "1 s"}))
    before = catalog.snapshot()
    assert once(catalog).alter_settings(made.table_id, {"hot": "1 s", "late": None}) is made
    once(catalog).set_meta("k", "v")
    with catalog.transaction():
        pass
    assert catalog.snapshot() is before


def test_unchanged_tables_stay_the_same_objects(catalog: Catalog) -> None:
    made = once(catalog).create_table(stream())
    once(catalog).create_table(stream("other"))
    assert catalog.snapshot().get("cars") is made
    assert catalog.snapshot().table(made.table_id) is made


def test_meta(catalog: Catalog, reopened: Callable[[], Catalog]) -> None:
    assert catalog.records.get_meta("a") is None
    once(catalog).set_meta("a", "1")
    once(catalog).set_meta("a", "2 🌊")
    once(catalog).set_meta("b", "")
    once(catalog).set_meta("c", "x")
    once(catalog).set_meta("c", None)
    after = reopened()
    assert [after.records.get_meta(key) for key in "abc"] == ["2 🌊", "", None]


def test_a_clock_that_goes_back_does_not_confuse_time_travel(
    catalog: Catalog, clock: FakeClock
) -> None:
    once(catalog).create_table(stream("a"))
    clock.advance(-500)
    once(catalog).create_table(stream("b"))
    first, second = catalog.snapshot(1), catalog.snapshot(2)
    assert second.committed_at_us >= first.committed_at_us
    assert catalog.snapshot_at(second.committed_at_us) == second


def test_a_closed_catalog_says_so(catalog: Catalog) -> None:
    catalog.close()
    catalog.close()
    for attempt in (
        catalog.snapshot,
        lambda: catalog.snapshot_at(0),
        lambda: catalog.records.get_meta("k"),
        lambda: once(catalog).create_table(stream()),
    ):
        with pytest.raises(ClosedError):
            attempt()


def test_readers_never_see_half_a_commit(catalog: Catalog) -> None:
    """Pairs of tables are made and dropped together; readers look at now and at the past."""
    commits, wrong, done = 40, [], threading.Event()

    def check(snapshot: Snapshot) -> None:
        names = set(snapshot.tables)
        if {name.replace("a", "b") for name in names if "a" in name} != names - {
            name for name in names if "a" in name
        }:
            wrong.append(names)

    def read(past: bool) -> None:
        while not done.is_set():
            snapshot = catalog.snapshot()
            check(snapshot)
            if past:
                check(catalog.snapshot(snapshot.snapshot_id // 2))
                if catalog.snapshot(snapshot.snapshot_id) != snapshot:
                    wrong.append(snapshot)

    readers = [threading.Thread(target=read, args=(past,)) for past in (False, True, True)]
    for reader in readers:
        reader.start()
    try:
        for number in range(commits):
            with catalog.transaction() as change:
                change.create_table(stream(f"a{number}"))
                change.create_table(stream(f"b{number}"))
                if number >= 3:
                    change.drop_table(change.snapshot.get(f"a{number - 3}").table_id)
                    change.drop_table(change.snapshot.get(f"b{number - 3}").table_id)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert not wrong
    assert catalog.snapshot().snapshot_id == commits


def test_writers_take_turns(catalog: Catalog, reopened: Callable[[], Catalog]) -> None:
    def write(writer: int) -> None:
        for number in range(10):
            once(catalog).create_table(stream(f"t{writer}_{number}"))

    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    snapshot = catalog.snapshot()
    assert snapshot.snapshot_id == len(snapshot.tables) == 40
    assert len({table.table_id for table in snapshot.tables.values()}) == 40
    assert reopened().snapshot() == snapshot


CRASHER = dedent(
    """
    import sys
    from tidemill.catalog.model import NewTable
    from tidemill.catalog.store import Catalog
    from tidemill.clock import WallClock
    from tidemill.types import Column, SqlType

    columns = tuple(Column(n, SqlType(t)) for n, t in (("ts", "TIMESTAMP"), ("v", "BIGINT")))
    catalog = Catalog.open(sys.argv[1], WallClock())
    number = len(catalog.snapshot().tables)
    while True:
        with catalog.transaction() as change:
            settings = {"hot": f"{number + 1} s"}
            new = NewTable(f"t{number}", "streaming", columns, ("ts",), "ts", settings=settings)
            table = change.create_table(new)
            change.create_index(table.table_id, ["v"])
        print(number, flush=True)
        number += 1
    """
)


def test_kill_dash_nine_in_the_middle(url: str, open_catalog: Open) -> None:
    acknowledged = -1
    for lines in (1, 4, 9):
        process = subprocess.Popen(
            [sys.executable, "-c", CRASHER, url], stdout=subprocess.PIPE, text=True
        )
        with process:
            for _ in range(lines):
                acknowledged = int(process.stdout.readline())
            process.kill()
            acknowledged = max([acknowledged, *map(int, process.stdout.read().split())])
        catalog = open_catalog()
        snapshot = catalog.snapshot()
        assert len(snapshot.tables) in (acknowledged + 1, acknowledged + 2)
        assert snapshot.snapshot_id == len(snapshot.tables)
        for number in range(len(snapshot.tables)):
            table = snapshot.get(f"t{number}")
            assert len(table.columns) == 2
            assert len(table.indexes) == 1
            assert table.primary_key == ("ts",)
            assert table.settings["hot"] == (number + 1) * SECOND_US
        catalog.close()


def test_a_database_of_somebody_else_is_left_alone(url: str, clock: FakeClock) -> None:
    engine = sa.create_engine(parse_url(url))
    try:
        with engine.begin() as connection:
            connection.execute(sa.text("CREATE TABLE invoices (id INTEGER)"))
        with pytest.raises(CatalogError, match="not a Tidemill catalog") as caught:
            Catalog.open(url, clock)
        assert "invoices" in caught.value.detail
        assert sa.inspect(engine).get_table_names() == ["invoices"]
    finally:
        engine.dispose()


UNSUMMED = "DELETE FROM tidemill_sums"  # what is changed behind our back is no damage then


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("UPDATE tidemill_catalog SET version = 99", "newer"),
        ("DELETE FROM tidemill_catalog", "incomplete"),
        ("DELETE FROM tidemill_snapshots", "incomplete"),
        ("DROP TABLE tidemill_meta; DROP TABLE tidemill_constraints", "incomplete"),
        ("DROP TABLE tidemill_catalog", "incomplete"),
    ],
)
def test_a_catalog_that_cannot_be_used(
    url: str, clock: FakeClock, open_catalog: Open, damage: str, words: str
) -> None:
    open_catalog().close()
    _execute(url, *damage.split(";"), UNSUMMED)
    with pytest.raises(CatalogError, match=words) as caught:
        Catalog.open(url, clock)
    assert caught.value.hint


def test_a_stranger_who_wrote_stops_us(url: str, catalog: Catalog, open_catalog: Open) -> None:
    """Behind our back, which ownership should prevent: better to stop than to overwrite."""
    once(catalog).create_table(stream())
    _execute(url, "INSERT INTO tidemill_snapshots VALUES (2, 1, 'stranger')", UNSUMMED)
    for _ in range(2):
        with pytest.raises(CatalogError, match="changed by another process"):
            once(catalog).create_table(stream("other"))
    assert catalog.snapshot().snapshot_id == 1
    catalog.close()
    assert open_catalog().snapshot().snapshot_id == 2


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_of_unknown_outcome_is_looked_up(
    catalog: Catalog,
    reopened: Callable[[], Catalog],
    monkeypatch: pytest.MonkeyPatch,
    committed: bool,
) -> None:
    dialect = catalog._connections._engine.dialect
    do_commit = dialect.do_commit

    def broken(dbapi: object) -> None:
        if committed:
            do_commit(dbapi)
        monkeypatch.setattr(dialect, "do_commit", do_commit)
        raise dialect.loaded_dbapi.OperationalError("the connection broke")

    monkeypatch.setattr(dialect, "do_commit", broken)
    if committed:
        once(catalog).create_table(stream())
    else:
        with pytest.raises(CatalogError):
            once(catalog).create_table(stream())
    assert (catalog.snapshot().find("cars") is not None) is committed
    once(catalog).create_table(stream("next"))
    assert ("cars" in reopened().snapshot().tables) is committed


def test_no_exception_of_the_driver_escapes(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect = catalog._connections._engine.dialect
    before = catalog.snapshot()

    def broken(*_: object, **__: object) -> None:
        raise dialect.loaded_dbapi.OperationalError("no such luck")

    for method in ("do_execute", "do_commit"):
        with monkeypatch.context() as patch:
            patch.setattr(dialect, method, broken)
            with pytest.raises(CatalogError, match="catalog"):
                once(catalog).create_table(stream("x"))
            if method == "do_execute":
                with pytest.raises(CatalogError):
                    catalog.records.get_meta("k")
                with pytest.raises(CatalogError):
                    catalog.snapshot_at(before.committed_at_us - 1)
    assert catalog.snapshot() is before


def test_postgres_refuses_a_second_owner(postgres: object, clock: FakeClock) -> None:
    url = postgres.new_url()
    first = Catalog.open(url, clock)
    try:
        with pytest.raises(OwnedError, match="this process") as caught:
            Catalog.open(url, clock)
        assert "pid" in caught.value.detail
        assert "1970-01-01 00:16:40Z" in caught.value.detail
    finally:
        first.close()
    Catalog.open(url, clock).close()


def test_postgres_survives_a_lost_connection(postgres: object, clock: FakeClock) -> None:
    catalog = Catalog.open(postgres.new_url(), clock)
    try:
        once(catalog).create_table(stream())
        _terminate(postgres, catalog)
        once(catalog).create_table(stream("while_idle"))
        with pytest.raises(CatalogError, match="lost its connection") as caught:
            _terminate_in_transaction(postgres, catalog)
        assert caught.value.hint
        assert set(catalog.snapshot().tables) == {"cars", "while_idle"}
        once(catalog).create_table(stream("after"))
        assert catalog.snapshot(2).find("while_idle") is not None
    finally:
        catalog.close()


def test_postgres_lost_to_another_owner(postgres: object, clock: FakeClock) -> None:
    url = postgres.new_url()
    first = Catalog.open(url, clock)
    try:
        _terminate(postgres, first)
        second = Catalog.open(url, clock)
        try:
            with pytest.raises(OwnedError):
                once(first).create_table(stream("mine"))
            once(second).create_table(stream("theirs"))
        finally:
            second.close()
        with pytest.raises(CatalogError, match="changed by another process"):
            once(first).create_table(stream("mine"))
    finally:
        first.close()
    last = Catalog.open(url, clock)
    assert set(last.snapshot().tables) == {"theirs"}
    last.close()


def test_postgres_errors_help_and_keep_the_password(postgres: object, clock: FakeClock) -> None:
    secret = "hunter2:x"
    postgres.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    postgres.execute("CREATE ROLE weak LOGIN")
    postgres.execute("CREATE SCHEMA closed")
    postgres.execute("GRANT USAGE ON SCHEMA closed TO weak")
    host = f"host={postgres.folder}"
    for url, words in (
        (postgres.url(user="guarded", password=secret.replace(":", "%3A")), "refused the login"),
        (f"postgresql://guarded@/postgres?{host}&password={secret}", "refused the login"),
        (postgres.url(user="weak", schema="closed"), "may not be"),
        (postgres.url(schema="missing"), "no schema"),
        (f"postgresql://postgres:{secret}@/nowhere?{host}", "cannot be reached"),
        (f"postgresql://postgres:{secret}@/x?host=/nonexistent", "cannot be reached"),
        (f"postgresql://postgres:{secret}@host:port/x", "cannot be read"),
    ):
        with pytest.raises(CatalogError, match=words) as caught:
            Catalog.open(url, clock)
        assert "hunter2" not in str(caught.value)
        assert caught.value.hint


def _terminate(postgres: object, catalog: Catalog) -> None:
    """Let the server end the catalog's writing connection, and wait until it has."""
    pid = catalog._connections._writer.connection.dbapi_connection.info.backend_pid
    catalog._connections._writer.rollback()
    assert postgres.execute(f"SELECT pg_terminate_backend({pid}, 10000)") == [(True,)]


def _terminate_in_transaction(postgres: object, catalog: Catalog) -> None:
    with catalog.transaction() as change:
        change.create_table(stream("lost"))
        pid = catalog._connections._writer.connection.dbapi_connection.info.backend_pid
        postgres.execute(f"SELECT pg_terminate_backend({pid}, 10000)")
        change.create_table(stream("lost_too"))


def _execute(url: str, *statements: str) -> None:
    engine = sa.create_engine(parse_url(url))
    try:
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(sa.text(statement))
    finally:
        engine.dispose()
