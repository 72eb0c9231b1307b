"""Histories made step by step are those made from scratch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemill.catalog.frozen import FrozenMap
from tidemill.catalog.model import FILE_KINDS, DataFile, History, Reservation
from tidemill.catalog.splicing import find_file, reaching, rewound, spliced, with_files

PLACES = st.sets(st.integers(0, 30)).map(sorted)


@given(PLACES, PLACES, st.data())
def test_spliced_is_sorted_again(there: list[int], new: list[int], data: st.DataObject) -> None:
    add = [(number,) for number in new if number not in there]
    drop = data.draw(st.sets(st.sampled_from(there))) if there else set()
    wanted = sorted([(number,) for number in there if number not in drop] + add)
    items = tuple((number,) for number in there)
    got = spliced(items, lambda item: item, reversed(add), [(number,) for number in drop])
    assert list(got) == wanted


def file(file_id: int, lo_us: int, hours: int, kind: str, snapshot_id: int) -> DataFile:
    facts = (lo_us, lo_us + hours, file_id, 10 * file_id, 1, 0, 0, 1, 1, "move")
    known = (file_id, 7, snapshot_id, snapshot_id)
    return DataFile(f"{file_id}", kind, *facts, FrozenMap(), None, 0, *known)


NEW = st.tuples(st.integers(0, 4), st.sampled_from([1, 24]), st.sampled_from(FILE_KINDS))
COMMITS = st.lists(
    st.tuples(st.lists(NEW, max_size=4), st.lists(st.integers(0, 30), max_size=3), st.booleans()),
    max_size=12,
)


@given(COMMITS)
def test_commits_one_by_one(commits: list[tuple[list[tuple], list[int], bool]]) -> None:
    history, live, made, past = History(7), [], 0, []
    for number, (new, picks, look) in enumerate(commits, 1):
        drop = list(
            {
                live[pick % len(live)].file_id: live[pick % len(live)] for pick in picks if live
            }.values()
        )
        add = [file(made + 1 + at, *facts, number) for at, facts in enumerate(new)]
        made += len(add)
        loads = [Reservation(number * 10, number * 10 + 5, number)] if look else []
        history = with_files(history, add, drop, moved_seq=number, reservations=loads)
        live = [each for each in live if each not in drop] + add
        if look:  # what was computed must be carried over, what was not must be found
            assert history.rows == sum(each.rows for each in live if each.is_rows)
        check(history, live, number)
        past.append((history, list(live)))
    for number, (older, files) in enumerate(past, 1):
        left = [each for each in files if each not in live]
        still = [each for each in files if each in live][:1]  # dropped since, says the database
        back = rewound(history, number, left + still, number)
        check(back, files, number)
        assert back.files == older.files


def check(history: History, live: list[DataFile], moved_seq: int) -> None:
    ordered = tuple(sorted(live, key=lambda each: each.place))
    fresh = History(7, moved_seq, files=ordered, reservations=history.reservations)
    assert history == fresh
    assert history.partitions == fresh.partitions
    assert history.sides == fresh.sides
    assert (history.rows, history.bytes) == (fresh.rows, fresh.bytes)
    assert history.deletes == fresh.deletes
    for each in live:
        where = (each.file_id, each.lo_us, each.hi_us, each.generation)
        assert find_file(history, *where) is each
        assert find_file(history, 99, *where[1:]) is None
        reached = reaching(history.partitions, each.lo_us, each.hi_us)
        assert reached == tuple(
            part
            for part in history.partitions
            if part.lo_us < each.hi_us and part.hi_us > each.lo_us
        )
