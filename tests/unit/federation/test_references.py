"""Reference tables in DuckDB's storage: made, changed in turns, counted, cleaned up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from catalog_tables import reference
from warehouses import open_inline, quiet

from tidemill.errors import CatalogError, TidemillError
from tidemill.federation.duck import Duck
from tidemill.federation.references import References, physical_name, place_of
from tidemill.types import Column, SqlType

CARS = replace(reference(7, "cars", {"k": "INTEGER", "label": "VARCHAR"}), primary_key=("k",))


@pytest.fixture
def duck(tmp_path: Path) -> Iterator[Duck]:
    with quiet(), open_inline(tmp_path / "w") as db:
        yield db._duck


@pytest.fixture
def references(duck: Duck) -> References:
    made = References(duck)
    made.create(CARS)
    return made


def rows(duck: Duck) -> list[tuple[object, ...]]:
    return sorted(duck.execute(f"SELECT * FROM {place_of(7)}"))


def test_a_table_has_its_columns_and_its_key(duck: Duck, references: References) -> None:
    references.write(f"INSERT INTO {place_of(7)} VALUES (1, 'one')")
    with pytest.raises(TidemillError):
        references.write(f"INSERT INTO {place_of(7)} VALUES (1, 'again')")
    assert rows(duck) == [(1, "one")]
    assert references.row_count(7) == 1


def test_defaults_and_not_null(duck: Duck) -> None:
    columns = (
        Column("a", SqlType("INTEGER"), False),
        Column("b", SqlType("INTEGER"), default="40 + 2"),
    )
    made = References(duck)
    made.create(replace(CARS, columns=columns, primary_key=(), constraints=("CHECK (a > 0)",)))
    made.write(f"INSERT INTO {place_of(7)} (a) VALUES (5)")
    assert rows(duck) == [(5, 42)]
    for values in ("(NULL)", "(-1)"):
        with pytest.raises(TidemillError):
            made.write(f"INSERT INTO {place_of(7)} (a) VALUES {values}")


def test_changes_are_counted_and_odd_while_one_is_made(
    duck: Duck, references: References, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    before = references.changes
    monkeypatch.setattr(duck.reference_log, "record", lambda: seen.append(references.changes))
    references.write(f"INSERT INTO {place_of(7)} VALUES (1, 'one')")
    assert (seen, references.changes) == ([before + 1], before + 2)


def test_a_change_that_fails_is_counted_too(references: References) -> None:
    before = references.changes
    with pytest.raises(TidemillError):
        references.write("INSERT INTO nothing VALUES (1)")
    assert references.changes == before + 2


def test_rows_of_arrow_and_values_go_along(duck: Duck, references: References) -> None:
    given = pa.table({"k": [3, 4], "label": ["a", "b"]})
    references.write(
        f"INSERT INTO {place_of(7)} SELECT * FROM given WHERE k > $low",
        {"low": 3},
        {"given": given},
    )
    assert rows(duck) == [(4, "b")]


def test_what_the_catalog_does_not_name_is_dropped(duck: Duck, references: References) -> None:
    references.create(replace(CARS, table_id=8, name="other"))
    references.clean([CARS])
    left = duck.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'reference'")
    assert left == [(physical_name(7),)]


def test_rows_that_are_missing_are_an_error(references: References) -> None:
    with pytest.raises(CatalogError, match='"other" are missing'):
        references.clean([CARS, replace(CARS, table_id=9, name="other")])


def test_dropped_is_gone_and_twice_is_no_error(references: References) -> None:
    references.drop(7)
    references.drop(7)
    with pytest.raises(TidemillError):
        references.row_count(7)


def test_check_reads_every_row(references: References) -> None:
    references.write(f"INSERT INTO {place_of(7)} VALUES (1, 'one')")
    references.check([CARS])
    with pytest.raises(TidemillError):
        references.check([replace(CARS, table_id=12)])
