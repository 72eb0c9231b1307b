"""All tables of a warehouse: opened, kept, dropped, closed."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from hot_kit import NOW_US, FaultyFiles, accepted, held, make_table

from tidemill.clock import FakeClock
from tidemill.hot.log import SystemFiles
from tidemill.hot.tier import HotTier


def tier(folder: Path, files: SystemFiles | None = None) -> HotTier:
    return HotTier(folder, FakeClock(NOW_US), files or SystemFiles(), 0, 1 << 20, 1_000)


def test_tables_survive_and_left_overs_go(tmp_path: Path) -> None:
    first = make_table({"durability": "sync"})
    second = replace(first, table_id=2, name="u")
    hot = tier(tmp_path)
    assert hot.open([]) == []
    hot.create(first)
    hot.create(second)
    hot.tables[1].append(accepted([(NOW_US, 1, "", 0.0)]))
    hot.tables[2].append(accepted([(NOW_US, 2, "", 0.0)]))
    hot.close()
    again = tier(tmp_path)
    assert [found.rows for found in again.open([first])] == [1]
    assert held(again.tables[1]) == [(NOW_US, 1, "", 0.0)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1"]
    again.drop(1)
    assert list(tmp_path.iterdir()) == []
    again.create(first)
    assert held(again.tables[1]) == []
    again.close()


def test_the_keeper_forces_batches(tmp_path: Path) -> None:
    class Watched(FaultyFiles):
        def sync(self, fd: int) -> None:
            super().sync(fd)
            if "write" in self.calls[-2:]:
                forced.set()

    forced = threading.Event()
    hot = tier(tmp_path, Watched())
    hot.open([])
    hot.create(make_table({"durability": "batch"}))
    hot.tables[1].append(accepted([(NOW_US, 1, "", 0.0)]))
    forced.clear()
    hot.tables[1].append(accepted([(NOW_US, 1, "", 0.0)]))
    assert forced.wait(10)
    hot.close()
    assert not any(t.name == "tidemill-keeper" for t in threading.enumerate())
