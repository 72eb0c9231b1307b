"""Files to load: position reports and lineitem as Parquet and as packages of CSV, made once.

They lie in the temporary folder (``--folder`` chooses another), under a name that says what they
hold, and stay there for the next run; deleting the folder is always safe. A set of files appears
under its name only when it is whole.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from benchmarks import lineitem, traffic

VERSION = 1  # of the generators: whoever changes what they make raises it
FILE_PIECES = 10  # pieces of about 100,000 rows in one Parquet file
GZIP_LEVEL = 1


def reports_parquet(rows: int) -> Path:
    """Position reports in Parquet files of a million rows, in order of time."""
    return _cached(f"reports-{rows}-parquet", lambda into: _reports_parquet(into, rows))


def lineitem_parquet(rows: int) -> Path:
    """Lineitem in Parquet files of about a million rows, in order of its keys."""
    return _cached(f"lineitem-{rows}-parquet", lambda into: _lineitem_parquet(into, rows))


def reports_csv(rows: int, package_rows: int) -> Path:
    """Position reports as packages: gzipped CSV files with a header."""
    name = f"reports-{rows}-by-{package_rows}-csv"
    return _cached(name, lambda into: _reports_csv(into, rows, package_rows))


def paths(folder: Path) -> list[str]:
    """The files of a set, in order."""
    return [str(path) for path in sorted(folder.iterdir())]


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _cached(name: str, make: Callable[[Path], None]) -> Path:
    folder = Path(tempfile.gettempdir()) / "tidemill-bench-data" / f"{name}-{VERSION}"
    if not folder.exists():
        draft = folder.with_name(f".{folder.name}.{os.getpid()}")
        draft.mkdir(parents=True)
        try:
            make(draft)
            draft.rename(folder)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    return folder


def _each(function: Callable[..., None], calls: Sequence[tuple[Any, ...]]) -> None:
    """One call after the other on every core; numpy, pyarrow and zlib work beside each other."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in [pool.submit(function, *call) for call in calls]:
            done.result()


def _reports_parquet(into: Path, rows: int) -> None:
    counts = list(enumerate(traffic.pieces(rows)))

    def write(at: int) -> None:
        made = [traffic.table(*one) for one in counts[at : at + FILE_PIECES]]
        _write_parquet(into / f"{at // FILE_PIECES:05}.parquet", made)

    _each(write, [(at,) for at in range(0, len(counts), FILE_PIECES)])


def _lineitem_parquet(into: Path, rows: int) -> None:
    counts = list(enumerate(lineitem.pieces(rows)))
    scale = rows / lineitem.ROWS_A_SCALE

    def write(at: int) -> None:
        made = [lineitem.table(*one, scale) for one in counts[at : at + FILE_PIECES]]
        _write_parquet(into / f"{at // FILE_PIECES:05}.parquet", made)

    _each(write, [(at,) for at in range(0, len(counts), FILE_PIECES)])


def _write_parquet(path: Path, tables: list[pa.Table]) -> None:
    pa.parquet.write_table(pa.concat_tables(tables), path, compression="zstd", compression_level=1)


def _reports_csv(into: Path, rows: int, package_rows: int) -> None:
    def write(number: int, count: int) -> None:
        made = traffic.table(number, count)
        for start in range(0, count, package_rows):
            path = into / f"{number:05}-{start:06}.csv.gz"
            with gzip.open(path, "wb", compresslevel=GZIP_LEVEL) as file:
                pa.csv.write_csv(made.slice(start, package_rows), file)

    _each(write, list(enumerate(traffic.pieces(rows))))
