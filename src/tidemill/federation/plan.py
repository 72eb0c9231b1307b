"""Plans as data: the SQL that runs, the scans it names, and what is read before them.

``planner`` makes them from a query and the catalog's definitions; ``runner`` fills them with rows;
EXPLAIN prints them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from tidemill.catalog.model import Table
from tidemill.federation.lookup import Lookup
from tidemill.federation.template import Template
from tidemill.sql.params import Params, check_params, value_of
from tidemill.sql.predicates import Alternatives, Conjunct
from tidemill.sql.top import Top
from tidemill.sql.windows import Bound

HOT, LATE, REJECTED, SYSTEM, VIEW = "hot", "late", "rejected", "system", "view"
FRAME = "frame"

Frames = Mapping[str, pa.Table]
"""Tables that the caller brings along, by the names the query has for them."""


@dataclass(frozen=True)
class Scan:
    """One table a query reads, under the name that DuckDB will look up."""

    source: str
    kind: str
    name: str
    alias: str
    table: Table | None = None
    conjuncts: tuple[Conjunct, ...] = ()
    with_seq: bool = False
    newest: int | None = None
    as_of: exp.Expression | None = None
    columns: frozenset[str] | None = None  # that suffice; None means all
    alternatives: tuple[Alternatives, ...] = ()
    top: Top | None = None  # only the first rows by some order can reach the answer
    frame: pa.Table | None = field(default=None, compare=False)


@dataclass(frozen=True)
class KeyQuery:
    """``column IN (SELECT …)`` on an indexed column of a scan: run first, its keys looked up.

    The outer query then reads the keys that were found from ``source``, so both see the same.
    ``query`` is the node that conjuncts name."""

    source: str
    query: exp.Expression
    plan: Plan


@dataclass(frozen=True)
class JoinedKey:
    """A column of a scan that equals the column ``key`` of a partner."""

    scan: str
    column: str
    key: str


@dataclass(frozen=True)
class Partner:
    """A small table that scans are joined with on indexed columns: it may be read first, and the
    keys it has be looked up. Its rows then take its place under the name ``source``."""

    source: str
    alias: str
    plan: Plan
    lookups: tuple[JoinedKey, ...]


@dataclass(frozen=True)
class FileRead:
    """A file, or several, that DuckDB reads by itself: ``path`` is their name or pattern."""

    path: exp.Expr
    function: str


@dataclass(frozen=True, eq=False)
class Plan:
    """What runs: SQL over scans, the parameters to fill, and the key queries that run before."""

    template: Template
    tree: exp.Expression
    scans: tuple[Scan, ...]
    keys: tuple[str, ...]
    names: tuple[str, ...]
    bounds: tuple[Bound, ...]
    uses_now: bool
    key_queries: tuple[KeyQuery, ...] = ()
    lookup: Lookup | None = None
    given: tuple[str, ...] = ()
    used: frozenset[str] = frozenset()
    whole_view: Table | None = None  # the query is SELECT * FROM this view, and no more
    files: tuple[FileRead, ...] = ()
    may_grow: bool = False  # the answer may have more rows than the scans
    is_one_row: bool = False  # of numbers: the answer is small whatever is read
    partners: tuple[Partner, ...] = ()

    @property
    def sql(self) -> str:
        """The SQL that reads every scan by its name."""
        return self.template.text

    def values(self, params: Params) -> dict[str, object]:
        """The caller's values under the plan's names; those of windows are in the plan itself."""
        check_params(self.given, params)
        pairs = zip(self.keys, self.names, strict=True)
        return {name: value_of(key, params) for key, name in pairs}
