"""Defining views: CREATE, OR REPLACE, DROP, and who depends on whom.

A view is split first, so that whatever cannot be maintained is refused before anything is written.
Then, for each of its streams, a job that has the stream for itself makes its digests: no move or
load is under way that would not know of them. A digest whose stream has a history starts behind
it; the back-fill brings it in. The view itself is named last, in one transaction; a crash before
leaves digests without a view, which the next start removes.

OR REPLACE makes the new view under a name of its own; the old one answers until the new one is
complete, then they change places in one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from tidemill.catalog.commits import FileCommit
from tidemill.catalog.model import DIGEST, NEXT_SUFFIX, VIEW, NewTable, Snapshot, Table
from tidemill.catalog.store import Catalog
from tidemill.digests.definition import definition_text
from tidemill.digests.progress import Progress
from tidemill.errors import DefinitionError, DependencyError, Position, UnsupportedError
from tidemill.hot.crash import point
from tidemill.pipeline.job import JobContext, Outcome, Written
from tidemill.pipeline.jobs import Pipeline
from tidemill.sql import statements as st
from tidemill.sql.maintain import (
    DigestParts,
    ViewParts,
    from_json,
    split_view,
    to_json,
)
from tidemill.sql.parser import parse_one
from tidemill.types import Column, SqlType, quote
from tidemill.views.kept.definition import definition_of, is_kept

DEFINE_PRIORITY = 0


@dataclass(frozen=True)
class ViewDefinition:
    """What the catalog keeps of a view: its query as written, its split, its digests in order."""

    query: str
    parts: ViewParts
    digests: tuple[int, ...]
    tables: tuple[int, ...]  # streams, reference tables and views that it reads
    replaces: int | None = None  # the view whose place it will take

    @property
    def text(self) -> str:
        return json.dumps(
            {
                "query": self.query,
                "parts": to_json(self.parts),
                "digests": self.digests,
                "tables": self.tables,
                "replaces": self.replaces,
            },
            ensure_ascii=False,
        )

    @classmethod
    def of(cls, view: Table) -> ViewDefinition:
        assert view.definition is not None
        given = json.loads(view.definition)
        return cls(
            given["query"],
            from_json(given["parts"]),
            tuple(given["digests"]),
            tuple(given["tables"]),
            given["replaces"],
        )

    @property
    def tree(self) -> exp.Expression:
        statement = parse_one(self.query)
        assert isinstance(statement, st.Query)
        return statement.body


@dataclass(frozen=True)
class NewView:
    """A view that was checked and not yet made."""

    name: str
    query: str
    parts: ViewParts
    columns: tuple[Column, ...]
    tables: tuple[int, ...]
    settings: dict[str, str]
    position: Position | None = None


@dataclass(frozen=True)
class _MakeDigests:
    """The job that makes digests of one stream, while it has the stream for itself."""

    catalog: Catalog
    stream: Table
    new: Sequence[tuple[str, DigestParts]]
    kind: str = field(default="define", init=False)
    exclusive: bool = field(default=True, init=False)

    @property
    def table_id(self) -> int:
        return self.stream.table_id

    @property
    def table_name(self) -> str:
        return self.stream.name

    def explain(self) -> list[str]:
        return [f'make {len(self.new)} digests of table "{self.stream.name}"']

    def run(self, context: JobContext) -> Written[None, tuple[Table, ...]]:
        return Written(None, self.commit)

    def commit(self, _: None) -> Outcome[tuple[Table, ...]]:
        made: list[Table] = []
        with self.catalog.transaction() as change:
            history = change.snapshot.history(self.stream.table_id)
            progress = Progress.nothing() if history.files else Progress()
            for name, parts in self.new:
                table = change.create_table(
                    NewTable(
                        name,
                        DIGEST,
                        columns_of(parts.columns, parts.types),
                        definition=definition_text(parts, self.stream),
                        source_id=self.stream.table_id,
                    )
                )
                change.commit_files(
                    table.table_id,
                    FileCommit(moved_seq=history.moved_seq, progress=progress.text),
                )
                made.append(table)
        return Outcome(tuple(made))


@dataclass(frozen=True)
class ReviveDigest:
    """The job that empties a digest that failed, so that a back-fill can make it again; it has the
    stream for itself, so that no move or load is under way that passes over the digest."""

    catalog: Catalog
    stream: Table
    digest_id: int
    kind: str = field(default="define", init=False)
    exclusive: bool = field(default=True, init=False)

    @property
    def table_id(self) -> int:
        return self.stream.table_id

    @property
    def table_name(self) -> str:
        return self.stream.name

    def explain(self) -> list[str]:
        return [f'empty a failed digest of table "{self.stream.name}"']

    def run(self, context: JobContext) -> Written[None, None]:
        return Written(None, self.commit)

    def commit(self, _: None) -> Outcome[None]:
        with self.catalog.transaction() as change:
            if change.snapshot.table(self.digest_id) is not None:
                history = change.snapshot.history(self.stream.table_id)
                gone = [file.file_id for file in change.snapshot.history(self.digest_id).files]
                progress = Progress.nothing() if history.files else Progress()
                emptied = FileCommit(drop=gone, moved_seq=history.moved_seq, progress=progress.text)
                change.commit_files(self.digest_id, emptied)
        return Outcome(None)


def columns_of(names: Iterable[str], types: Iterable[str]) -> tuple[Column, ...]:
    pairs = zip(names, types, strict=True)
    return tuple(Column(name, SqlType.parse(kind)) for name, kind in pairs)


def check_view(
    name: str,
    query: exp.Expression,
    query_text: str,
    snapshot: Snapshot,
    settings: dict[str, str],
    names: Sequence[str] | None,
    position: Position | None,
) -> NewView:
    """Split a view's query and find out its columns; nothing is changed."""

    def definition_of(found: str) -> exp.Expression | None:
        table = snapshot.find(found)
        if table is None or not table.is_view:
            return None
        if table.name.lower() == name.lower():
            raise UnsupportedError(f'view "{name}" would read itself', position=position)
        return named_tree(table)

    def find(found: str) -> Table | None:
        table = snapshot.find(found)
        return None if table is None or table.is_digest or table.is_view else table

    parts = split_view(query, find, definition_of)
    if names is not None and len(names) != len(parts.columns):
        raise DefinitionError(
            f"{len(names)} names are given for {len(parts.columns)} columns",
            hint=f"the query gives {', '.join(parts.columns)}",
            position=position,
        )
    columns = columns_of(names or parts.columns, parts.types)
    lower = [column.name.lower() for column in columns]
    if len(set(lower)) < len(lower):
        twice = next(each for each in lower if lower.count(each) > 1)
        raise DefinitionError(
            f'the query gives two columns the name "{twice}"',
            hint="name each column with AS",
            position=position,
        )
    read = _tables_of(query, snapshot)
    check_settled(snapshot, read, position)
    return NewView(name, query_text, parts, columns, read, settings, position)


