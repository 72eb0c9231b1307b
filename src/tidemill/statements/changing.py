"""Changing: UPDATE and DELETE; those of reference tables are carried out at once, by DuckDB."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from tidemill.catalog.store import Catalog
from tidemill.errors import UnsupportedError
from tidemill.federation.planner import make_plan
from tidemill.federation.references import References
from tidemill.federation.runner import Runner
from tidemill.result import Result, done
from tidemill.sql import statements as st
from tidemill.statements.call import Call, Handlers
from tidemill.statements.stream_changes import StreamChanges
from tidemill.statements.targets import Targets
from tidemill.subscribers import Subscribers


class Changing:
    def __init__(
        self,
        catalog: Catalog,
        targets: Targets,
        references: References,
        runner: Runner,
        changes: Subscribers[int],
        streams: StreamChanges,
    ) -> None:
        """``changes`` are told of a reference table, by its id, before it changes."""
        self._catalog = catalog
        self._targets = targets
        self._references = references
        self._runner = runner
        self._changes = changes
        self._streams = streams

    @property
    def handlers(self) -> Handlers:
        return {st.Change: self.change}

    def change(self, call: Call[st.Change]) -> Result:
        statement = call.statement
        self._targets.refuse_system(statement.table)
        snapshot = self._catalog.snapshot()
        table = snapshot.get(statement.table, statement.position)
        if table.is_view or table.is_digest:
            raise UnsupportedError(
                f'view "{table.name}" can be read but not written', position=statement.position
            )
        if table.is_streaming:
            return self._streams.change(call, table)
        if statement.kind == "merge":
            raise UnsupportedError(
                "MERGE is for streaming tables",
                hint="INSERT … ON CONFLICT does it for a reference table",
                position=statement.position,
            )
        plan = make_plan(statement.body, snapshot, call.params)
        filled = self._runner.fill(plan, call.params)
        self._changes.tell(table.table_id)
        answer, types = self._references.write(filled.sql, filled.values, filled.sources)
        tag = statement.kind.upper()
        if statement.body.args.get("returning"):
            return Result(answer, types, f"{tag} {answer.num_rows}")
        return done(f"{tag} {changed_rows(answer, 0)}")


def changed_rows(answer: pa.Table, otherwise: int) -> int:
    """DuckDB answers a change with one row that counts."""
    if answer.num_columns == 1 and answer.num_rows == 1:
        value = answer.column(0)[0].as_py()
        return int(value) if isinstance(value, int | Decimal) else otherwise
    return otherwise
