"""What a footer says of columns and of row groups."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from history_kit import NOW_US, make_batch, make_table, write

from tidemill.history.footers import Footer
from tidemill.history.storage import Storage


@pytest.fixture
def content(storage: Storage) -> bytes:
    """The footer of a file of ten row groups, a hundred microseconds each."""
    table = make_table([("K", "BIGINT"), ("s", "STRUCT(a BIGINT, b VARCHAR)")])
    rows = [(NOW_US + at, at, (at, f"{at}")) for at in range(1_000)]
    (file,) = write(storage, table, make_batch(table, rows), row_group_rows=100)
    assert file.row_groups == 10
    whole = Path(storage.place(file.path)).read_bytes()
    length = int.from_bytes(whole[-8:-4], "little")
    assert pq.read_metadata(storage.place(file.path)).serialized_size == length
    return whole[-8 - length :]


def test_where_columns_lie(content: bytes) -> None:
    whole = Footer.read(content, None, None)
    assert list(whole.columns) == ["ts", "k", "s.a", "s.b", "_seq"]
    spans = sorted(whole.spans())
    assert len(spans) == 50
    assert spans[0][0] == 4
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(spans))
    assert spans[-1][1] == whole.end
    some = Footer.read(content, {"s", "k"}, None)
    assert list(some.columns) == ["k", "s.a", "s.b"]
    assert some.end == whole.end
    assert some.times_us is None
    assert some.spans(NOW_US, NOW_US) == some.spans()


def test_row_groups_of_a_window(content: bytes) -> None:
    footer = Footer.read(content, {"k"}, "ts")
    spans = footer.columns["k"].tolist()
    for low, high, groups in (
        (None, None, range(10)),
        (NOW_US + 99, NOW_US + 100, range(2)),
        (NOW_US + 100, NOW_US + 199, range(1, 2)),
        (NOW_US + 950, None, range(9, 10)),
        (None, NOW_US - 1, range(0)),
    ):
        assert footer.spans(low, high) == [tuple(spans[at]) for at in groups]
    assert Footer.read(content, {"k"}, "nothing").times_us is None
