"""Parameters: ``?``, ``$1``, ``:name`` and ``$name`` in a body, and the values a caller gives.

The parser numbers every ``?``, so in a tree all parameters are ``exp.Placeholder`` nodes whose
``this`` is a number or a name. Values stay Python objects: they are handed to DuckDB, to the
constant folder or to the rows of an INSERT, and are never pasted into SQL text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from sqlglot import exp

from tidemill.errors import QueryError, did_you_mean
from tidemill.rendering import from_numpy

Params = Sequence[object] | Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter among the values of INSERT … VALUES: its number or name."""

    key: str


_PLAIN = frozenset({str, int, float, bool, bytes, type(None), datetime, date, Decimal})
_SEQUENCES = (list, tuple)


def plain_params(params: Params) -> Params:
    """The values with numpy's scalars as Python's own, which DuckDB and the folder know."""
    if params is None:
        return None
    if type(params) in _SEQUENCES and _PLAIN.issuperset(map(type, params)):
        return params
    if isinstance(params, Mapping):
        if _PLAIN.issuperset(map(type, params.values())):
            return params
        return {name: from_numpy(value) for name, value in params.items()}
    if not params or isinstance(params, str | bytes):
        return params
    return [from_numpy(value) for value in params]


def placeholder_key(node: exp.Expression) -> str:
    """The number or name of a Placeholder or Parameter node."""
    this = node.this
    return this.name if isinstance(this, exp.Expression) else str(this or "1")


def placeholders(expression: exp.Expression) -> list[str]:
    """The parameters of a tree, each once: numbers in order, or names in the order met."""
    keys = dict.fromkeys(
        placeholder_key(node) for node in expression.find_all(exp.Placeholder, exp.Parameter)
    )
    return sorted(keys, key=int) if all(key.isdigit() for key in keys) else list(keys)


def placeholder_value(node: exp.Expression, params: Params) -> object:
    """The Python value that a Placeholder or Parameter node stands for."""
    return value_of(placeholder_key(node), params)


def value_of(key: str, params: Params) -> object:
    """The value of one parameter, by number (from a sequence) or by name (from a mapping)."""
    if isinstance(params, Mapping):
        if key in params:
            return params[key]
        if key.isdigit():
            raise _mismatch("numbered", "a sequence")
        raise QueryError(
            f'no value is given for parameter "{key}"',
            hint=did_you_mean(key, params) or f'pass {{"{key}": …}}',
        )
    if params is None:
        raise _no_values([key])
    if not key.isdigit():
        raise _mismatch("named", "a mapping")
    if not 1 <= int(key) <= len(params):
        raise _wrong_count(int(key), len(params))
    return params[int(key) - 1]


def check_params(keys: Iterable[str], params: Params) -> None:
    """Whether the values fit the parameters exactly: none missing, none left over, one style."""
    wanted = list(dict.fromkeys(keys))
    numbers = [key for key in wanted if key.isdigit()]
    if numbers and len(numbers) < len(wanted):
        raise QueryError(
            "numbered and named parameters are mixed",
            detail=f"found {', '.join(wanted[:10])}",
            hint="use only ? or $1, or only :name and $name",
        )
    if not wanted:
        if params:
            raise QueryError(
                f"{len(params)} parameter value(s) given, and the statement has none",
                hint="write ?, $1 or :name where a value belongs",
            )
    elif params is None:
        raise _no_values(wanted)
    elif isinstance(params, (str, bytes)):
        raise QueryError(
            "parameter values must be a sequence or a mapping, not one text",
            hint="pass [value] or (value,)",
        )
    elif isinstance(params, Mapping):
        _check_names(wanted, params, bool(numbers))
    elif not numbers:
        raise _mismatch("named", "a mapping")
    elif (highest := max(map(int, numbers))) != len(params):
        raise _wrong_count(highest, len(params))


def _check_names(wanted: list[str], params: Mapping[str, object], numbered: bool) -> None:
    if numbered:
        raise _mismatch("numbered", "a sequence")
    for key in wanted:
        if key not in params:
            raise QueryError(
                f'no value is given for parameter "{key}"',
                hint=did_you_mean(key, params) or f'pass {{"{key}": …}}',
            )
    for name in params:
        if name not in wanted:
            raise QueryError(
                f'parameter "{name}" is not in the statement',
                hint=did_you_mean(str(name), wanted) or f"its parameters: {', '.join(wanted)}",
            )


def _mismatch(style: str, kind: str) -> QueryError:
    example = "[1, 'x']" if kind == "a sequence" else '{"name": 1}'
    return QueryError(f"{style} parameters need {kind} of values", hint=f"pass {example}")


def _no_values(keys: list[str]) -> QueryError:
    return QueryError(
        f"the statement has parameters, and no values are given: {', '.join(keys[:10])}",
        hint="pass them: sql(text, [1, 'x']) or sql(text, {\"name\": 1})",
    )


def _wrong_count(wanted: int, given: int) -> QueryError:
    return QueryError(
        f"the statement has {wanted} parameter(s), and {given} value(s) are given",
        hint="pass one value for each ? or $n, in order",
    )


def are_in_order(template: tuple[tuple[object, ...], ...]) -> bool:
    """Whether the values are one row of the parameters 1, 2, … and nothing else."""
    if len(template) != 1 or not template[0]:
        return False
    return all(value == Param(str(at)) for at, value in enumerate(template[0], 1))


def bind_rows(
    template: tuple[tuple[object, ...], ...], params: Params, in_order: bool = False
) -> tuple[tuple[object, ...], ...]:
    """The rows of an INSERT with every Param replaced by its value; ``in_order`` is what
    ``are_in_order`` says of the template."""
    if in_order and isinstance(params, _SEQUENCES) and len(params) == len(template[0]):
        return (tuple(params),)
    check_params(
        (value.key for row in template for value in row if isinstance(value, Param)), params
    )
    return tuple(
        tuple(value_of(value.key, params) if isinstance(value, Param) else value for value in row)
        for row in template
    )


def own_params(tree: exp.Expression, params: Params) -> Params:
    """The values of the parameters that a part of a statement has; numbers begin anew, in place."""
    keys = placeholders(tree)
    if params is None or not keys:
        return None
    values = {key: value_of(key, params) for key in keys}
    if isinstance(params, Mapping):
        return values
    for node in tree.find_all(exp.Placeholder, exp.Parameter):
        node.set("this", str(keys.index(placeholder_key(node)) + 1))
    return list(values.values())
