"""Commits of files: generations, anchors, moves, loads, packages, marks, sources, conflicts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from catalog_support import new_file, new_table, package
from once import file_commit, once

from tidemill.catalog.checks import NAME_CHARS_MAX, PATH_CHARS_MAX
from tidemill.catalog.filing import REASON_CHARS_MAX
from tidemill.catalog.model import FILE_DELETES, FILE_LATE, FILE_REJECTED, Reservation, Table
from tidemill.catalog.store import Catalog
from tidemill.clock import FakeClock
from tidemill.errors import (
    CatalogError,
    ClosedError,
    ConflictError,
    DefinitionError,
    DuplicateNameError,
    UnknownNameError,
)

Open = Callable[[], Catalog]
RANGES = {
    "vid": (-(2**70), 2**70),
    "text": ("a\0b", "é🌊"),
    "flag": (False, True),
    "real": (-0.5, 1e300),
    "none": (None, None),
}


def test_a_file_comes_back_as_it_was(catalog: Catalog, cars: Table, open_catalog: Open) -> None:
    given = new_file("1/a.parquet", -(2**60), ranges=RANGES, seq_max=2**62)
    history = once(catalog).commit_files(cars.table_id, [given])
    (file,) = history.files
    for name in given.__slots__:
        assert getattr(file, name) == getattr(given, name)
    assert (file.file_id, file.table_id, file.generation) == (1, cars.table_id, 1)
    assert file.created_snapshot == catalog.snapshot().snapshot_id
    assert catalog.snapshot().history(cars.table_id) is history
    before = catalog.snapshot()
    after = open_catalog().snapshot()
    assert after == before
    (back,) = after.history(cars.table_id).files
    assert back == file
    assert [type(bound) for bound in back.ranges["flag"]] == [bool, bool]
    assert after.history(cars.table_id).partitions == history.partitions


def test_tables_stay_the_same_objects_and_definitions_stay(catalog: Catalog, cars: Table) -> None:
    other = once(catalog).create_table(new_table("other"))
    before = catalog.snapshot()
    for number in range(3):
        once(catalog).commit_files(cars.table_id, [new_file(f"{number}")], moved_seq=number + 1)
    after = catalog.snapshot()
    assert after.snapshot_id == before.snapshot_id + 3
    assert after.tables is before.tables
    assert after.get("cars") is cars
    assert after.history(other.table_id) is before.history(other.table_id)
    assert after.definition_id == before.definition_id == before.snapshot_id


def test_definition_id_follows_definitions(catalog: Catalog, open_catalog: Open) -> None:
    seen = [catalog.snapshot().definition_id]
    cars = once(catalog).create_table(new_table())
    index = once(catalog).create_index(cars.table_id, ["vid"])
    once(catalog).commit_files(cars.table_id, [new_file("a")])
    once(catalog).alter_settings(cars.table_id, {"hot": "2 s"})
    source = once(catalog).create_source("s", cars.table_id, "*.csv", "csv")
    once(catalog).commit_files(cars.table_id, [new_file("b")])
    once(catalog).drop_source(source.source_id)
    once(catalog).drop_index(index.index_id)
    once(catalog).drop_table(cars.table_id)
    ids = range(catalog.snapshot().snapshot_id + 1)
    seen = [catalog.snapshot(each).definition_id for each in ids]
    assert seen == [0, 1, 2, 2, 4, 5, 5, 7, 8, 9]
    again = open_catalog()
    assert [again.snapshot(each).definition_id for each in ids] == seen


def test_generations_and_anchors(catalog: Catalog, cars: Table) -> None:
    def commit(*paths: str, drop: tuple[int, ...] = (), **changes: object) -> list[object]:
        history = once(catalog).commit_files(
            cars.table_id, [new_file(path, **changes) for path in paths], drop
        )
        anchors = [f.path for part in history.partitions for f in part.files if part.is_anchor(f)]
        made = [each for each in history.files if each.path in paths]
        return [(each.generation, each.path in anchors) for each in made]

    assert commit("a", "b") == [(1, True), (1, True)]
    assert commit("c") == [(2, False)]
    assert commit("d", kind=FILE_DELETES) == [(3, False)]
    assert commit("x", lo_us=10) == [(1, True)]
    assert commit("late", kind=FILE_LATE, hi_us=500) == [(1, False)]
    live = {each.path: each.file_id for each in catalog.snapshot().history(cars.table_id).files}
    assert commit("part", drop=(live["a"],)) == [(4, False)]
    rest = tuple(live[path] for path in ("b", "c", "d"))
    assert commit("most", drop=rest) == [(5, False)]
    left = [
        each.file_id
        for each in catalog.snapshot().history(cars.table_id).files
        if each.path in ("part", "most")
    ]
    assert commit("all", drop=tuple(left)) == [(6, True)]
    all_id = max(each.file_id for each in catalog.snapshot().history(cars.table_id).files)
    assert commit(drop=(all_id,)) == []
    assert commit("again") == [(8, True)]
    history = catalog.snapshot().history(cars.table_id)
    places = [(each.lo_us, each.hi_us, each.generation) for each in history.partitions]
    assert places == [(0, 10, 8), (10, 20, 1)]
    assert [(each.lo_us, each.hi_us) for each in history.sides] == [(0, 500)]
    assert history.rows == 14


def test_merged_partitions_carry_their_generation_on(
    catalog: Catalog, cars: Table, open_catalog: Open
) -> None:
    """A late row behind a merged range is a revision of it, and no generation goes back."""
    table_id = cars.table_id
    for path in ("a", "b", "c"):
        once(catalog).commit_files(table_id, [new_file(path)])
    once(catalog).commit_files(table_id, [new_file("d", 10)])
    small = [each.file_id for each in catalog.snapshot().history(table_id).files]
    once(catalog).commit_files(table_id, [new_file("merged", hi_us=20)], small)
    after = once(catalog).commit_files(table_id, [new_file("late", 10)])
    for history in (after, open_catalog().snapshot().history(table_id)):
        (part,) = history.partitions
        assert (part.lo_us, part.hi_us, part.generation, part.revisions) == (0, 20, 5, 1)
        assert [(each.path, each.generation) for each in part.files] == [("merged", 4), ("late", 5)]


def test_deletes_raise_the_generations_of_what_they_concern(
    catalog: Catalog, cars: Table, open_catalog: Open
) -> None:
    table_id = cars.table_id
    rows = [new_file(f"{n}", 10 * n, seq_min=10 * n, seq_max=10 * n + 9) for n in range(4)]
    once(catalog).commit_files(table_id, rows)
    wide = new_file("d", 0, FILE_DELETES, hi_us=30, seq_min=5, seq_max=15)
    after = once(catalog).commit_files(table_id, [wide])
    (deletes,) = after.deletes
    assert [part.generation for part in after.partitions] == [2, 2, 1, 1]
    once(catalog).commit_files(table_id, drop=[deletes.file_id])  # done with: nothing goes back
    parts = open_catalog().snapshot().history(table_id).partitions
    assert [part.generation for part in parts] == [2, 2, 1, 1]


def test_generations_outlive_what_expired(
    catalog: Catalog, cars: Table, clock: FakeClock, open_catalog: Open
) -> None:
    first = once(catalog).commit_files(cars.table_id, [new_file("a")]).files[0]
    once(catalog).commit_files(cars.table_id, [], [first.file_id])
    clock.advance(1)
    assert once(catalog).expire_snapshots(clock.now_us()) == ["a"]
    again = open_catalog()
    second = once(again).commit_files(cars.table_id, [new_file("a")]).files[0]
    assert second.generation == 3
    assert second.file_id > first.file_id


def test_one_transaction_is_one_snapshot(catalog: Catalog, open_catalog: Open) -> None:
    with catalog.transaction() as change:
        cars = change.create_table(new_table())
        first = change.commit_files(cars.table_id, file_commit([new_file("a")], moved_seq=5)).files[
            0
        ]
        change.commit_files(
            cars.table_id, file_commit([new_file("b")], [first.file_id], moved_seq=9)
        )
        change.create_source("s", cars.table_id, "*.csv", "csv")
        with pytest.raises(ConflictError):
            change.commit_files(cars.table_id, file_commit([new_file("c")], moved_seq=8))
    snapshot = catalog.snapshot()
    history = snapshot.history(cars.table_id)
    assert (snapshot.snapshot_id, snapshot.definition_id) == (1, 1)
    assert [(each.path, each.generation) for each in history.files] == [("b", 2)]
    assert history.moved_seq == 9
    assert open_catalog().snapshot() == snapshot


def test_an_exception_undoes_files_as_well(
    catalog: Catalog, cars: Table, open_catalog: Open
) -> None:
    before = catalog.snapshot()

    def fail() -> None:
        with catalog.transaction() as change:
            change.commit_files(
                cars.table_id, file_commit([new_file("a")], moved_seq=5, progress="p")
            )
            change.reserve(cars.table_id, 10, 20)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert catalog.snapshot() is before
    assert catalog.records.progress(cars.table_id) is None
    assert once(catalog).commit_files(cars.table_id, [new_file("a")]).files[0].file_id == 1
    assert open_catalog().snapshot().history(cars.table_id).reserved_seq == 0


def test_conflicts_change_nothing(catalog: Catalog, cars: Table, open_catalog: Open) -> None:
    other = once(catalog).create_table(new_table("other"))
    strange = once(catalog).commit_files(other.table_id, [new_file("o")]).files[0].file_id
    history = once(catalog).commit_files(
        cars.table_id, [new_file("a"), new_file("b")], moved_seq=5, reserved=[(10, 20)]
    )
    gone, kept = (each.file_id for each in history.files)
    once(catalog).commit_files(cars.table_id, (), [gone])
    before = catalog.snapshot()
    table_id = cars.table_id
    attempts: list[tuple[str, Callable[[], object]]] = [
        ("not live", lambda: once(catalog).commit_files(table_id, [new_file("c")], [gone])),
        ("not live", lambda: once(catalog).commit_files(table_id, [new_file("c")], [kept, gone])),
        ("not live", lambda: once(catalog).commit_files(table_id, drop=[strange])),
        ("not live", lambda: once(catalog).commit_files(table_id, drop=[99])),
        ("up to number 5", lambda: once(catalog).commit_files(table_id, moved_seq=4)),
        ("named already", lambda: once(catalog).commit_files(table_id, [new_file("b")])),
        ("named already", lambda: once(catalog).commit_files(table_id, [new_file("a")])),
        (
            "named already",
            lambda: once(catalog).commit_files(table_id, [new_file("n"), new_file("n")]),
        ),
        ("belong to a load", lambda: once(catalog).commit_files(table_id, reserved=[(20, 30)])),
        (
            "belong to a load",
            lambda: once(catalog).commit_files(table_id, reserved=[(1, 2), (2, 3)]),
        ),
        ("any more", lambda: once(catalog).commit_files(99, [new_file("c")])),
        ("any more", lambda: once(catalog).reserve(99, 1, 2)),
        ("any more", lambda: once(catalog).add_packages(99, [package("p")])),
    ]
    for words, attempt in attempts:
        with pytest.raises(ConflictError, match=words) as caught:
            attempt()
        assert isinstance(caught.value, CatalogError)
        assert caught.value.code == "conflict"
        assert caught.value.hint
    assert catalog.snapshot() is before
    for path in ("", "x" * (PATH_CHARS_MAX + 1), "a\0b"):
        with pytest.raises(DefinitionError):
            once(catalog).commit_files(table_id, [new_file(path)])
    once(catalog).drop_table(table_id)
    with pytest.raises(ConflictError, match="any more"):
        once(catalog).commit_files(table_id, [new_file("c")])
    once(catalog).commit_files(other.table_id, [new_file("🌊" * PATH_CHARS_MAX)])
    assert open_catalog().snapshot() == catalog._current


def test_moves_and_progress(catalog: Catalog, cars: Table, open_catalog: Open) -> None:
    assert catalog.records.progress(cars.table_id) is None
    once(catalog).commit_files(cars.table_id, moved_seq=5, progress="five 🌊")
    assert once(catalog).commit_files(cars.table_id, [new_file("a")]).moved_seq == 5
    before = catalog.snapshot()
    same = once(catalog).commit_files(cars.table_id, moved_seq=5, progress="")
    assert catalog.snapshot() is before
    assert same is before.history(cars.table_id)
    assert catalog.records.progress(cars.table_id) == ""
    with pytest.raises(DefinitionError):
        once(catalog).commit_files(cars.table_id, progress="\0")
    again = open_catalog()
    assert again.snapshot() == before
    assert again.snapshot().history(cars.table_id).moved_seq == 5
    assert again.records.progress(99) is None


def test_reservations(catalog: Catalog, cars: Table, open_catalog: Open) -> None:
    table_id = cars.table_id
    before = catalog.snapshot()
    once(catalog).reserve(table_id, 10, 19)
    once(catalog).reserve(table_id, 5, 6)
    after = catalog.snapshot()
    assert after == before  # not versioned
    assert after.history(table_id).reserved_seq == 19
    assert after.history(table_id).reservations == ()
    catalog = open_catalog()
    assert catalog.snapshot().history(table_id).reserved_seq == 19
    once(catalog).commit_files(table_id, [new_file("b")], reserved=[(30, 39), (10, 19)])
    once(catalog).commit_files(table_id, [new_file("a")], reserved=[(20, 29)], progress="p")
    history = catalog.snapshot().history(table_id)
    assert history.reserved_seq == 39
    assert history.reservations == (
        Reservation(10, 19, 2),
        Reservation(20, 29, 3),
        Reservation(30, 39, 2),
    )
    assert len(catalog.snapshot(2).history(table_id).reservations) == 2
    assert catalog.snapshot(1).history(table_id).reservations == ()
    assert catalog.snapshot(1).history(table_id).reserved_seq == 39
    again = open_catalog()
    assert again.snapshot().history(table_id).reservations == history.reservations
    assert again.snapshot().history(table_id).reserved_seq == 39


def test_packages(catalog: Catalog, cars: Table, open_catalog: Open) -> None:
    table_id = cars.table_id
    loaded = package("dir/A.csv")
    twin = package("dir/a.csv", loaded_at_us=10)
    changed = package("dir/A.csv", digest="cd", loaded_at_us=11)
    aside = package("bad.csv", state="set_aside", reason="not a CSV\0\ud800", loaded_at_us=12)
    before = catalog.snapshot()
    once(catalog).add_packages(table_id, [aside])
    assert catalog.snapshot() is before
    once(catalog).commit_files(table_id, [new_file("a")], packages=[loaded, twin, changed])
    kept = package("bad.csv", state="set_aside", reason="not a CSV\ufffd?", loaded_at_us=12)
    assert catalog.records.packages(table_id) == [loaded, twin, changed, kept]
    mended = package("bad.csv", loaded_at_us=13)
    with catalog.transaction() as change:
        change.add_packages(table_id, [mended])
    catalog = open_catalog()
    assert catalog.records.packages(table_id) == [loaded, twin, changed, mended]
    assert catalog.records.packages(table_id, ["dir/A.csv", "dir/A.csv", "none"]) == [
        loaded,
        changed,
    ]
    assert catalog.records.packages(table_id, iter(["bad.csv"])) == [mended]
    assert catalog.records.packages(table_id, []) == []
    assert catalog.records.packages(99) == []
    for name in ("", "a\0", "\ud800", "x" * (NAME_CHARS_MAX + 1)):
        with pytest.raises(DefinitionError):
            once(catalog).add_packages(table_id, [package(name)])
    long = package("x" * NAME_CHARS_MAX, state="set_aside", reason="y" * 99_999)
    once(catalog).add_packages(table_id, [long])
    (got,) = catalog.records.packages(table_id, [long.name])
    assert got.reason == "y" * REASON_CHARS_MAX


def test_many_packages_and_files_at_once(catalog: Catalog, cars: Table) -> None:
    packages = [package(f"{number:05}") for number in range(1_200)]
    files = [new_file(f"{number}", number * 10) for number in range(1_200)]
    history = once(catalog).commit_files(cars.table_id, files, packages=packages)
    assert [each.path for each in history.files] == [each.path for each in files]
    names = [each.name for each in packages]
    assert catalog.records.packages(cars.table_id, names) == packages
    once(catalog).commit_files(cars.table_id, drop=[each.file_id for each in history.files[1:]])
    assert [each.path for each in catalog.snapshot().history(cars.table_id).files] == ["0"]


def test_marks(catalog: Catalog, cars: Table) -> None:
    table_id = cars.table_id
    other = once(catalog).create_table(new_table("other"))
    assert catalog.records.seq_at(table_id, 10) is None
    before = catalog.snapshot()
    once(catalog).commit_files(table_id, marks=[(20, 5), (10, 3)])
    once(catalog).commit_files(other.table_id, marks=[(15, 99)])
    assert catalog.snapshot() is before
    assert [catalog.records.seq_at(table_id, at) for at in (9, 10, 19, 20, 99)] == [
        None,
        3,
        3,
        5,
        5,
    ]
    once(catalog).commit_files(table_id, marks=[(20, 6)])
    assert catalog.records.seq_at(table_id, 20) == 6
    once(catalog).commit_files(table_id, marks=[(5, 9)])  # the clock was set back
    assert [catalog.records.seq_at(table_id, at) for at in (5, 10, 20)] == [None, 3, 9]
    once(catalog).commit_files(table_id, marks=[(30, 8)])
    assert catalog.records.seq_at(table_id, 30) == 9
    once(catalog).commit_files(other.table_id, marks=[(-5, 1)])
    assert catalog.records.seq_at(other.table_id, 14) is None


def test_sources(catalog: Catalog, cars: Table, open_catalog: Open) -> None:
    options = {"header": "true", "Δ": "'"}
    made = once(catalog).create_source(
        "Feed", cars.table_id, "s3://b/*.csv", "csv", options, 10_000_000
    )
    options["header"] = "false"
    assert made.options == {"header": "true", "Δ": "'"}
    assert catalog.snapshot().find_source("FEED") is made
    single = once(catalog).create_source("once", cars.table_id, "/d/*.parquet", "parquet")
    assert (single.every_us, single.options) == (None, {})
    for kind, attempt in (
        (
            DuplicateNameError,
            lambda: once(catalog).create_source("fEED", cars.table_id, "x", "csv"),
        ),
        (UnknownNameError, lambda: once(catalog).create_source("x", 99, "x", "csv")),
        (DefinitionError, lambda: once(catalog).create_source("", cars.table_id, "x", "csv")),
        (DefinitionError, lambda: once(catalog).create_source("x", cars.table_id, "", "csv")),
        (DefinitionError, lambda: once(catalog).create_source("x", cars.table_id, "\0", "csv")),
        (UnknownNameError, lambda: once(catalog).drop_source(99)),
    ):
        with pytest.raises(kind):
            attempt()
    both = catalog.snapshot()
    with catalog.transaction() as change:  # OR REPLACE
        change.drop_source(made.source_id)
        new = change.create_source("feed", cars.table_id, "y", "csv")
    assert new.source_id > single.source_id
    catalog = open_catalog()
    assert catalog.snapshot().sources == {"feed": new, "once": single}
    assert catalog.snapshot(both.snapshot_id) == both
    once(catalog).drop_table(cars.table_id)
    assert catalog.snapshot().sources == {}
    assert open_catalog().snapshot().sources == {}


def test_a_dropped_table_takes_its_files_along(catalog: Catalog, cars: Table) -> None:
    once(catalog).commit_files(cars.table_id, [new_file("a"), new_file("r", kind=FILE_REJECTED)])
    held = catalog.snapshot()
    once(catalog).drop_table(cars.table_id)
    assert cars.table_id not in catalog.snapshot().histories
    assert catalog.snapshot().history(cars.table_id).files == ()
    assert catalog.records.known_paths() == {"a", "r"}
    assert catalog.snapshot(held.snapshot_id) == held
    replaced = once(catalog).create_table(new_table())
    assert catalog.snapshot().history(replaced.table_id).files == ()


def test_a_commit_that_was_stored_though_its_answer_was_lost(
    catalog: Catalog, cars: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit of files is looked up; a reservation makes no snapshot, so it must be repeated."""
    writer = catalog._connections._writer
    commit = writer.commit

    def stored_and_lost() -> None:
        commit()
        raise CatalogError("lost")

    monkeypatch.setattr(writer, "commit", stored_and_lost)
    history = once(catalog).commit_files(cars.table_id, [new_file("a")], moved_seq=3)
    assert catalog.snapshot().history(cars.table_id) is history
    writer = catalog._connections._writer
    monkeypatch.setattr(writer, "commit", lambda: (_ for _ in ()).throw(CatalogError("lost")))
    with pytest.raises(CatalogError, match="lost"):
        once(catalog).reserve(cars.table_id, 5, 9)
    assert catalog.snapshot().history(cars.table_id).reserved_seq == 0
    once(catalog).reserve(cars.table_id, 5, 9)
    assert catalog.snapshot().history(cars.table_id).reserved_seq == 9


def test_a_closed_catalog_says_so(catalog: Catalog) -> None:
    catalog.close()
    for attempt in (
        lambda: once(catalog).commit_files(1),
        lambda: once(catalog).reserve(1, 1, 1),
        lambda: catalog.records.progress(1),
        lambda: catalog.records.packages(1),
        lambda: catalog.records.seq_at(1, 1),
        lambda: catalog.snapshot_holding(1, 1, 1),
        lambda: once(catalog).expire_snapshots(1),
        catalog.records.known_paths,
        catalog.snapshots,
    ):
        with pytest.raises(ClosedError):
            attempt()
