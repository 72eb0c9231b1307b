"""Shapes: how the columns that a SELECT gives come from its sources."""

from __future__ import annotations

from functools import cached_property

from sqlglot import exp

from tidemill.sql.scopes import Scope


class Shape:
    """How a SELECT's output columns come from its sources."""

    def __init__(self, select: exp.Select, scope: Scope) -> None:
        self.select = select
        self.scope = scope

    @cached_property
    def is_transparent(self) -> bool:
        """Whether a condition on an output column may be asked of the rows below."""
        args = self.select.args
        if any(
            args.get(key) for key in ("group", "having", "limit", "offset", "sample", "laterals")
        ):
            return False
        distinct = args.get("distinct")
        if distinct is not None and distinct.args.get("on") is not None:
            return False
        if any(args.get(key) for key in ("pivots", "kind", "windows", "connect", "match")):
            return False
        return not any(_may_gather(part) for part in self.select.expressions)

    def projected(self, name: str) -> exp.Column | None:
        """The column that alone is projected under this name, without change."""
        found: list[exp.Expr] = []
        stars = 0
        for part in self.select.expressions:
            if isinstance(part, exp.Star) or isinstance(part.this, exp.Star):
                stars += 1
                if part.args.get("except_") or part.args.get("replace") or part.args.get("rename"):
                    return None
            elif part.alias_or_name.lower() == name:
                found.append(part)
        if stars:
            plain = stars == 1 and not found and len(self.scope.sources) == 1
            if not plain or isinstance(self.select.expressions[0], exp.Columns):
                return None
            return exp.Column(this=exp.to_identifier(name, quoted=True))
        column = found[0].unalias() if len(found) == 1 else None
        return column if isinstance(column, exp.Column) else None

    def keeps_partitions(self, column: exp.Column) -> bool:
        """Whether every window function is partitioned by the column."""
        return all(
            any(
                isinstance(part, exp.Column) and part.name.lower() == column.name.lower()
                for part in window.args.get("partition_by") or []
            )
            and not window.args.get("alias")
            for window in self._windows
        )

    @cached_property
    def _windows(self) -> list[exp.Window]:
        parts: list[exp.Expr] = [*self.select.expressions]
        parts += [
            self.select.args[key] for key in ("qualify", "order") if self.select.args.get(key)
        ]
        return [window for part in parts for window in part.find_all(exp.Window)]


_SCALARS = frozenset(
    {"time_bucket", "to_microseconds", "make_timestamp", "make_timestamptz", "epoch_us", "now"}
)
_SCALAR_NODES = (
    exp.Cast,
    exp.TryCast,
    exp.Case,
    exp.If,
    exp.Coalesce,
    exp.Connector,
    exp.Abs,
    exp.Lower,
    exp.Upper,
    exp.TimestampTrunc,
    exp.DateTrunc,
    exp.Extract,
    exp.Concat,
    exp.Predicate,
)


def _may_gather(part: exp.Expr) -> bool:
    """Whether a projection may make one row of many, or many of one: any function unknown here."""
    for node in part.walk():
        if isinstance(node, (exp.Query, exp.Columns)):
            return True
        if isinstance(node.parent, exp.Window) and node.arg_key == "this":
            continue
        if isinstance(node, exp.Anonymous):
            if node.name.lower() not in _SCALARS:
                return True
        elif isinstance(node, exp.Func) and not isinstance(node, _SCALAR_NODES):
            return True
    return False
