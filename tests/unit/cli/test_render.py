"""Results as text."""

from __future__ import annotations

import csv
import io
import json

import duckdb
import pyarrow as pa
import pytest

from tidemill.as_text import text_result
from tidemill.cli.render import collect, fit, form_of, records, render, table
from tidemill.result import Result


def result(query: str) -> Result:
    with duckdb.connect() as connection:
        relation = connection.sql(query)
        types = [str(kind) for kind in relation.types]
        return Result(relation.to_arrow_table(), types, "SELECT")


def text(
    query: str, style: str = "table", width: int | None = None, rows: int | None = None
) -> str:
    shown = text_result(result(query), form_of(style), rows)
    if style == "table":
        return "\n".join(table(shown, collect(shown), width=width))
    return "\n".join(render(shown, style))


def test_a_table_aligns_numbers_right_and_shows_null() -> None:
    assert text("SELECT 1 AS n, 'x' AS word UNION ALL SELECT 200, NULL ORDER BY n") == (
        "   n │ word\n"
        "─────┼──────\n"
        "   1 │ x\n"
        " 200 │ NULL"
    )  # fmt: skip


def test_no_rows_still_have_a_head() -> None:
    assert text("SELECT 1 AS a WHERE false") == " a\n───"


def test_values_look_as_in_duckdb() -> None:
    query = """SELECT TIMESTAMP '2024-01-01 00:00:00.5' AS a, DATE '2024-02-29' AS b,
        [1, NULL] AS c, {'x': 1} AS d, 1.50::DECIMAL(4, 2) AS e, true AS f, INTERVAL 90 MINUTE AS g,
        '\\xFF'::BLOB AS h, 0.1::DOUBLE AS i, MAP {'k': 2} AS j, TIME '10:11:12' AS k"""
    assert text(query).splitlines()[2].split(" │ ") == [
        " 2024-01-01 00:00:00.5", "2024-02-29", "[1, NULL]", "{'x': 1}", "1.50", "true",
        "01:30:00", "\\xFF", "0.1", "{k=2}", "10:11:12",
    ]  # fmt: skip


def test_wide_values_are_cut_to_the_terminal() -> None:
    lines = text("SELECT 1 AS n, repeat('x', 500) AS s, repeat('y', 500) AS t", width=60)
    assert max(len(line) for line in lines.splitlines()) <= 60
    assert "xxx…" in lines
    assert "yyy…" in lines


def test_wide_letters_count_twice() -> None:
    lines = text("SELECT repeat('界', 100) AS s", width=20).splitlines()
    assert lines[2] == " 界界界界界界界界 …"


def test_too_many_columns_are_left_out_in_the_middle() -> None:
    columns = ", ".join(f"'a long value' AS column_{number}" for number in range(40))
    lines = text(f"SELECT {columns}", width=80).splitlines()
    assert max(len(line) for line in lines) <= 80
    assert "…" in lines[0]
    assert lines[-1].endswith("more columns)")


@pytest.mark.parametrize("width", range(1, 60))
def test_any_terminal_gets_a_table(width: int) -> None:
    assert fit([5, 30, 3, 12], width)
    assert text("SELECT 1 AS n, 'many words' AS s, 'and more' AS t", width=width)


def test_a_row_limit_says_what_is_missing() -> None:
    lines = text("SELECT range AS n FROM range(1200)", rows=3).splitlines()
    assert len(lines) == 6
    assert lines[-1] == "(… 1,197 more rows)"


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in text("SELECT e'\\x1b[31m\\n\\tred' AS s")
    assert "\\x1b[31m\\n\\tred" in text("SELECT e'\\x1b[31m\\n\\tred' AS s")


def test_csv_can_be_read_back() -> None:
    lines = text("""SELECT 'a,b"c' AS x, NULL AS y, e'1\\n2' AS z""", "csv")
    assert list(csv.reader(io.StringIO(lines))) == [["x", "y", "z"], ['a,b"c', "", "1\n2"]]


def test_json_can_be_read_back() -> None:
    query = "SELECT 1 AS a, NULL AS b, 'it''s \"x\"' AS c, [1] AS d, {'k': 1.5} AS e"
    assert json.loads(text(query, "json")) == [
        {"a": 1, "b": None, "c": 'it\'s "x"', "d": [1], "e": {"k": 1.5}}
    ]
    assert json.loads(text("SELECT 1 AS a WHERE false", "json")) == []
    assert json.loads(text("SELECT 1 AS a, 2 AS A", "json")) == [{"a": 1, "A_1": 2}]


def test_many_rows_are_written_in_chunks() -> None:
    query = "SELECT range AS n FROM range(25000)"
    assert json.loads(text(query, "json"))[-1] == {"n": 24_999}
    assert text(query, "csv").splitlines()[-1] == "24999"


def test_markdown_escapes_its_bars() -> None:
    assert text("SELECT 1 AS n, 'a|b' AS s, NULL AS z", "markdown").splitlines() == [
        "| n | s | z |",
        "|--:|---|---|",
        "| 1 | a\\|b | NULL |",
    ]


def test_repeated_names_are_shown() -> None:
    assert text("SELECT 1 AS a, 2 AS a").splitlines()[0] == " a │ a"


def test_records_show_a_row_below_the_other() -> None:
    shown = text_result(result("SELECT 1 AS n, 'two\nlines' AS long_name, NULL AS x"), "text")
    assert "\n".join(records(shown, collect(shown))).splitlines()[1:] == [
        "n         │ 1",
        "long_name │ two",
        "          │ lines",
        "x         │ NULL",
    ]


def test_json_has_no_numbers_that_json_lacks() -> None:
    query = """SELECT 'nan'::DOUBLE AS a, 'inf'::FLOAT AS b, 1.5::DOUBLE AS c,
        ['-inf'::DOUBLE, 2, NULL] AS d, {'x': 'nan'::DOUBLE, 'y': [1.5::FLOAT, 'nan']} AS e,
        MAP {'k': 'nan'::DOUBLE} AS f, ['nan'::DOUBLE, 3]::DOUBLE[2] AS g, NULL::DOUBLE[] AS h
        UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, ['nan'::DOUBLE]"""

    def refuse(word: str) -> None:
        raise AssertionError(word)

    rows = json.loads(text(query, "json"), parse_constant=refuse)
    assert rows[0] == {
        "a": None, "b": None, "c": 1.5, "d": [None, 2.0, None], "e": {"x": None, "y": [1.5, None]},
        "f": {"k": None}, "g": [None, 3.0], "h": None,
    }  # fmt: skip
    assert rows[1]["h"] == [None]
    assert rows[1]["d"] is None


def test_json_of_slices_is_of_these_rows() -> None:
    """Chunks are slices; nested arrays of a slice start elsewhere."""
    lists = pa.array([[float(n), float("nan")] for n in range(100)])
    pairs = pa.array([{"x": float(n)} if n % 3 else None for n in range(100)])
    source = pa.table({"l": lists, "s": pairs}).slice(37, 5)
    shown = text_result(Result(source, ["DOUBLE[]", "STRUCT(x DOUBLE)"], ""), "json")
    rows = [json.loads(str(row)) for (row,) in shown.rows()]
    assert [row["l"] for row in rows] == [[float(n), None] for n in range(37, 42)]
    assert [row["s"] for row in rows] == [{"x": float(n)} if n % 3 else None for n in range(37, 42)]
