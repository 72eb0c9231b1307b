"""Files of Linear Road come back as they were written, and a line that is none is named."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.linear_road import files
from benchmarks.linear_road.fields import DAILY_TOLLS, INPUT
from benchmarks.linear_road.generator import batches, daily_tolls
from benchmarks.linear_road.traffic import Plan
from tidemill.errors import FileFormatError

SMALL = Plan(xways=2, minutes=2, peak_per_minute=4_000, ramp_minutes=1)
LINE = "0,0,107,32,0,0,0,10,53320,-1,-1,-1,-1,-1,-1"
ASKED = "2,0,107,-1,-1,-1,-1,-1,-1,5,-1,-1,-1,-1,-1"
DAY = "3,0,107,-1,0,-1,-1,-1,-1,5,-1,-1,-1,-1,9"


@pytest.mark.parametrize("name", ["cars.dat", "cars.dat.gz"])
def test_the_input_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", 20_000)  # several blocks, several batches
    made = pa.Table.from_batches(batches(SMALL))
    path = tmp_path / name
    assert files.write_input(path, made.to_batches()) == made.num_rows
    read = list(files.read_input(path))
    assert len(read) > 1
    assert pa.Table.from_batches(read, INPUT).equals(made.combine_chunks())
    text = gzip.decompress(path.read_bytes()) if name.endswith("gz") else path.read_bytes()
    first = text.decode().splitlines()[0].split(",")
    assert len(first) == 15
    assert first[9:] == ["-1"] * 6


@pytest.mark.parametrize("name", ["tolls.dat", "tolls.dat.gz", "tolls.parquet"])
def test_the_tolls_come_back(tmp_path: Path, name: str) -> None:
    made = pa.Table.from_batches(daily_tolls(1, np.arange(300, dtype=np.int32)), DAILY_TOLLS)
    path = tmp_path / name
    assert files.write_tolls(path, made.to_batches()) == made.num_rows
    read = pa.Table.from_batches(files.read_tolls(path), DAILY_TOLLS)
    assert read.equals(made.combine_chunks())


def test_a_file_made_elsewhere_is_read_with_its_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "cars.dat"
    path.write_text(f"{LINE}\r\n\r\n2,3,107,-1,-1,-1,-1,-1,-1,5,-1,-1,-1,-1,-1\r\n")
    table = pa.Table.from_batches(files.read_input(path), INPUT)
    assert table["time"].to_pylist() == [0, 3]
    assert table["qid"].to_pylist() == [-1, 5]


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "cars.dat"
    path.write_text("")
    assert list(files.read_input(path)) == []


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("0,1,2", "line 3 of cars.dat has 3 fields, not 15"),
        (LINE.replace("107", "car"), 'line 3 of cars.dat has "car" for vid'),
        (LINE.replace("107", ""), 'line 3 of cars.dat has "" for vid'),
        (LINE.replace("107", "3000000000"), 'line 3 of cars.dat has "3000000000" for vid'),
        (LINE.replace("0", "9", 1), "line 3 of cars.dat is of type 9"),
        (LINE.replace("0,0,", "0,-1,", 1), "line 3 of cars.dat is of second -1, after one of"),
        (LINE.replace(",32,", ",101,"), "line 3 of cars.dat has 101 for spd: .* is 0 to 100"),
        (LINE.replace(",32,", ",-1,"), "line 3 of cars.dat has -1 for spd"),
        (LINE.replace("107,32,0,0,0", "107,32,0,5,0"), "line 3 of cars.dat has 5 for lane"),
        (LINE.replace("107,32,0,0,0", "107,32,0,0,2"), "line 3 of cars.dat has 2 for dir"),
        (LINE.replace("107,32,0,", "107,32,40000,"), "line 3 of cars.dat has 40,000 for xway"),
        (LINE.replace(",10,53320", ",100,528000"), "line 3 of cars.dat has 100 for seg"),
        (LINE.replace(",10,53320", ",11,53320"), "line 3 of cars.dat has 11 for seg, and pos"),
        (LINE.replace("107", "-7"), "line 3 of cars.dat has -7 for vid"),
        (ASKED.replace(",5,", ",-1,"), "line 3 of cars.dat has -1 for qid"),
        (DAY.replace(",9", ",70"), "line 3 of cars.dat has 70 for day: .* is 1 to 69"),
        (DAY.replace(",9", ",0"), "line 3 of cars.dat has 0 for day"),
        (LINE, "line 3 of cars.dat is a second report of vehicle 107 in second 0, as line 1"),
    ],
)
def test_a_bad_line_is_named_with_its_number(tmp_path: Path, bad: str, message: str) -> None:
    path = tmp_path / "cars.dat"
    path.write_text(f"{LINE}\n\n{bad}\n{LINE}\n")
    with pytest.raises(FileFormatError, match=message) as raised:
        list(files.read_input(path))
    assert raised.value.position is not None
    assert raised.value.position.line == 3


@pytest.mark.parametrize("block_bytes", [120, 1 << 20])
@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([ASKED, LINE, DAY.replace("0,107", "5,107")], "line 3 of .* asks query 5, as line 1 does"),
        (
            [LINE.replace("107", str(n)) for n in (*range(9), 3)],
            "line 10 of .* is a second report of vehicle 3 in second 0, as line 4",
        ),
    ],
)
def test_duplicates_are_found_over_blocks(
    lines: list[str],
    message: str,
    block_bytes: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", block_bytes)
    path = tmp_path / "cars.dat"
    path.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(FileFormatError, match=message):
        list(files.read_input(path))


def test_a_vehicle_may_report_in_every_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", 120)
    path = tmp_path / "cars.dat"
    path.write_text("".join(LINE.replace("0,0,", f"0,{n},", 1) + "\n" for n in range(20)))
    assert sum(batch.num_rows for batch in files.read_input(path)) == 20


def test_a_bad_line_of_tolls_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tolls.dat.gz"
    path.write_bytes(gzip.compress(b"1,2,0,30\n1,3,0,x\n"))
    with pytest.raises(FileFormatError, match=r'line 2 of tolls\.dat\.gz has "x" for toll'):
        list(files.read_tolls(path))


def test_parquet_with_other_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tolls.parquet"
    pq.write_table(pa.table({"vid": [1]}), path)
    with pytest.raises(FileFormatError, match="has other columns than a file of tolls"):
        list(files.read_tolls(path))


def test_a_file_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"cars\.dat cannot be read"):
        list(files.read_input(tmp_path / "cars.dat"))


def test_rows_are_cut_at_the_seconds_whatever_the_batches() -> None:
    made = pa.Table.from_batches(batches(SMALL))
    uneven = made.combine_chunks().to_batches(max_chunksize=777)
    cut = list(files.seconds(uneven))
    assert [set(part.column("time").to_pylist()) for part in cut] == [{n} for n in range(120)]
    assert pa.Table.from_batches(cut).combine_chunks().equals(made.combine_chunks())
