"""Defaults: the values of columns that a producer left out."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tidemill.types import Column, SqlType

Evaluate = Callable[[str], pa.Table]


class Defaults:
    """Evaluates DEFAULT expressions: constants once, anything else (now(), random()) per row."""

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._constants: dict[tuple[str, SqlType], pa.Scalar] = {}

    def array(self, column: Column, count: int) -> pa.Array:
        """As many default values as asked; NULLs where the column has no default."""
        kind = column.type.arrow
        if column.default is None or count == 0:
            return pa.nulls(count, kind)
        constant = self.constant(column)
        if constant is not None:
            return _repeated(constant, count, kind)
        query = f"SELECT CAST(({column.default}) AS {column.type}) AS v FROM range({count})"
        return _labelled(self._evaluate(query).column(0).combine_chunks(), kind)

    def constant(self, column: Column) -> pa.Scalar | None:
        """The default as one value, or None if it must be evaluated for every row."""
        if column.default is None or not is_plain(column.default):
            return None
        key = (column.default, column.type)
        if key not in self._constants:
            query = f"SELECT CAST(({column.default}) AS {column.type}) AS v"
            table = self._evaluate(query)
            self._constants[key] = _labelled(table.column(0).combine_chunks(), column.type.arrow)[0]
        return self._constants[key]


def is_plain(expression: str) -> bool:
    """Whether an expression calls nothing, so that one evaluation serves for all rows.

    >>> is_plain("'a'"), is_plain("1 + 2"), is_plain("now()"), is_plain("CURRENT_TIMESTAMP")
    (True, True, False, False)
    """
    outside = "".join(expression.split("'")[::2])
    return (
        "(" not in outside and "current" not in outside.lower() and "local" not in outside.lower()
    )


def _repeated(value: pa.Scalar, count: int, kind: pa.DataType) -> pa.Array:
    return pa.array([value.as_py()], kind).take(pa.array([0] * count, pa.int32()))


def _labelled(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type.equals(kind):
        return array
    if isinstance(kind, pa.BaseExtensionType):
        stored = array.storage if isinstance(array, pa.ExtensionArray) else array
        return pa.ExtensionArray.from_storage(kind, stored.cast(kind.storage_type))
    return array.cast(kind)
