"""Rewriting: changes as SQL over rows that do not have them yet.

Two forms, one meaning:

- *few corrections*: a delete becomes a condition, ``NOT (…)``, and an update a ``CASE`` in the
  column's place, the newest first (``folded``). Rows stream through, no row is looked at twice;
- *many*: the rows that they mean are found once, by a join on the columns that they compare
  (``hits``), reduced to one line a row: deleted or not, and of each column the last value. The
  rows are then joined with these lines by number (``overlaid``). This is T_v of document 000 §IV-A,
  made when it is needed.

Both give the columns that are asked for and ``_seq``. Runs build upon one another, as subqueries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.changes.model import DELETE, Change, Text
from tidemill.changes.runs import Group, Run, runs_of
from tidemill.changes.values import ORDER, UPTO, Named, literals_of, table_of
from tidemill.types import SEQ, Column, quote

FOLDED_MAX = 16  # corrections of a run that become conditions
RUNS_KEPT = 8  # sets of changes whose runs are kept
DELETED = "deleted"
_VALUE = "v"


class HasColumns(Protocol):
    """A table, or what a job knows of one."""

    @property
    def columns(self) -> tuple[Column, ...]: ...


Slot = Callable[[int], str]
Rows = Callable[[Sequence[str], int | None, int | None], str]
"""SQL of rows with some columns and ``_seq``; those before a time or after another may be left
out."""


def render(text: Text, slot: Slot) -> str:
    """The SQL of a text."""
    return "".join(part if isinstance(part, str) else slot(part) for part in text)


def rewritten(
    rows: Rows,
    table: HasColumns,
    names: Sequence[str],
    changes: Sequence[Change],
    seq_max: int,
    named: Named,
) -> str:
    """Rows with the columns named and ``_seq``, with all that changes say; ``seq_max`` is the
    greatest number that a row may have. Tables that the text needs are put to those ``named``."""
    runs = _runs(tuple(changes))
    wanted = [_needed(table, names, runs[at:]) for at in range(len(runs) + 1)]
    every = rows(wanted[0], None, None)
    last_joined = max((at for at, run in enumerate(runs) if run.count > FOLDED_MAX), default=-1)
    # What is joined is found in the rows of the changes' times alone, step by step beside them.
    low, high = (
        (min(c.low_us for c in changes), max(c.high_us for c in changes)) if changes else (0, 0)
    )
    steps = [f"tm_t0 AS ({rows(wanted[0], low, high)})"] if last_joined >= 0 else []
    for at, (run, left) in enumerate(zip(runs, wanted[1:], strict=True)):
        before = f"SELECT * FROM tm_t{at}"
        if run.count <= FOLDED_MAX:
            every = folded(every, run, table, left, seq_max)
            after = folded(before, run, table, left, seq_max)
        else:
            sources = [named.put(each) for each in corrections_of(run)]
            steps.append(f"tm_h{at} AS MATERIALIZED ({hits(before, run, table, sources)})")
            lines = f"SELECT * FROM tm_h{at}"
            every = overlaid(every, lines, run, table, left)
            after = overlaid(before, lines, run, table, left)
        if at < last_joined:
            steps.append(f"tm_t{at + 1} AS ({after})")
    return f"WITH {', '.join(steps)} {every}" if steps else every


@lru_cache(maxsize=RUNS_KEPT)
def _runs(changes: tuple[Change, ...]) -> tuple[Run, ...]:
    """The runs of changes; queries ask for the same ones again, as long as these wait."""
    return tuple(runs_of(changes))


def corrections_of(run: Run) -> tuple[pa.Table, ...]:
    """The corrections of a run, a table for each of its groups, without those that later ones make
    invisible; made once."""
    if not run.tables:
        places = run.places
        run.tables = tuple(
            _newest(group, table_of(group.changes, places)) for group in run.groups.values()
        )
    return run.tables


def _newest(group: Group, corrections: pa.Table) -> pa.Table:
    """Of corrections that name rows by keys alone, the last of each key: a later one means all rows
    of an earlier one, and sets the same columns."""
    keys = [f"s{slot}" for _, slot in group.form.keys]
    is_growing = all(a.upto_seq <= b.upto_seq for a, b in pairwise(group.changes))
    if (
        not keys
        or not is_growing
        or group.form.condition
        or any(_is_nested(corrections.field(k)) for k in keys)
    ):
        return corrections
    last = corrections.select([*keys, ORDER]).group_by(keys).aggregate([(ORDER, "max")])
    if last.num_rows == corrections.num_rows:
        return corrections
    kept = pc.is_in(corrections.column(ORDER), last.column(f"{ORDER}_max").combine_chunks())
    return corrections.filter(kept)


def _is_nested(field: pa.Field) -> bool:
    return bool(pa.types.is_nested(field.type)) or isinstance(field.type, pa.BaseExtensionType)


def _needed(table: HasColumns, names: Iterable[str], runs: Sequence[Run]) -> list[str]:
    """The columns that suffice for some, and for what runs look at, in the table's order."""
    wanted = {name.lower() for name in names}
    for run in runs:
        for group in run.groups.values():
            wanted |= {name.lower() for name in group.form.reads}
    return [column.name for column in table.columns if column.name.lower() in wanted]


