"""Copying: COPY FROM a file into a table, COPY TO a file from a query. Both are all or nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemill.accept.files import read_file
from tidemill.accept.rows import Checked
from tidemill.catalog.model import Table
from tidemill.errors import (
    BackpressureError,
    FileFormatError,
    RowsRejectedError,
    SettingError,
    TidemillError,
    did_you_mean,
)
from tidemill.federation.duck import Duck
from tidemill.history.guard import Guard
from tidemill.loads import Loads
from tidemill.result import Result, done
from tidemill.sql import statements as st
from tidemill.statements.spooling import as_file
from tidemill.statements.writing import Desk, Writer, changed_rows, check_rejects
from tidemill.types import literal, quote

FORCE = "force"
PIPE_BYTES_MAX = 4 << 30
MEMORY_SHARES = 4  # a file of at least this part of the table's memory goes to history


def copy_from(writer: Writer, loads: Loads, statement: st.CopyFrom) -> Result:
    """Read a whole file and store it as one append; let the pipeline load what is more."""
    desk = writer.desk_at(statement.table, statement)
    names = None
    if statement.columns:
        names = writer.columns_of(desk.table, statement.columns, statement)
    options = {name.lower(): value for name, value in statement.options.items()}
    force = str(options.pop(FORCE, False)).lower() not in ("false", "0", "off", "no")
    if _is_for_pipeline(statement.path, desk.table):
        return _load(loads, desk.table, names, statement, options, force)
    path = Path(statement.path).expanduser()
    bytes_max = MEMORY_SHARES * desk.table.settings["memory"] if desk.table.is_streaming else None
    with as_file(path, bytes_max or PIPE_BYTES_MAX) as place:
        state = None
        if desk.table.is_streaming and place is path and path.is_file() and not force:
            state = loads.look_up(desk.table, path)
            if state is None:
                return done(f"COPY 0 ({_before(1)})")
        arguments = (place, statement.format, desk.table, names, options)
        checked = _checked(desk, statement.format, *arguments)
    if state is None:
        stored = writer.store(desk, checked)
    else:
        stored = loads.store(desk.table, state, checked)
    aside = {"late": stored.late, "rejected": stored.rejected}
    told = ", ".join(f"{count} {word}" for word, count in aside.items() if count)
    return done(f"COPY {stored.stored}" + (f" ({told})" if told else ""))


def _checked(desk: Desk, form: str, *arguments: Any) -> Checked:
    try:
        return _read(desk, *arguments, as_text=False)
    except (RowsRejectedError, FileFormatError):
        if form == "parquet":
            raise
        # Read again as text: some spellings need it, and bad lines are then known one by one.
        checked = _read(desk, *arguments, as_text=True)
        check_rejects(checked.rejects, desk.table)
        return checked


def _before(known: int) -> str:
    return f"{known} packages were loaded before" if known > 1 else "1 package was loaded before"


def _is_for_pipeline(path: str, table: Table) -> bool:
    """Many files, a folder or a URL; and a file that memory should not hold whole."""
    if "://" in path:
        return True
    local = Path(path).expanduser()
    if local.is_dir() or (any(sign in path for sign in "*?[") and not local.exists()):
        return True
    if not table.is_streaming or not local.is_file():
        return False
    return bool(local.stat().st_size * MEMORY_SHARES >= table.settings["memory"])


def _load(
    loads: Loads,
    table: Table,
    names: list[str] | None,
    statement: st.CopyFrom,
    options: Mapping[str, object],
    force: bool,
) -> Result:
    columns = None if names is None else tuple(names)
    try:
        report = loads.copy(table, statement.path, statement.format, columns, options, force)
    except TidemillError as error:
        error.position = error.position or statement.position
        raise
    known = report.count("known")
    told = [f"{report.rejected} rejected"] if report.rejected else []
    told += [_before(known)] if known else []
    return done(f"COPY {report.rows}" + (f" ({', '.join(told)})" if told else ""))


def _read(desk: Desk, *arguments: Any, as_text: bool) -> Checked:
    batches: list[pa.RecordBatch] = []
    rejects: list[tuple[str, str]] = []
    held, first_row = 0, 1
    limit = desk.table.settings["memory"] if desk.table.is_streaming else None
    for found in read_file(*arguments, as_text=as_text):
        if found.rows.num_columns:
            checked = desk.acceptor.accept(found.rows, first_row)
            batches += checked.batches
            rejects += checked.rejects
            held += sum(batch.nbytes for batch in checked.batches)
            first_row += found.rows.num_rows
        rejects += found.rejects
        if limit is not None and held > limit:
            raise BackpressureError(
                f'the file does not fit the memory of table "{desk.table.name}"',
                hint="use `tidemill load`, which loads it in pieces, or raise memory",
            )
    return Checked(tuple(batches), tuple(rejects))


@dataclass(frozen=True)
class Copied:
    """What COPY TO writes: a query over Arrow tables."""

    sql: str
    values: Mapping[str, object]
    sources: Mapping[str, pa.Table]

    @classmethod
    def of(cls, rows: pa.Table, types: Sequence[str]) -> Copied:
        """The answer of another route, in the types that it has in SQL."""
        places = [f"c{at}" for at in range(len(types))]
        casts = ", ".join(
            f"CAST({place} AS {kind}) AS {quote(name)}"
            for place, kind, name in zip(places, types, rows.column_names, strict=True)
        )
        return cls(f"SELECT {casts} FROM tm_rows", {}, {"tm_rows": rows.rename_columns(places)})


def copy_to(duck: Duck, guard: Guard, statement: st.CopyTo, filled: Copied) -> Result:
    """Write a query's answer to a file; DuckDB streams it, so it need not fit in memory."""
    options = _options(statement)
    path = Path(statement.path).expanduser()
    if not path.parent.is_dir():
        raise FileFormatError(f'folder "{path.parent}" does not exist')
    partial = path.with_name(path.name + ".partial")
    for written in (path, partial):
        guard.check_write(str(written))
    partial.unlink(missing_ok=True)  # were it a link, DuckDB would write where it leads
    query = filled.sql
    if statement.format == "parquet":
        query = _for_parquet(duck, filled)
    sql = f"COPY ({query}) TO {literal(str(partial))} ({', '.join(options)})"
    try:
        answer, _ = duck.query(sql, filled.values, filled.sources)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return done(f"COPY {changed_rows(answer, 0)}")


