"""Deferring: an UPDATE or DELETE of a stream as a form and its values, if it may wait.

A statement may wait if it surely means the same later and cannot fail then: its condition compares
columns of the row with constants (or with columns of the same type), and what it sets are constants
or columns of the same type. What a comparison is with becomes a slot where the column's own type
can hold it exactly, so that a thousand statements that differ in their values share one form.

Everything else is resolved when it is made (``resolving_now``): a function that may fail, a
subquery, chance, another table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from sqlglot import exp

from tidemill.accept.single import converter_of
from tidemill.catalog.model import Table
from tidemill.changes.domains import (
    NOT_NULL,
    NULL,
    Domain,
    both,
    compared,
    either,
    listed,
    not_listed,
    starting_with,
)
from tidemill.changes.model import ChangeForm, Correction, Text
from tidemill.changes.values import literal_of
from tidemill.sql.comparisons import parts_of_and
from tidemill.sql.constants import is_constant
from tidemill.sql.fold import NotConstant, comparable, constant
from tidemill.sql.params import Params, check_params, placeholder_key, placeholders
from tidemill.types import Column, quote

_MIRRORED: dict[type[exp.Expr], str] = {exp.GT: "<", exp.GTE: "<=", exp.LT: ">", exp.LTE: ">="}
_OPERATORS: dict[type[exp.Expr], str] = {exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<="}
_COMPARISONS: dict[type[exp.Expr], str] = {**_OPERATORS, exp.EQ: "=", exp.NEQ: "<>"}
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


# By type of a column the Python types whose values surely are compared and set as they are.
_PLAIN: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("INTEGER", "BIGINT", "SMALLINT", "TINYINT"), (int,)),
    "DOUBLE": (float,),
    "VARCHAR": (str,),
    "BOOLEAN": (bool,),
    "TIMESTAMP": (datetime,),
    "TIMESTAMP WITH TIME ZONE": (datetime,),
}
Take = tuple[int, tuple[type, ...], Callable[[object], object]]


class _MustNotWait(Exception):
    """The statement is to be carried out when it is made."""


@dataclass(frozen=True)
class Slot:
    """Where the value of a slot comes from: a parameter, or a constant of the statement."""

    column: Column
    node: exp.Expression
    is_set: bool = False  # to the column; otherwise it is compared with it


@dataclass(frozen=True)
class Deferred:
    """A statement that may wait."""

    form: ChangeForm
    slots: tuple[Slot, ...]
    given: tuple[str, ...] = ()  # the parameters

    @cached_property
    def _takes(self) -> tuple[Take, ...] | None:
        """How each slot takes its value from the parameters in their order; None if some do
        otherwise."""
        found = []
        for slot in self.slots:
            node, column = slot.node, slot.column
            if not isinstance(node, (exp.Placeholder, exp.Parameter)):
                return None
            key = placeholder_key(node)
            convert = converter_of(column.type.arrow)
            if not key.isdigit() or convert is None or column.type.name not in _PLAIN:
                return None
            found.append((int(key) - 1, _PLAIN[column.type.name], convert))
        return tuple(found) if {at for at, _, _ in found} == set(range(len(self.given))) else None

    def _plain_values(self, params: Params) -> Correction | None:
        """The same where each parameter is of the very kind that its column has."""
        takes = self._takes
        if takes is None or not isinstance(params, (list, tuple)) or len(params) != len(self.given):
            return None
        values = []
        for at, kinds, convert in takes:
            given = params[at]
            value = convert(given) if type(given) in kinds else None
            if value is None:
                return None
            values.append(value)
        return tuple(values)

    def values(self, params: Params, now_us: int) -> Correction | None:
        """The values of the slots; None if one does not suit its column, so that the statement
        must not wait."""
        plain = self._plain_values(params)
        if plain is not None:
            return plain
        check_params(self.given, params)
        try:
            return tuple([_value(slot, params, now_us) for slot in self.slots])
        except _MustNotWait:
            return None


def deferred(body: exp.Expression, table: Table, params: Params, now_us: int) -> Deferred | None:
    """The statement as a form with its slots; None if it must not wait. Values are looked at
    for their kinds only: the form holds for others of the same kinds."""
    if body.args.get("from_") or body.args.get("using") or body.args.get("returning"):
        return None
    if body.args.get("with_") or not isinstance(body.this, exp.Table):
        return None
    try:
        return _Former(body, table, params, now_us).form()
    except _MustNotWait:
        return None


def _value(slot: Slot, params: Params, now_us: int) -> object:
    found = constant(slot.node, params, now_us)
    if isinstance(found, NotConstant):
        raise _MustNotWait
    if found is None:
        if slot.is_set and not slot.column.nullable:
            raise _MustNotWait
        return None
    convert = converter_of(slot.column.type.arrow)
    if convert is None:
        raise _MustNotWait
    plain = convert(found) if slot.is_set else None
    if plain is not None:
        return plain
    value = comparable(found, slot.column.type)
    plain = None if isinstance(value, NotConstant) else convert(value)
    if plain is None:
        raise _MustNotWait
    return plain


@dataclass
class _Former:
    body: exp.Expression
    table: Table
    params: Params
    now_us: int
    slots: list[Slot] = field(default_factory=list)
    reads: set[str] = field(default_factory=set)

    def form(self) -> Deferred:
        kind = "update" if isinstance(self.body, exp.Update) else "delete"
        sets = tuple(self._set(each) for each in self.body.expressions) if kind == "update" else ()
        names = [name for name, _ in sets]
        if len(set(names)) < len(names):
            raise _MustNotWait  # DuckDB says what is wrong
        keys: list[tuple[str, int]] = []
        compared_: list[tuple[str, str, int]] = []
        within: dict[str, Domain] = {}
        bounds: list[tuple[str, int]] = []
        pieces: list[Text] = []
        is_span = kind == "delete"
        where = self.body.args.get("where")
        for part in parts_of_and(where.this) if where is not None else ():
            found = self._compared(part)
            if found is None:
                pieces.append((self._safe(part),))
                within = both(within, self._domains(part))
                is_span = False
                continue
            for name, op, slot in found:
                is_time = name == self.table.time_column
                if is_time:
                    bounds.append((op, slot))
                if op == "=":
                    keys.append((name, slot))
                else:
                    pieces.append((f"r.{quote(name)} {op} ", slot))
                    compared_.append((name, op, slot))
                is_span = is_span and is_time and op != "="
        return Deferred(
            ChangeForm(
                kind,
                tuple(slot.column.type.name for slot in self.slots),
                tuple(keys),
                _joined(pieces),
                sets,
                frozenset(self.reads),
                tuple(bounds),
                is_span,
                tuple(compared_),
                tuple(sorted(within.items())),
            ),
            tuple(self.slots),
            tuple(placeholders(self.body)),
        )

    def _set(self, assignment: exp.Expression) -> tuple[str, Text]:
        if not isinstance(assignment, exp.EQ) or not isinstance(assignment.this, exp.Column):
            raise _MustNotWait
        column = self._column(assignment.this)
        if column.name == self.table.time_column or column.name in self.table.primary_key:
            raise _MustNotWait
        value = assignment.expression
        if isinstance(value, exp.Column):
            other = self._column(value)
            if other.type.name != column.type.name or (other.nullable and not column.nullable):
                raise _MustNotWait
            self.reads.add(other.name)
            return column.name, (f"r.{quote(other.name)}",)
        slot = self._slot(value, column, is_set=True)
        if not column.nullable and _value(self.slots[slot], self.params, self.now_us) is None:
            raise _MustNotWait
        return column.name, (slot,)

    def _compared(self, part: exp.Expr) -> list[tuple[str, str, int]] | None:
        """The comparisons of columns with constants that a condition is; None if it is another."""
        if isinstance(part, exp.Paren):
            return self._compared(part.this)
        if isinstance(part, exp.Between) and isinstance(part.this, exp.Column):
            ends = [(part.args["low"], ">="), (part.args["high"], "<=")]
            if part.args.get("symmetric") or not all(is_constant(end) for end, _ in ends):
                return None
            column = self._read(part.this)
            return [(column.name, op, self._slot(end, column)) for end, op in ends]
        if type(part) is exp.EQ or type(part) in _OPERATORS:
            left, right = part.this, part.expression
            op = "=" if type(part) is exp.EQ else _OPERATORS[type(part)]
            if isinstance(right, exp.Column) and not isinstance(left, exp.Column):
                left, right = right, left
                op = "=" if op == "=" else _MIRRORED[type(part)]
            if isinstance(left, exp.Column) and is_constant(right):
                column = self._read(left)
                return [(column.name, op, self._slot(right, column))]
        return None

    def _slot(self, node: exp.Expr, column: Column, is_set: bool = False) -> int:
        if not isinstance(node, exp.Expression) or not is_constant(node):
            raise _MustNotWait
        slot = Slot(column, node, is_set)
        _value(slot, self.params, self.now_us)  # or it must not wait
        self.slots.append(slot)
        return len(self.slots) - 1

    # -- conditions that are no comparison by themselves

    def _safe(self, part: exp.Expr) -> str:
        """SQL of a condition that cannot fail, with its constants."""
        if isinstance(part, exp.Paren):
            return f"({self._safe(part.this)})"
        if isinstance(part, (exp.And, exp.Or)):
            word = "AND" if isinstance(part, exp.And) else "OR"
            return f"({self._safe(part.this)} {word} {self._safe(part.expression)})"
        if isinstance(part, exp.Not):
            return f"(NOT {self._safe(part.this)})"
        if isinstance(part, exp.Boolean):
            return "true" if part.this else "false"
        if isinstance(part, exp.Column):
            column = self._read(part)
            if column.type.name == "BOOLEAN":
                return f"r.{quote(column.name)}"
        if isinstance(part, exp.Is) and isinstance(part.this, exp.Column):
            column = self._read(part.this)
            if isinstance(part.expression, exp.Null):
                return f"(r.{quote(column.name)} IS NULL)"
            if isinstance(part.expression, exp.Boolean) and column.type.name == "BOOLEAN":
                word = "true" if part.expression.this else "false"
                return f"(r.{quote(column.name)} IS {word})"
        if isinstance(part, exp.In) and isinstance(part.this, exp.Column) and _is_list(part):
            column = self._read(part.this)
            listed = [self._constant(each, column) for each in part.expressions]
            return f"(r.{quote(column.name)} IN ({', '.join(listed)}))"
        if isinstance(part, exp.Between) and isinstance(part.this, exp.Column):
            if part.args.get("symmetric"):
                raise _MustNotWait
            column = self._read(part.this)
            low, high = (self._constant(part.args[end], column) for end in ("low", "high"))
            return f"(r.{quote(column.name)} BETWEEN {low} AND {high})"
        if isinstance(part, exp.Like) and isinstance(part.this, exp.Column):
            column, pattern = self._read(part.this), part.expression
            if column.type.name == "VARCHAR" and _is_text(pattern):
                return f"(r.{quote(column.name)} LIKE {self._constant(pattern, column)})"
        if isinstance(part, (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)):
            return self._safe_comparison(part)
        raise _MustNotWait

    def _safe_comparison(self, part: exp.Binary) -> str:
        sign = _COMPARISONS[type(part)]
        left, right = part.this, part.expression
        if isinstance(left, exp.Column) and isinstance(right, exp.Column):
            a, b = self._read(left), self._read(right)
            if a.type.name != b.type.name:
                raise _MustNotWait
            return f"(r.{quote(a.name)} {sign} r.{quote(b.name)})"
        if isinstance(left, exp.Column):
            column = self._read(left)
            return f"(r.{quote(column.name)} {sign} {self._constant(right, column)})"
        if isinstance(right, exp.Column):
            column = self._read(right)
            return f"({self._constant(left, column)} {sign} r.{quote(column.name)})"
        raise _MustNotWait

    def _constant(self, node: exp.Expr, column: Column) -> str:
        if not isinstance(node, exp.Expression) or not is_constant(node):
            raise _MustNotWait
        if not _is_fixed(node):
            raise _MustNotWait  # its value would become part of the form
        value = _value(Slot(column, node), None, self.now_us)
        return literal_of(value, column.type.name)

    # -- what such a condition says of single columns

    def _domains(self, part: exp.Expr) -> dict[str, Domain]:
        """The values that columns have where a condition holds; of others, any."""
        if isinstance(part, exp.Paren):
            return self._domains(part.this)
        if isinstance(part, exp.And):
            return both(self._domains(part.this), self._domains(part.expression))
        if isinstance(part, exp.Or):
            return either(self._domains(part.this), self._domains(part.expression))
        if isinstance(part, exp.Not):
            return self._negated(part.this)
        found = self._of_column(part)
        return {} if found is None else {found[0].name: found[1]}

    def _of_column(self, part: exp.Expr) -> tuple[Column, Domain] | None:
        """The values of a column for which a condition can hold; None if it has another form."""
        if isinstance(part, exp.Paren):
            return self._of_column(part.this)
        if isinstance(part, exp.Column):
            return self._column(part), compared("=", True)
        if not isinstance(part.this, exp.Column):
            return None
        column = self._column(part.this)
        if isinstance(part, exp.Is):
            if isinstance(part.expression, exp.Null):
                return column, NULL
            return column, compared("=", bool(part.expression.this))
        if isinstance(part, exp.In):
            return column, listed([self._plain(each, column) for each in part.expressions])
        if isinstance(part, exp.Between):
            low, high = (self._plain(part.args[end], column) for end in ("low", "high"))
            return column, compared(">=", low) & compared("<=", high)
        if isinstance(part, exp.Like):
            return column, _like(part.expression.name)
        sign = _COMPARISONS.get(type(part))
        if sign is None or isinstance(part.args.get("expression"), exp.Column):
            return None
        return column, compared(sign, self._plain(part.expression, column))

    def _negated(self, part: exp.Expr) -> dict[str, Domain]:
        """The values that columns have where a condition surely does not hold."""
        if isinstance(part, exp.Paren):
            return self._negated(part.this)
        if not isinstance(part.this, exp.Column):
            return {}
        column = self._column(part.this)
        if isinstance(part, exp.Is) and isinstance(part.expression, exp.Null):
            return {column.name: NOT_NULL}
        if isinstance(part, exp.In):
            values = [self._plain(each, column) for each in part.expressions]
            return {column.name: not_listed(values)}
        if isinstance(part, exp.Between):
            low, high = (self._plain(part.args[end], column) for end in ("low", "high"))
            return {column.name: compared("<", low) | compared(">", high)}
        sign = _COMPARISONS.get(type(part))
        if sign is None or isinstance(part.args.get("expression"), exp.Column):
            return {}
        return {column.name: compared(_OPPOSITE[sign], self._plain(part.expression, column))}

    def _plain(self, node: exp.Expression, column: Column) -> object:
        return _value(Slot(column, node), None, self.now_us)

    # -- names

    def _read(self, node: exp.Column) -> Column:
        column = self._column(node)
        self.reads.add(column.name)
        return column

    def _column(self, node: exp.Column) -> Column:
        """A column of the table; whatever else a name may mean is found out when it is resolved."""
        target = self.body.this
        assert isinstance(target, exp.Table)
        known = {target.alias_or_name.lower()}
        column = self.table.column(node.name)
        if (
            column is None
            or node.args.get("db")
            or (node.table and node.table.lower() not in known)
        ):
            raise _MustNotWait
        return column


def _is_list(part: exp.In) -> bool:
    return bool(part.expressions) and not any(
        part.args.get(name) for name in ("query", "unnest", "field")
    )


def _is_fixed(node: exp.Expr) -> bool:
    """Whether a constant is the same whenever the statement is made."""
    kinds = (exp.Literal, exp.Boolean, exp.Null, exp.Neg, exp.Paren, exp.Cast)
    parts = (*kinds, exp.DataType, exp.DataTypeParam, exp.Interval, exp.Var, exp.Add, exp.Sub)
    return all(isinstance(each, parts) for each in node.walk())


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and bool(node.args.get("is_string"))


def _like(pattern: str) -> Domain:
    """The texts that may be like a pattern, by its beginning."""
    return starting_with(re.split("[%_]", pattern, maxsplit=1)[0])


def _joined(pieces: list[Text]) -> Text:
    joined: list[str | int] = []
    for at, piece in enumerate(pieces):
        joined += [*([" AND "] if at else []), *piece]
    return tuple(joined)
