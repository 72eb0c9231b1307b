"""Large batches are read where they stand in the log, and small ones from a copy: no difference."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hot_kit import NOW_US, FaultyFiles, accepted, held, make_batch, make_table, open_hot

from tidemill.errors import DurabilityError
from tidemill.hot import log, piece, published
from tidemill.hot import row_writer as stored
from tidemill.hot.intake import Accepted
from tidemill.hot.log import list_segments
from tidemill.hot.mapping import MappedFile
from tidemill.hot.message import Messages
from tidemill.hot.table import HotTable

SYNC = {"durability": "sync"}


@pytest.fixture(autouse=True)
def all_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "IN_PLACE_BYTES_MIN", 0)


def rows(first: int, count: int = 3) -> list[tuple[int, int, str, float]]:
    return [(NOW_US + n, n, "x" * (n % 7), 0.5) for n in range(first, first + count)]


def is_in_place(hot: HotTable) -> bool:
    """Whether a write to the file shows in the rows of the newest batch: they are the file."""
    segment = list_segments(Path(hot.log.segments[-1].path).parent)[-1].path
    whole = segment.read_bytes()
    value = hot.view().whole(False).column("f")[-1].as_py()
    at = whole.rindex(np.float64(value).tobytes())
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(np.float64(-1).tobytes())
    shows = hot.view().whole(False).column("f")[-1].as_py() == -1
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(np.float64(value).tobytes())
    return bool(shows)


@pytest.mark.parametrize("durability", ["sync", "batch", "none"])
def test_rows_are_the_same_in_place_and_copied(tmp_path: Path, durability: str) -> None:
    hot = open_hot(make_table({"durability": durability}), tmp_path)
    hot.append(accepted(rows(0, 57)))
    hot.append(accepted(rows(57, 3)))  # too few to be merged with the others
    assert held(hot) == rows(0, 60)
    assert is_in_place(hot) == (durability == "sync")
    hot.close()
    again = open_hot(make_table({"durability": durability}), tmp_path)
    assert held(again) == rows(0, 60)
    again.close()
    assert held(hot) == rows(0, 60), "rows outlive the log that they stand in"


def test_what_the_producer_does_to_its_buffers_later_is_nothing_to_us(tmp_path: Path) -> None:
    hot = open_hot(make_table(SYNC), tmp_path)
    batch = make_batch(rows(0, 5))
    values = np.full(5, 0.5)
    at = batch.schema.get_field_index("f")
    batch = batch.set_column(at, batch.schema.field(at), pa.array(values))
    hot.append(Accepted((batch,)))
    values[:] = 7.0
    assert held(hot) == rows(0, 5)
    hot.close()


def test_buffers_that_change_while_they_are_written_leave_a_log_that_can_be_read(
    tmp_path: Path,
) -> None:
    values = np.full(5, 0.5)

    class Changing(FaultyFiles):
        def write(self, fd: int, parts: list[bytes | memoryview]) -> int:
            values[:] += 1
            return super().write(fd, parts)

    hot = open_hot(make_table(SYNC), tmp_path, files=Changing())
    batch = make_batch(rows(0, 5))
    at = batch.schema.get_field_index("f")
    batch = batch.set_column(at, batch.schema.field(at), pa.array(values))
    hot.append(Accepted((batch,)))
    seen = held(hot)
    hot.close()
    again = open_hot(make_table(SYNC), tmp_path)
    assert held(again) == seen
    again.close()


@pytest.mark.parametrize("fault", ["header", "body", "interrupt"])
def test_a_frame_that_fails_half_way_is_gone(tmp_path: Path, fault: str) -> None:
    class Faulty(FaultyFiles):
        def write_at(self, fd: int, part: bytes, offset: int) -> None:
            if fault == "interrupt" and self.bytes_left is not None:
                raise KeyboardInterrupt
            if fault == "header" and self.bytes_left is not None:
                raise OSError(errno.EIO, "no")
            super().write_at(fd, part, offset)

    files = Faulty()
    hot = open_hot(make_table(SYNC), tmp_path, files=files)
    hot.append(accepted(rows(0)))
    before = list_segments(tmp_path)[-1].path.read_bytes()
    files.bytes_left = 100 if fault == "body" else 1 << 20
    with pytest.raises((DurabilityError, KeyboardInterrupt)):
        hot.append(accepted(rows(3)))
    assert list_segments(tmp_path)[-1].path.read_bytes() == before
    files.bytes_left = None
    hot.append(accepted(rows(3)))
    assert held(hot) == rows(0, 6)
    hot.close()
    again = open_hot(make_table(SYNC), tmp_path)
    assert held(again) == rows(0, 6)
    again.close()


def test_without_mappings_rows_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, size: int) -> MappedFile:
        raise OSError(errno.ENODEV, "no such device")

    monkeypatch.setattr(log, "MappedFile", refuse)
    hot = open_hot(make_table(SYNC), tmp_path)
    hot.append(accepted(rows(0)))
    assert held(hot) == rows(0)
    assert not is_in_place(hot)
    hot.close()


def test_a_frame_larger_than_a_segment_is_mapped_whole(tmp_path: Path) -> None:
    hot = open_hot(make_table(SYNC), tmp_path, segment_bytes=256)
    for first in (0, 500, 501):
        hot.append(accepted(rows(first, 1 if first == 500 else 500)))
    assert held(hot) == [*rows(0, 501), *rows(501, 500)]
    assert len(list_segments(tmp_path)) == 3
    hot.close()


def test_large_pieces_become_blocks_without_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "BLOCK_ROWS", 1_000)
    monkeypatch.setattr(piece, "MERGE_BYTES_MAX", 8_192)
    hot = open_hot(make_table(SYNC), tmp_path)
    counts = [300, 10, 10, 500, 20, 300, 5]
    first = 0
    for count in counts:
        hot.append(accepted(rows(first, count)))
        first += count
    assert held(hot) == rows(0, sum(counts))
    sizes = [block.rows for block in hot.view().blocks]
    assert sizes == [300, 20, 500, 20, 300]
    assert held(hot, with_seq=True)[-1][-1] == sum(counts)
    hot.close()


def test_messages_are_what_serialize_writes() -> None:
    schema = pa.schema(
        [
            ("a", pa.int32()),
            ("b", pa.string()),
            ("c", pa.list_(pa.int64())),
            ("d", pa.struct([("x", pa.decimal128(20, 2))])),
        ]
    )
    some = [{"a": 1, "b": "ä", "c": [1, None], "d": {"x": 3}}, dict.fromkeys("abcd")]
    batch = pa.RecordBatch.from_pylist(some * 40, schema)
    messages = Messages(schema)
    for part in (batch, batch.slice(3, 9), batch.slice(80), batch):
        message = messages.of(part)
        joined = b"".join(bytes(piece) for piece in message.parts)
        assert joined == part.serialize().to_pybytes()
        assert message.size == len(joined)
    Messages(pa.schema([("u", pa.list_(pa.uuid())), ("n", pa.field("n", pa.int8(), False).type)]))
    assert not Messages.can_write(pa.schema([("e", pa.dictionary(pa.int8(), pa.string()))]))


def test_a_mapping_knows_its_bounds(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    with path.open("rb") as file:
        mapping = MappedFile(file.fileno(), 8_192)
    assert mapping.buffer(1, 2).to_pybytes() == b"bc"
    with pytest.raises(ValueError, match="not in a mapping"):
        mapping.buffer(8_000, 400)
    held_on = mapping.buffer(0, 3)
    del mapping
    path.unlink()
    assert held_on.to_pybytes() == b"abc"
