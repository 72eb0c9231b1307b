"""What the application answered, and how long each answer took: between the driver and the judge.

The driver hands over what it reads with the moment of reading; here each answer gets its ``emit``
from the moment at which its second of the input arrived, and the application's three tables become
the four of the benchmark (``fields``).
"""

from __future__ import annotations

from dataclasses import fields as names_of
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.linear_road.fields import (
    ACCIDENTS,
    BALANCES,
    EXIT_LANE,
    EXPENDITURES,
    TOLLS,
    Answers,
)

_KINDS = tuple(field.name for field in names_of(Answers))
_SCHEMAS = dict(zip(_KINDS, (TOLLS, ACCIDENTS, BALANCES, EXPENDITURES), strict=True))


class Deliveries:
    """Answers as they come; ``arrivals`` holds the moment of every second from ``first`` on."""

    def __init__(self, first: int, arrivals: npt.NDArray[np.float64]) -> None:
        self._first = first
        self._arrivals = arrivals
        self._pieces: dict[str, list[pa.Table]] = {kind: [] for kind in _KINDS}
        self.rows = 0
        self.newest = first  # second that was answered
        self.slowest_s = 0.0  # of the last take

    def take(self, found: dict[str, pa.Table], moment: float) -> None:
        """Note answers that were there at a moment, as the application's reader gives them."""
        if found:
            self.slowest_s = 0.0
        for name, answers in found.items():
            self.rows += answers.num_rows
            emitted = self._with_emit(answers, moment)
            if name == "entries":
                emitted = emitted.filter(pc.not_equal(emitted.column("lane"), EXIT_LANE))
                self._keep("tolls", emitted)
                warned = emitted.filter(pc.is_valid(emitted.column("accident")))
                self._keep("accidents", warned.append_column("seg", warned.column("accident")))
            elif name == "balances":  # the application answers as of the second before
                before = pc.subtract(emitted.column("time"), 1)
                self._keep("balances", emitted.append_column("result_time", before))
            else:
                self._keep("expenditures", emitted)

    def answers(self) -> Answers:
        """Everything so far."""
        tables = {}
        for kind, schema in _SCHEMAS.items():
            tables[kind] = pa.concat_tables([schema.empty_table(), *self._pieces[kind]])
        return Answers(**tables)

    def _with_emit(self, answers: pa.Table, moment: float) -> pa.Table:
        times = answers.column("time").to_numpy()
        at = times - self._first
        known = (at >= 0) & (at < len(self._arrivals))
        # An answer to what was never asked takes no time: the judge will find it too much.
        arrived = np.where(known, self._arrivals[np.where(known, at, 0)], moment)
        self.newest = max(self.newest, int(times.max()))
        self.slowest_s = max(self.slowest_s, float((moment - arrived).max()))
        return answers.append_column("emit", pa.array(times + (moment - arrived)))

    def _keep(self, kind: str, answers: pa.Table) -> None:
        schema = _SCHEMAS[kind]
        if answers.num_rows:
            self._pieces[kind].append(answers.select(schema.names).cast(schema))


def write_answers(folder: Path, answers: Answers) -> None:
    """Lay answers down in a folder."""
    folder.mkdir()
    for kind in _KINDS:
        table = getattr(answers, kind)
        with (
            pa.OSFile(str(folder / f"{kind}.arrow"), "wb") as file,
            pa.ipc.new_file(file, table.schema) as writer,
        ):
            writer.write_table(table)


def read_answers(folder: Path) -> Answers:
    """What ``write_answers`` laid down."""
    tables = {}
    for kind in _KINDS:
        with pa.memory_map(str(folder / f"{kind}.arrow")) as file:
            tables[kind] = pa.ipc.open_file(file).read_all()
    return Answers(**tables)


def numbered(answers: Answers, numbers: range, *, outside: bool = False) -> Answers:
    """The answers to cars and queries with these numbers, or with all others."""

    def chosen(table: pa.Table) -> pa.Table:
        number = table.column("vid" if "vid" in table.column_names else "qid").to_numpy()
        inside = (number >= numbers.start) & (number < numbers.stop)
        return table.filter(pa.array(inside != outside))

    return Answers(**{kind: chosen(getattr(answers, kind)) for kind in _KINDS})