def named_tree(view: Table) -> exp.Expression:
    """A view's query with the names that the view gives its columns."""
    definition = ViewDefinition.of(view)
    names = tuple(column.name for column in view.columns)
    if names == definition.parts.columns:
        return definition.tree
    inner = exp.Subquery(
        this=definition.tree,
        alias=exp.TableAlias(
            this=exp.to_identifier(view.name, quoted=True),
            columns=[exp.to_identifier(name, quoted=True) for name in names],
        ),
    )
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner))


def check_settled(snapshot: Snapshot, table_ids: Iterable[int], position: Position | None) -> None:
    """Refuse to read a view that another one is about to replace: its columns may change."""
    replaced = {ViewDefinition.of(view).replaces for view in snapshot.views}
    for table_id in replaced.intersection(table_ids):
        table = snapshot.table(table_id or 0)
        if table is not None:
            raise DependencyError(
                f'view "{table.name}" is being replaced',
                hint=f"REFRESH MATERIALIZED VIEW {quote(table.name)} waits for the new one",
                position=position,
            )


def _tables_of(query: exp.Expression, snapshot: Snapshot) -> tuple[int, ...]:
    """All that a query names, views and what windows read included."""
    names = {node.name for node in query.find_all(exp.Table) if node.name}
    for node in query.find_all(exp.Anonymous):
        names |= {part.name for part in node.find_all(exp.Column)}
    found = (snapshot.find(name) for name in names)
    return tuple(sorted(table.table_id for table in found if table is not None))


