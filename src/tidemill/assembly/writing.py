"""Writing: what carries out statements, and kept queries; then all is wired and started."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tidemill.assembly.events import Events
from tidemill.assembly.memory import Memory
from tidemill.assembly.reading import Reading
from tidemill.assembly.store import Store
from tidemill.closing import Closing
from tidemill.executions import Executions
from tidemill.statements import variables
from tidemill.statements.call import Handlers
from tidemill.statements.changing import Changing
from tidemill.statements.copying import Copying
from tidemill.statements.corrections import Corrections
from tidemill.statements.definitions.handlers import definitions
from tidemill.statements.dispatch import Statements
from tidemill.statements.maintenance import Maintenance
from tidemill.statements.merging import Merger
from tidemill.statements.querying import Querying
from tidemill.statements.showing import Showing
from tidemill.statements.stream_changes import StreamChanges
from tidemill.statements.targets import Targets
from tidemill.statements.verifying import Verifying
from tidemill.statements.writing import Writer
from tidemill.views.continuous import KeptQueries
from tidemill.views.kept.environment import WarehouseEnvironment
from tidemill.views.status import kept_rows


@dataclass(frozen=True)
class Writing:
    statements: Statements
    querying: Querying
    writer: Writer
    corrections: Corrections
    kept: KeptQueries


def build_writing(
    store: Store, memory: Memory, reading: Reading, events: Events, executions: Executions
) -> Writing:
    catalog, tables, runner = store.catalog, memory.tier.tables, reading.views.runner
    querying = Querying(catalog, reading.router, reading.views, store.duck)
    targets = Targets(catalog)
    merger = Merger(catalog, runner, store.duck)
    writer = Writer(targets, tables, store.references, events.changes, querying.select, merger)
    kept = KeptQueries(
        WarehouseEnvironment(
            catalog,
            tables,
            runner,
            store.duck,
            writer.append_answers,
            store.clock,
            store.storage,
        )
    )
    streams = StreamChanges(catalog, tables, targets, runner, store.duck, store.clock, merger)
    changing = Changing(catalog, targets, store.references, runner, events.changes, streams)
    copying = Copying(writer, reading.loads, querying, reading.router, store.duck, reading.guard)
    parts = (
        querying.handlers,
        Showing(catalog, querying.select).handlers,
        variables.HANDLERS,
        writer.handlers,
        changing.handlers,
        copying.handlers,
        build_definitions(store, memory, reading, querying, kept),
        build_maintenance(store, memory, reading, kept).handlers,
    )
    corrections = Corrections(catalog, tables, targets)
    return Writing(Statements(executions, parts), querying, writer, corrections, kept)


def build_definitions(
    store: Store, memory: Memory, reading: Reading, querying: Querying, kept: KeptQueries
) -> Handlers:
    return definitions(
        store.catalog,
        memory.tier,
        store.references,
        memory.keeping,
        reading.loads,
        reading.views,
        kept,
        reading.guard,
        querying.select,
    )


def build_maintenance(
    store: Store, memory: Memory, reading: Reading, kept: KeptQueries
) -> Maintenance:
    verifying = Verifying(store.catalog, store.storage, memory.tier.tables, store.references)
    return Maintenance(store.catalog, memory.keeping, verifying, reading.views, kept)


def wire(store: Store, reading: Reading, kept: KeptQueries, events: Events) -> None:
    """Who hears of what."""
    events.published.add(reading.views.upkeep.poke)
    events.published.add(kept.poke)
    events.changes.add(kept.answer_before_change)  # what is due is answered with the old rows
    events.looks.add(reading.views.look)
    reading.view_rows.add(reading.views.status)
    reading.view_rows.add(partial(kept_rows, kept, store.catalog.snapshot))


def start(memory: Memory, reading: Reading, kept: KeptQueries, closing: Closing) -> None:
    """Take up what the last process left, and begin the work in the background."""
    for hot in memory.tier.tables.values():
        memory.keeping.recall(hot)
        reading.loads.recall(hot)
    reading.views.open()
    closing.add(reading.views.close)
    kept.start()
    closing.add(kept.close)
    memory.keeping.start()
    closing.add(memory.keeping.close)
    reading.loads.start()
    closing.add(reading.loads.close)
