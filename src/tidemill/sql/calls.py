"""Calls of stream windows: the arguments of TUMBLE, HOP, SESSION and RECENT, checked.

Arguments come by place, by name (``size => …``), or as Flink writes them (``TABLE t``,
``DESCRIPTOR(ts)``). Every error names the argument and stands where it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlglot import exp

from tidemill.errors import Position, QueryError, UnknownNameError, did_you_mean
from tidemill.sql.fold import constant
from tidemill.sql.intervals import parse_interval
from tidemill.sql.names import position_of
from tidemill.sql.params import Params
from tidemill.sql.scopes import StreamTable as StreamTable
from tidemill.sql.scopes import Tables as Tables
from tidemill.sql.scopes import find_with_query
from tidemill.types import SEQ, Column, SqlType

DURATION_US_MAX = 2**53
ROWS_MAX = 2**53


@dataclass(frozen=True)
class _WithSeq:
    """A table whose hidden column is seen."""

    name: str
    columns: Sequence[Column]
    time_column: str | None


_WITH_SEQ = "tidemill_with_seq"


def show_seq(node: exp.Table) -> None:
    """Let the window of a FROM item give ``_seq`` as its last column; users cannot ask for it."""
    node.meta[_WITH_SEQ] = True


def shows_seq(node: exp.Table) -> bool:
    return bool(node._meta and _WITH_SEQ in node.meta)


def _seen(table: StreamTable, node: exp.Table) -> StreamTable:
    if not shows_seq(node):
        return table
    seq = Column(SEQ, SqlType.parse("BIGINT"), nullable=False)
    return _WithSeq(table.name, (*table.columns, seq), table.time_column)


_SIGNATURES: dict[str, tuple[str, ...]] = {
    "TUMBLE": ("data", "timecol", "size"),
    "HOP": ("data", "timecol", "slide", "size"),
    "SESSION": ("data", "timecol", "gap"),
    "RECENT": ("data", "size"),
}
_ONLY_NAMED: dict[str, tuple[str, ...]] = {
    "TUMBLE": (),
    "HOP": (),
    "SESSION": ("partition_by",),
    "RECENT": ("rows", "partition_by"),
}
_EXAMPLES = {
    "TUMBLE": "TUMBLE(t, ts, INTERVAL '1' MINUTE)",
    "HOP": "HOP(t, ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE): slide, then size",
    "SESSION": "SESSION(t, ts, INTERVAL '30' SECOND, partition_by => vid)",
    "RECENT": "RECENT(t, INTERVAL '5' MINUTE), RECENT(t, rows => 10) or "
    "RECENT(t, rows => 1, partition_by => vid)",
}


@dataclass(frozen=True)
class Call:
    """A checked call; ``size_us`` is the size, gap or interval, ``rows`` the count of RECENT."""

    table: StreamTable
    time: Column
    size_us: int
    slide_us: int
    rows: int | None
    partition_by: tuple[str, ...]
    position: Position | None

    @property
    def has_zone(self) -> bool:
        return self.time.type.name != "TIMESTAMP"

    def free_name(self, name: str) -> str:
        """The name, or one like it that no column has."""
        taken = {column.name.lower() for column in self.table.columns}
        while name in taken:
            name += "_"
        return name


def read_call(
    function: exp.Anonymous, node: exp.Table, tables: Tables, params: Params = None
) -> Call:
    """The call of a window function in FROM."""
    return _Reader(function, node, tables, params).read()


class _Reader:
    def __init__(
        self, function: exp.Anonymous, node: exp.Table, tables: Tables, params: Params
    ) -> None:
        self.name = function.name.upper()
        self.node = node
        self.tables = tables
        self.params = params
        self.position = _own_position(function)
        self.given = self._arguments(function)

    def read(self) -> Call:
        table = self._table()
        time = self._time(table)
        rows = self._rows() if "rows" in self.given else None
        if self.name == "RECENT" and (rows is None) == ("size" not in self.given):
            raise self.fail("RECENT takes either an interval or rows")
        size = "gap" if self.name == "SESSION" else "size"
        partition_by = self._partition_by(table)
        if partition_by and self.name == "RECENT" and rows is None:
            raise self.fail("partition_by of RECENT belongs to rows => k")
        return Call(
            _seen(table, self.node),
            time,
            self._duration(size) if rows is None else 0,
            self._duration("slide") if self.name == "HOP" else 0,
            rows,
            partition_by,
            self.position,
        )

    def fail(self, message: str, node: exp.Expr | None = None, hint: str = "") -> QueryError:
        place = position_of(node) if node is not None else None
        return QueryError(
            message, hint=hint or _EXAMPLES[self.name], position=place or self.position
        )

    def _arguments(self, function: exp.Anonymous) -> dict[str, exp.Expression]:
        places, named = _SIGNATURES[self.name], (*_SIGNATURES[self.name], *_ONLY_NAMED[self.name])
        given: dict[str, exp.Expression] = {}
        for index, argument in enumerate(function.expressions):
            if isinstance(argument, (exp.Kwarg, exp.PropertyEQ, exp.EQ)):
                key, value = argument.this.name.lower(), argument.expression
                key = {"time_column": "timecol", "interval": "size"}.get(key, key)
                if key not in named:
                    near = did_you_mean(key, named) or ""
                    raise self.fail(f'{self.name} has no argument "{key}"', argument, near)
            elif index < len(places) and len(given) == index:
                key, value = places[index], argument
            else:
                raise self.fail(f"{self.name} has too many arguments", argument)
            if key in given:
                raise self.fail(f'{self.name} gets argument "{key}" twice', argument)
            given[key] = value
        needed = ("data",) if self.name == "RECENT" else places
        missing = [key for key in needed if key not in given]
        if missing:
            raise self.fail(f"{self.name} needs {', '.join(missing)}")
        return given

    def _table(self) -> StreamTable:
        argument = self.given["data"]
        name = _table_name(argument)
        if name is None:
            raise self.fail(f"the first argument of {self.name} must be a table", argument)
        if find_with_query(self.node, name) is not None:
            raise self.fail(
                f'"{name}" is a WITH query, and {self.name} works on streaming tables',
                argument,
                "use the window function inside the WITH query",
            )
        table = self.tables(name)
        if table is None:
            raise UnknownNameError(
                f'table "{name}" does not exist',
                hint="SHOW TABLES lists the tables",
                position=position_of(argument) or self.position,
            )
        if table.time_column is None:
            raise self.fail(
                f'"{name}" is not a streaming table', argument, "only streams have windows"
            )
        return table

    def _time(self, table: StreamTable) -> Column:
        argument = self.given.get("timecol")
        if argument is None:
            assert table.time_column is not None
            return self._column(table, table.time_column, self.given["data"])
        if isinstance(argument, exp.Anonymous) and argument.name.upper() == "DESCRIPTOR":
            argument = argument.expressions[0] if len(argument.expressions) == 1 else argument
        if not isinstance(argument, exp.Column):
            raise self.fail(f"the time column of {self.name} must be a column's name", argument)
        column = self._column(table, argument.name, argument)
        if not column.type.is_time:
            raise self.fail(
                f'column "{column.name}" is {column.type}, not a time',
                argument,
                f'the time column of "{table.name}" is {table.time_column}',
            )
        return column

    def _column(self, table: StreamTable, name: str, node: exp.Expression) -> Column:
        for column in table.columns:
            if column.name.lower() == name.lower():
                return column
        known = [column.name for column in table.columns]
        raise UnknownNameError(
            f'column "{name}" does not exist in "{table.name}"',
            hint=did_you_mean(name, known) or f"the columns are {', '.join(known[:20])}",
            position=position_of(node) or self.position,
        )

    def _duration(self, key: str) -> int:
        argument = self.given[key]
        value = constant(argument, self.params)
        if isinstance(value, str):
            span = parse_interval(value)
            value = timedelta(microseconds=span.us) if span and not span.months else value
        if not isinstance(value, timedelta):
            raise self.fail(
                f"the {key} of {self.name} must be an interval of fixed length",
                argument,
                "INTERVAL '5' MINUTE; months and years vary in length, use days",
            )
        us = value // timedelta(microseconds=1)
        if not 0 < us <= DURATION_US_MAX:
            raise self.fail(f"the {key} of {self.name} must be longer than nothing", argument)
        return us

    def _rows(self) -> int:
        argument = self.given["rows"]
        value = constant(argument, self.params)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= ROWS_MAX:
            raise self.fail("rows of RECENT must be a whole number above zero", argument)
        return value

    def _partition_by(self, table: StreamTable) -> tuple[str, ...]:
        argument = self.given.get("partition_by")
        if argument is None:
            return ()
        parts = argument.expressions if isinstance(argument, exp.Tuple) else [argument.unnest()]
        names: list[str] = []
        for part in parts:
            if not isinstance(part, exp.Column):
                raise self.fail("partition_by must name columns", part)
            names.append(self._column(table, part.name, part).name)
        if not names:
            raise self.fail("partition_by must name columns", argument)
        return tuple(dict.fromkeys(names))


def _table_name(node: exp.Expression) -> str | None:
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        return None
    schema = ".".join(part.name for part in node.parts[:-1]).lower()
    if schema in ("", "main"):
        return node.name
    return f"tidemill.{node.name.lower()}" if schema == "tidemill" else f"{schema}.{node.name}"


def _own_position(function: exp.Anonymous) -> Position | None:
    meta = function.meta if function._meta else {}
    if "line" not in meta:
        return None
    length = int(meta["end"]) - int(meta["start"])
    return Position(int(meta["line"]), max(int(meta["col"]) - length, 1), function.name)
