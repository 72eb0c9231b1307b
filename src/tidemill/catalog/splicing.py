"""The next history of a table from the last one: what a commit adds and takes, and no more.

A commit of one file to a table of a hundred thousand must not look at the others, nor copy a tuple
of them. So the partitions that it touches are made anew and the others are kept. Everything is
sorted and found by bisection. What the last history had computed (rows, bytes, files of deletes) is
carried over as far as it still holds; what it had not, is left for whoever asks. No database here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from tidemill.catalog.model import (
    DataFile,
    Generation,
    History,
    NewFile,
    Partition,
    Reservation,
    overlapping,
)

Item = TypeVar("Item")
Place = tuple[int, ...]


def find_file(
    history: History, file_id: int, lo_us: int, hi_us: int, generation: int
) -> DataFile | None:
    """The live file of that id, time range and generation, if there is one."""
    for partitions in (history.partitions, history.sides):
        for partition in reaching(partitions, lo_us, hi_us):
            file = _find(partition.files, _file_id, (file_id,))
            if file is not None:
                return file
    return _find(history.deletes, _file_place, (lo_us, generation, file_id))


def reaching(partitions: tuple[Partition, ...], lo_us: int, hi_us: int) -> tuple[Partition, ...]:
    """The partitions that reach into a range of time."""
    start, end = _between(partitions, lo_us, hi_us)
    return partitions[start:end]


def concerned(history: History, deletes: NewFile) -> list[Partition]:
    """The partitions that may lose rows by a file of deletes."""
    return [
        each
        for each in reaching(history.partitions, deletes.lo_us, deletes.hi_us)
        if any(f.seq_min <= deletes.seq_max and f.seq_max >= deletes.seq_min for f in each.files)
    ]


def with_files(
    history: History,
    add: Sequence[DataFile],
    drop: Sequence[DataFile],
    *,
    moved_seq: int,
    reservations: Sequence[Reservation] = (),
    generations: Sequence[Generation] = (),
) -> History:
    """The history after a commit; ``drop`` are files that it holds, ``generations`` those that the
    commit raised."""
    changed = with_reservations(
        history, spliced(history.reservations, _first_seq, reservations, ())
    )
    fresh = changed.__dict__
    fresh["moved_seq"] = moved_seq
    parts = _spliced_partitions(history.partitions, *_only(_is_rows, add, drop), generations)
    fresh["partitions"] = with_generations(parts, generations)
    fresh["sides"] = _spliced_partitions(history.sides, *_only(_is_side, add, drop))
    added, dropped = _only(_is_deletes, add, drop)
    fresh["deletes"] = spliced(
        history.deletes, _file_place, added, [file.place for file in dropped]
    )
    if add or drop:
        fresh.pop("files", None)
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
    past["deletes"] = tuple(file for file in history.deletes if file.created_snapshot <= at)
    for name in ("files", "rows", "bytes"):
        past.pop(name, None)
    missing = [file for file in left if find_file(older, *_whereabouts(file)) is None]
    return with_files(older, missing, (), moved_seq=moved_seq)


def _whereabouts(file: DataFile) -> tuple[int, int, int, int]:
    return file.file_id, file.lo_us, file.hi_us, file.generation


def _until(partitions: tuple[Partition, ...], at: int) -> tuple[Partition, ...]:
    """Partitions without files that came after a snapshot; most are whole, and stay. Of older
    generations nothing is known but those of files."""
    kept: list[Partition] = []
    for each in partitions:
        last = each.files[-1]  # files are in the order of their commits
        if last.created_snapshot <= at and last.generation == each.generation:
            kept.append(each)
            continue
        files = (file for file in each.files if file.created_snapshot <= at)
        kept.extend(Partition.of(group) for group in overlapping(files))
    return tuple(kept)


def with_generations(
    partitions: tuple[Partition, ...], generations: Iterable[Generation]
) -> tuple[Partition, ...]:
    """Partitions with the generations of the spans of time that reach into them."""
    raised = [
        replace(each, generation=span.number)
        for span in generations
        for each in reaching(partitions, span.lo_us, span.hi_us)
        if each.generation < span.number
    ]
    return spliced(partitions, _partition_place, raised, [each.place for each in raised])


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


def _between(partitions: tuple[Partition, ...], lo_us: int, hi_us: int) -> tuple[int, int]:
    """Where the partitions are that reach into a range; they do not overlap."""
    start = bisect_right(partitions, lo_us, key=_begin)
    if start and partitions[start - 1].hi_us > lo_us:
        start -= 1
    return start, max(bisect_left(partitions, hi_us, start, key=_begin), start)


def _only(
    belongs: Callable[[DataFile], bool], add: Sequence[DataFile], drop: Sequence[DataFile]
) -> tuple[list[DataFile], list[DataFile]]:
    return [file for file in add if belongs(file)], [file for file in drop if belongs(file)]


def _is_rows(file: DataFile) -> bool:
    return file.is_rows


def _is_deletes(file: DataFile) -> bool:
    return file.is_deletes


def _is_side(file: DataFile) -> bool:
    return not file.is_of_partition


def _total(files: Sequence[DataFile], name: str) -> int:
    return sum(getattr(file, name) for file in files if file.is_rows)


def _spliced_partitions(
    partitions: tuple[Partition, ...],
    add: Sequence[DataFile],
    drop: Sequence[DataFile],
    generations: Sequence[Generation] = (),
) -> tuple[Partition, ...]:
    """Partitions after a commit: those that it touches are made anew of the files that are left
    and of those that came, and may become one or fall apart by that."""
    gone = {file.file_id for file in drop}
    touched = {
        number
        for file in (*add, *drop)
        for number in range(*_between(partitions, file.lo_us, file.hi_us))
    }
    if len(touched) == 1 and not drop:  # the common case: all join the one that is there
        made: tuple[Partition, ...] = _joining(partitions[min(touched)], add)
    else:
        left = [f for number in touched for f in partitions[number].files if f.file_id not in gone]
        made = tuple(Partition.of(group) for group in overlapping([*left, *add]))
    return spliced(
        partitions,
        _partition_place,
        with_generations(made, generations),
        [partitions[number].place for number in touched],
    )


def _joining(partition: Partition, add: Sequence[DataFile]) -> tuple[Partition, ...]:
    """A partition with files that reach into it, besides others that do not."""
    inside = [f for f in add if f.lo_us < partition.hi_us and f.hi_us > partition.lo_us]
    if len(inside) < len(add) or add[0].file_id < partition.files[-1].file_id:
        return tuple(Partition.of(g) for g in overlapping([*partition.files, *add]))
    joined = replace(
        partition,
        lo_us=min(partition.lo_us, *(file.lo_us for file in add)),
        hi_us=max(partition.hi_us, *(file.hi_us for file in add)),
        generation=max(partition.generation, *(file.generation for file in add)),
        files=(*partition.files, *sorted(add, key=_file_id)),
    )
    return (joined,)


def _file_place(file: DataFile) -> Place:
    return file.place


def _file_id(file: DataFile) -> Place:
    return (file.file_id,)


def _begin(partition: Partition) -> int:
    return partition.lo_us


def _partition_place(partition: Partition) -> Place:
    return partition.place


def _first_seq(reservation: Reservation) -> Place:
    return (reservation.first_seq,)
