"""VALUES whose columns have no common type: every value in its own type, many rows at a time.

DuckDB gives a column of VALUES one type, which a text and a time do not have. Such rows are taken
one by one. A statement of its own for each row would cost a hundred times what its values do, so
the values of many rows are asked for as one long row. If DuckDB refuses that, the rows are halved
until the first that it refuses is alone: its error is the statement's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from tidemill.accept.cells import Cells, accept_cells
from tidemill.accept.rows import Acceptor, Checked
from tidemill.errors import QueryError, TidemillError

VALUES_MAX = 1_000  # of one query

Run = Callable[[exp.Expression], pa.Table]


@dataclass(frozen=True)
class RowByRow:
    """Rows for the named columns of a table; ``run`` evaluates a body of VALUES, and
    ``wrong_width`` is the error of a row that has so many values."""

    acceptor: Acceptor
    names: Sequence[str]
    run: Run
    wrong_width: Callable[[int], TidemillError]

    def check(self, rows: Sequence[exp.Expression]) -> Checked:
        width = max(len(row.expressions) for row in rows)
        step = max(VALUES_MAX // max(width, 1), 1)
        return _joined(
            [self._check(rows[at : at + step], at + 1) for at in range(0, len(rows), step)]
        )

    def _check(self, rows: Sequence[exp.Expression], first_row: int) -> Checked:
        """Rows that are few enough for one query; ``first_row`` is the number of the first."""
        if len(rows) == 1:
            return self._check_one(rows[0], first_row)
        width = len(self.names)
        if all(len(row.expressions) == width for row in rows):
            values = [value.copy() for row in rows for value in row.expressions]
            try:
                answer = self.run(exp.Values(expressions=[exp.Tuple(expressions=values)]))
            except QueryError:
                answer = pa.table({})
            if answer.num_rows == 1 and answer.num_columns == len(values):
                found = [column.combine_chunks() for column in answer.columns]
                columns = [Cells.of(found[at::width]) for at in range(width)]
                return accept_cells(self.acceptor, self.names, columns, len(rows), first_row)
        middle = len(rows) // 2
        left = self._check(rows[:middle], first_row)
        return _joined([left, self._check(rows[middle:], first_row + middle)])

    def _check_one(self, row: exp.Expression, number: int) -> Checked:
        answer = self.run(exp.Values(expressions=[row.copy()]))
        if answer.num_columns != len(self.names):
            raise self.wrong_width(answer.num_columns)
        return self.acceptor.accept(answer.rename_columns(list(self.names)), number)


def _joined(parts: Sequence[Checked]) -> Checked:
    return Checked(
        tuple(batch for part in parts for batch in part.batches),
        tuple(reject for part in parts for reject in part.rejects),
    )
