"""CREATE STREAMING TABLE … AS SELECT … EVERY …: the table that a kept query answers into.

Its columns are the time of the evaluation and the query's own. The time column is named ``ts``; a
query may give that column itself only where its values are the times of the evaluation: with EVERY
ROW (the row's own time, or whatever it calls so), and as ``window_end AS ts``.
"""

from __future__ import annotations

from sqlglot import exp

from tidemill.catalog.model import STREAMING, NewTable, Table
from tidemill.errors import DefinitionError
from tidemill.sql import statements as st
from tidemill.types import Column, SqlType
from tidemill.views.defining import check_settled
from tidemill.views.kept.closes import describe_closes
from tidemill.views.kept.definition import TIME_NAME, Definition, StreamBegin
from tidemill.views.kept.environment import Answer, KeptEnvironment
from tidemill.views.kept.keys_apart import check_keys_apart
from tidemill.views.kept.reads import check_reads, leading, reads_of
from tidemill.views.kept.row_query import describe_rows, row_query
from tidemill.views.kept.sides import check_retention
from tidemill.views.kept.streams import ClockOf, streams_behind, time_of
from tidemill.views.kept.ticks import describe_ticks


def design(
    statement: st.CreateKeptQuery, environment: KeptEnvironment, clock_of: ClockOf
) -> NewTable:
    """The table to be made; raises if the query cannot be kept with its slide."""
    snapshot = environment.snapshot()
    reads = reads_of(statement.query, snapshot)
    if not reads:  # perhaps a name is wrong, which is better to know
        environment.evaluate(
            exp.select("*").from_(exp.Subquery(this=statement.query.copy())).limit(0), 0
        )
    check_reads(reads)
    names = tuple(dict.fromkeys(read.table.name for read in reads))
    if statement.name.lower() in {name.lower() for name in names}:
        raise DefinitionError(
            f'kept query "{statement.name}" cannot read its own answers',
            hint="keep them under another name",
            position=statement.position,
        )
    if statement.slide.every_row:
        check_keys_apart(statement.query, snapshot)
    check_settled(snapshot, (read.table.table_id for read in reads), statement.position)
    first = leading(reads)
    reads = [first, *(read for read in reads if read is not first)]
    behind = {table.table_id: table for read in reads for table in streams_behind(read, snapshot)}
    streams = tuple(behind.values())
    definition = Definition(
        statement.query_text,
        statement.slide,
        tuple(_begin(table, environment) for table in streams),
        names,
        _common_clock(streams, clock_of),
        snapshot.snapshot_id,
    )
    if statement.slide.every_row:
        query = row_query(definition, snapshot, None)
        check_retention(query.read, query.sides)
    columns = _columns(statement, definition, _describe(definition, environment), streams[0])
    return NewTable(
        statement.name,
        STREAMING,
        columns,
        time_column=next(c.name for c in columns if c.name.lower() == TIME_NAME),
        settings=_settings(statement, streams),
        definition=definition.to_json(),
    )


def _begin(table: Table, environment: KeptEnvironment) -> StreamBegin:
    return StreamBegin(table.table_id, table.name, environment.hot(table).view().published_seq)


def _common_clock(streams: tuple[Table, ...], clock_of: ClockOf) -> int | None:
    """The least clock of those that have one."""
    clocks = [clock_of(table) for table in streams]
    return min((clock for clock in clocks if clock is not None), default=None)


def _describe(definition: Definition, environment: KeptEnvironment) -> Answer:
    if definition.slide.every_row:
        return describe_rows(definition, environment)
    return (
        describe_closes(definition, environment)
        if definition.slide.on_close
        else describe_ticks(definition, environment)
    )


def _settings(statement: st.CreateKeptQuery, streams: tuple[Table, ...]) -> dict[str, str]:
    """Answers are not late, and the newest of them is now."""
    default = {
        "clock": "event",
        "late": "accept",
        "max_future": streams[0].settings.text("max_future"),
    }
    return {**default, **statement.settings}


def _columns(
    statement: st.CreateKeptQuery, definition: Definition, described: Answer, stream: Table
) -> tuple[Column, ...]:
    answer, types = described
    names = [name.lower() for name in answer.column_names]
    if len(set(names)) < len(names):
        raise DefinitionError(
            "the query gives two columns the same name",
            hint="name each column with AS",
            position=statement.position,
        )
    kinds = ["INTEGER" if kind == '"NULL"' else kind for kind in types]
    pairs = zip(answer.column_names, kinds, strict=True)
    columns = [Column(name, SqlType.parse(kind)) for name, kind in pairs]
    if TIME_NAME not in names:
        return (Column(TIME_NAME, time_of(stream).type, nullable=False), *columns)
    own = columns[names.index(TIME_NAME)]
    if not gives_time(definition) or not own.type.is_time:
        raise DefinitionError(
            f'column "{own.name}" of the query stands where the time of its answers is kept',
            detail=f"its type is {own.type}" if not own.type.is_time else None,
            hint=f"give it another name: … AS {own.name}_of_row",
            position=statement.position,
        )
    columns[names.index(TIME_NAME)] = Column(own.name, own.type, nullable=False)
    return tuple(columns)


def gives_time(definition: Definition) -> bool:
    """Whether a query that has a column of that name may give the time of its answers itself."""
    if definition.slide.every_row:
        return True
    tree = definition.tree()
    if not definition.slide.on_close or not isinstance(tree, exp.Select):
        return False
    return any(
        isinstance(part, exp.Alias)
        and part.alias.lower() == TIME_NAME
        and isinstance(part.this, exp.Column)
        and part.this.name.lower() == "window_end"
        for part in tree.expressions
    )


def has_own_time(definition: Definition, table: Table, environment: KeptEnvironment) -> bool:
    """Whether the time of the answers in a table is a column of the query."""
    answer, _ = _describe(definition, environment)
    return len(answer.column_names) == len(table.columns)
