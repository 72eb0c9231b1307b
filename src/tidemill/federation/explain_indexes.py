"""EXPLAIN of indices: which found the rows of a scan in memory, and why the others did not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemill.catalog.model import Index, Table
from tidemill.clock import from_us
from tidemill.federation.driving import JoinRead
from tidemill.hot.choice import BranchWay, EitherWay, IndexWay, Way
from tidemill.hot.picking import Use
from tidemill.hot.values import Range
from tidemill.hot.view import Selection
from tidemill.hot.wanted import Condition, Wanted

VALUES_SHOWN = 5


def index_lines(
    table: Table, wanted: Wanted, selection: Selection, is_asked: bool
) -> Iterator[str]:
    """What was looked up in which value index, and what became of the others. Unless anything
    ``is_asked`` at all, there is nothing to say of these."""
    used = [use for use in selection.uses if use.taken]
    if not used and selection.uses and not selection.blocks_in_span:
        used = [selection.uses[0]]  # there are only rows that are not in blocks yet
    for use in used:
        yield f"  {_kind(use.way)} {use.way.name}: {_way_text(use.way)}{_count(use)}"
    if not used and selection.rows_read == selection.rows and selection.rows:
        yield "  no index helps: every row is read"
    taken = {name for use in used for name in _names(use.way)}
    others = [index for index in table.indexes if index.name not in taken]
    if others and is_asked:
        reasons = (f"{i.name} ({_reason(i, wanted, selection, bool(used))})" for i in others)
        yield f"  not used: {', '.join(reasons)}"


def join_lines(source: str, joins: Iterable[JoinRead]) -> Iterator[str]:
    """What became of the small tables that a scan is joined with on indexed columns."""
    for join in joins:
        columns = [lookup.column for lookup in join.lookups if lookup.scan == source]
        if not columns:
            continue
        if join.reason:
            yield f"  join with {join.alias}: not read first, {join.reason}"
        else:
            rows = f"{join.rows:,} row{'' if join.rows == 1 else 's'}"
            yield f"  join with {join.alias}: {rows} read first, {' and '.join(columns)} looked up"


def time_text(us: int) -> str:
    try:
        return str(from_us(us))
    except OverflowError:  # outside the years that Python knows
        return f"{us} µs"


def span_text(low_us: int | None, high_us: int | None) -> str:
    low = "…" if low_us is None else time_text(low_us)
    high = "…" if high_us is None else time_text(high_us)
    return f"[{low}, {high}]"


def _kind(way: Way) -> str:
    return "value indices" if isinstance(way, EitherWay) else "value index"


def _names(way: Way) -> Iterator[str]:
    if isinstance(way, IndexWay):
        yield way.index.name
    else:
        for branch in way.branches:
            for inner in branch.ways:
                yield from _names(inner)


def _count(use: Use) -> str:
    if not use.asked:
        return ""
    return f" -> {use.rows:,} row{'' if use.rows == 1 else 's'}"


def _reason(index: Index, wanted: Wanted, selection: Selection, is_other_used: bool) -> str:
    for use in selection.uses:
        if index.name in _names(use.way):
            return _why_unused(use, selection, is_other_used)
    asked = {condition.column: condition for condition in wanted.conditions}
    missing = [name for name in index.columns if name not in asked]
    if len(missing) == len(index.columns) or (index.method != "hash" and missing[:1]):
        return f"nothing is asked of {' and '.join(missing)} that it can answer"
    if missing:
        return f"it needs {' and '.join(missing)} as well"
    if index.method == "hash" and not all(each.is_equality for each in asked.values()):
        return "it answers equality alone"
    return "it answers for one list of values alone"


def _why_unused(use: Use, selection: Selection, is_other_used: bool) -> str:
    text = _way_text(use.way)
    if use.asked and is_other_used:
        return f"{text} has {use.rows:,} rows"
    if use.asked:
        return (
            f"{text} has {use.rows:,} of {selection.rows:,} rows: to read whole blocks is cheaper"
        )
    if use.unasked:
        return f"{text}: to read whole blocks is cheaper than so many lookups"
    return "the other one leaves few rows"


def _way_text(way: Way) -> str:
    if isinstance(way, IndexWay):
        return " and ".join(_condition_text(condition) for condition in way.conditions)
    return " or ".join(_branch_text(branch) for branch in way.branches)


def _branch_text(branch: BranchWay) -> str:
    texts = list(dict.fromkeys(_way_text(way) for way in branch.ways))
    if branch.low_us is not None or branch.high_us is not None:
        texts.append(f"time in {span_text(branch.low_us, branch.high_us)}")
    return texts[0] if len(texts) == 1 else f"({' and '.join(texts)})"


def _condition_text(condition: Condition) -> str:
    return f"{condition.column} {ranges_text(condition.ranges)}"


def ranges_text(ranges: tuple[Range, ...]) -> str:
    if all(r.low is not None and r.low == r.high for r in ranges):
        shown = [repr(r.low) for r in ranges[:VALUES_SHOWN]]
        shown += [f"… {len(ranges):,} values"] if len(ranges) > VALUES_SHOWN else []
        return f"= {shown[0]}" if len(ranges) == 1 else f"in ({', '.join(shown)})"
    r = ranges[0]
    parts = []
    if r.low is not None:
        parts.append(f"{'>=' if r.low_included else '>'} {r.low!r}")
    if r.high is not None:
        parts.append(f"{'<=' if r.high_included else '<'} {r.high!r}")
    return " and ".join(parts)
