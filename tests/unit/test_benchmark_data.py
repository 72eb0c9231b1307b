"""The generated rows of the history benchmarks are what their makers say."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A module of the benchmarks; the files it makes go to a folder of the test."""
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def by_name(name: str) -> ModuleType:
        return importlib.import_module(f"benchmarks.{name}")

    return by_name


def test_reports_are_in_order_and_counted(load) -> None:
    traffic = load("traffic")
    rows = traffic.PIECE_ROWS + 5_000
    made = pa.concat_tables(traffic.tables(rows))
    times = made["ts"].cast(pa.int64()).to_numpy()
    assert made.num_rows == rows
    assert (np.diff(times) >= 0).all()
    first_us, last_us = traffic.span_us(rows)
    assert first_us <= times[0] <= times[-1] < last_us
    assert traffic.expected(rows)[0] == rows
    assert traffic.expected(rows)[2] == pc.sum(made["vid"]).as_py()
    assert pc.count_distinct(made["vid"]).as_py() == traffic.CARS


def test_pieces_do_not_depend_on_each_other(load) -> None:
    traffic, lineitem = load("traffic"), load("lineitem")
    assert traffic.table(3, 100).equals(traffic.table(3).slice(0, 100))
    assert lineitem.table(2, 100, 1.0).equals(lineitem.table(2, 5_000, 1.0).slice(0, 100))
    assert not lineitem.table(1, 100, 1.0).equals(lineitem.table(2, 100, 1.0))


def test_lineitem_follows_the_rules(load) -> None:
    lineitem = load("lineitem")
    counts = lineitem.pieces(150_000)
    assert sum(counts) == 150_000
    made = lineitem.table(0, counts[0], 1.0)
    assert made.schema == lineitem.SCHEMA
    shares = made["l_returnflag"].value_counts().to_pylist()
    found = {one["values"]: one["counts"] / made.num_rows for one in shares}
    assert found["N"] == pytest.approx(0.507, abs=0.01)
    assert found["R"] == pytest.approx(0.247, abs=0.01)
    assert pc.min(made["l_quantity"]).as_py() == 1
    assert pc.max(made["l_quantity"]).as_py() == 50
    assert pc.all(pc.less(made["l_shipdate"].cast(pa.date32()), made["l_receiptdate"])).as_py()
    keys = pc.unique(made["l_orderkey"]).to_numpy()
    assert set((keys - 1) % 32) == set(range(8))


def test_files_are_whole_and_made_once(load) -> None:
    sources = load("sources")
    folder = sources.reports_parquet(1_200_000)
    assert sum(pa.parquet.read_metadata(path).num_rows for path in sources.paths(folder)) == (
        1_200_000
    )
    packages = sources.reports_csv(5_000, 1_000)
    before = [path.stat().st_mtime_ns for path in sorted(packages.iterdir())]
    assert sources.reports_csv(5_000, 1_000) == packages
    assert [path.stat().st_mtime_ns for path in sorted(packages.iterdir())] == before
    assert len(before) == 5
