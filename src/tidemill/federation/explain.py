"""EXPLAIN: the plan that runs, as lines a person reads; with ANALYZE, how its run went.

EXPLAIN prints the very objects that run: each scan with what its indices selected in memory and
which files it reads, the split of the query on Spark's route, and the SQL.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from sqlglot import exp

from tidemill.catalog.model import History
from tidemill.changes.describing import describe, left_out_lines
from tidemill.federation.duck import Duck
from tidemill.federation.explain_indexes import index_lines, join_lines, span_text, time_text
from tidemill.federation.lookup import answer
from tidemill.federation.planner import FRAME, HOT, SYSTEM, VIEW
from tidemill.federation.profiling import FILE_SCAN, MEMORY_SCAN, Operator, Profile, profile
from tidemill.federation.routes import Route
from tidemill.federation.runner import Filled, Selected
from tidemill.stream.relation import FileScan

STEPS_SHOWN = 8
STEP_CHARACTERS = 70
NUMBERS_SHOWN = 5

_FILES = re.compile(r"read_parquet\(\[((?:'(?:[^']|'')*'(?:, )?)+)\][^)]*\)")
_FILE = re.compile(r"'(?:[^']|'')*'")
_NUMBERS = re.compile(r"(\[|\()((?:-?\d+, )+-?\d+)(\]|\))")


def explain_lines(filled: Filled, route: Route) -> list[str]:
    """The route, the scans with what their indices selected, then the SQL that runs."""
    why = f": {filled.reason}" if filled.reason else ""
    lines = [f"route: {route.name} ({route.place(filled)}){why}"]
    for selected in filled.selected:
        lines += _scan_lines(selected, filled)
    if not filled.selected:
        lines.append("no scan of a streaming or system table")
    lines += route.steps(filled)
    lines.append(f"sql: {short_sql(filled)}")
    return lines


def short_sql(filled: Filled) -> str:
    """The SQL with lists of files and of row numbers told by their length.

    Only the text that we put in is shortened, never what the user wrote."""
    selected = tuple(
        chosen if chosen.files_sql is None else replace(chosen, files_sql=_short(chosen.files_sql))
        for chosen in filled.selected
    )
    return replace(filled, selected=selected).text


def _short(text: str) -> str:
    def files(found: re.Match[str]) -> str:
        return f"read_parquet([{_count(len(_FILE.findall(found[1])), 'file')}])"

    def numbers(found: re.Match[str]) -> str:
        count = found[2].count(",") + 1
        return found[0] if count <= NUMBERS_SHOWN else f"{found[1]}{count:,} numbers{found[3]}"

    return _NUMBERS.sub(numbers, _FILES.sub(files, text))


# -- scans


def _scan_lines(selected: Selected, filled: Filled) -> list[str]:
    scan = selected.scan
    alias = f" as {scan.alias}" if scan.alias.lower() != scan.name.lower() else ""
    count = f"{selected.table.num_rows:,} rows"
    if scan.kind == SYSTEM:
        name = scan.name if "." in scan.name else f"tidemill.{scan.name}"
        return [f"scan {name}{alias}: {count}"]
    if scan.kind == FRAME:
        return [f"scan the caller's {scan.name}{alias}: {count}"]
    if scan.kind == VIEW:
        return [f"read view {scan.name}{alias}: {count}"]
    if scan.kind != HOT:
        return [f"scan {scan.name}{alias}: {count} set aside{_aside(selected, filled)}"]
    lines = [f"scan {scan.name}{alias} ({scan.source})"]
    if selected.as_of_us is not None:
        return lines + _as_of_lines(selected)
    lines += join_lines(scan.source, filled.joins)
    lines += _memory_lines(selected, filled)
    lines += _change_lines(selected)
    history = _history(selected, filled)
    if history.files:
        lines += _file_lines(selected)
    if history.moved_seq:
        upto = f"{history.moved_seq:,}"
        lines.append(f"  split: arrivals up to number {upto} are in files, later ones in memory")
    return lines


def _history(selected: Selected, filled: Filled) -> History:
    assert selected.scan.table is not None
    return filled.pin.snapshot.history(selected.scan.table.table_id)


def _aside(selected: Selected, filled: Filled) -> str:
    """The rows set aside that are in files."""
    files = [f for f in _history(selected, filled).files if f.kind == selected.scan.kind]
    if not files:
        return ""
    return f" in memory, {sum(file.rows for file in files):,} in {_count(len(files), 'file')}"


def _memory_lines(selected: Selected, filled: Filled) -> list[str]:
    found, wanted, table = selected.selection, selected.wanted, selected.scan.table
    if found is None or wanted is None or table is None:
        return []
    lines = []
    if wanted.low_us is not None or wanted.high_us is not None:
        span = span_text(wanted.low_us, wanted.high_us)
        lines.append(f"  interval index: {span} -> {found.blocks_in_span} of {found.blocks} blocks")
    if wanted.newest is not None:
        which = "of the span" if selected.scan.newest is not None else "that match"
        lines.append(f"  newest {wanted.newest} rows {which} suffice")
    is_asked = filled.plan.tree.find(exp.Where, exp.Join) is not None
    lines += index_lines(table, wanted, found, is_asked)
    lines.append(
        f"  blocks: {found.blocks_read:,} of {found.blocks:,} read; "
        f"rows: {found.rows_read:,} of {found.rows:,} selected"
    )
    return lines


def _change_lines(selected: Selected) -> list[str]:
    """What became of changes (UPDATE, DELETE) that wait."""
    image, needed, wanted = selected.image, selected.needed, selected.wanted
    if image is None or needed is None or wanted is None:
        return []
    lines = left_out_lines(image.view.waiting, needed, "rows in memory")
    if image.history.files and image.view.changes:
        lines += left_out_lines(image.view.changes, image.in_history(wanted, needed), "files")
    return [f"  {line}" for line in lines]


def _file_lines(selected: Selected) -> list[str]:
    if selected.past is None:
        return []
    lines = []
    for part in selected.past.parts:
        lines.append(f"  history: {_pruned(part)}")
        lines += [f"  {line}" for line in part.describe_removed()]
        lines += [f"  {line}" for line in describe(part.changed_by)]
    return lines


def _pruned(part: FileScan) -> str:
    """Which of its files a part reads, and what ruled the others out."""
    pruned = part.pruned
    assert pruned is not None
    text = (
        f"{len(pruned.files):,} of {_count(pruned.total_files, 'file')}, "
        f"{pruned.bytes:,} of {pruned.total_bytes:,} bytes, rows ≤ {pruned.rows:,}"
    )
    reasons = [f"by {column}: {count:,}" for column, count in pruned.reasons.items()]
    return f"{text}; ruled out {', '.join(reasons)}" if reasons else text


def _as_of_lines(selected: Selected) -> list[str]:
    """A reader of the past: the files of then, and rows that were in memory then, wherever they
    are now."""
    assert selected.as_of_us is not None
    assert selected.past is not None
    pin = selected.past.pin
    number = "" if pin is None else f", snapshot {pin.snapshot.snapshot_id}"
    lines = [f"  as of {time_text(selected.as_of_us)}{number}"]
    for part in selected.past.parts:
        if part.seq_range is None:
            lines.append(f"  history: {_pruned(part)}")
        else:
            lines.append(f"  in memory then, in files now: {_moved_since(part, *part.seq_range)}")
        if part.except_ranges:
            lines.append(f"  without rows of {_count(len(part.except_ranges), 'load')} since")
        lines += [f"  {line}" for line in part.describe_removed()]
        lines += [f"  {line}" for line in describe(part.changed_by)]
    lines.append(f"  in memory then and now: {_count(selected.table.num_rows, 'row')}")
    return lines


def _moved_since(part: FileScan, first: int, last: int) -> str:
    assert part.pruned is not None
    files = [f for f in part.files if f.seq_min <= last and f.seq_max >= first]
    size = sum(file.bytes for file in files)
    count = f"{len(files):,} of {_count(part.pruned.total_files, 'file')}, {size:,} bytes"
    return f"numbers {first:,} to {last:,}, {count}"


# -- EXPLAIN ANALYZE


class Step(Protocol):
    """A step of an answer that somebody has timed."""

    @property
    def name(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def elapsed_s(self) -> float: ...


def analyze_lines(duck: Duck, filled: Filled) -> list[str]:
    """Run a query on the local route and tell what was read, and where the time went."""
    lookup = filled.plan.lookup
    if lookup is not None and filled.exact is not None:
        began = time.perf_counter()
        rows = answer(lookup, filled.exact, filled.selected[0].table).num_rows
        return timed_lines(rows, time.perf_counter() - began)
    run = profile(duck, filled)
    if not run.steps:  # nothing to profile: a constant
        began = time.perf_counter()
        table, _ = duck.query(filled.sql, filled.values, filled.sources)
        return timed_lines(table.num_rows, time.perf_counter() - began)
    labels = _labels(filled)
    steps = [
        _Timed(_step_name(step, labels), step.answered, step.elapsed_s)
        for step in run.steps
        if step.rows or step.elapsed_s
    ]
    return [
        f"{_answer_line(run.rows, run.elapsed_s)}, {_ms(run.planning_s)} of it for planning",
        *_read_lines(run, filled, labels),
        *_step_lines("steps, slowest first, summed over threads:", steps),
    ]


def timed_lines(rows: int, elapsed_s: float, steps: Iterable[Step] = ()) -> list[str]:
    """The same for a route that times its own steps."""
    lines = _step_lines("steps, slowest first:", steps)
    return [_answer_line(rows, elapsed_s), *lines]


@dataclass(frozen=True)
class _Timed:
    name: str
    rows: int
    elapsed_s: float


def _answer_line(rows: int, elapsed_s: float) -> str:
    return f"answer: {_count(rows, 'row')} in {_ms(elapsed_s)}"


def _step_lines(heading: str, steps: Iterable[Step]) -> list[str]:
    ordered = sorted(steps, key=lambda step: -step.elapsed_s)
    if not ordered:
        return []
    shown = ordered[:STEPS_SHOWN]
    times = [_ms(step.elapsed_s) for step in shown]
    counts = [_count(step.rows, "row") for step in shown]
    width, wide = max(map(len, times)), max(map(len, counts))
    lines = [
        f"  {took:>{width}}  {count:>{wide}}  {step.name}"
        for took, count, step in zip(times, counts, shown, strict=True)
    ]
    if len(ordered) > len(shown):
        lines.append(f"  and {len(ordered) - len(shown)} more")
    return [heading, *lines]


def _read_lines(run: Profile, filled: Filled, labels: Mapping[str, str]) -> Iterator[str]:
    """What was read of each table's files, and of memory."""
    by_label: dict[str, list[Operator]] = {}
    for step in run.steps:
        if step.function == FILE_SCAN:
            by_label.setdefault(_label(step, labels), []).append(step)
    for label, (files, row_groups, rows) in _offered(filled).items():
        steps = by_label.pop(label, [])
        read = sum(step.files for step in steps)
        # DuckDB may come back for the other columns of a few rows: the same files once more.
        again = f" ({read - files:,} again)" if read > files else ""
        groups, passed = sum(s.row_groups for s in steps), sum(s.rows for s in steps)
        yield (
            f"read {label}: {min(read, files):,} of {_count(files, 'file')}{again}, "
            f"{min(groups, row_groups or groups):,} of {row_groups or groups:,} row groups; "
            f"{min(passed, rows):,} of {rows:,} rows passed its filters"
        )
    for label, steps in by_label.items():
        yield (
            f"read {label}: {_count(sum(s.files for s in steps), 'file')}, "
            f"{_count(sum(s.row_groups for s in steps), 'row group')}, "
            f"{_count(sum(s.rows for s in steps), 'row')}"
        )
    if run.bytes_read:
        yield f"read from files: {run.bytes_read:,} bytes"
    memory = [step.rows for step in run.steps if step.function == MEMORY_SCAN]
    if memory:
        yield f"read from memory: {_count(sum(memory), 'row')}"


