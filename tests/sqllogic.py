"""A small runner for SQL test files, in the manner of sqllogictest.

A file is a list of records with empty lines between them; ``#`` begins a comment line:

- ``statement ok [tag]`` and a statement: it must succeed, with this command tag if one is named;
- ``statement error regex`` and a statement: it must raise a TidemillError whose ``code: text``
  the regular expression finds;
- ``query types [rowsort]``, a query, ``----`` and its rows, one a line, values between `` | ``;
  ``types`` has a letter for each column (``LETTERS``), ``rowsort`` compares sorted rows;
- ``onlyif hot`` above any of these: it is about memory itself, so it is passed over (as EXPLAIN
  is) in manners that move rows out of it;
- ``restart`` closes the warehouse and opens it again; ``clock set <timestamp>`` and
  ``clock advance <seconds>`` move its clock.

``{folder}`` stands for a folder of the test's own. ``rewrite`` runs a file and answers its text
with the actual tags, types, rows and error codes.

A file runs in a *manner*: ``hot`` leaves rows where they come; ``local`` and ``spark`` move every
table to files after each statement that writes, and answer queries on that route. What holds must
hold in all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from warehouses import open_inline

from tidemill.as_text import TEXT, text_result
from tidemill.cli.render import collect
from tidemill.clock import FakeClock
from tidemill.config import DATABASE_SETTINGS, Settings
from tidemill.engine import Database
from tidemill.errors import TidemillError
from tidemill.result import Result

HOT, LOCAL, SPARK = "hot", "local", "spark"
MANNERS = (HOT, LOCAL, SPARK)
START = datetime(2024, 1, 1)
ONLY_HOT = "onlyif hot"
SEPARATOR = "----"

# The letter of a column's SQL type; the first pattern that matches counts.
LETTERS = (
    (re.compile(r".*\]"), "L"),
    (re.compile(r"STRUCT.*"), "S"),
    (re.compile(r"MAP.*"), "M"),
    (re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|UINTEGER"), "I"),
    (re.compile(r"DOUBLE|FLOAT|DECIMAL.*"), "R"),
    (re.compile(r"BOOLEAN"), "B"),
    (re.compile(r"DATE|TIME.*"), "D"),
    (re.compile(r"INTERVAL"), "V"),
    (re.compile(r"VARCHAR|JSON|UUID"), "T"),
    (re.compile(r"BLOB"), "X"),
)


@dataclass
class Record:
    """One record: its first line's words, its SQL, the rows it expects, and where it stands."""

    line: int
    head: str
    sql: str = ""
    rows: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    only_hot: bool = False

    @property
    def kind(self) -> str:
        return self.head.split(maxsplit=1)[0]

    @property
    def rest(self) -> str:
        return self.head.partition(" ")[2].strip()

    def text(self) -> str:
        marks = [ONLY_HOT] if self.only_hot else []
        lines = [*self.comments, *marks, self.head, *([self.sql] if self.sql else [])]
        if self.kind == "query":
            lines += [SEPARATOR, *self.rows]
        return "\n".join(lines)


# What promises an order; other queries keep that of arrival while their rows are in memory.
_ORDERED = re.compile(r"ORDER BY|RECENT\(|^(SHOW|DESCRIBE|EXPLAIN)", re.IGNORECASE)


class Mismatch(AssertionError):
    """A record whose statement does not do what the file says."""


def read(text: str) -> Iterator[Record]:
    """The records of a file; comments belong to the record after them."""
    comments: list[str] = []
    for start, lines in _paragraphs(text):
        while lines and lines[0].startswith("#"):
            comments.append(lines.pop(0))
            start += 1
        if not lines:
            comments.append("")
            continue
        only_hot = lines[0] == ONLY_HOT
        head, *body = lines[only_hot:]
        cut = body.index(SEPARATOR) if SEPARATOR in body else len(body)
        yield Record(start, head, "\n".join(body[:cut]), body[cut + 1 :], comments, only_hot)
        comments = []


def _paragraphs(text: str) -> Iterator[tuple[int, list[str]]]:
    lines: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.strip():
            lines.append(line.rstrip())
        elif lines:
            yield number - len(lines), lines
            lines = []


