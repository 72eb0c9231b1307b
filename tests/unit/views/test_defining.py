"""Definitions of views: what the catalog keeps, who depends on whom, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from views_kit import COUNTED, agrees, append, make, read

from tidemill.catalog.model import DIGEST, NewTable
from tidemill.engine import Database
from tidemill.errors import DefinitionError, DependencyError, TidemillError, UnsupportedError
from tidemill.types import Column, SqlType
from tidemill.views.defining import ViewDefinition, columns_of, dependents, named_tree, orphans


def definition(db: Database, name: str = "v") -> ViewDefinition:
    return ViewDefinition.of(db.catalog.snapshot().get(name))


def test_a_definition_comes_back_as_it_was_kept(db: Database) -> None:
    make(db, COUNTED)
    table = db.catalog.snapshot().get("v")
    found = definition(db)
    assert found.query == COUNTED
    assert found.tables == (db.catalog.snapshot().get("s").table_id,)
    assert len(found.digests) == 1
    assert ViewDefinition.of(replace(table, definition=found.text)) == found
    assert found.tree.sql("duckdb") == definition(db).tree.sql("duckdb")


def test_a_view_has_a_digest_of_its_stream(db: Database) -> None:
    make(db, COUNTED)
    snapshot = db.catalog.snapshot()
    (digest,) = snapshot.digests_of(snapshot.get("s").table_id)
    assert (digest.name, digest.kind) == ("v$digest0", DIGEST)
    assert orphans(snapshot) == []


def test_names_of_columns_are_the_views(db: Database) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW v (a, b, c) AS {COUNTED}")
    table = db.catalog.snapshot().get("v")
    assert [column.name for column in table.columns] == ["a", "b", "c"]
    assert '("a", "b", "c")' in named_tree(table).sql("duckdb")
    make(db, "SELECT a, b FROM v", "w")
    append(db, 0, 3)
    assert len(read(db, "w")) == 3


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("CREATE MATERIALIZED VIEW v (a) AS SELECT k, max(v) FROM s GROUP BY k", DefinitionError),
        (
            "CREATE MATERIALIZED VIEW v AS SELECT k, max(v) AS k FROM s GROUP BY s.k",
            DefinitionError,
        ),
        ("CREATE MATERIALIZED VIEW v AS SELECT random() AS x FROM s", UnsupportedError),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM tidemill.tables", UnsupportedError),
        ("CREATE MATERIALIZED VIEW v AS SELECT nothing FROM s", TidemillError),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM v", TidemillError),
    ],
)
def test_what_is_refused_leaves_nothing_behind(
    db: Database, text: str, error: type[TidemillError]
) -> None:
    with pytest.raises(error):
        db.sql(text)
    snapshot = db.catalog.snapshot()
    assert snapshot.find("v") is None
    assert snapshot.digests_of(snapshot.get("s").table_id) == ()


def test_who_depends_on_whom(db: Database) -> None:
    make(db, COUNTED)
    make(db, "SELECT max(n) AS m FROM v", "w")
    db.sql("CREATE STREAMING TABLE q AS SELECT k FROM s EVERY ROW")
    snapshot = db.catalog.snapshot()

    def names(name: str) -> list[str]:
        return [each.name for each in dependents(snapshot, snapshot.get(name).table_id)]

    assert names("s") == ["q", "v"]
    assert names("v") == ["w"]
    assert names("w") == []
    for text in ("DROP TABLE s", "DROP MATERIALIZED VIEW v"):
        with pytest.raises(DependencyError):
            db.sql(text)


def test_dropping_a_view_drops_its_digests(db: Database) -> None:
    make(db, COUNTED)
    db.sql("DROP MATERIALIZED VIEW v")
    snapshot = db.catalog.snapshot()
    assert snapshot.digests_of(snapshot.get("s").table_id) == ()
    db.sql("DROP TABLE s")


def test_or_replace_gives_another_query(db: Database) -> None:
    make(db, COUNTED)
    append(db, 0, 9)
    read(db)
    other = "SELECT k, max(v) AS most FROM s GROUP BY k"
    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {other}")
    db.sql("REFRESH MATERIALIZED VIEW v")
    assert agrees(db, other)
    snapshot = db.catalog.snapshot()
    assert [each.name for each in snapshot.digests_of(snapshot.get("s").table_id)] == ["v$digest0"]


def test_digests_that_a_crash_left_are_found(db: Database) -> None:
    stream = db.catalog.snapshot().get("s")
    columns = (Column("k0", SqlType("INTEGER")),)
    new = NewTable("v$digest0", DIGEST, columns, definition="{}", source_id=stream.table_id)
    with db.catalog.transaction() as change:
        change.create_table(new)
    assert [each.name for each in orphans(db.catalog.snapshot())] == ["v$digest0"]


def test_columns_of_names_and_types() -> None:
    assert columns_of(["a"], ["DECIMAL(9,2)"]) == (Column("a", SqlType.parse("DECIMAL(9,2)")),)
