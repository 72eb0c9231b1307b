"""What was delivered beside what the input calls for: missing, extra, wrong and late answers.

The last step of a run: the validator says what was called for, the driver hands over what it got.
An answer belongs to what called for it: a notification to its vehicle and second, a query's answer
to its query. Of several for the same one the first counts and the others are extra. An answer that
is there is wrong if a value differs or if it was delivered before what called for it, else late if
it took longer than five seconds, else right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.linear_road.fields import ACCIDENTS, BALANCES, EXPENDITURES, TOLLS, Answers
from benchmarks.linear_road.validator import BALANCE_AGE_SECONDS, Expected
from tidemill.errors import DefinitionError

LATE_SECONDS = 5.0
EXAMPLES_MAX = 5
Integers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Kind:
    """The verdict on one kind of answer."""

    name: str
    expected: int
    delivered: int
    right: int
    missing: int
    extra: int
    wrong: int
    late: int
    mean_seconds: float  # from the trigger to the delivery, of the answers that belong to one
    max_seconds: float
    examples: tuple[str, ...]  # the first few of each fault

    @property
    def ok(self) -> bool:
        return self.right == self.expected == self.delivered

    def __str__(self) -> str:
        line = (
            f"{self.name}: {self.right:,} of {self.expected:,} right, {self.missing:,} missing, "
            f"{self.extra:,} extra, {self.wrong:,} wrong, {self.late:,} late; "
            f"{self.mean_seconds:.3f} s on average, {self.max_seconds:.3f} s at most"
        )
        return "\n".join([line, *(f"  {example}" for example in self.examples)])


@dataclass(frozen=True)
class Verdict:
    """The verdict on a run."""

    kinds: tuple[Kind, ...]

    @property
    def ok(self) -> bool:
        """Every answer right and in time, and no other."""
        return all(kind.ok for kind in self.kinds)

    def __str__(self) -> str:
        return "\n".join(map(str, self.kinds))


def compare(expected: Expected, answers: Answers, late_seconds: float = LATE_SECONDS) -> Verdict:
    """The verdict on everything that was delivered."""
    return Verdict(
        (
            _notifications(
                _columns(expected.tolls, ("vid", "time", "lav", "toll")),
                _Delivered("toll notifications", answers.tolls, TOLLS),
                late_seconds,
            ),
            _notifications(
                _columns(expected.accidents, ("vid", "time", "seg")),
                _Delivered("accident notifications", answers.accidents, ACCIDENTS),
                late_seconds,
            ),
            _balances(expected, answers.balances, late_seconds),
            _expenditures(expected, answers.expenditures, late_seconds),
        )
    )


def _notifications(due: dict[str, Integers], table: _Delivered, late_seconds: float) -> Kind:
    """What a vehicle is told about a second of its own."""
    wanted, keys = _pair(due["vid"], due["time"]), _pair(table["vid"], table["time"])
    return _judge(table, wanted, keys, due, late_seconds)


def _balances(expected: Expected, got: pa.Table, late_seconds: float) -> Kind:
    """A balance may be that of any second of the last minute: the one that it names (R8)."""
    table = _Delivered("account balances", got, BALANCES)
    pairs = zip(table["qid"].tolist()[::-1], table["result_time"].tolist()[::-1], strict=True)
    named = dict(pairs)  # from the end, so that of several answers the first one's second stays
    rows = []
    for qid, (time, vid) in expected.balances.items():
        at = named.get(qid, time)
        if not time - BALANCE_AGE_SECONDS <= at <= time:
            at = time  # too old, or not yet: the row differs from the one expected here
        rows.append((qid, time, at, expected.balance(vid, at)))
    due = _columns(rows, ("qid", "time", "result_time", "balance"))
    return _judge(table, due["qid"], table["qid"], due, late_seconds)


def _expenditures(expected: Expected, got: pa.Table, late_seconds: float) -> Kind:
    rows = [(qid, time, toll) for qid, (time, toll) in expected.expenditures.items()]
    due = _columns(rows, ("qid", "time", "expenditure"))
    table = _Delivered("daily expenditures", got, EXPENDITURES)
    return _judge(table, due["qid"], table["qid"], due, late_seconds)


class _Delivered:
    """One table of answers, checked to have the columns it should have and no NULL."""

    def __init__(self, name: str, table: pa.Table, schema: pa.Schema) -> None:
        self.name = name
        self.rows = table.num_rows
        missing = [column for column in schema.names if column not in table.column_names]
        if missing:
            raise DefinitionError(
                f"the table of {name} lacks {', '.join(missing)}",
                hint=f"its columns are {', '.join(schema.names)}",
            )
        holed = [column for column in schema.names if table.column(column).null_count]
        if holed:
            raise DefinitionError(f"the table of {name} has NULLs in {', '.join(holed)}")
        self.emit = table.column("emit").to_numpy().astype(np.float64)
        self._columns: dict[str, Integers] = {
            column: table.column(column).to_numpy().astype(np.int64)
            for column in schema.names
            if column != "emit"
        }

    def __getitem__(self, column: str) -> Integers:
        return self._columns[column]

    def describe(self, row: int) -> str:
        values = [f"{name} {values[row]}" for name, values in self._columns.items()]
        return f"{', '.join(values)}, emit {self.emit[row]:.3f}"


def _judge(
    table: _Delivered,
    due_keys: Integers,
    keys: Integers,
    due: dict[str, Integers],
    late_seconds: float,
) -> Kind:
    _, firsts = np.unique(keys, return_index=True)
    first = np.zeros(len(keys), bool)
    first[firsts] = True
    order = np.argsort(due_keys)
    if len(order):
        at = order[np.searchsorted(due_keys, keys, sorter=order).clip(max=len(order) - 1)]
        belongs = first & (due_keys[at] == keys)
    else:
        at, belongs = np.zeros(len(keys), np.int64), np.zeros(len(keys), bool)
    rows, wanted = np.flatnonzero(belongs), at[belongs]
    seconds = table.emit[rows] - table["time"][rows]
    wrong = seconds < 0
    for name, values in due.items():
        wrong |= table[name][rows] != values[wanted]
    late = ~wrong & (seconds > late_seconds)
    answered = np.zeros(len(due_keys), bool)
    answered[wanted] = True
    missing, extra = np.flatnonzero(~answered), np.flatnonzero(~belongs)
    return Kind(
        name=table.name,
        expected=len(due_keys),
        delivered=table.rows,
        right=int((~wrong & ~late).sum()),
        missing=len(missing),
        extra=len(extra),
        wrong=int(wrong.sum()),
        late=int(late.sum()),
        mean_seconds=float(seconds.mean()) if len(seconds) else 0.0,
        max_seconds=float(seconds.max()) if len(seconds) else 0.0,
        examples=(
            *(f"missing: {_describe(due, row)}" for row in missing[:EXAMPLES_MAX]),
            *(f"extra: {table.describe(row)}" for row in extra[:EXAMPLES_MAX]),
            *(
                f"wrong: {table.describe(rows[row])}; expected {_describe(due, wanted[row])}"
                for row in np.flatnonzero(wrong)[:EXAMPLES_MAX]
            ),
            *(
                f"late by {seconds[row] - late_seconds:.3f} s: {table.describe(rows[row])}"
                for row in np.flatnonzero(late)[:EXAMPLES_MAX]
            ),
        ),
    )


def _columns(rows: Sequence[tuple[int, ...]], names: tuple[str, ...]) -> dict[str, Integers]:
    cells = np.array(rows, np.int64).reshape(len(rows), len(names))
    return {name: cells[:, index] for index, name in enumerate(names)}


def _pair(one: Integers, two: Integers) -> Integers:
    return one << 32 | two


def _describe(due: dict[str, Integers], row: int) -> str:
    return ", ".join(f"{name} {values[row]}" for name, values in due.items())
