"""Views and digests as tables, new names and definitions, commits to several tables at once."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest
import sqlalchemy as sa
from catalog_support import new_digest, new_file, new_table, new_view
from once import file_commit, once

from tidemill.catalog import schema
from tidemill.catalog.model import FILE_DIGEST, FILE_LATE, REFERENCE, NewFile, Table
from tidemill.catalog.store import Catalog
from tidemill.clock import FakeClock
from tidemill.errors import (
    ConflictError,
    DefinitionError,
    DuplicateNameError,
    UnknownNameError,
)

Open = Callable[[], Catalog]


def partials(path: str, lo_us: int = 0, **changes: object) -> NewFile:
    return new_file(path, lo_us, FILE_DIGEST, **changes)


@pytest.fixture
def digest(catalog: Catalog, cars: Table) -> Table:
    with catalog.transaction() as change:
        change.create_table(new_view())
        return change.create_table(new_digest(cars.table_id))


def test_a_view_and_its_digest_come_back(
    catalog: Catalog, cars: Table, digest: Table, open_catalog: Open
) -> None:
    other = once(catalog).create_table(new_table("other"))
    kept = once(catalog).create_table(replace(new_table("kept"), definition='{"query": "q"}'))
    second = once(catalog).create_table(new_digest(cars.table_id, "totals$digest1"))
    before = catalog.snapshot()
    for snapshot in (before, open_catalog().snapshot(), pickle.loads(pickle.dumps(before))):
        assert snapshot == before
        view = snapshot.get("Totals")
        assert (view.is_view, view.is_digest, view.is_streaming) == (True, False, False)
        assert (view.definition, view.source_id) == ('{"query": 1}', None)
        assert (view.time_column, view.watermark_delay_us, view.primary_key) == (None, None, ())
        assert snapshot.views == (view,)
        assert snapshot.digests_of(cars.table_id) == (digest, second)
        assert snapshot.digests_of(other.table_id) == snapshot.digests_of(99) == ()
        assert snapshot.find("TOTALS$digest0") == snapshot.table(digest.table_id) == digest
        assert (digest.is_digest, digest.source_id) == (True, cars.table_id)
        assert snapshot.listed == (cars, view, other, kept)
        assert snapshot.get("kept").definition == '{"query": "q"}'


def test_digests_are_not_suggested(catalog: Catalog, digest: Table) -> None:
    with pytest.raises(UnknownNameError) as caught:
        catalog.snapshot().get("totals$digest1")
    assert "$digest0" not in caught.value.hint


def test_one_name_for_all_kinds(catalog: Catalog, cars: Table, digest: Table) -> None:
    with pytest.raises(DuplicateNameError, match='view "TOTALS" already exists'):
        once(catalog).create_table(new_table("TOTALS"))
    with pytest.raises(DuplicateNameError, match='table "cars" already exists'):
        once(catalog).create_table(new_view("cars"))
    with pytest.raises(DuplicateNameError):
        once(catalog).create_table(new_digest(cars.table_id))


def test_what_a_definition_must_have(catalog: Catalog, cars: Table, digest: Table) -> None:
    before = catalog.snapshot()
    view_id = before.get("totals").table_id
    reference = replace(new_view("r"), kind=REFERENCE)
    for wrong, message in (
        (new_view("a$DIGEST0"), "in its name"),
        (new_table("a$digestive"), "in its name"),
        (replace(new_view("v"), definition=None), "has no definition"),
        (replace(new_view("v"), definition="a\0b"), "NUL"),
        (replace(new_view("v"), columns=()), "no columns"),
        (replace(new_view("v"), kind="query"), "of kind"),
        (reference, "cannot have a definition"),
        (new_digest(view_id, "v$digest0"), "cannot be made of"),
    ):
        with pytest.raises(DefinitionError, match=message):
            once(catalog).create_table(wrong)
    with pytest.raises(UnknownNameError):
        once(catalog).create_table(new_digest(99, "v$digest0"))
    for ours in (
        new_digest(cars.table_id, "plain"),
        new_digest(cars.table_id, "$digest0"),
        replace(new_view("v"), source_id=cars.table_id),
        replace(new_digest(cars.table_id, "v$digest0"), source_id=None),
    ):
        with pytest.raises(AssertionError):
            once(catalog).create_table(ours)
    assert catalog.snapshot() is before


def test_a_replacement_that_fails_leaves_what_was(catalog: Catalog, digest: Table) -> None:
    with catalog.transaction() as change:
        with pytest.raises(UnknownNameError):
            change.replace_table(new_digest(99))
        assert change.snapshot.get("totals$digest0") is digest
    assert catalog.snapshot().get("totals$digest0") is digest


def test_older_snapshots_know_the_older_name(
    catalog: Catalog, cars: Table, clock: FakeClock, open_catalog: Open
) -> None:
    seen = [catalog.snapshot()]
    for name in ("Cars", "autos", "cars", "trucks"):
        clock.advance(1)
        renamed = once(catalog).rename_table(cars.table_id, name)
        assert renamed == replace(cars, name=name)
        assert catalog.snapshot().get(name) is renamed
        seen.append(catalog.snapshot())
    assert catalog.snapshot().find("cars") is None
    clock.advance(1)
    taken = once(catalog).create_table(new_table("cars"))
    for reopen in (lambda: catalog, open_catalog):
        again = reopen()
        for snapshot in seen:
            assert again.snapshot(snapshot.snapshot_id) == snapshot
            assert again.snapshot_at(snapshot.committed_at_us) == snapshot
        assert again.snapshot().get("cars") == taken
        assert again.snapshot().definition_id == again.snapshot().snapshot_id


def test_history_and_indices_stay_with_a_renamed_table(
    catalog: Catalog, cars: Table, open_catalog: Open
) -> None:
    index = once(catalog).create_index(cars.table_id, ["vid"])
    once(catalog).commit_files(cars.table_id, [new_file("a")], moved_seq=7)
    history = catalog.snapshot().history(cars.table_id)
    once(catalog).rename_table(cars.table_id, "autos")
    assert catalog.snapshot().history(cars.table_id) is history
    assert open_catalog().snapshot().get("autos").indexes == (index,)


def test_names_that_cannot_be_given(catalog: Catalog, cars: Table, digest: Table) -> None:
    before = catalog.snapshot()
    assert once(catalog).rename_table(cars.table_id, "cars") is cars
    for name, error in (("Totals", DuplicateNameError), ("", DefinitionError)):
        with pytest.raises(error):
            once(catalog).rename_table(cars.table_id, name)
    with pytest.raises(DefinitionError):
        once(catalog).rename_table(cars.table_id, "cars$digest0")
    with pytest.raises(AssertionError):
        once(catalog).rename_table(digest.table_id, "plain")
    with pytest.raises(UnknownNameError):
        once(catalog).rename_table(99, "x")
    assert catalog.snapshot() is before


def test_a_definition_changes_for_newer_snapshots(
    catalog: Catalog, cars: Table, digest: Table, open_catalog: Open
) -> None:
    view = catalog.snapshot().get("totals")
    seen = [catalog.snapshot()]
    for definition in ("2", "3"):
        altered = once(catalog).alter_definition(view.table_id, definition)
        assert altered == replace(view, definition=definition)
        seen.append(catalog.snapshot())
    assert once(catalog).alter_definition(view.table_id, "3") is altered
    once(catalog).alter_definition(cars.table_id, "kept")
    seen.append(catalog.snapshot())
    once(catalog).alter_definition(cars.table_id, None)
    seen.append(catalog.snapshot())
    for reopen in (lambda: catalog, open_catalog):
        again = reopen()
        assert [again.snapshot(each.snapshot_id) for each in seen] == seen
        got = [again.snapshot(each.snapshot_id).get("totals").definition for each in seen]
        assert got == ['{"query": 1}', "2", "3", "3", "3"]
    again = open_catalog()
    with pytest.raises(DefinitionError):
        once(again).alter_definition(view.table_id, None)
    with pytest.raises(DefinitionError):
        once(again).alter_definition(view.table_id, "\0")
    with pytest.raises(UnknownNameError):
        once(again).alter_definition(99, "4")


def test_a_view_takes_the_place_of_another_in_one_snapshot(
    catalog: Catalog, cars: Table, digest: Table, open_catalog: Open
) -> None:
    old = catalog.snapshot().get("totals")
    with catalog.transaction() as change:
        new = change.create_table(new_view("totals$new", "2"))
        new_half = change.create_table(new_digest(cars.table_id, "totals$new$digest0"))
    before = catalog.snapshot()
    with catalog.transaction() as change:
        change.drop_table(digest.table_id)
        change.drop_table(old.table_id)
        change.rename_table(new.table_id, "totals")
        change.rename_table(new_half.table_id, "totals$digest0")
        change.alter_definition(new_half.table_id, "{}")
    after = catalog.snapshot()
    assert after.snapshot_id == before.snapshot_id + 1
    assert after.get("totals").table_id == new.table_id
    assert [each.table_id for each in after.digests_of(cars.table_id)] == [new_half.table_id]
    again = open_catalog()
    assert (again.snapshot(), again.snapshot(before.snapshot_id)) == (after, before)


def test_two_names_change_places(catalog: Catalog, cars: Table, open_catalog: Open) -> None:
    other = once(catalog).create_table(new_table("other"))
    before = catalog.snapshot()
    with catalog.transaction() as change:
        change.rename_table(cars.table_id, "between")
        change.rename_table(other.table_id, "cars")
        change.rename_table(cars.table_id, "other")
    again = open_catalog()
    assert again.snapshot().get("cars").table_id == other.table_id
    assert again.snapshot().get("other").table_id == cars.table_id
    assert again.snapshot(before.snapshot_id) == before


def test_former_names_are_forgotten_with_their_snapshots(
    catalog: Catalog, cars: Table, clock: FakeClock
) -> None:
    def formers() -> int:
        with catalog._connections.read() as connection:
            return connection.scalar(sa.select(sa.func.count()).select_from(schema.former_tables))

    seen = [catalog.snapshot()]
    for name in ("b", "c", "d"):
        clock.advance(1)
        once(catalog).rename_table(cars.table_id, name)
        seen.append(catalog.snapshot())
    assert formers() == 3
    once(catalog).expire_snapshots(seen[2].committed_at_us)
    assert formers() == 1
    once(catalog).rename_table(cars.table_id, "e")
    assert [catalog.snapshot(each.snapshot_id) for each in seen[2:]] == seen[2:]
    once(catalog).drop_table(cars.table_id)
    clock.advance(1)
    once(catalog).expire_snapshots(clock.now_us())
    assert formers() == 0
    assert catalog.snapshot().tables == {}


def test_one_commit_to_a_stream_and_its_digests(
    catalog: Catalog, cars: Table, digest: Table, open_catalog: Open
) -> None:
    second = once(catalog).create_table(new_digest(cars.table_id, "totals$digest1"))
    before = catalog.snapshot()
    with catalog.transaction() as change:
        change.commit_files(
            cars.table_id, file_commit([new_file("a")], moved_seq=10, progress="rows")
        )
        change.commit_files(
            digest.table_id,
            file_commit([partials("b"), partials("c", 10)], moved_seq=25, progress="ahead"),
        )
        change.commit_files(
            second.table_id, file_commit([partials("d", origin="backfill")], moved_seq=3)
        )
        change.commit_files(
            second.table_id, file_commit([partials("e", origin="seal")], progress="behind")
        )
    after = catalog.snapshot()
    assert after.snapshot_id == before.snapshot_id + 1
    assert after.tables is before.tables
    assert after.definition_id == before.definition_id
    ids = [cars.table_id, digest.table_id, second.table_id]
    for reopen in (lambda: catalog, open_catalog):
        again = reopen()
        histories = [again.snapshot().history(each) for each in ids]
        assert [each.moved_seq for each in histories] == [10, 25, 3]
        assert [[f.path for f in each.files] for each in histories] == [
            ["a"],
            ["b", "c"],
            ["d", "e"],
        ]
        assert [again.records.progress(each) for each in ids] == ["rows", "ahead", "behind"]
        files = [file for each in histories for file in each.files]
        assert len({file.file_id for file in files}) == 5
        assert {file.created_snapshot for file in files} == {after.snapshot_id}
        assert again.snapshot() == after
        assert again.snapshot(before.snapshot_id) == before
        assert again.records.known_paths() == set("abcde")


def test_a_commit_to_several_tables_is_all_or_nothing(
    catalog: Catalog, cars: Table, digest: Table, open_catalog: Open
) -> None:
    made = once(catalog).commit_files(digest.table_id, [partials("a")], moved_seq=9, progress="old")
    before = catalog.snapshot()
    wrong: list[dict[str, object]] = [
        {"moved_seq": 8},
        {"drop": [made.files[0].file_id + 50]},
        {"add": [partials("a")]},
    ]

    def commit_both(**arguments: object) -> None:
        with catalog.transaction() as change:
            change.commit_files(
                cars.table_id, file_commit([new_file("b")], moved_seq=99, progress="new")
            )
            change.commit_files(digest.table_id, file_commit(progress="new", **arguments))

    for arguments in wrong:
        with pytest.raises(ConflictError):
            commit_both(**arguments)
        assert catalog.snapshot() is before
    with pytest.raises(ConflictError), catalog.transaction() as change:
        change.commit_files(
            cars.table_id, file_commit(drop=[made.files[0].file_id])
        )  # it is the digest's
    for reopen in (lambda: catalog, open_catalog):
        again = reopen()
        assert again.snapshot() == before
        assert (again.records.progress(cars.table_id), again.records.progress(digest.table_id)) == (
            None,
            "old",
        )
        assert again.records.known_paths() == {"a"}


def test_a_digest_begins_where_its_stream_stands(catalog: Catalog, cars: Table) -> None:
    once(catalog).commit_files(cars.table_id, [new_file("a")], moved_seq=50)
    with catalog.transaction() as change:
        moved = change.snapshot.history(cars.table_id).moved_seq
        made = change.create_table(new_digest(cars.table_id))
        change.commit_files(made.table_id, file_commit(moved_seq=moved, progress="from 100"))
    assert catalog.snapshot().history(made.table_id).moved_seq == 50
    assert catalog.records.progress(made.table_id) == "from 100"


def test_partitions_of_a_digest(catalog: Catalog, digest: Table, open_catalog: Open) -> None:
    first = once(catalog).commit_files(digest.table_id, [partials("a"), partials("b", 10)])
    second = once(catalog).commit_files(digest.table_id, [partials("c")])
    assert [part.revisions for part in first.partitions] == [0, 0]
    for history in (second, open_catalog().snapshot().history(digest.table_id)):
        assert [(p.lo_us, [f.path for f in p.files]) for p in history.partitions] == [
            (0, ["a", "c"]),
            (10, ["b"]),
        ]
        assert [part.revisions for part in history.partitions] == [1, 0]
        assert (history.sides, history.deletes) == ((), ())
        assert (history.rows, history.bytes) == (21, 2_100)
        assert [p.rows for p in history.partitions] == [14, 7]


def test_files_are_of_the_kind_of_their_table(catalog: Catalog, cars: Table, digest: Table) -> None:
    for table, file in (
        (cars, partials("a")),
        (digest, new_file("a")),
        (digest, new_file("a", kind=FILE_LATE)),
        (digest, partials("a", origin="elsewhere")),
    ):
        with pytest.raises(AssertionError):
            once(catalog).commit_files(table.table_id, [file])


def test_files_of_a_digest_are_vacuumed_like_others(
    catalog: Catalog, cars: Table, digest: Table, clock: FakeClock
) -> None:
    made = once(catalog).commit_files(digest.table_id, [partials("a"), partials("b")]).files
    clock.advance(1)
    ids = [file.file_id for file in made]
    once(catalog).commit_files(digest.table_id, [partials("c", origin="compact")], ids)
    assert catalog.records.known_paths() == set("abc")
    assert sorted(once(catalog).expire_snapshots(clock.now_us())) == ["a", "b"]
    clock.advance(1)
    once(catalog).drop_table(cars.table_id)
    assert catalog.snapshot().table(digest.table_id) == digest  # the engine's to drop
    once(catalog).drop_table(digest.table_id)
    assert catalog.records.known_paths() == {"c"}
    assert once(catalog).expire_snapshots(clock.now_us()) == ["c"]
    assert catalog.records.known_paths() == set()
    assert set(catalog.snapshot().tables) == {"totals"}
