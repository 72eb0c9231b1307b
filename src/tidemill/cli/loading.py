"""Loading a file into a table, in batches that are stored once however often it is tried.

1. A file is known by its name, its size and its ends (``file_source``); a batch is known by the
   number of its first row. The table acknowledges a batch that it has already and does not store it
   again, so a load that broke off can simply be repeated. At its end the file is marked as whole,
   so that COPY and sources know it; what they loaded is not loaded here.
2. The file is read strictly, at full speed. Where it breaks off and the table diverts bad rows,
   it is read again as text from the row where it stopped: what came before was right.
3. Bad rows are the table's business: it refuses the batch, or sets them aside with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemill.accept.files import read_file
from tidemill.accept.found import Found
from tidemill.catalog.model import REFERENCE, STREAMING, Table
from tidemill.cli.session import Database
from tidemill.errors import FileFormatError, UnknownNameError, did_you_mean
from tidemill.pipeline.file_digests import has_digest
from tidemill.pipeline.packages import WHOLE_FILE
from tidemill.types import Column, SqlType, literal

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".parquet": "parquet",
}
FORMATS = ("csv", "json", "ndjson", "parquet")
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")


@dataclass
class Summary:
    """What became of the rows of one or more files."""

    rows_in: int = 0
    stored: int = 0
    late: int = 0
    rejected: int = 0
    repeated: int = 0

    def add(self, result: Any) -> None:
        self.rows_in += result.rows_in
        if result.is_repeat:
            self.repeated += result.rows_in
            return
        self.stored += result.stored
        self.late += result.late
        self.rejected += result.rejected


@dataclass
class Loader:
    """Loads files into one table. ``told`` is called with the bytes read of the file in hand."""

    database: Database
    table: Table
    batch_rows: int
    options: Mapping[str, object] = field(default_factory=dict)
    told: Callable[[int], None] = lambda _: None
    summary: Summary = field(default_factory=Summary)

    def load(self, path: Path, form: str, source: str) -> None:
        """Loads a file, and marks it as whole."""
        self._load(path, form, source)
        empty = self.table.schema.empty_table()
        self.database.append(self.table.name, empty, source=source, offset=WHOLE_FILE)

    def is_known(self, path: Path) -> bool:
        """Whether COPY or a source has loaded the file as it is."""
        name = str(path.expanduser().absolute())
        loaded = self.database.sql(
            "SELECT size, digest FROM tidemill.packages "
            "WHERE table_name = ? AND name = ? AND state = 'loaded'",
            [self.table.name, name],
        ).fetchall()
        digests = {digest for size, digest in loaded if size == path.stat().st_size}
        return any(has_digest(path, digest) for digest in digests)

    def _load(self, path: Path, form: str, source: str) -> None:
        try:
            self._append_all(self._read(path, form), source, 0)
        except _BrokenOff as broken:
            if self.table.settings["rejected"] != "divert":
                raise broken.error from broken.error.__cause__
            self._append_all(self._read(path, form, as_text=True), source, broken.rows)

    def _read(self, path: Path, form: str, as_text: bool = False) -> Iterator[Found]:
        return read_file(path, form, self.table, None, self.options, as_text=as_text)

    def _append_all(self, founds: Iterator[Found], source: str, skip: int) -> None:
        """Appends batches, leaving out the first ``skip`` rows."""
        at = 0
        while True:
            try:
                found = next(founds, None)
            except FileFormatError as error:
                raise _BrokenOff(max(at, skip), error) from error
            if found is None:
                return
            rows, first = found.rows, at
            at += rows.num_rows + len(found.rejects)
            if at > skip:
                fresh = rows.slice(max(0, skip - first))
                self._append(fresh, found.rejects, source, max(first, skip))
            self.told(found.bytes_read)

    def _append(
        self, rows: pa.Table, rejects: list[tuple[str, str]], source: str, offset: int
    ) -> None:
        for start in range(0, max(rows.num_rows, 1), self.batch_rows):
            part = rows.slice(start, self.batch_rows)
            last = start + self.batch_rows >= rows.num_rows
            extra = {"rejects": rejects} if last and rejects else {}
            result = self.database.append(
                self.table.name, part, source=source, offset=offset + start, **extra
            )
            self.summary.add(result)


class _BrokenOff(Exception):
    """The file could be read up to a row and no further."""

    def __init__(self, rows: int, error: FileFormatError) -> None:
        super().__init__(rows)
        self.rows = rows
        self.error = error


def format_of(path: Path, given: str | None = None) -> str:
    """The format that was given, or that the file's name tells."""
    if given:
        return given
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    form = SUFFIXES.get(suffixes[-1] if suffixes else "")
    if form is None:
        raise FileFormatError(
            f'the format of "{path}" cannot be told from its name',
            hint=f"say it with --format: {', '.join(FORMATS)}",
        )
    return form


def copy_options(options: Mapping[str, object]) -> str:
    """Options as COPY takes them.

    >>> copy_options({"format": "csv", "null": ("NA", ""), "rename": {"a": "b"}})
    "(format 'csv', null ('NA', ''), rename ('a' AS 'b'))"
    """

    def told(value: object) -> str:
        if isinstance(value, Mapping):
            pairs = (f"{literal(str(o))} AS {literal(str(n))}" for o, n in value.items())
            return f"({', '.join(pairs)})"
        if isinstance(value, tuple | list):
            return f"({', '.join(literal(str(each)) for each in value)})"
        return "true" if value is True else literal(str(value))

    return f"({', '.join(f'{name} {told(value)}' for name, value in options.items())})"


def find_table(database: Database, name: str) -> Table:
    """A table's columns and settings, through the system tables: the owner may be elsewhere."""
    known = database.sql("SELECT table_name, kind FROM tidemill.tables").fetchall()
    found = next((row for row in known if row[0].lower() == name.lower()), None)
    if found is None:
        raise UnknownNameError(
            f'table "{name}" does not exist',
            hint=did_you_mean(name, [row[0] for row in known])
            or "--create makes one from the first file",
        )
    exact, kind = found
    if kind not in (STREAMING, REFERENCE):
        raise UnknownNameError(
            f'"{exact}" is a {kind}, and files are loaded into tables',
            hint="name a streaming or a reference table",
        )
    columns = database.sql(
        'SELECT column_name, type, nullable, "default", is_key, is_time '
        "FROM tidemill.columns WHERE table_name = ? ORDER BY position",
        [exact],
    ).fetchall()
    settings = database.sql(
        "SELECT name, value FROM tidemill.settings WHERE table_name = ? AND is_given", [exact]
    ).fetchall()
    return Table(
        table_id=0,
        name=exact,
        kind=kind,
        columns=tuple(Column(c[0], SqlType.parse(c[1]), c[2], c[3]) for c in columns),
        primary_key=tuple(c[0] for c in columns if c[4]),
        time_column=next((c[0] for c in columns if c[5]), None),
        watermark_delay_us=None,
        given_settings=dict(settings),
        indexes=(),
        created_at_us=0,
    )