def _for_parquet(duck: Duck, filled: Copied) -> str:
    """The query, with what DuckDB would not write to Parquet whole as types that keep it.

    It writes huge integers as DOUBLE, intervals without microseconds, and NULLs among arrays so
    that others cannot read them. A HUGEINT of 39 digits is an error here."""
    head = f"SELECT * FROM ({filled.sql}) LIMIT 0"
    answer, types = duck.query(head, filled.values, filled.sources)
    casts = [_NOT_IN_PARQUET.sub(_in_parquet, kind) for kind in types]
    if casts == types:
        return filled.sql
    columns = ", ".join(
        (f"c{at}" if cast == kind else f"CAST(c{at} AS {cast})") + f" AS {quote(name)}"
        for at, (name, kind, cast) in enumerate(zip(answer.column_names, types, casts, strict=True))
    )
    places = ", ".join(f"c{at}" for at in range(len(types)))
    return f"SELECT {columns} FROM ({filled.sql}) AS tm_rows({places})"


def _in_parquet(match: re.Match[str]) -> str:
    return match[1] or (_IN_PARQUET[match[2]] if match[2] else "[]")


_NOT_IN_PARQUET = re.compile(r'("(?:[^"]|"")*")|\b(U?HUGEINT|INTERVAL)(?=[],)[]|$)|\[\d+\]')
_IN_PARQUET = {"HUGEINT": "DECIMAL(38,0)", "UHUGEINT": "VARCHAR", "INTERVAL": "VARCHAR"}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_OPTIONS = {
    "csv": (
        "header",
        "delimiter",
        "delim",
        "sep",
        "quote",
        "escape",
        "null",
        "nullstr",
        "compression",
        "dateformat",
        "timestampformat",
        "force_quote",
    ),
    "json": ("compression", "dateformat", "timestampformat"),
    "ndjson": ("compression", "dateformat", "timestampformat"),
    "parquet": ("compression", "compression_level", "row_group_size"),
}


def _options(statement: st.CopyTo) -> list[str]:
    known = _OPTIONS[statement.format]
    kind = "JSON" if statement.format == "ndjson" else statement.format.upper()
    options = [f"FORMAT {kind}"]
    if statement.format == "json":
        options.append("ARRAY true")
    compression = _COMPRESSIONS.get(Path(statement.path).suffix.lower())
    if compression and not any(name.lower() == "compression" for name in statement.options):
        options.append(f"COMPRESSION {compression}")  # DuckDB sees a name that ends in .partial
    for name, value in statement.options.items():
        lower = name.lower()
        if lower in ("format", "array"):
            continue
        if lower not in known:
            raise SettingError(
                f'option "{name}" does not exist for {statement.format} files',
                hint=did_you_mean(lower, known) or f"the options are {', '.join(known)}",
                position=statement.position,
            )
        options.append(f"{lower.upper()} {literal(str(value))}")
    return options
