"""What a decomposition is: three queries that together are one, or the reason why there are none.

Everything here is data: EXPLAIN prints it, Spark tasks are sent its SQL, views keep its states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

MERGE_SOURCE = "tm_partials"


FOLD = "tidemill_fold"
Merge = Callable[[exp.Expression], exp.Expression]


@dataclass(frozen=True)
class Fold:
    """How states make one, and what tidies that one. An expression that has a fold in its meta
    under ``FOLD`` is the state of an aggregate itself: a split keeps it as it is."""

    merge: Merge
    tidy: Merge | None = None
    grows: str = ""

    def __deepcopy__(self, _memo: object) -> Fold:
        return self  # trees are copied, the rules of their states are not


@dataclass(frozen=True)
class Decomposition:
    """A query as partial, merge and final.

    - ``partial`` reads any subset of the rows of ``scan``;
    - ``merge`` reads ``MERGE_SOURCE``, a UNION ALL of partials or of merges, and gives columns like
      theirs: it is associative and commutative, so merges may be nested;
    - ``final`` reads ``MERGE_SOURCE`` that holds one merge, and gives the query's answer.

    ``keys`` and ``states`` name the columns of a partial. Both are empty when a star in the query
    hides them. ``growing`` are states that grow with the rows (sets, lists): their size is that of
    the values they hold, in memory, for each group. ``hidden`` tells in which column of a partial
    each hidden key is: one of its own, or a key that the query has anyway. ``folds`` say how the
    states of aggregates are merged, by name.
    """

    partial: exp.Select
    merge: exp.Select
    final: exp.Expression
    keys: tuple[str, ...]
    states: tuple[str, ...]
    scan: exp.Table
    kind: str
    growing: tuple[str, ...] = ()
    hidden: Mapping[str, str] = field(default_factory=dict)
    folds: Mapping[str, Fold] = field(default_factory=dict)

    def explain(self) -> list[str]:
        """The three queries as EXPLAIN shows them."""
        parts = (("partial", self.partial), ("merge", self.merge), ("final", self.final))
        return [f"{name}: {sql_of(tree)}" for name, tree in parts]


@dataclass(frozen=True)
class NotDecomposable:
    """Why a query is not the sum of its parts: a sentence for EXPLAIN."""

    reason: str


class Refused(Exception):
    """Ends the search for a decomposition; never leaves this package."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def sql_of(tree: exp.Expression) -> str:
    """The text that DuckDB is given."""
    return tree.sql(dialect="duckdb", comments=False)
