"""Plans: each name is found, or is an error; scans know what is asked of them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from catalog_tables import reference, snapshot_of, stream, view

from tidemill.errors import TidemillError, UnknownNameError, UnsupportedError
from tidemill.federation.plan import FRAME, HOT, LATE, REJECTED, SYSTEM, VIEW, Frames, Plan
from tidemill.federation.planner import make_plan
from tidemill.sql.parser import parse_one
from tidemill.sql.statements import Query

STREAM = stream(1, "s", {"ts": "TIMESTAMP", "k": "INTEGER", "v": "DOUBLE"}, indexes={"k": "hash"})
OTHER = stream(2, "other", {"ts": "TIMESTAMP", "k": "INTEGER"})
CARS = reference(3, "cars", {"k": "INTEGER", "label": "VARCHAR"})
SUMS = view(4, "sums", {"k": "INTEGER", "n": "BIGINT"})
SNAPSHOT = snapshot_of(STREAM, OTHER, CARS, SUMS)


def plan(text: str, frames: Frames | None = None) -> Plan:
    statement = parse_one(text)
    assert isinstance(statement, Query)
    return make_plan(statement.body, SNAPSHOT, None, frames)


def scans(text: str) -> list[tuple[str, str]]:
    return [(scan.kind, scan.name) for scan in plan(text).scans]


# -- names


def test_every_kind_of_table_is_found() -> None:
    assert scans("SELECT * FROM S, sums, tidemill.tables") == [
        (HOT, "s"),
        (VIEW, "sums"),
        (SYSTEM, "tables"),
    ]
    assert scans('FROM "s$late" SELECT *') == [(LATE, "s$late")]
    assert scans('FROM "s$rejected" SELECT *') == [(REJECTED, "s$rejected")]
    assert scans("SELECT * FROM information_schema.tables") == [
        (SYSTEM, "information_schema.tables")
    ]


def test_a_reference_table_is_read_where_duckdb_has_it() -> None:
    found = plan("SELECT label FROM cars")
    assert found.scans == ()
    assert 'reference.main."t3"' in found.sql


def test_a_table_twice_is_two_scans_under_names_of_their_own() -> None:
    found = plan("SELECT a.k FROM s a JOIN s b ON a.k = b.k")
    assert [scan.alias for scan in found.scans] == ["a", "b"]
    assert len({scan.source for scan in found.scans}) == 2


def test_a_with_query_hides_a_table_of_its_name() -> None:
    assert scans("WITH s AS (SELECT 1 AS one) SELECT * FROM s") == []
    assert scans("WITH s AS (SELECT k FROM s) SELECT * FROM s") == [(HOT, "s")]
    assert scans("WITH s AS (SELECT 1 AS one) SELECT * FROM main.s") == [(HOT, "s")]
    assert scans("WITH q AS (SELECT 1 AS a) SELECT (SELECT max(k) FROM other) FROM q") == [
        (HOT, "other")
    ]


def test_a_name_that_nothing_has_is_an_error_with_a_hint_and_a_place() -> None:
    with pytest.raises(UnknownNameError) as raised:
        plan("SELECT *\nFROM carz")
    assert 'table "carz" does not exist' in str(raised.value)
    assert raised.value.hint is not None
    assert "cars" in raised.value.hint
    assert raised.value.position is not None
    assert raised.value.position.line == 2


@pytest.mark.parametrize(
    "text",
    [
        'SELECT * FROM "cars$late"',
        "SELECT * FROM tidemill.nothing",
        "WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a",
        "SELECT * FROM s WHERE k IN (SELECT k FROM missing)",
    ],
)
def test_names_that_mean_nothing(text: str) -> None:
    with pytest.raises(UnknownNameError):
        plan(text)


def test_frames_stand_in_where_the_catalog_has_no_table() -> None:
    frame = pa.table({"k": [1]})
    found = plan("SELECT * FROM given JOIN s USING (k)", {"given": frame, "s": frame})
    assert [(scan.kind, scan.name) for scan in found.scans] == [(FRAME, "given"), (HOT, "s")]
    assert found.scans[0].frame is frame


# -- what is asked of scans


def test_conjuncts_and_columns() -> None:
    (scan,) = plan("SELECT v FROM s WHERE k = 3 AND ts > '2024-01-01' AND v + 1 > 2").scans
    assert [(c.column, c.op) for c in scan.conjuncts] == [("k", "="), ("ts", ">")]
    assert scan.columns == {"v", "k", "ts"}
    assert not scan.with_seq


def test_the_hidden_column_is_given_only_if_it_is_named() -> None:
    (scan,) = plan("SELECT _seq, k FROM s").scans
    assert scan.with_seq
    (scan,) = plan("SELECT * FROM s").scans
    assert (scan.with_seq, scan.columns) == (False, None)


def test_the_newest_rows() -> None:
    (scan,) = plan("SELECT * FROM s ORDER BY ts DESC LIMIT 5 OFFSET 2").scans
    assert scan.newest == 7
    (scan,) = plan("SELECT * FROM s WHERE v > 1 ORDER BY ts DESC LIMIT 5").scans
    assert scan.newest is None


def test_keys_are_asked_for_first() -> None:
    found = plan("SELECT * FROM s WHERE k IN (SELECT k FROM cars WHERE label = 'x')")
    (query,) = found.key_queries
    assert "label" in query.plan.sql
    assert "label" not in found.sql


# -- parameters and now


def test_parameters_get_names_and_now_is_one_of_them() -> None:
    found = plan("SELECT $2, $1, now() FROM s WHERE k = $2")
    assert found.values([7, 8]) == dict(zip(found.names, (8, 7), strict=True))
    assert found.uses_now
    assert not plan("SELECT 1 FROM s").uses_now


def test_a_parameter_that_is_not_given_is_an_error() -> None:
    with pytest.raises(TidemillError):
        plan("SELECT $1 FROM s").values(None)


# -- the past


def test_a_stream_is_read_as_of_a_moment() -> None:
    text = "SELECT * FROM s FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-01'"
    (scan,) = plan(text).scans
    assert scan.as_of is not None
    assert plan(text).lookup is None


@pytest.mark.parametrize("table", ["cars", "sums"])
def test_other_tables_have_no_past(table: str) -> None:
    with pytest.raises(UnsupportedError, match="no past"):
        plan(f"SELECT * FROM {table} FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-01'")


# -- what the answer is like


def test_whole_views_and_single_rows() -> None:
    assert plan("SELECT * FROM sums").whole_view is SUMS
    assert plan("SELECT * FROM sums WHERE k = 1").whole_view is None
    assert plan("SELECT count(*), sum(v) FROM s").is_one_row
    assert not plan("SELECT k, count(*) FROM s GROUP BY k").is_one_row


def test_which_answers_may_grow() -> None:
    assert not plan("SELECT k FROM s").may_grow
    assert plan("SELECT s.k FROM s JOIN other o ON s.k = o.k").may_grow
    assert plan("SELECT unnest([1, 2]) FROM s").may_grow
    assert plan("SELECT label FROM cars").may_grow


def test_the_statement_that_was_given_stays_as_it_is() -> None:
    statement = parse_one("SELECT k FROM s WHERE k = $1 AND ts < now()")
    assert isinstance(statement, Query)
    before = statement.body.sql("duckdb")
    make_plan(statement.body, SNAPSHOT)
    assert statement.body.sql("duckdb") == before
