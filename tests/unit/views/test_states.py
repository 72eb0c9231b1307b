"""States of digests: dense arrays or levels, which hold the same."""

from __future__ import annotations

import pyarrow as pa
import pytest
from views_kit import COUNTED, digests_of, make

from tidemill.digests.batch import Rows
from tidemill.digests.definition import Digest
from tidemill.engine import Database
from tidemill.views.states import family_of, make_states

ROWS = pa.table(
    {
        "ts": pa.array([0, 1, 2, 3], pa.timestamp("us")),
        "k": pa.array([1, 1, 2, None], pa.int32()),
        "v": [1.0, 2.0, None, 5.0],
    }
)


@pytest.fixture
def digest(db: Database) -> Digest:
    make(db, COUNTED)
    (found,) = digests_of(db)
    return found


def shown(db: Database, digest: Digest, may_be_dense: bool, *batches: pa.Table) -> list[object]:
    """The groups after some batches, through the SELECT that readers use."""
    kept = make_states([digest], db._duck, may_be_dense)
    for batch in batches:
        kept.absorb(Rows(batch))
    assert kept.kind.startswith("dense" if may_be_dense else "levels")
    sql = kept.select(digest.table_id, "state", lambda _: False)
    found, _ = db._duck.query(sql, {}, {"state": kept.table(digest.table_id)})
    assert kept.groups(digest.table_id) == found.num_rows
    assert kept.nbytes > 0
    assert kept.growth(1_000) > 0
    return sorted((list(row.values()) for row in found.to_pylist()), key=repr)


def test_both_hold_the_same_groups(db: Database, digest: Digest) -> None:
    dense = shown(db, digest, True, ROWS, ROWS.slice(0, 2))
    assert dense == shown(db, digest, False, ROWS, ROWS.slice(0, 2))
    assert len(dense) == 3


def test_partials_are_taken_in_like_rows(db: Database, digest: Digest) -> None:
    partials, _ = db._duck.query(digest.partial, {}, {"tm_rows": ROWS}, exact=True)
    for may_be_dense in (True, False):
        kept = make_states([digest], db._duck, may_be_dense)
        kept.absorb_partials(digest.table_id, partials)
        kept.absorb_partials(digest.table_id, partials)
        sql = kept.select(digest.table_id, "state", lambda _: False)
        found, _ = db._duck.query(sql, {}, {"state": kept.table(digest.table_id)})
        counts = {row[digest.columns[0].name]: list(row.values())[1] for row in found.to_pylist()}
        assert counts == {1: 4, 2: 2, None: 2}


def test_groups_of_arrays_stay_where_they_are(db: Database, digest: Digest) -> None:
    dense = make_states([digest], db._duck, True)
    dense.absorb(Rows(ROWS))
    assert dense.is_steady(digest.table_id)
    assert not make_states([digest], db._duck, False).is_steady(digest.table_id)


def test_digests_of_one_grouping_are_fed_together(db: Database) -> None:
    make(db, COUNTED, "a")
    make(db, "SELECT k, max(v) AS most FROM s GROUP BY k", "b")
    make(db, "SELECT k, v, count(*) AS n FROM s GROUP BY k, v", "c")
    make(db, "SELECT DISTINCT k FROM s", "d")
    a, b, c, d = (family_of(each) for each in digests_of(db))
    assert a is not None
    assert a == b
    assert a != c
    assert d is None


def test_a_family_is_held_by_one_state(db: Database) -> None:
    make(db, COUNTED, "a")
    make(db, "SELECT k, max(v) AS most FROM s GROUP BY k", "b")
    digests = digests_of(db)
    kept = make_states(digests, db._duck, True)
    kept.absorb(Rows(ROWS))
    assert [kept.groups(each.table_id) for each in digests] == [3, 3]