def make_view(
    new: NewView,
    replaces: Table | None,
    catalog: Catalog,
    pipeline: Pipeline,
) -> Table:
    """Make the digests, then the view; it answers from then on."""
    name = new.name if replaces is None else f"{new.name}{NEXT_SUFFIX}"
    made: dict[int, Table] = {}
    try:
        for stream in dict.fromkeys(parts.table for parts in new.parts.digests):
            wanted = [
                (at, parts) for at, parts in enumerate(new.parts.digests) if parts.table == stream
            ]
            table = catalog.snapshot().get(stream, new.position)
            named = [(f"{name}$digest{at}", parts) for at, parts in wanted]
            job = _MakeDigests(catalog, table, named)
            digests_made = pipeline.submit(job, DEFINE_PRIORITY).wait().value
            made.update({at: each for (at, _), each in zip(wanted, digests_made, strict=True)})
            point("view.digested")
        digests = tuple(made[at].table_id for at in range(len(new.parts.digests)))
        definition = ViewDefinition(
            new.query,
            new.parts,
            digests,
            new.tables,
            None if replaces is None else replaces.table_id,
        )
        with catalog.transaction() as change:
            view = change.create_table(
                NewTable(name, VIEW, new.columns, settings=new.settings, definition=definition.text)
            )
        point("view.made")
        return view
    except BaseException:
        with catalog.transaction() as change:
            for digest in made.values():
                change.drop_table(digest.table_id)
        raise


def drop_view(catalog: Catalog, view: Table) -> None:
    """Drop a view with its digests, and the one that waits to replace it."""
    with catalog.transaction() as change:
        for each in change.snapshot.views:
            if view.table_id in (each.table_id, ViewDefinition.of(each).replaces):
                for digest_id in ViewDefinition.of(each).digests:
                    change.drop_table(digest_id)
                change.drop_table(each.table_id)
    point("view.dropped")


def swap_view(catalog: Catalog, new: Table) -> None:
    """The new view takes its name from the one that it replaces."""
    with catalog.transaction() as change:
        waiting = change.snapshot.table(new.table_id)
        definition = None if waiting is None else ViewDefinition.of(waiting)
        if definition is None or definition.replaces is None:
            return  # it was dropped meanwhile, or has its name already
        old = change.snapshot.table(definition.replaces)
        if old is not None and dependents(change.snapshot, old.table_id):
            return  # somebody came to read the old one; the new one waits for them to go
        name = new.name.removesuffix(NEXT_SUFFIX) if old is None else old.name
        if old is not None:
            for digest_id in ViewDefinition.of(old).digests:
                change.drop_table(digest_id)
            change.drop_table(old.table_id)
        change.rename_table(new.table_id, name)
        for at, digest_id in enumerate(definition.digests):
            change.rename_table(digest_id, f"{name}$digest{at}")
        change.alter_definition(new.table_id, replace(definition, replaces=None).text)
    point("view.swapped")


def dependents(snapshot: Snapshot, table_id: int) -> list[Table]:
    """The views and kept queries that read a table or a view, by name."""
    found = [view for view in snapshot.views if table_id in ViewDefinition.of(view).tables]
    for table in snapshot.tables.values():
        if is_kept(table) and table.table_id != table_id:
            read = _tables_of(definition_of(table).tree(), snapshot)
            found += [table] if table_id in read else []
    return sorted(found, key=lambda view: view.name)


def release_joined(catalog: Catalog) -> list[Table]:
    """Views of earlier versions whose digests kept the partners that rows had when they came: such
    digests go, and the views are answered by their queries. OR REPLACE makes digests again."""
    found = []
    for view in catalog.snapshot().views:
        definition = ViewDefinition.of(view)
        below = {each for digest in definition.parts.digests for each in digest.references}
        if not below:
            continue
        found.append(view)
        reason = "it was made by an earlier version; CREATE OR REPLACE makes it faster"
        above = tuple(sorted({*below, *definition.parts.above}))
        parts = replace(definition.parts, digests=(), final="", above=above, reason=reason)
        with catalog.transaction() as change:
            for digest_id in definition.digests:
                change.drop_table(digest_id)
            changed = replace(definition, parts=parts, digests=())
            change.alter_definition(view.table_id, changed.text)
    return found


def orphans(snapshot: Snapshot) -> list[Table]:
    """Digests that no view has: a crash came between."""
    used = {each for view in snapshot.views for each in ViewDefinition.of(view).digests}
    tables = snapshot.tables.values()
    return [table for table in tables if table.is_digest and table.table_id not in used]
