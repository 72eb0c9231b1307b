"""Templates: SQL that is cut at its scans, and nowhere else."""

from __future__ import annotations

import pickle

import sqlglot

from tidemill.federation.template import Template

SCANS = {"tm_scan_0", "tm_scan_1"}


def template(sql: str) -> Template:
    return Template.of(sqlglot.parse_one(sql, dialect="duckdb"), SCANS)


def test_a_query_is_cut_where_it_reads_scans() -> None:
    made = template('SELECT * FROM "tm_scan_0" AS a JOIN "tm_scan_1" AS b USING (k)')
    assert made.scans == ("tm_scan_0", "tm_scan_1")
    assert made.texts == ("SELECT * FROM ", " AS a JOIN ", " AS b USING (k)")


def test_unfilled_it_reads_scans_by_their_names() -> None:
    text = 'SELECT * FROM "tm_scan_0" AS a'
    assert template(text).text == text


def test_expressions_take_the_places_of_scans() -> None:
    made = template('SELECT * FROM "tm_scan_0" AS a, "tm_scan_1" AS b, "tm_scan_0" AS c')
    assert made.filled({"tm_scan_0": "(SELECT 1)"}) == (
        'SELECT * FROM (SELECT 1) AS a, "tm_scan_1" AS b, (SELECT 1) AS c'
    )


def test_what_looks_like_a_scan_is_left_alone() -> None:
    """A literal, an alias, a column, a table of another database."""
    text = (
        """SELECT '"tm_scan_0"', "tm_scan_0"."x" AS "tm_scan_1" FROM "tm_scan_0" AS "tm_scan_0" """
        """JOIN main."tm_scan_1" ON true"""
    )
    made = template(text)
    assert made.scans == ("tm_scan_0",)
    assert made.filled({"tm_scan_0": "(F)", "tm_scan_1": "(G)"}) == (
        """SELECT '"tm_scan_0"', "tm_scan_0"."x" AS "tm_scan_1" FROM (F) AS "tm_scan_0" """
        """JOIN main."tm_scan_1" ON TRUE"""
    )


def test_an_expression_is_not_searched_for_scans() -> None:
    made = template('SELECT * FROM "tm_scan_0" AS a, "tm_scan_1" AS b')
    filled = made.filled({"tm_scan_0": '(SELECT * FROM "tm_scan_1")', "tm_scan_1": "(F)"})
    assert filled == 'SELECT * FROM (SELECT * FROM "tm_scan_1") AS a, (F) AS b'


def test_a_tree_without_scans_is_one_text() -> None:
    assert template("SELECT 1") == Template(("SELECT 1",))


def test_a_nul_in_a_literal_is_no_cut() -> None:
    made = template(r"""SELECT e'a\x00b' FROM "tm_scan_0" AS a""")
    assert made.scans == ("tm_scan_0",)


def test_the_tree_stays_as_it_is() -> None:
    tree = sqlglot.parse_one('SELECT * FROM "tm_scan_0" AS a', dialect="duckdb")
    Template.of(tree, SCANS)
    assert tree.sql(dialect="duckdb") == 'SELECT * FROM "tm_scan_0" AS a'


def test_it_travels() -> None:
    made = template('SELECT * FROM "tm_scan_0" AS a')
    assert pickle.loads(pickle.dumps(made)).text == made.text
