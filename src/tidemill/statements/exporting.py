"""Exporting: COPY TO a file from a query, all or nothing. DuckDB writes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tidemill.errors import FileFormatError, SettingError, did_you_mean
from tidemill.federation.duck import Duck
from tidemill.history.guard import Guard
from tidemill.result import Result, done
from tidemill.sql import statements as st
from tidemill.statements.changing import changed_rows
from tidemill.types import literal, quote


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