def _offered(filled: Filled) -> dict[str, tuple[int, int, int]]:
    """Of each table whose files may be read: how many there are, and the row groups and rows of
    those that were not ruled out."""
    found: dict[str, tuple[int, int, int]] = {}
    for chosen in filled.selected:
        if chosen.past is None or not chosen.past.files_total:
            continue
        files, groups, rows = found.get(chosen.scan.name, (0, 0, 0))
        found[chosen.scan.name] = (
            files + chosen.past.files_total,
            groups + sum(file.row_groups for file in chosen.past.files),
            rows + chosen.past.rows,
        )
    return found


def _label(step: Operator, labels: Mapping[str, str]) -> str:
    """Whose files a scan reads: DuckDB names the first of them."""
    named = step.about.get("Filename(s)", "")
    return next((label for path, label in labels.items() if path in named), "files")


def _labels(filled: Filled) -> dict[str, str]:
    """Whose file each path is."""
    labels: dict[str, str] = {}
    for chosen in filled.selected:
        for part in chosen.past.parts if chosen.past is not None else ():
            labels |= {file.path: f"deletes of {chosen.scan.name}" for file in part.all_files}
            labels |= {file.path: chosen.scan.name for file in part.files}
        if chosen.past is None and chosen.scan.table is not None:
            files = _history(chosen, filled).files
            labels |= {f.path: chosen.scan.name for f in files if f.kind == chosen.scan.kind}
    return labels


_TOLD = (
    "Join Type",
    "Conditions",
    "Groups",
    "Aggregates",
    "Expression",
    "Top",
    "Order By",
    "Table",
)


def _step_name(step: Operator, labels: Mapping[str, str]) -> str:
    if step.function == FILE_SCAN:
        return f"read files: {_label(step, labels)}"
    if step.function == MEMORY_SCAN:
        return "read memory"
    told = " ".join(step.about[name] for name in _TOLD if step.about.get(name))
    name = step.kind.lower().replace("_", " ")
    text = " ".join(f"{name}: {told}".split()) if told else name
    return text if len(text) <= STEP_CHARACTERS else f"{text[: STEP_CHARACTERS - 1]}…"


# -- words


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _ms(elapsed_s: float) -> str:
    return f"{elapsed_s * 1_000:,.2f} ms"
