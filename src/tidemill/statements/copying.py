"""Copying: COPY FROM a file, or many, into a table; COPY TO (``exporting``). Both are all or
nothing."""

from __future__ import annotations

from collections.abc import Mapping
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
    TidemillError,
)
from tidemill.federation.duck import Duck
from tidemill.federation.routes import LOCAL, Router
from tidemill.history.guard import Guard
from tidemill.pipeline.loads.loads import Loads
from tidemill.result import Result, done
from tidemill.sql import statements as st
from tidemill.statements.call import Call, Handlers
from tidemill.statements.exporting import Copied, copy_to
from tidemill.statements.querying import Querying
from tidemill.statements.spooling import as_file
from tidemill.statements.targets import Target
from tidemill.statements.writing import Writer, check_rejects

FORCE = "force"
PIPE_BYTES_MAX = 4 << 30
MEMORY_SHARES = 4  # a file of at least this part of the table's memory goes to history


class Copying:
    def __init__(
        self,
        writer: Writer,
        loads: Loads,
        querying: Querying,
        router: Router,
        duck: Duck,
        guard: Guard,
    ) -> None:
        self._writer = writer
        self._loads = loads
        self._querying = querying
        self._router = router
        self._duck = duck
        self._guard = guard

    @property
    def handlers(self) -> Handlers:
        return {st.CopyFrom: self._copy_from, st.CopyTo: self._copy_to}

    def _copy_from(self, call: Call[st.CopyFrom]) -> Result:
        self._guard.check_read(call.statement.path)
        return copy_from(self._writer, self._loads, call.statement)

    def _copy_to(self, call: Call[st.CopyTo]) -> Result:
        statement = call.statement
        query = st.Query(statement.query, text=statement.text, position=statement.position)
        filled = self._querying.fill(call.of(query))
        if filled.route == LOCAL:
            answer = Copied(filled.sql, filled.values, filled.sources)
        else:
            answer = Copied.of(*self._router.run_filled(filled))
        return copy_to(self._duck, self._guard, statement, answer)


def copy_from(writer: Writer, loads: Loads, statement: st.CopyFrom) -> Result:
    """Read a whole file and store it as one append; let the pipeline load what is more."""
    target = writer.targets.at(statement.table, statement)
    names = None
    if statement.columns:
        names = writer.columns_of(target.table, statement.columns, statement)
    options = {name.lower(): value for name, value in statement.options.items()}
    force = str(options.pop(FORCE, False)).lower() not in ("false", "0", "off", "no")
    if _is_for_pipeline(statement.path, target.table):
        return _load(loads, target.table, names, statement, options, force)
    path = Path(statement.path).expanduser()
    bytes_max = (
        MEMORY_SHARES * target.table.settings["memory"] if target.table.is_streaming else None
    )
    with as_file(path, bytes_max or PIPE_BYTES_MAX) as place:
        state = None
        if target.table.is_streaming and place is path and path.is_file() and not force:
            state = loads.look_up(target.table, path)
            if state is None:
                return done(f"COPY 0 ({_before(1)})")
        arguments = (place, statement.format, target.table, names, options)
        checked = _checked(target, statement.format, *arguments)
    if state is None:
        stored = writer.store(target, checked)
    else:
        stored = loads.store(target.table, state, checked)
    aside = {"late": stored.late, "rejected": stored.rejected}
    told = ", ".join(f"{count} {word}" for word, count in aside.items() if count)
    return done(f"COPY {stored.stored}" + (f" ({told})" if told else ""))


def _checked(target: Target, form: str, *arguments: Any) -> Checked:
    try:
        return _read(target, *arguments, as_text=False)
    except (RowsRejectedError, FileFormatError):
        if form == "parquet":
            raise
        # Read again as text: some spellings need it, and bad lines are then known one by one.
        checked = _read(target, *arguments, as_text=True)
        check_rejects(checked.rejects, target.table)
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


def _read(target: Target, *arguments: Any, as_text: bool) -> Checked:
    batches: list[pa.RecordBatch] = []
    rejects: list[tuple[str, str]] = []
    held, first_row = 0, 1
    limit = target.table.settings["memory"] if target.table.is_streaming else None
    for found in read_file(*arguments, as_text=as_text):
        if found.rows.num_columns:
            checked = target.acceptor.accept(found.rows, first_row)
            batches += checked.batches
            rejects += checked.rejects
            held += sum(batch.nbytes for batch in checked.batches)
            first_row += found.rows.num_rows
        rejects += found.rejects
        if limit is not None and held > limit:
            raise BackpressureError(
                f'the file does not fit the memory of table "{target.table.name}"',
                hint="use `tidemill load`, which loads it in pieces, or raise memory",
            )
    return Checked(tuple(batches), tuple(rejects))
