"""Time travel to older files, and what is forgotten when snapshots expire."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa
from catalog_support import new_file, new_table, package
from once import file_commit, once

from tidemill.catalog import schema
from tidemill.catalog.commits import ChangeSet
from tidemill.catalog.model import FILE_DELETES, FILE_REPLACED, Reservation, Snapshot, Table
from tidemill.catalog.store import Catalog
from tidemill.clock import FakeClock
from tidemill.errors import UnknownNameError

Open = Callable[[], Catalog]


def count(catalog: Catalog, table: sa.Table) -> int:
    with catalog._connections.read() as connection:
        return connection.scalar(sa.select(sa.func.count()).select_from(table))


@pytest.fixture
def past(catalog: Catalog, cars: Table, clock: FakeClock) -> list[Snapshot]:
    """Snapshots 1 to 7, a second apart: a, b; a becomes c; d; b and c become e; d leaves."""
    seen = [catalog.snapshot()]
    steps: list[tuple[list[str], list[str]]] = [
        (["a"], []),
        (["b"], []),
        (["c"], ["a"]),
        (["d"], []),
        (["e"], ["b", "c"]),
        ([], ["d"]),
    ]
    for number, (add, drop) in enumerate(steps, 1):
        clock.advance(1)
        ids = {each.path: each.file_id for each in catalog.snapshot().history(cars.table_id).files}
        once(catalog).commit_files(
            cars.table_id,
            [new_file(path) for path in add],
            [ids[path] for path in drop],
            moved_seq=number * 10,
            marks=[(clock.now_us(), number * 10)],
            progress=f"{number}",
        )
        seen.append(catalog.snapshot())
    return seen


def paths(snapshot: Snapshot, table: Table) -> str:
    return "".join(sorted(each.path for each in snapshot.history(table.table_id).files))


def test_older_files(
    catalog: Catalog, cars: Table, past: list[Snapshot], open_catalog: Open
) -> None:
    assert [paths(each, cars) for each in past] == ["", "a", "ab", "bc", "bcd", "de", "e"]
    for reopen in (lambda: catalog, open_catalog):
        each = reopen()
        for snapshot in past:
            got = each.snapshot(snapshot.snapshot_id)
            assert got == snapshot
            assert got.history(cars.table_id).partitions == (
                snapshot.history(cars.table_id).partitions
            )
            assert got.history(cars.table_id).rows == snapshot.history(cars.table_id).rows
            assert each.snapshot_at(snapshot.committed_at_us) == snapshot
            assert each.records.seq_at(cars.table_id, snapshot.committed_at_us) == (
                snapshot.history(cars.table_id).moved_seq or None
            )


def test_the_snapshot_that_holds_a_number(
    catalog: Catalog, cars: Table, past: list[Snapshot], clock: FakeClock
) -> None:
    def holding(seq: int, since: int) -> int | None:
        found = catalog.snapshot_holding(cars.table_id, seq, since)
        return found and found.snapshot_id

    cases = [(0, 1, 1), (1, 1, 2), (10, 1, 2), (11, 1, 3), (60, 1, 7), (61, 1, None)]
    for seq, since, wanted in [*cases, (10, 5, 5), (10, 7, 7), (10, 8, None), (0, 0, None)]:
        assert holding(seq, since) == wanted, (seq, since)
    assert catalog.snapshot_holding(99, 1, 1) is None
    assert catalog.snapshot_holding(cars.table_id, 60, 1) is catalog.snapshot()
    assert catalog.snapshot_holding(cars.table_id, 25, 2) == past[3]
    once(catalog).expire_snapshots(past[4].committed_at_us)
    assert [holding(seq, 1) for seq in (0, 1, 40, 41)] == [5, 5, 5, 6]
    once(catalog).drop_table(cars.table_id)
    assert holding(60, 8) is None
    assert holding(60, 1) == 7


def test_nothing_expires_that_a_moment_still_needs(
    catalog: Catalog, cars: Table, past: list[Snapshot]
) -> None:
    assert once(catalog).expire_snapshots(past[0].committed_at_us - 1) == []
    assert once(catalog).expire_snapshots(-(2**60)) == []
    catalog.snapshot(0)
    moment = past[3].committed_at_us + 500_000
    assert once(catalog).expire_snapshots(moment) == ["a"]
    assert catalog.snapshot_at(moment) == past[3]
    assert [number for number, _ in catalog.snapshots()] == [7, 6, 5, 4]
    assert catalog.snapshots(1) == [(7, past[6].committed_at_us)]
    with pytest.raises(UnknownNameError, match="snapshot 3") as caught:
        catalog.snapshot(3)
    assert "4 to 7" in caught.value.hint
    with pytest.raises(UnknownNameError) as caught:
        catalog.snapshot_at(past[3].committed_at_us - 1)
    assert "oldest" in caught.value.hint


def test_pins_hold_what_they_see_and_all_after(
    catalog: Catalog, cars: Table, past: list[Snapshot], clock: FakeClock, open_catalog: Open
) -> None:
    clock.advance(100)
    now_us = clock.now_us()
    assert once(catalog).expire_snapshots(now_us, {3, 5}) == []
    assert [number for number, _ in catalog.snapshots()] == [7, 6, 5, 4, 3]
    assert catalog.snapshot(3) == past[2]
    assert catalog.records.known_paths() == set("abcde")
    assert sorted(once(catalog).expire_snapshots(now_us, [5])) == ["a"]
    assert catalog.snapshot(5) == past[4]
    assert once(catalog).expire_snapshots(now_us, [5, 1]) == []  # 1 is gone already, 5 is held
    assert sorted(once(catalog).expire_snapshots(now_us, [7, 99])) == ["b", "c", "d"]
    assert once(catalog).expire_snapshots(now_us) == []
    assert catalog.records.known_paths() == {"e"}
    assert catalog.snapshot() == past[6]
    assert open_catalog().snapshot() == past[6]


def test_what_remains_after_all_expired(
    catalog: Catalog, cars: Table, past: list[Snapshot], clock: FakeClock, open_catalog: Open
) -> None:
    table_id = cars.table_id
    clock.advance(1)
    once(catalog).expire_snapshots(clock.now_us())
    for table in (schema.snapshots, schema.moves, schema.marks, schema.definitions, schema.files):
        assert count(catalog, table) == 1, table.name
    catalog = open_catalog()
    assert catalog.snapshot() == past[6]
    assert catalog.snapshot().definition_id == 1
    assert catalog.records.seq_at(table_id, clock.now_us()) == 60
    assert catalog.records.progress(table_id) == "6"
    assert catalog.snapshot_holding(table_id, 1, 0) == past[6]
    assert once(catalog).commit_files(table_id, [new_file("f")]).files[-1].file_id == 6


def test_dropped_tables_and_old_definitions_are_forgotten(
    catalog: Catalog, cars: Table, clock: FakeClock, open_catalog: Open
) -> None:
    index = once(catalog).create_index(cars.table_id, ["vid"])
    kept = once(catalog).create_table(new_table("kept"))
    once(catalog).create_index(kept.table_id, ["vid"])
    for table in (cars, kept):
        name = table.name
        once(catalog).create_source(name, table.table_id, "*.csv", "csv")
        once(catalog).commit_files(
            table.table_id,
            [new_file(name)],
            moved_seq=5,
            progress="p",
            reserved=[(10, 20)],
            packages=[package("p")],
            marks=[(5, 5)],
            changes=[ChangeSet(1, 3, "some")],
        )
        once(catalog).alter_settings(table.table_id, {"hot": "2 s"})
    once(catalog).drop_index(index.index_id)
    once(catalog).drop_table(cars.table_id)
    before = catalog.snapshot()
    clock.advance(1)
    assert once(catalog).expire_snapshots(clock.now_us()) == ["cars"]
    assert catalog.records.packages(cars.table_id) == []
    assert catalog.records.packages(kept.table_id) == [package("p")]
    every = (*schema.OF_A_TABLE, *schema.BESIDE_A_TABLE, schema.index_columns)
    for table in every:
        wanted = {schema.columns: 2, schema.constraints: 0}.get(table, 1)
        assert count(catalog, table) == wanted, table.name
    assert catalog.snapshot() == before
    assert open_catalog().snapshot() == before


def test_reservations_go_when_every_moment_counts_them(
    catalog: Catalog, cars: Table, clock: FakeClock, open_catalog: Open
) -> None:
    table_id = cars.table_id
    once(catalog).commit_files(table_id, [new_file("a")], reserved=[(10, 20)])
    once(catalog).commit_files(table_id, [new_file("b")], reserved=[(100, 200)])
    clock.advance(1)
    once(catalog).expire_snapshots(clock.now_us())
    assert len(catalog.snapshot().history(table_id).reservations) == 2  # there is no mark
    once(catalog).commit_files(table_id, moved_seq=50, marks=[(clock.now_us(), 50)])
    assert len(catalog.snapshot().history(table_id).reservations) == 2
    clock.advance(1)
    once(catalog).commit_files(table_id, [new_file("c")], reserved=[(21, 30)])
    newest = catalog.snapshot().snapshot_id
    once(catalog).expire_snapshots(clock.now_us(), [newest - 1])
    wanted = (Reservation(21, 30, newest), Reservation(100, 200, 3))
    assert catalog.snapshot().history(table_id).reservations == wanted
    assert catalog.snapshot().history(table_id).reserved_seq == 200
    again = open_catalog()
    assert again.snapshot().history(table_id).reservations == wanted
    assert again.snapshot().history(table_id).reserved_seq == 200


def test_files_of_a_snapshot_nobody_saw(catalog: Catalog, cars: Table, clock: FakeClock) -> None:
    with catalog.transaction() as change:
        made = change.commit_files(cars.table_id, file_commit([new_file("a")])).files[0]
        change.commit_files(cars.table_id, file_commit(drop=[made.file_id]))
    assert catalog.records.known_paths() == {"a"}
    assert once(catalog).expire_snapshots(clock.now_us()) == ["a"]
    assert catalog.records.known_paths() == set()


# -- what came and went between two snapshots


def test_replaced_rows_are_in_no_snapshot(
    catalog: Catalog, cars: Table, clock: FakeClock, open_catalog: Open
) -> None:
    """Their files are found by whoever reads a moment before, and go when nobody may."""
    for number, path in enumerate("ab", 1):
        clock.advance(1)
        once(catalog).commit_files(
            cars.table_id,
            [new_file(path)],
            moved_seq=10 * number,
            replaced=[new_file(f"{path}-past", kind=FILE_REPLACED)],
        )
    assert [paths(catalog.snapshot(each), cars) for each in (1, 2, 3)] == ["", "a", "ab"]
    for reopened in (lambda: catalog, open_catalog):
        found = reopened().records.dropped_files(cars.table_id, 1, 1)
        assert [(file.path, file.kind, file.created_snapshot) for file in found] == [
            ("a-past", FILE_REPLACED, 2),
            ("b-past", FILE_REPLACED, 3),
        ]
    again = open_catalog()
    assert again.records.dropped_files(cars.table_id, 2, 3)[0].path == "b-past"
    assert again.records.dropped_files(cars.table_id, 3, 3) == []
    assert again.records.dropped_files(cars.table_id + 1, 1, 3) == []
    assert {"a-past", "b-past"} < again.records.known_paths()
    assert once(again).expire_snapshots(clock.now_us() - 1) == ["a-past"]
    assert once(again).expire_snapshots(clock.now_us()) == ["b-past"]
    assert paths(again.snapshot(), cars) == "ab"


def test_files_that_came_and_went(catalog: Catalog, cars: Table, past: list[Snapshot]) -> None:
    """Of snapshots 1 to 7: c and d came after 2, c was gone with 6, d with 7."""

    def dropped(after_id: int, upto_id: int) -> str:
        found = catalog.records.dropped_files(cars.table_id, after_id, upto_id)
        return "".join(file.path for file in found)

    assert [dropped(3, upto_id) for upto_id in (4, 5, 6, 7)] == ["", "", "c", "cd"]
    assert [dropped(after_id, 7) for after_id in (1, 2, 3, 4, 5)] == ["abcd", "bcd", "cd", "d", ""]


def test_deletes_are_those_of_the_snapshot(catalog: Catalog, cars: Table) -> None:
    """Also when an older or a newer history had been asked for them."""
    table_id = cars.table_id
    assert catalog.snapshot().history(table_id).deletes == ()
    once(catalog).commit_files(table_id, [new_file("a"), new_file("d", kind=FILE_DELETES)])
    (found,) = catalog.snapshot().history(table_id).deletes
    assert found.path == "d"
    assert catalog.snapshot(1).history(table_id).deletes == ()
    once(catalog).commit_files(table_id, drop=[found.file_id])
    assert catalog.snapshot().history(table_id).deletes == ()
    assert catalog.snapshot(2).history(table_id).deletes == (found,)
