"""Files are compared with their checksums before anybody reads them."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemill.catalog.model import FILE_ROWS, NewFile
from tidemill.checksums import BLOCK_BYTES, BlockSums, crc32, read_sums
from tidemill.errors import DamagedFileError
from tidemill.history import checking
from tidemill.history.checking import check_files, damaged_files
from tidemill.history.storage import Storage
from tidemill.history.window import Window
from tidemill.history.writing import WriteSpec, write_rows
from tidemill.types import Column, SqlType

ROWS = 300_000
SPEC = WriteSpec(
    7,
    (
        Column("ts", SqlType("TIMESTAMP")),
        Column("id", SqlType("BIGINT")),
        Column("x", SqlType("DOUBLE")),
        Column("s", SqlType("VARCHAR")),
    ),
    "ts",
    86_400_000_000,
    indexes=(("id",), ("s",)),
)


@pytest.fixture
def storage(tmp_path: Path, written: tuple[Storage, NewFile]) -> Storage:
    shutil.copytree(written[0].root, tmp_path / "data")
    return Storage(str(tmp_path / "data"))


@pytest.fixture
def file(written: tuple[Storage, NewFile]) -> NewFile:
    return written[1]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Storage, NewFile]:
    """A file of several row groups and many blocks."""
    storage = Storage(str(tmp_path_factory.mktemp("written")))
    rng = np.random.default_rng(1)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(ROWS), pa.timestamp("us")),
            pa.array(rng.integers(0, 2**60, ROWS)),
            pa.array(rng.random(ROWS)),
            pa.array([f"text {n}" for n in rng.integers(0, 2**40, ROWS)]),
            pa.array(np.arange(1, ROWS + 1)),
        ],
        schema=SPEC.schema,
    )
    [made] = write_rows(storage, SPEC, [batch], "job", 0, "test")
    assert made.bytes > 3 * checking.WHOLE_BYTES_MAX
    return storage, made


def flip(storage: Storage, file: NewFile, place: int) -> None:
    with open(storage.place(file.path), "r+b") as handle:
        handle.seek(place)
        byte = handle.read(1)[0]
        handle.seek(place)
        handle.write(bytes([byte ^ 1]))


def span_of(storage: Storage, file: NewFile, column: str) -> tuple[int, int]:
    """Where a column of the second row group lies."""
    group = pq.read_metadata(storage.place(file.path)).row_group(1)
    chunks = [group.column(at) for at in range(group.num_columns)]
    chunk = next(each for each in chunks if each.path_in_schema == column)
    begin = min(filter(None, (chunk.data_page_offset, chunk.dictionary_page_offset)))
    return begin, begin + chunk.total_compressed_size


def test_the_checksums_are_those_of_the_blocks(storage: Storage, file: NewFile) -> None:
    content = Path(storage.place(file.path)).read_bytes()
    blocks = [content[at : at + BLOCK_BYTES] for at in range(0, len(content), BLOCK_BYTES)]
    assert file.checksums is not None
    assert read_sums(file.checksums) == tuple(crc32(block) for block in blocks)
    sums = BlockSums()
    for at in range(0, len(content), 77_777):
        sums.add(content[at : at + 77_777])
    assert sums.text() == file.checksums


def test_a_whole_file_is_believed(storage: Storage, file: NewFile) -> None:
    check_files(storage, "t", [file])
    check_files(storage, "t", [file], ["id"])
    assert list(damaged_files(storage, [("t", file)])) == []


@pytest.mark.parametrize("place", [0, 5_000, 0.5, -1, -9, -40])
def test_any_flipped_bit_is_found(storage: Storage, file: NewFile, place: float) -> None:
    at = int(place * file.bytes) if 0 < place < 1 else int(place) % file.bytes
    check_files(storage, "t", [file])  # what was believed before is no excuse
    flip(storage, file, at)
    with pytest.raises(DamagedFileError, match='of table "t" is damaged') as caught:
        check_files(storage, "t", [file])
    assert file.path in caught.value.message
    assert "partition 19700101T000000Z" in (caught.value.detail or "")
    assert "restore the file from a copy" in (caught.value.hint or "")
    assert [found for found, _ in damaged_files(storage, [("t", file)])] == [file]


def test_only_wanted_columns_are_checked(storage: Storage, file: NewFile) -> None:
    low, high = span_of(storage, file, "x")
    flip(storage, file, (low + high) // 2)
    check_files(storage, "t", [file], [])
    check_files(storage, "t", [file], ["_seq"])
    for columns in (["X"], ["id", "x"], None):
        with pytest.raises(DamagedFileError, match="fail their checksum"):
            check_files(storage, "t", [file], columns)


def test_footer_and_bloom_filters_are_always_checked(storage: Storage, file: NewFile) -> None:
    about = pq.read_metadata(storage.place(file.path))
    group = about.row_group(about.num_row_groups - 1)
    last = group.column(group.num_columns - 1)
    end = last.data_page_offset + last.total_compressed_size
    assert file.bytes - end > 100_000, "bloom filters stand there"
    flip(storage, file, file.bytes - 1_000 - about.serialized_size)
    with pytest.raises(DamagedFileError):
        check_files(storage, "t", [file], ["_seq"])


def test_what_was_checked_is_not_read_again(
    storage: Storage, file: NewFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_files(storage, "t", [file], ["id"])
    read: list[str] = []
    opened = Storage.opened

    def noted(self: Storage, path: str) -> object:
        read.append(path)
        return opened(self, path)

    monkeypatch.setattr(Storage, "opened", noted)
    check_files(storage, "t", [file], ["id"])
    assert not read
    check_files(storage, "t", [file], ["id", "s"])
    assert read == [file.path]
    check_files(storage, "t", [file])
    check_files(storage, "t", [file], ["x"])
    assert len(read) == 2
    os.utime(storage.place(file.path))
    check_files(storage, "t", [file], ["x"])
    assert len(read) == 3


@pytest.fixture
def in_time(storage: Storage) -> NewFile:
    """A file whose row groups are in order of time, from 0 to 299,999 microseconds."""
    rng = np.random.default_rng(2)
    spec = replace(SPEC, indexes=(), columns=SPEC.columns[:3], row_group_rows=30_000)
    columns = [pa.array(np.arange(ROWS), pa.timestamp("us")), rng.integers(0, 2**60, ROWS)]
    arrays = [*columns, rng.random(ROWS), np.arange(ROWS)]
    batch = pa.RecordBatch.from_arrays([pa.array(each) for each in arrays], schema=spec.schema)
    [made] = write_rows(storage, spec, [batch], "in_time", 0, "test")
    assert made.row_groups == 10
    return made


def test_of_a_window_only_its_row_groups_are_checked(
    storage: Storage, in_time: NewFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, time = storage.place(in_time.path), SPEC.columns[0]
    chunk = pq.read_metadata(place).row_group(5).column(2)
    flip(storage, in_time, chunk.data_page_offset + chunk.total_compressed_size // 2)
    read: list[str] = []
    opened = Storage.opened

    def noted(self: Storage, path: str) -> object:
        read.append(path)
        return opened(self, path)

    monkeypatch.setattr(Storage, "opened", noted)
    for columns in (["x"], None):
        read.clear()
        for window in (Window(time, None, 60_000), Window(time, 5, 59_000), Window(time, 270_000)):
            check_files(storage, "t", [in_time], columns, window)
        assert len(read) <= 2, "what was checked is not read again"
        for bad in (Window(time, 150_000, 150_000), Window(time, 179_999), None):
            with pytest.raises(DamagedFileError, match="fail their checksum"):
                check_files(storage, "t", [in_time], columns, bad)
        check_files(storage, "t", [in_time], columns, Window(time, 7, 8))


def test_footers_that_are_kept_have_a_bound(
    storage: Storage, in_time: NewFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "FOOTERS_MAX", 2)
    window = Window(SPEC.columns[0], None, 10)
    for columns in (["id"], ["x"], ["_seq"], ["id"]):
        check_files(storage, "t", [in_time], columns, window)
    assert len(checking._footers) == 2


def test_missing_cut_and_other_files(storage: Storage, file: NewFile) -> None:
    place = Path(storage.place(file.path))
    content = place.read_bytes()
    place.write_bytes(content[:-1])
    with pytest.raises(DamagedFileError, match=f"has {file.bytes - 1} bytes"):
        check_files(storage, "t", [file])
    place.unlink()
    with pytest.raises(DamagedFileError, match="it is missing"):
        check_files(storage, "t", [file])


def test_files_without_checksums_are_read_as_they_are(storage: Storage, file: NewFile) -> None:
    old = replace(file, checksums=None)
    flip(storage, file, 5_000)
    check_files(storage, "t", [old])
    assert list(damaged_files(storage, [("t", old)])) == []


def test_small_files_are_checked_whole(storage: Storage) -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1], SPEC.schema.field(0).type), [1], [0.5], ["a"], [1]], schema=SPEC.schema
    )
    [made] = write_rows(storage, SPEC, [batch], "small", 0, "test")
    assert made.kind == FILE_ROWS
    flip(storage, made, 4)
    with pytest.raises(DamagedFileError):
        check_files(storage, "t", [made], ["_seq"])


def test_files_in_a_store_are_checked(file: NewFile, storage: Storage) -> None:
    store = Storage("memory://checking")
    content = Path(storage.place(file.path)).read_bytes()
    with store.create(file.path) as target:
        target.write(content)
    assert target.checksums == file.checksums
    check_files(store, "t", [file], ["id"])
    bad = bytearray(content)
    bad[file.bytes // 2] ^= 8
    with store.create(f"2/{file.path}") as target:
        target.write(bad)
    with pytest.raises(DamagedFileError, match="fail their checksum"):
        check_files(store, "t", [replace(file, path=f"2/{file.path}")])
    with pytest.raises(DamagedFileError, match="missing"):
        check_files(store, "t", [replace(file, path="none.parquet")])
