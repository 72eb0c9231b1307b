"""``tidemill load``: files into a table, with a progress bar and an honest summary."""

from __future__ import annotations

import argparse
import sys
import time
import uuid
from functools import partial
from pathlib import Path

import duckdb
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from tidemill.cli.loading import FORMATS, Loader, Summary, find_table, format_of, source_of
from tidemill.cli.session import (
    Database,
    Session,
    add_settings_option,
    add_warehouse_option,
    open_session,
)
from tidemill.config import DUCKDB_CLOSED
from tidemill.errors import DefinitionError, FileFormatError, TidemillError
from tidemill.types import SqlType, literal, quote

BATCH_ROWS = 100_000
BATCH_ROWS_MAX = 10_000_000
REASONS_SHOWN = 5

_READERS = {
    "csv": "read_csv({})",
    "json": "read_json({})",
    "ndjson": "read_json({}, format = 'newline_delimited')",
    "parquet": "read_parquet({})",
}


def configure(parser: argparse.ArgumentParser) -> None:
    add_warehouse_option(parser)
    add_settings_option(parser)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files to load")
    parser.add_argument("--table", "-t", required=True, metavar="TABLE", help="where rows go")
    parser.add_argument(
        "--format", choices=FORMATS, help="what the files are (default: by their names)"
    )
    parser.add_argument(
        "--batch-rows",
        type=_batch_rows,
        default=BATCH_ROWS,
        metavar="N",
        help=f"rows that are stored at once ({BATCH_ROWS}); keep it to repeat a load safely",
    )
    parser.add_argument(
        "--create", action="store_true", help="make the table from the first file if it is missing"
    )
    parser.add_argument(
        "--again", action="store_true", help="load files once more, even if they are loaded already"
    )


def run(options: argparse.Namespace) -> int:
    console = Console(highlight=False)
    with open_session(options.warehouse, settings=options.settings) as session:
        if session.alert:
            print(session.alert, file=sys.stderr)
        if options.create:
            create_table(session.database, options.table, options.files[0], options.format)
        return load_files(session, options, console)


def load_files(session: Session, options: argparse.Namespace, console: Console) -> int:
    """Loads file after file; an error ends it, and the summary tells what is in."""
    table = find_table(session.database, options.table)
    jobs = [(path, format_of(path, options.format), source_of(path)) for path in options.files]
    loader = Loader(session.database, table, options.batch_rows)
    started = time.monotonic()
    failure: TidemillError | None = None
    with _progress(console) as progress:
        for path, form, source in jobs:
            task = progress.add_task(path.name, total=path.stat().st_size)
            loader.told = partial(_tell, progress, task)
            try:
                loader.load(path, form, _once_more(source) if options.again else source)
            except TidemillError as error:
                failure = error
                break
            progress.update(task, completed=path.stat().st_size)
    _print_summary(console, table.name, loader.summary, time.monotonic() - started)
    if loader.summary.rejected:
        _print_reasons(console, session.database, table.name)
    if failure is not None:
        raise failure
    return 0


def create_table(database: Database, name: str, path: Path, given: str | None) -> None:
    """Makes a streaming table with the columns that DuckDB sees in a file."""
    known = database.sql("SELECT table_name FROM tidemill.tables").fetchall()
    if any(table.lower() == name.lower() for (table,) in known):
        return
    reader = _READERS[format_of(path, given)].format(literal(str(path)))
    try:
        with duckdb.connect(config={**DUCKDB_CLOSED}) as connection:
            relation = connection.sql(f"SELECT * FROM {reader}")
            columns = [
                (column, SqlType.parse(str(kind)))
                for column, kind in zip(relation.columns, relation.types, strict=True)
            ]
    except duckdb.Error as error:
        raise FileFormatError(
            f'"{path}" does not tell its columns', detail=str(error).splitlines()[0]
        ) from error
    time_column = next((column for column, kind in columns if kind.is_time), None)
    if time_column is None:
        raise DefinitionError(
            f'"{path}" has no column of times, and a streaming table needs one',
            hint=f"CREATE STREAMING TABLE {quote(name)} (…) says which column is the time",
        )
    told = ", ".join(f"{quote(column)} {kind}" for column, kind in columns)
    at = quote(time_column)
    database.sql(
        f"CREATE STREAMING TABLE {quote(name)} "
        f"({told}, WATERMARK FOR {at} AS {at} - INTERVAL '5' SECOND) WITH (clock = 'event')"
    )


def _tell(progress: Progress, task: TaskID, bytes_read: int) -> None:
    progress.update(task, completed=bytes_read)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def _print_summary(console: Console, table: str, summary: Summary, seconds: float) -> None:
    per_s = summary.rows_in / max(seconds, 1e-9)
    console.print(
        f"{summary.rows_in:,} rows read for {table} in {seconds:.1f} s ({per_s:,.0f} rows/s): "
        f"{summary.stored:,} stored, {summary.late:,} late, {summary.rejected:,} rejected"
        + (f", {summary.repeated:,} there already" if summary.repeated else ""),
        soft_wrap=True,
    )


def _print_reasons(console: Console, database: Database, table: str) -> None:
    aside = quote(f"{table}$rejected")
    reasons = database.sql(
        f"SELECT _reason, count(*) AS rows FROM {aside} GROUP BY _reason "
        f"ORDER BY rows DESC, _reason LIMIT {REASONS_SHOWN}"
    ).fetchall()
    if reasons:
        console.print(f"rejected rows are in {aside}; why, most often:", soft_wrap=True)
    for reason, count in reasons:
        console.print(f"  {count:,} × {reason}", soft_wrap=True, markup=False)


def _once_more(source: str) -> str:
    return f"{source}:{uuid.uuid4().hex[:12]}"


def _batch_rows(text: str) -> int:
    count = int(text)
    if not 1 <= count <= BATCH_ROWS_MAX:
        raise argparse.ArgumentTypeError(f"must be between 1 and {BATCH_ROWS_MAX:,}")
    return count