class Runner:
    """Runs records against a warehouse of its own, with a clock that stands still."""

    def __init__(self, folder: Path, manner: str = HOT) -> None:
        self.folder = folder
        self.manner = manner
        self.clock = FakeClock(START)
        self.db = self._open()

    def _open(self) -> Database:
        if self.manner == HOT:
            return Database(self.folder / "w", Settings(DATABASE_SETTINGS, {}), clock=self.clock)
        db = open_inline(self.folder / "w", self.clock)
        db.sql(f"SET route = '{self.manner}'")
        return db

    def close(self) -> None:
        self.db.close()

    def run(self, record: Record, rewrite: bool = False) -> None:
        """Do what a record says; Mismatch if it does not hold, or put the truth into it."""
        if self.manner != HOT and (record.only_hot or record.sql.startswith("EXPLAIN")):
            return
        if record.kind == "restart":
            self.db.close()
            self.db = self._open()
        elif record.kind == "clock":
            self._move_clock(record)
        elif record.kind == "statement":
            self._statement(record, rewrite)
        elif record.kind == "query":
            self._query(record, rewrite)
        else:
            raise Mismatch(f"{record.kind!r} is no record")

    def _move_clock(self, record: Record) -> None:
        how, _, what = record.rest.partition(" ")
        if how == "set":
            self.clock.set(datetime.fromisoformat(what))
        else:
            self.clock.advance(float(what))

    def _sql(self, record: Record) -> Result:
        return self.db.sql(record.sql.replace("{folder}", str(self.folder)))

    def _statement(self, record: Record, rewrite: bool) -> None:
        expected, _, detail = record.rest.partition(" ")
        if expected == "error":
            self._error(record, detail, rewrite)
            return
        tag = self._sql(record).message
        if self.manner != HOT:
            self.db.sql("FLUSH")
        if rewrite and detail:
            record.head = f"statement ok {tag}"
        elif detail not in ("", tag):
            raise Mismatch(f"the tag is {tag!r}")

    def _error(self, record: Record, pattern: str, rewrite: bool) -> None:
        try:
            result = self._sql(record)
        except TidemillError as error:
            text = f"{error.code}: {error}".replace(str(self.folder), "{folder}")
            if pattern and re.search(pattern, text, re.DOTALL):
                return
            if not rewrite:
                raise Mismatch(f"the error is\n{text}") from error
            message = error.message.replace(str(self.folder), "{folder}")
            escaped = re.escape(message).replace("\\ ", " ").replace("\\-", "-")
            record.head = f"statement error {error.code}: {escaped}"
        else:
            raise Mismatch(f"no error but {result!r}")

    def _query(self, record: Record, rewrite: bool) -> None:
        options = record.rest.split()
        result = self._sql(record)
        types = "".join(map(letter, result.types))
        rows = [row.replace(str(self.folder), "{folder}") for row in render_rows(result)]
        rows = sorted(rows) if "rowsort" in options else rows
        if self.manner != HOT and not _ORDERED.search(record.sql):
            rows, record.rows = sorted(rows), sorted(record.rows)
        if rewrite:
            record.head = " ".join(["query", types, *options[1:]])
            record.rows = rows
        elif options[:1] != [types]:
            raise Mismatch(f"the types are {types}")
        elif rows != record.rows:
            raise Mismatch("the rows are\n" + "\n".join(rows))


def letter(kind: str) -> str:
    """The letter of a SQL type.

    >>> letter("BIGINT"), letter("DECIMAL(9,2)"), letter("INTEGER[]"), letter("UUID")
    ('I', 'R', 'L', 'T')
    """
    return next((sign for pattern, sign in LETTERS if pattern.fullmatch(kind)), "?")


def render_rows(result: Result) -> list[str]:
    """One line a row, values as DuckDB writes them; nothing is written as (empty)."""
    texts = collect(text_result(result, TEXT)) if result.columns else []

    def cell(text: str | None) -> str:
        if text is None:
            return "NULL"
        return text.replace("\n", "\\n") if text.strip() else "(empty)"

    return [" | ".join(map(cell, row)) for row in zip(*texts, strict=True)]


def check(path: Path, folder: Path, manner: str = HOT) -> None:
    """Run a file; the first record that does not hold raises Mismatch with its place."""
    runner = Runner(folder, manner)
    try:
        for record in read(path.read_text()):
            try:
                runner.run(record)
            except (Mismatch, TidemillError) as error:
                raise Mismatch(f"{path.name}:{record.line}: {error}\n{record.text()}") from error
    finally:
        runner.close()


def rewrite(path: Path, folder: Path) -> str:
    """The text of a file with what its statements do now."""
    runner = Runner(folder)
    try:
        records = list(read(path.read_text()))
        for record in records:
            try:
                runner.run(record, rewrite=True)
            except (Mismatch, TidemillError) as error:
                raise Mismatch(f"{path.name}:{record.line}: {error}\n{record.text()}") from error
    finally:
        runner.close()
    return "\n\n".join(record.text() for record in records) + "\n"
