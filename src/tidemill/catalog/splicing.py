"""The next history of a table from the last one: what a commit adds and takes, and no more.

A commit of one file to a table of a hundred thousand must not look at the others, nor copy a tuple
of them. So the partitions that it touches are made anew and the others are kept. Everything is
sorted and found by bisection. What the last history had computed (rows, bytes, files of deletes) is
carried over as far as it still holds; what it had not, is left for whoever asks. No database here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from tidemill.catalog.model import FILE_DELETES, DataFile, History, Partition, Reservation

Item = TypeVar("Item")
Place = tuple[int, ...]


def find_file(
    history: History, file_id: int, lo_us: int, hi_us: int, generation: int
) -> DataFile | None:
    """The live file of that id, time range and generation, if there is one."""
    place = (lo_us, generation, file_id)
    for partitions in (history.partitions, history.sides):
        partition = _find(partitions, _partition_place, (lo_us, hi_us))
        file = _find(partition.files, _file_place, place) if partition else None
        if file is not None:
            return file
    return None


def holds_rows(history: History, lo_us: int, hi_us: int, without: Collection[int] = ()) -> bool:
    """Whether a partition has a live file of rows or partials besides those ``without``."""
    partition = _find(history.partitions, _partition_place, (lo_us, hi_us))
    files = partition.files if partition else ()
    return any(file.is_rows and file.file_id not in without for file in files)


def with_files(
    history: History,
    add: Sequence[DataFile],
    drop: Sequence[DataFile],
    *,
    moved_seq: int,
    reservations: Sequence[Reservation] = (),
) -> History:
    """The history after a commit; ``drop`` are files that it holds."""
    changed = with_reservations(
        history, spliced(history.reservations, _first_seq, reservations, ())
    )
    fresh = changed.__dict__
    fresh["moved_seq"] = moved_seq
    fresh["partitions"] = _spliced_partitions(history.partitions, *_only(add, drop, True))
    fresh["sides"] = _spliced_partitions(history.sides, *_only(add, drop, False))
    if add or drop:
        fresh.pop("files", None)
    if any(file.kind == FILE_DELETES for file in (*add, *drop)):
        fresh.pop("deletes", None)
    for name in ("rows", "bytes"):
        if name in fresh:
            fresh[name] += _total(add, name) - _total(drop, name)
    return changed


def rewound(history: History, at: int, left: Iterable[DataFile], moved_seq: int) -> History:
    """The history in an older snapshot: without what came later, and with what ``left`` later."""
    older = with_reservations(history, ())
    past = older.__dict__
    past["partitions"] = _until(history.partitions, at)
    past["sides"] = _until(history.sides, at)
    for name in ("files", "deletes", "rows", "bytes"):
        past.pop(name, None)
    missing = [file for file in left if find_file(older, *_whereabouts(file)) is None]
    return with_files(older, missing, (), moved_seq=moved_seq)


def _whereabouts(file: DataFile) -> tuple[int, int, int, int]:
    return file.file_id, file.lo_us, file.hi_us, file.generation


def _until(partitions: tuple[Partition, ...], at: int) -> tuple[Partition, ...]:
    """Partitions without files that came after a snapshot; most are whole, and stay."""
    kept: list[Partition] = []
    for each in partitions:
        if each.files[-1].created_snapshot <= at:  # generations come one after the other
            kept.append(each)
            continue
        files = tuple(file for file in each.files if file.created_snapshot <= at)
        if files:
            kept.append(Partition.of(files))
    return tuple(kept)


def with_reservations(history: History, reservations: tuple[Reservation, ...]) -> History:
    """The same history with other reservations."""
    last_seq = reservations[-1].last_seq if reservations else 0
    changed = with_reserved(history, last_seq)
    changed.__dict__["reservations"] = reservations
    return changed


def with_reserved(history: History, last_seq: int) -> History:
    """The same history with numbers reserved up to one; all that it had computed stays."""
    changed = object.__new__(History)
    changed.__dict__.update(history.__dict__)
    changed.__dict__["reserved_seq"] = max(history.reserved_seq, last_seq)
    return changed


def spliced(
    items: tuple[Item, ...],
    place_of: Callable[[Item], Place],
    add: Iterable[Item],
    drop: Iterable[Place],
) -> tuple[Item, ...]:
    """Sorted items without those at the places ``drop`` and with ``add``.

    >>> spliced(((1,), (3,), (5,)), lambda item: item, [(4,), (0,)], [(3,)])
    ((0,), (1,), (4,), (5,))
    """
    edits: list[tuple[Place, Item | None]] = [(place, None) for place in drop]
    edits.extend((place_of(item), item) for item in add)
    if not edits:
        return items
    edits.sort(key=lambda edit: edit[0])
    keep = start = bisect_left(items, edits[0][0], key=place_of)
    result: list[Item] = []
    for place, item in edits:
        at = bisect_left(items, place, start, key=place_of)
        result.extend(items[start:at])
        start = at
        if item is None:
            start += 1
        else:
            result.append(item)
    # to add two tuples copies once, and a slice of everything is no copy: most commits append
    return items[:keep] + (*result, *items[start:])  # noqa: RUF005


def _find(items: tuple[Item, ...], place_of: Callable[[Item], Place], place: Place) -> Item | None:
    at = bisect_left(items, place, key=place_of)
    found = at < len(items) and place_of(items[at]) == place
    return items[at] if found else None


def _only(
    add: Sequence[DataFile], drop: Sequence[DataFile], of_partition: bool
) -> tuple[list[DataFile], list[DataFile]]:
    return (
        [file for file in add if file.is_of_partition is of_partition],
        [file for file in drop if file.is_of_partition is of_partition],
    )


def _total(files: Sequence[DataFile], name: str) -> int:
    return sum(getattr(file, name) for file in files if file.is_rows)


def _spliced_partitions(
    partitions: tuple[Partition, ...], add: Sequence[DataFile], drop: Sequence[DataFile]
) -> tuple[Partition, ...]:
    edits: dict[Place, tuple[list[DataFile], list[Place]]] = defaultdict(lambda: ([], []))
    for file in add:
        edits[file.lo_us, file.hi_us][0].append(file)
    for file in drop:
        edits[file.lo_us, file.hi_us][1].append(file.place)
    made: list[Partition] = []
    gone: list[Place] = []
    for place, (added, dropped) in edits.items():
        before = _find(partitions, _partition_place, place)
        if before is not None:
            gone.append(place)
        files = spliced(before.files if before else (), _file_place, added, dropped)
        if files:
            made.append(Partition.of(files))
    return spliced(partitions, _partition_place, made, gone)


def _file_place(file: DataFile) -> Place:
    return file.place


def _partition_place(partition: Partition) -> Place:
    return partition.place


def _first_seq(reservation: Reservation) -> Place:
    return (reservation.first_seq,)
