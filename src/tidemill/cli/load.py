"""``tidemill load``: files into a table, with a progress bar and an honest summary."""

from __future__ import annotations

import argparse
import sys
import time
import uuid
from functools import partial
from pathlib import Path

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

from tidemill.catalog.model import Table
from tidemill.cli.creating import create_statement
from tidemill.cli.loading import (
    FORMATS,
    Loader,
    Summary,
    copy_options,
    find_table,
    format_of,
)
from tidemill.cli.session import (
    Database,
    Session,
    add_settings_option,
    add_warehouse_option,
    open_session,
)
from tidemill.errors import TidemillError
from tidemill.pipeline.packages import file_source
from tidemill.types import literal, quote

BATCH_ROWS = 100_000
BATCH_ROWS_MAX = 10_000_000
REASONS_SHOWN = 5


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
        "--with",
        dest="table_settings",
        action="append",
        type=_pair,
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the table that --create makes, such as partition='1 day'",
    )
    _configure_reading(parser)
    parser.add_argument(
        "--again", action="store_true", help="load files once more, even if they are loaded already"
    )


def _configure_reading(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how the files are read")
    group.add_argument("--time", metavar="COLUMN", help="the column of times, for --create")
    group.add_argument("--time-unit", metavar="UNIT", help="numbers are times in s, ms, us or ns")
    group.add_argument(
        "--time-format", action="append", metavar="FORMAT", help="for example '%%m/%%d/%%Y %%H:%%M'"
    )
    group.add_argument("--date-format", action="append", metavar="FORMAT", help="of DATE columns")
    group.add_argument("--null", action="append", metavar="TEXT", help="a text that means NULL")
    group.add_argument("--delimiter", metavar="CHAR", help="between the values of a CSV file")
    group.add_argument("--encoding", metavar="NAME", help="latin-1, utf-16, … (utf-8)")
    group.add_argument("--decimal-separator", metavar="CHAR", help="',' for 1,5")
    group.add_argument(
        "--rename",
        action="append",
        type=_pair,
        default=[],
        metavar="OLD=NEW",
        help="the table's name for a column of the file",
    )
    group.add_argument("--exclude", action="append", metavar="COLUMN", help="leave a column out")
    group.add_argument("--filename", metavar="COLUMN", help="the column for the file's name")


def reading_options(options: argparse.Namespace) -> dict[str, object]:
    """The options of reading, as COPY names them."""
    given: dict[str, object | None] = {
        "timeunit": options.time_unit,
        "timestampformat": options.time_format,
        "dateformat": options.date_format,
        "null": options.null,
        "delimiter": options.delimiter,
        "encoding": options.encoding,
        "decimal_separator": options.decimal_separator,
        "rename": dict(options.rename),
        "exclude": options.exclude,
        "filename": options.filename,
    }
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
        if value
    }


def run(options: argparse.Namespace) -> int:
    console = Console(highlight=False)
    for path in options.files:
        file_source(path)  # an error, if it cannot be read: before a warehouse is made for it
    with open_session(options.warehouse, settings=options.settings) as session:
        if session.alert:
            print(session.alert, file=sys.stderr)
        created = options.create and create_table(session.database, options, console)
        loaded = Summary()
        try:
            return load_files(session, options, console, loaded)
        except TidemillError:
            if created and not (loaded.rows_in or loaded.repeated):
                session.database.sql(f"DROP TABLE {quote(options.table)}")
            raise


def load_files(
    session: Session, options: argparse.Namespace, console: Console, summary: Summary
) -> int:
    """Loads file after file; an error ends it, and the summary tells what is in."""
    table = find_table(session.database, options.table)
    if not table.is_streaming:
        return copy_files(session.database, table, options, console, summary)
    jobs = [(path, format_of(path, options.format), file_source(path)) for path in options.files]
    how = reading_options(options)
    loader = Loader(session.database, table, options.batch_rows, how, summary=summary)
    started = time.monotonic()
    failure: TidemillError | None = None
    with _progress(console) as progress:
        for path, form, source in jobs:
            task = progress.add_task(path.name, total=path.stat().st_size)
            loader.told = partial(_tell, progress, task)
            try:
                if not options.again and loader.is_known(path):
                    progress.print(f"{path} was loaded before; --again loads it once more")
                    continue
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


def copy_files(
    database: Database,
    table: Table,
    options: argparse.Namespace,
    console: Console,
    summary: Summary,
) -> int:
    """Files into a reference table, each as a whole."""
    for path in options.files:
        form = format_of(path, options.format)
        how = {"format": form, **reading_options(options)}
        if options.again:
            how["force"] = True
        place = literal(str(path.expanduser().absolute()))
        answer = database.sql(f"COPY {quote(table.name)} FROM {place} {copy_options(how)}")
        console.print(f"{path}: {answer.message}", soft_wrap=True, markup=False)
        summary.rows_in += 1
    return 0


def create_table(database: Database, options: argparse.Namespace, console: Console) -> bool:
    """Makes a table with the columns that DuckDB sees in a file, if there is none of the name."""
    known = database.sql("SELECT table_name FROM tidemill.tables").fetchall()
    if any(table.lower() == options.table.lower() for (table,) in known):
        return False
    form = format_of(options.files[0], options.format)
    how, settings = reading_options(options), dict(options.table_settings)
    sql = create_statement(options.table, options.files, form, how, options.time, settings)
    console.print(sql, soft_wrap=True, markup=False)
    database.sql(sql)
    return True


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


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise argparse.ArgumentTypeError("must be a name, = and a value")
    return name.strip(), value.strip().strip("'")


def _batch_rows(text: str) -> int:
    count = int(text)
    if not 1 <= count <= BATCH_ROWS_MAX:
        raise argparse.ArgumentTypeError(f"must be between 1 and {BATCH_ROWS_MAX:,}")
    return count
