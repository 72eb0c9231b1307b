"""Passes as pairs of SQL: what each of them makes of a statement.

``tests/fixtures/passes/<pass>.sql`` has blocks with an empty line between them:

- ``-- text``: what the block shows;
- a statement that ends with ``;``, as the user writes it;
- the statement after the pass, and after those that stand before it in its tuple;
- ``-- found: field: text`` for each thing that the pass notes in its state;
- ``-- error: text`` in the place of the second statement, if the pass refuses the first;
- ``-- in: TUPLE``, where a pass is in several tuples and not the first of them is meant.

``{1..1000}`` stands for the numbers from 1 to 1000. A pass without a file, a file without a pass
and a file whose pairs show nothing are failures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlglot import exp
from warehouses import open_inline, quiet

from tidemill.catalog.model import Snapshot, Table
from tidemill.errors import TidemillError
from tidemill.federation.passes import PASSES, PlanState
from tidemill.federation.planner import make_plan
from tidemill.sql import statements as st
from tidemill.sql.maintain.passes import SPLIT_PASSES, VIEW_PASSES, WHOLE_PASSES, ViewState
from tidemill.sql.parser import parse_one
from tidemill.sql.passes import Pass, QueryState, run_passes
from tidemill.views.defining import named_tree
from tidemill.views.kept.passes import (
    ARRIVED_PASSES,
    MANY_CLOSES_PASSES,
    MANY_ROWS_PASSES,
    ONE_CLOSE_PASSES,
    ONE_ROW_PASSES,
    ROW_PASSES,
    TICK_PASSES,
    KeptState,
)

FOLDER = Path(__file__).parents[1] / "fixtures" / "passes"
FRAMES = {"df": pa.table({"vid": [1, 2], "x": ["a", "b"]})}
SCHEMA = """
CREATE STREAMING TABLE p (ts TIMESTAMP, vid BIGINT, seg INT, spd INT);
CREATE INDEX ON p (vid);
CREATE STREAMING TABLE q (ts TIMESTAMP, vid BIGINT, spd INT);
CREATE TABLE involved (vid BIGINT, seg INT, kind VARCHAR);
CREATE MATERIALIZED VIEW v AS SELECT vid, count(*) AS n FROM p GROUP BY vid;
"""

# Which passes a statement has behind it when those of a tuple begin.
TUPLES: dict[str, tuple[Pass[Any], ...]] = {
    "PASSES": PASSES,
    "VIEW_PASSES": VIEW_PASSES,
    "WHOLE_PASSES": (*VIEW_PASSES, *WHOLE_PASSES),
    "SPLIT_PASSES": (*VIEW_PASSES, *SPLIT_PASSES),
    "ROW_PASSES": ROW_PASSES,
    "ONE_ROW_PASSES": (*ROW_PASSES, *ONE_ROW_PASSES),
    "MANY_ROWS_PASSES": (*ROW_PASSES, *MANY_ROWS_PASSES),
    "ARRIVED_PASSES": ARRIVED_PASSES,
    "TICK_PASSES": TICK_PASSES,
    "ONE_CLOSE_PASSES": ONE_CLOSE_PASSES,
    "MANY_CLOSES_PASSES": MANY_CLOSES_PASSES,
}
NAMES = sorted({each.__name__ for passes in TUPLES.values() for each in passes})


@dataclass(frozen=True)
class Pair:
    """A block of a fixture file."""

    name: str
    given: str
    expected: str | None
    found: tuple[str, ...]
    error: str | None
    within: str

    @property
    def passes(self) -> tuple[Pass[Any], ...]:
        """Those before the pass, and the pass."""
        whole = TUPLES[self.within]
        return whole[: [each.__name__ for each in whole].index(self.name) + 1]


def read_pairs(name: str) -> Iterator[Pair]:
    text = _NUMBERS.sub(_numbers, (FOLDER / f"{name}.sql").read_text())
    for block in filter(None, (part.strip() for part in text.split("\n\n"))):
        lines = block.splitlines()
        marks = {key: _marked(lines, f"-- {key}: ") for key in ("found", "error", "in")}
        sql = " ".join(line.strip() for line in lines if not line.startswith("--"))
        given, *expected = [part.strip() for part in sql.split(";") if part.strip()]
        within, *_ = (*marks["in"], *(n for n, each in TUPLES.items() if _has(each, name)))
        (wanted,) = expected or (None,)
        assert (wanted is None) == bool(marks["error"]), block
        yield Pair(name, given, wanted, tuple(marks["found"]), *(marks["error"] or [None]), within)


_NUMBERS = re.compile(r"\{(\d+)\.\.(\d+)\}")


def _numbers(found: re.Match[str]) -> str:
    return ", ".join(map(str, range(int(found[1]), int(found[2]) + 1)))


def _marked(lines: list[str], mark: str) -> list[str]:
    return [line.removeprefix(mark) for line in lines if line.startswith(mark)]


def _has(passes: tuple[Pass[Any], ...], name: str) -> bool:
    return any(each.__name__ == name for each in passes)


PAIRS = [pair for name in NAMES if (FOLDER / f"{name}.sql").exists() for pair in read_pairs(name)]


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snapshot]:
    path: Path = tmp_path_factory.mktemp("passes") / "w"
    with quiet(), open_inline(path) as db:
        db.sql(SCHEMA)
        yield db.catalog.snapshot()


def start(pair: Pair, snapshot: Snapshot) -> QueryState:
    """The state of a statement before the first pass."""
    statement = parse_one(pair.given)
    assert isinstance(statement, st.Query)
    tree = statement.body.copy()
    if pair.within == "PASSES":
        return PlanState.of(tree, snapshot, lambda query: make_plan(query, snapshot), FRAMES)
    if pair.within not in ("VIEW_PASSES", "WHOLE_PASSES", "SPLIT_PASSES"):
        return KeptState.of(tree, snapshot)

    def find(name: str) -> Table | None:
        table = snapshot.find(name)
        return None if table is None or table.is_view else table

    def definition_of(name: str) -> exp.Expression | None:
        table = snapshot.find(name)
        return named_tree(table) if table is not None and table.is_view else None

    return ViewState(tree=tree, find=find, definition_of=definition_of)


# What a pass found, as lines.


def _requests(found: dict[int, Any]) -> list[str]:
    return [
        f"{request.alias}: " + (", ".join(map(_leaf, request.leaves)) or "nothing")
        for request in found.values()
    ]


def _leaf(leaf: Any) -> str:
    return f"{leaf.column} {leaf.op} {' '.join(value.sql('duckdb') for value in leaf.values)}"


def _resolved(found: tuple[Any, ...]) -> list[str]:
    lines = []
    for each in found:
        scan = each.scan
        if scan is None:
            lines.append(f"reference {each.reference.name}" if each.reference else "a file")
            continue
        asked = {
            "as of": scan.as_of and scan.as_of.sql("duckdb"),
            "newest": scan.newest,
            "first": scan.top and scan.top.count,
            "with _seq": "" if scan.with_seq else None,
        }
        told = [f"{name} {value}".strip() for name, value in asked.items() if value is not None]
        lines.append(", ".join([f"{scan.source} is {scan.kind} {scan.name}", *told]))
    return lines


SHOWN: dict[str, Callable[[Any], list[str]]] = {
    "moments": lambda found: [moment.sql("duckdb") for moment in found.values()],
    "bounds": lambda found: [
        f"${b.name} is {'the newest' if b.upper else 'now'} of {b.table} - {b.before_us} us"
        for b in found
    ],
    "keys": lambda found: [" ".join(found)],
    "names": lambda found: [" ".join(found)],
    "seq_tables": lambda found: [" ".join(each.node.alias_or_name for each in found)],
    "whole_view": lambda found: [found.name],
    "requests": _requests,
    "tables": lambda found: [f"{each.source} is {each.name}" for each in found],
    "key_queries": lambda found: [f"{each.source} is {each.plan.sql}" for each in found],
    "partners": lambda found: [f"{each.source} is {each.plan.sql}" for each in found],
    "lookup": lambda found: [
        f"{' '.join(c.name for c in found.columns)}; newest first {found.is_newest_first}; "
        f"limit {found.limit}"
    ],
    "files": lambda found: [f"{each.function} {each.path.sql('duckdb')}" for each in found],
    "resolved": _resolved,
    "sessions": lambda found: [f"{n} is {call.table.name}" for n, call in found.items()],
    "bound_tables": lambda found: [
        f"{name} ({', '.join(column for column, _ in columns)})" for name, columns in found.items()
    ],
    "prefixes": lambda found: [" ".join(found)],
    "places": lambda found: [f"{each.number} is {each.table.name}" for each in found],
    "references": lambda found: [f"{name} is {table.name}" for name, table in found.items()],
    "spelling": lambda found: [" ".join(found.values())],
    "read": lambda found: [f"{found.function or 'rows'} of {found.table.name}"],
    "sides": lambda found: [
        f"{each.relation} is {each.table.name}, up to {each.reach_us} us later" for each in found
    ],
    "source": lambda found: [
        found.sql("duckdb") if isinstance(found, exp.Table) else "tagged windows"
    ],
    "before": lambda found: [each.name for each in found],
}


def found_by(before: QueryState, after: QueryState) -> list[str]:
    """The fields of a state that a pass has filled."""
    lines = []
    for each in fields(after):
        value = getattr(after, each.name)
        if each.name != "tree" and value and value != getattr(before, each.name):
            shown = SHOWN.get(each.name, lambda found: [str(found)])(value)
            lines += [f"{each.name}: {line}" for line in shown]
    return lines


# The tests.


def test_every_pass_has_a_file() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.sql")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_pass_says_in_one_line_what_it_does(name: str) -> None:
    (found,) = {each for passes in TUPLES.values() for each in passes if each.__name__ == name}
    assert found.__doc__ is not None
    assert "\n" not in found.__doc__


def run(pair: Pair, snapshot: Snapshot) -> tuple[str, QueryState, list[str]]:
    """The statement before the pass, the state after it, and what it found."""
    *others, last = pair.passes
    state = start(pair, snapshot)
    for each in others:
        state = each(state)
    text = state.tree.sql("duckdb")
    after = last(state)
    return text, after, found_by(state, after)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.name}: {pair.given}"[:70])
def test_pairs(pair: Pair, snapshot: Snapshot) -> None:
    if pair.error is not None:
        with pytest.raises(TidemillError) as raised:
            run(pair, snapshot)
        assert pair.error in f"{raised.value.message} {raised.value.detail}"
        return
    _, after, found = run(pair, snapshot)
    assert after.tree.sql("duckdb") == pair.expected
    assert found == list(pair.found)


@pytest.mark.parametrize("name", NAMES)
def test_pairs_show_something(name: str, snapshot: Snapshot) -> None:
    """Each pass changes a statement of its file, notes something of it, or refuses it."""
    for pair in (pair for pair in PAIRS if pair.name == name):
        if pair.error is not None:
            return
        text, after, found = run(pair, snapshot)
        if found or after.tree.sql("duckdb") != text:
            return
    pytest.fail("the pairs show nothing")


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.name}: {pair.given[:40]}")
def test_a_pass_is_left_out_only_where_it_would_do_nothing(pair: Pair, snapshot: Snapshot) -> None:
    for at, each in enumerate(pair.passes):
        if pair.error and at == len(pair.passes) - 1:
            break
        before = [run_passes(pair.passes[:at], start(pair, snapshot)) for _ in range(2)]
        maybe, surely = run_passes((each,), before[0]), each(before[1])
        assert maybe.tree.sql("duckdb") == surely.tree.sql("duckdb")
        assert found_by(before[0], maybe) == found_by(before[1], surely)
