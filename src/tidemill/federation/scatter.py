"""Partition-wise execution (document 003 §5.4): one query, its files spread over Spark's tasks.

1. **split**: the query becomes partial, merge and final (``sql.decompose``);
2. **partial**: each task runs DuckDB over its files; the hot rows' partial is made here, meanwhile;
3. **merge and final** over the partials, here.

A query that is not the sum of its parts runs as a whole where the larger part of its rows is, and
the smaller part travels there: rows of memory are *shipped* to one task (``shipping``), or rows of
history are *gathered*, filtered and projected by tasks, and the rest runs here.

Every step is DuckDB, over the same values and types as on the local route.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa
from sqlglot import exp

from tidemill.catalog.model import Table
from tidemill.changes.values import Named
from tidemill.errors import QueryError
from tidemill.executions import cancellable
from tidemill.federation.duck import REFERENCE, Duck
from tidemill.federation.partial import PartialResult, PartialTask, run_partial, to_ipc
from tidemill.federation.planner import HOT, Plan
from tidemill.federation.runner import Filled, Selected
from tidemill.federation.shipping import WholeResult, WholeTask, run_whole, shipping_refusal
from tidemill.federation.template import Template
from tidemill.history.storage import Storage
from tidemill.sql.decompose import MERGE_SOURCE, Decomposition, NotDecomposable, decompose, sql_of
from tidemill.sql.params import placeholders
from tidemill.sql.predicates import Conjunct
from tidemill.types import SEQ, quote

TASKS_PER_SLOT = 2
REFERENCE_BYTES_MAX = 64 * 1024 * 1024
GATHERED_BYTES_MAX = 2 * 1024**3


class Tasks(Protocol):
    """Where tasks run: Spark, or this process."""

    @property
    def parallelism(self) -> int: ...

    def run(
        self,
        job_id: str,
        name: str,
        function: Callable[[Any], Any],
        specs: Sequence[Any],
        on_done: Callable[[int, Any], None],
    ) -> list[Any]: ...

    def cancel(self, job_id: str) -> None: ...


@lru_cache(maxsize=512)
def split(plan: Plan) -> Decomposition | NotDecomposable:
    """How a plan is spread."""
    names = {scan.source for scan in plan.scans if scan.kind == HOT}
    if len(names) < len(plan.scans):
        return NotDecomposable("the query reads tables that are not streams in time")
    tables = [scan.table for scan in plan.scans if scan.table is not None]
    spelling = {column.name.lower(): column.name for table in tables for column in table.columns}
    return decompose(plan.tree, lambda node: node.name in names, spelling)


class Scatter:
    def __init__(self, tasks: Tasks, duck: Duck, storage: Storage) -> None:
        self._tasks = tasks
        self._duck = duck
        self._storage = storage

    def run_partitions(self, filled: Filled) -> tuple[pa.Table, list[str]]:
        """The answer from partial results of each partition; if DuckDB does not accept the parts,
        from the query as a whole."""
        parts = split(filled.plan)
        if isinstance(parts, Decomposition) and self._binds(filled, parts):
            return self._run_split(filled, parts)
        return self.run_task(filled)

    def run_task(self, filled: Filled) -> tuple[pa.Table, list[str]]:
        """The answer from one task, over the files and the rows of memory that go along; if they
        are too many, from rows that are gathered."""
        if shipping_refusal(filled) is None:
            references = self._references(filled.plan.tree)
            if not references.too_large:
                return self._run_shipped(filled, references.shipped)
        return self.run_gathered(filled)

    def _binds(self, filled: Filled, parts: Decomposition) -> bool:
        """Whether DuckDB accepts the parts: the split does not know the types of columns."""
        nothing = {name: rows.slice(0, 0) for name, rows in filled.sources.items()}
        try:
            for part, exact in ((parts.partial, True), (parts.merge, True), (parts.final, False)):
                rows, _ = self._duck.query(
                    sql_of(part), _values(part, filled), nothing, exact=exact
                )
                nothing = {**nothing, MERGE_SOURCE: rows.slice(0, 0)}
        except QueryError:
            return False  # the query as a whole gives the answer, or the error
        return True

    # -- partial, merge, final

    def _run_split(self, filled: Filled, parts: Decomposition) -> tuple[pa.Table, list[str]]:
        chosen = next(c for c in filled.selected if c.scan.source == parts.scan.name)
        template = _template(parts.partial, chosen)
        values = _values(parts.partial, filled)
        named = {node.name for node in parts.partial.find_all(exp.Table)}
        others = {
            name: to_ipc(rows)
            for name, rows in filled.sources.items()
            if name in named and name != chosen.scan.source
        }
        references = self._references(parts.partial)
        references.check()
        specs = self._specs(chosen, template, values, references.shipped, others)
        with ThreadPoolExecutor(1, "tidemill-partial") as pool:
            remote = pool.submit(copy_context().run, self._partials, specs)
            sources = {**filled.sources, chosen.scan.source: chosen.table}
            hot, _ = self._duck.query(template.text, values, sources, exact=True)
            tables = [hot, *remote.result()]
        partials = pa.concat_tables([table.cast(hot.schema) for table in tables])
        merged, _ = self._duck.query(
            sql_of(parts.merge), _values(parts.merge, filled), {MERGE_SOURCE: partials}, exact=True
        )
        sources = {**filled.sources, MERGE_SOURCE: merged}
        return self._duck.query(
            sql_of(parts.final), _values(parts.final, filled), sources, bounded=True
        )

    # -- ship

    def _run_shipped(
        self, filled: Filled, references: Mapping[str, bytes]
    ) -> tuple[pa.Table, list[str]]:
        """Let one task run the query, over the files and the rows of memory that go along."""
        memory_bytes, threads = self._duck.memory_max, self._tasks.parallelism
        task = WholeTask.of(filled, self._storage, references, memory_bytes, threads)
        found: list[WholeResult] = self._perform(run_whole, [task])
        answer = found[0].table()
        rows, types = self._duck.shown(answer, list(found[0].types))
        return rows.rename_columns(answer.column_names), types

    # -- gather

    def run_gathered(self, filled: Filled) -> tuple[pa.Table, list[str]]:
        """Let tasks filter and project; run the query over what they found and the hot rows."""
        sources = dict(filled.sources)
        for chosen in filled.selected:
            if chosen.scan.kind == HOT and chosen.files_sql is not None:
                sources[chosen.scan.source] = self._gather(filled, chosen)
        selected = tuple(replace(c, files_sql=None) for c in filled.selected)
        rest = replace(filled, selected=selected, sources=sources)
        return self._duck.query(rest.sql, filled.values, sources, bounded=True)

    def _gather(self, filled: Filled, chosen: Selected) -> pa.Table:
        scan, table = chosen.scan, chosen.scan.table
        assert table is not None
        names = _columns(table, scan.columns, scan.with_seq)
        source = exp.Table(this=exp.to_identifier(scan.source, quoted=True))
        query = exp.select(*(exp.column(name, quoted=True) for name in names)).from_(source)
        for condition in _conditions(scan.conjuncts, table):
            query = query.where(condition)
        template = _template(query, chosen)
        specs = self._specs(chosen, template, _values(query, filled), {}, {})
        hot = chosen.table.select(names)
        found = [hot]
        held = 0
        for part in self._partials(specs):
            held += part.nbytes
            if held > min(GATHERED_BYTES_MAX, self._duck.memory_max):
                raise QueryError(
                    "the query would bring more rows here than query_memory allows",
                    detail="it is not the sum of its parts, so that its rows must be gathered; "
                    f"{held:,} bytes are here, at most {GATHERED_BYTES_MAX:,} may be",
                    hint="ask for less, SET route = 'local', or raise the setting query_memory",
                )
            found.append(part.cast(hot.schema))
        return pa.concat_tables(found)

    # -- tasks

    def _specs(
        self,
        chosen: Selected,
        template: Template,
        values: dict[str, object],
        references: Mapping[str, bytes],
        tables: Mapping[str, bytes],
    ) -> list[PartialTask]:
        scan = chosen.scan
        assert scan.table is not None
        assert chosen.past is not None
        specs = []
        for group in chosen.past.split(TASKS_PER_SLOT * self._tasks.parallelism):
            named = Named()
            text = group.sql(self._storage, scan.table, scan.with_seq, named)
            if text is not None:
                reads = (
                    None if chosen.reads is None else replace(chosen.reads, files=group.all_files)
                )
                own = {**tables, **{name: to_ipc(rows) for name, rows in named.items()}}
                what = (self._storage, values, references, own, reads)
                specs.append(PartialTask(template, scan.source, text, *what))
        return specs

    def _partials(self, specs: list[PartialTask]) -> list[pa.Table]:
        results: list[PartialResult] = self._perform(run_partial, specs) if specs else []
        return [result.table() for result in results]

    def _perform(self, function: Callable[[Any], Any], specs: Sequence[Any]) -> list[Any]:
        job_id = f"query-{uuid.uuid4().hex[:12]}"
        done: set[int] = set()
        with cancellable(lambda _: self._tasks.cancel(job_id), lambda: len(done) / len(specs)):
            return self._tasks.run(
                job_id, "query", function, specs, lambda index, _: done.add(index)
            )

    def _references(self, tree: exp.Expression) -> _References:
        """The reference tables that a query joins travel with its tasks."""
        names = {node.name for node in tree.find_all(exp.Table) if node.catalog == REFERENCE}
        shipped: dict[str, bytes] = {}
        for name in sorted(names):
            query = f"SELECT * FROM {REFERENCE}.main.{quote(name)}"
            rows, _ = self._duck.query(query, {}, {}, exact=True)
            if rows.nbytes > REFERENCE_BYTES_MAX:
                return _References({}, rows.nbytes)
            shipped[name] = to_ipc(rows)
        return _References(shipped)


@dataclass(frozen=True)
class _References:
    """Reference tables as Arrow IPC, or the size of one that is too large to travel."""

    shipped: Mapping[str, bytes]
    too_large: int = 0

    def check(self) -> None:
        if self.too_large:
            raise QueryError(
                "a reference table of the query is too large to travel with Spark's tasks",
                detail=f"{self.too_large} bytes, {REFERENCE_BYTES_MAX} are allowed",
                hint="SET route = 'local'",
            )


def _template(tree: exp.Expression, chosen: Selected) -> Template:
    return Template.of(tree, {chosen.scan.source}, comments=False)


def _values(tree: exp.Expression, filled: Filled) -> dict[str, object]:
    used = set(placeholders(tree))
    return {name: value for name, value in filled.values.items() if name in used}


def _columns(table: Table, wanted: frozenset[str] | None, with_seq: bool) -> list[str]:
    names = [column.name for column in table.columns]
    if wanted is not None:
        lower = {name.lower() for name in wanted}
        names = [name for name in names if name.lower() in lower] or names[:1]
    return [*names, SEQ] if with_seq else names


def _conditions(conjuncts: Iterable[Conjunct], table: Table) -> Iterator[exp.Expression]:
    """What the query itself says of the table's columns: other words for it might compare in
    another type."""
    claims = {
        id(conjunct.claim): conjunct
        for conjunct in conjuncts
        if conjunct.op != "in_query" and table.column(conjunct.column) is not None
    }
    for conjunct in claims.values():
        condition = conjunct.claim.asked_of(conjunct.column)
        if condition is not None:
            yield condition
