"""Rows whose values have no common type: few queries if all is well, else the first error."""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from sqlglot import exp

from tidemill.errors import QueryError, RowsRejectedError, SqlSyntaxError
from tidemill.sql.tokens import DIALECT
from tidemill.statements.row_values import VALUES_MAX, RowByRow

sys.path.insert(0, str(Path(__file__).parent / "accept"))
from accept_kit import acceptor, make_column, make_table

TABLE = make_table(make_column("v", "VARCHAR"))
duck = duckdb.connect(":memory:")


class Checker:
    def __init__(self) -> None:
        self.queries = 0
        self.found = RowByRow(acceptor(TABLE), ["ts", "v"], self._run, self._wrong)

    def _run(self, body: exp.Expression) -> pa.Table:
        self.queries += 1
        try:
            return duck.sql(body.sql("duckdb")).to_arrow_table()
        except duckdb.Error as error:
            raise QueryError(str(error)) from error

    def _wrong(self, width: int) -> SqlSyntaxError:
        return SqlSyntaxError(f"{width} values")

    def values(self, *rows: str) -> list[object]:
        text = f"VALUES {', '.join(f'({row})' for row in rows)}"
        (tree,) = DIALECT.parser().parse(DIALECT.tokenize(text), text)
        assert isinstance(tree, exp.Values)
        checked = self.found.check(tree.expressions)
        return [row["v"] for batch in checked.batches for row in batch.to_pylist()]


MOMENT = "TIMESTAMP '2024-01-01'"


def test_many_rows_are_one_query() -> None:
    checker = Checker()
    rows = [f"{MOMENT}, {at}" if at % 2 else f"'2024-01-01', 'x{at}'" for at in range(400)]
    wanted = [str(at) if at % 2 else f"x{at}" for at in range(400)]
    assert checker.values(*rows) == wanted
    assert checker.queries == 1
    more = rows * 2
    assert checker.values(*more) == wanted * 2
    assert checker.queries == 1 + -(-len(more) * 2 // VALUES_MAX)


def test_the_first_error_in_the_order_of_the_rows() -> None:
    checker = Checker()
    good = [f"{MOMENT}, {at}" for at in range(100)]
    with pytest.raises(QueryError, match="'abc'"):
        checker.values(*good, f"{MOMENT}, 'abc'::INT", f"{MOMENT}, 'def'::INT", *good)
    assert checker.queries < 30
    with pytest.raises(RowsRejectedError) as raised:  # it does not fit, which is known before
        checker.values(*good, "'no time', 1", f"{MOMENT}, 'def'::INT")
    assert raised.value.detail is not None
    assert raised.value.detail.startswith("row 101: ")
    with pytest.raises(SqlSyntaxError, match="3 values"):
        checker.values(*good, f"{MOMENT}, 1, 2", f"{MOMENT}, 'abc'::INT")
    with pytest.raises(QueryError, match="'abc'"):
        checker.values(*good, f"{MOMENT}, 'abc'::INT", f"{MOMENT}, 1, 2")
