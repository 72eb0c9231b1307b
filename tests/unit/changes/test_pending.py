"""Pending changes, and which of them files need."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.changes.files import changed_files
from tidemill.changes.model import EVER_US, Change, ChangeForm
from tidemill.changes.needed import Needed
from tidemill.changes.pending import NOTHING_PENDING, Pending


@dataclass(frozen=True)
class File:
    seq_min: int = 1
    seq_max: int = 10
    time_min_us: int = 100
    time_max_us: int = 200
    changed: int = 0


SPAN = ChangeForm("delete", is_span=True)


def delete(number: int, upto: int = 10, low: int = -EVER_US, high: int = EVER_US) -> Change:
    return Change(number, upto, 0, SPAN, ((),), None, low, high)


def update(number: int, column: str, *reads: str) -> Change:
    form = ChangeForm("update", sets=((column, ("1",)),), reads=frozenset(reads))
    return Change(number, 10, 0, form, ((),))


def test_added_and_without() -> None:
    one, two, three = delete(1), delete(2), delete(3)
    pending = NOTHING_PENDING.added([one, two]).added([three])
    assert list(pending) == [one, two, three]
    assert list(pending.without({2})) == [one, three]
    assert pending.without(set()) is pending


def test_those_that_reach_into_a_span() -> None:
    early, late, ever = delete(1, low=0, high=10), delete(2, low=50, high=60), delete(3)
    pending = Pending.of([early, late, ever])
    assert list(pending.reaching(10, 20)) == [early, ever]
    assert list(pending.reaching(None, 49)) == [early, ever]
    assert list(pending.reaching(11, 49)) == [ever]
    assert list(pending.reaching(None, None, after=1)) == [late, ever]


def test_files_need_what_they_do_not_have() -> None:
    has_it, lacks_it, other_time = File(changed=1), File(), File(time_min_us=300, time_max_us=400)
    some = Change(1, 10, 0, ChangeForm("delete", condition=("true",)), ((),), None, 100, 200)
    found = changed_files([has_it, lacks_it, other_time], [some])
    assert sorted((len(files), len(changes)) for files, changes in found) == [(1, 1), (2, 0)]


def test_a_file_that_is_deleted_as_a_whole_is_not_read() -> None:
    gone, cut, newer = File(), File(time_max_us=300), File(seq_max=11)
    found = changed_files([gone, cut, newer], [delete(1, low=100, high=250)])
    assert [file for files, _ in found for file in files] == [cut, newer]


def test_a_load_that_came_later_is_spared() -> None:
    change = Change(1, 10, 0, SPAN, ((),), None, spared=((3, 6),))
    spared, other = File(seq_min=3, seq_max=6), File(seq_min=3, seq_max=7)
    found = changed_files([spared, other], [change])
    assert [(files, len(changes)) for files, changes in found] == [([spared], 0), ([other], 1)]


def test_updates_of_columns_that_nobody_reads_do_not_matter() -> None:
    a, b, c, gone = update(1, "a"), update(2, "b", "a"), update(3, "c"), delete(4)

    def concerning(changes: list[Change], columns: set[str] | None) -> list[Change]:
        return list(Pending.of(changes).concerning(Needed.of(columns)))

    assert concerning([a, b, c], {"c"}) == [c]
    assert concerning([a, b, c], {"B"}) == [a, b]  # b depends on a
    assert concerning([a, b, c, gone], {"d"}) == [gone]
    assert concerning([a, b, c], None) == [a, b, c]
