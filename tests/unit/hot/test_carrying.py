"""Changes are carried out in memory while writers and other readers go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hot_kit import NOW_US, ORDERED_K, accepted, held, make_table, open_hot

from tidemill.changes.model import DELETE, UPDATE, Change, ChangeForm
from tidemill.changes.patching import Touched
from tidemill.clock import FakeClock
from tidemill.hot import carrying
from tidemill.hot.table import HotTable

SET_V = ChangeForm(UPDATE, ("BIGINT", "DOUBLE"), (("k", 0),), (), (("f", (1,)),), frozenset({"k"}))
GONE = ChangeForm(DELETE, ("BIGINT",), (("k", 0),), (), (), frozenset({"k"}))


@pytest.fixture(params=[(), (ORDERED_K,)], ids=["plain", "indexed"])
def hot(tmp_path: Path, small_blocks: int, request: Any) -> Iterator[HotTable]:
    made = open_hot(make_table(indexes=request.param), tmp_path, FakeClock(NOW_US))
    yield made
    made.close()


def append(hot: HotTable, *ks: int) -> None:
    hot.append(accepted([(at, k, "x", float(at)) for at, k in enumerate(ks)]))


def values(rows: pa.Table) -> dict[int, float]:
    return dict(zip(rows.column("k").to_pylist(), rows.column("f").to_pylist(), strict=True))


class Held:
    """Stops whoever resolves changes until the test says so."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.has_begun, self.may_end = threading.Event(), threading.Event()
        real = carrying.resolve

        def resolve(table: Any, rows: pa.Table, changes: Sequence[Change]) -> Touched:
            self.has_begun.set()
            assert self.may_end.wait(20)
            return real(table, rows, changes)

        patch.setattr(carrying, "resolve", resolve)


def test_others_go_on_while_changes_are_resolved(
    hot: HotTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(hot, *range(10))
    hot.changing.change(SET_V, ((3, -1.0),))
    hot.changing.change(GONE, ((4,),))
    stop, found = Held(monkeypatch), []
    reader = threading.Thread(target=lambda: found.append(hot.view()))
    reader.start()
    assert stop.has_begun.wait(20)
    append(hot, 100, 101)  # waits for nobody
    hot.changing.change(SET_V, ((100, -2.0),))
    hot.publisher.seal()  # the rows that are looked at become blocks meanwhile
    append(hot, 3, 4)  # behind the changes
    stop.may_end.set()
    reader.join(20)
    # the reader sees its moment: all changes and no row that came later
    (view,) = found
    assert sorted(values(view.whole(False))) == [k for k in range(10) if k != 4]
    assert values(view.whole(False))[3] == -1.0
    later = hot.view().whole(True)
    assert later.num_rows == 9 + 2 + 2
    by_seq = dict(zip(later.column("_seq").to_pylist(), later.column("f").to_pylist(), strict=True))
    assert (by_seq[4], by_seq[11]) == (-1.0, -2.0)  # k = 3, k = 100
    assert 5 not in by_seq
    assert by_seq[13] == 0.0  # k = 3, later
    assert hot.published.changes.new == []
    assert len(hot.view().changes) == 3


def test_what_moved_meanwhile_does_not_come_back(
    hot: HotTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(hot, *range(10))
    hot.changing.change(GONE, ((2,),))
    hot.changing.change(SET_V, ((7, -1.0),))
    stop, found = Held(monkeypatch), []
    reader = threading.Thread(target=lambda: found.append(hot.view()))
    reader.start()
    assert stop.has_begun.wait(20)
    hot.release(6, frozenset(), frozenset())
    stop.may_end.set()
    reader.join(20)
    assert len(held(hot)) == 4
    assert hot.view().whole(True).column("_seq").to_pylist() == [7, 8, 9, 10]
    assert values(hot.view().whole(False))[7] == -1.0
    assert not len(hot.published.changes.deleted_up_to(10))
    assert found[0].after(6).whole(True).equals(hot.view().whole(True))


def test_who_waits_for_the_same_takes_what_was_found(
    hot: HotTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(hot, *range(10))
    hot.changing.change(SET_V, ((3, -1.0),))
    stop, found = Held(monkeypatch), []
    readers = [threading.Thread(target=lambda: found.append(hot.view())) for _ in range(3)]
    for reader in readers:
        reader.start()
    assert stop.has_begun.wait(20)
    stop.may_end.set()
    for reader in readers:
        reader.join(20)
    assert [values(view.whole(False))[3] for view in found] == [-1.0] * 3
    assert len(hot.view().changes) == 1