# -- few corrections


def folded(rows: str, run: Run, table: HasColumns, names: Sequence[str], seq_max: int) -> str:
    """Rows as a run leaves them, by conditions."""
    gone: list[str] = []
    cases: dict[str, list[str]] = {}
    ordered: list[tuple[int, str, Group, Slot]] = []
    for group in run.groups.values():
        for change in group.changes:
            columns = literals_of(change)
            for at in range(change.count):
                slot = _literal_slot(columns, at)
                condition = _condition(group, slot, str(change.upto_seq), seq_max)
                ordered.append((change.number, condition, group, slot))
    ordered.sort(key=lambda found: found[0])
    for _, condition, group, slot in reversed(ordered):
        if group.form.kind == DELETE:
            gone.append(condition)
        for name, text in group.form.sets:
            value = f"CAST({render(text, slot)} AS {_type_of(table, name)})"
            cases.setdefault(name.lower(), []).append(f"WHEN {condition} THEN {value}")
    given = []
    for name in names:
        found = cases.get(name.lower())
        own = f"r.{quote(name)}"
        given.append(
            own if not found else f"CASE {' '.join(found)} ELSE {own} END AS {quote(name)}"
        )
    where = f" WHERE NOT coalesce({' OR '.join(gone)}, false)" if gone else ""
    return f"SELECT {', '.join([*given, f'r.{SEQ}'])} FROM ({rows}) AS r{where}"


def _literal_slot(columns: Sequence[Sequence[str]], at: int) -> Slot:
    return lambda slot: columns[slot][at]


def _condition(group: Group, slot: Slot, upto: str, seq_max: int) -> str:
    """What holds for the rows that one correction means."""
    parts = [f"r.{quote(name)} = {slot(at)}" for name, at in group.form.keys]
    if group.form.condition:
        parts.append(f"({render(group.form.condition, slot)})")
    if not upto.isdigit() or int(upto) < seq_max:
        parts.append(f"r.{SEQ} <= {upto}")
    parts += [f"r.{SEQ} NOT BETWEEN {first} AND {last}" for first, last in group.spared]
    return f"({' AND '.join(parts)})" if parts else "true"


# -- many


def hits(rows: str, run: Run, table: HasColumns, named: Sequence[str]) -> str:
    """One line for each row that a run touches: its number, whether it is deleted, and of each
    column the value that it gets, as a struct (NULL: none). ``named`` are tables of the groups'
    corrections (``values.table_of``)."""
    writes = written_by(run, table)
    parts = [
        _hits_of(rows, group, writes, source)
        for group, source in zip(run.groups.values(), named, strict=True)
    ]
    last = [f"arg_max({_place(at)}, {ORDER}) AS {_place(at)}" for at in range(len(writes))]
    given = ", ".join([SEQ, f"bool_or({DELETED}) AS {DELETED}", *last])
    return f"SELECT {given} FROM ({' UNION ALL '.join(parts)}) GROUP BY {SEQ}"


def written_by(run: Run, table: HasColumns) -> list[Column]:
    """The columns that a run sets, in the table's order."""
    lower = {name.lower() for name in run.writes}
    return [column for column in table.columns if column.name.lower() in lower]


def _hits_of(rows: str, group: Group, writes: Sequence[Column], source: str) -> str:
    form = group.form
    sets = {name.lower(): text for name, text in form.sets}
    given = [f"r.{SEQ}", f"c.{ORDER}", f"{'true' if form.kind == DELETE else 'false'} AS {DELETED}"]
    for at, column in enumerate(writes):
        text = sets.get(column.name.lower())
        kind = f"STRUCT({_VALUE} {column.type.name})"
        value = "NULL" if text is None else f"{{'{_VALUE}': {render(text, _column_slot)}}}"
        given.append(f"CAST({value} AS {kind}) AS {_place(at)}")
    condition = _condition(group, _column_slot, f"c.{UPTO}", 0)
    return f"SELECT {', '.join(given)} FROM ({rows}) AS r JOIN {source} AS c ON {condition}"


def _column_slot(slot: int) -> str:
    return f"c.s{slot}"


def _place(at: int) -> str:
    return f"w{at}"


def overlaid(rows: str, lines: str, run: Run, table: HasColumns, names: Sequence[str]) -> str:
    """Rows as a run leaves them, by the lines of those that it touches."""
    places = {column.name.lower(): at for at, column in enumerate(written_by(run, table))}
    given = []
    for name in names:
        at, own = places.get(name.lower()), f"r.{quote(name)}"
        if at is None:
            given.append(own)
        else:
            value = f"h.{_place(at)}.{_VALUE}"
            given.append(
                f"CASE WHEN h.{_place(at)} IS NULL THEN {own} ELSE {value} END AS {quote(name)}"
            )
    joined = f"({rows}) AS r LEFT JOIN ({lines}) AS h ON r.{SEQ} = h.{SEQ}"
    where = f"WHERE NOT coalesce(h.{DELETED}, false)"
    return f"SELECT {', '.join([*given, f'r.{SEQ}'])} FROM {joined} {where}"


def _type_of(table: HasColumns, name: str) -> str:
    return next(c.type.name for c in table.columns if c.name.lower() == name.lower())
