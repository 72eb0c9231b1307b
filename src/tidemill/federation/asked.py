"""What is asked of a scan, once the values are known: constants folded, keys found.

A plan's conjuncts have expressions; here they become values of their column's own type. Whatever
has no value that compares exactly as DuckDB would compare it is left out, since the query applies
its own predicates anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidemill.catalog.model import Table
from tidemill.federation.plan import Scan
from tidemill.federation.scans import KEYS_MAX, Asked, AskedBranch
from tidemill.sql.fold import NotConstant, comparable
from tidemill.sql.lists import constants
from tidemill.sql.predicates import Alternatives, Branch, Conjunct
from tidemill.types import Column

Keys = Mapping[int, tuple[object, ...]]
"""What key queries found, by the identity of the query's node."""

_TIMES = frozenset({"TIMESTAMP", "TIMESTAMP WITH TIME ZONE"})
_EXACT_MAX = 2**127  # DuckDB reads a larger whole number as a double


@dataclass(frozen=True)
class Known:
    """The values of one run: of parameters, and of key queries."""

    values: Mapping[str, object]
    keys: Keys


def asked_of(scan: Scan, known: Known) -> AskedBranch:
    """All that is asked of a scan and can be known now, in its columns' own terms."""
    assert scan.table is not None
    return _branch(scan.table, Branch(scan.conjuncts, scan.alternatives), known)


def _branch(table: Table, branch: Branch, known: Known) -> AskedBranch:
    asked = tuple(_conjuncts(table, branch.conjuncts, known))
    either = (_alternatives(table, each, known) for each in branch.alternatives)
    return AskedBranch(asked, tuple(found for found in either if found))


def _alternatives(table: Table, given: Alternatives, known: Known) -> tuple[AskedBranch, ...]:
    """The branches of an OR; none if there is one of which nothing is known."""
    branches = tuple(_branch(table, branch, known) for branch in given.branches)
    return branches if all(b.asked or b.either for b in branches) else ()


def _conjuncts(table: Table, conjuncts: Iterable[Conjunct], known: Known) -> Iterable[Asked]:
    for conjunct in conjuncts:
        column = table.column(conjunct.column)
        if column is None:
            continue
        if conjunct.op == "in_query":
            found = known.keys.get(id(conjunct.values[0]))
        else:
            found = _constants(conjunct, column, known.values)
        if found is not None:
            operator = "in" if conjunct.op == "in_query" else conjunct.op
            yield conjunct.column, operator, found


def _constants(
    conjunct: Conjunct, column: Column, values: Mapping[str, object]
) -> tuple[object, ...] | None:
    if not conjunct.claim.one_type and len(conjunct.values) == 1:  # as most are
        found = constants(conjunct.values[0], values, None)
        return None if len(found) > KEYS_MAX else _all_known(found, column)
    folded = _folded(conjunct, values)
    if sum(map(len, folded.values())) > KEYS_MAX:
        return None  # no index is asked for so many
    if not all(
        _is_one_kind([each for operand in operands for each in folded[id(operand)]], column)
        for operands in conjunct.claim.one_type
    ):
        return None
    given = (each for value in conjunct.values for each in folded[id(value)])
    return _all_known(given, column)


def _all_known(given: Iterable[object], column: Column) -> tuple[object, ...] | None:
    found = tuple([_known(each, column) for each in given])
    return None if any(isinstance(value, NotConstant) for value in found) else found


def _folded(conjunct: Conjunct, values: Mapping[str, object]) -> dict[int, tuple[object, ...]]:
    """The values of a conjunct's operands, by their nodes; a long list is one node of many."""
    operands = {id(value): value for value in conjunct.values}
    operands |= {id(operand): operand for part in conjunct.claim.one_type for operand in part}
    return {key: constants(operand, values, None) for key, operand in operands.items()}


def _known(value: object, column: Column) -> object:
    return value if isinstance(value, NotConstant) else comparable(value, column.type)


def _is_one_kind(operands: Sequence[object], column: Column) -> bool:
    """Whether operands that DuckDB brings to one type before it compares them with a column are
    compared as each of them would be alone.

    ``i IN (9007199254740993, 1.5::DOUBLE)`` compares doubles. Beside a timestamp, all that can be
    compared with it is one."""
    if column.type.name in _TIMES:
        return True
    return len({_kind(value) for value in operands if value is not None}) <= 1


def _kind(value: object) -> type:
    if isinstance(value, int) and abs(value) >= _EXACT_MAX:
        return float
    return type(value)
