"""SET, RESET and SHOW of session variables."""

from __future__ import annotations

import pytest

from tidemill.errors import SqlSyntaxError, TidemillError, UnsupportedError
from tidemill.sql import statements as st
from tidemill.sql.parser import parse, parse_one


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("SET route = 'spark_sql'", "route", "spark_sql"),
        ("SET Route = auto", "route", "auto"),
        ("SET route TO local", "route", "local"),
        ("set session route = 'x;''y' -- z", "route", "x;'y"),
        ("SET session = 1", "session", "1"),
        ("SET local = 1", "local", "1"),
        ('SET "a b" = -1.5', "a b", "-1.5"),
        ("SET a TO true", "a", "true"),
        ('SET a = "Quoted"', "a", "Quoted"),
        ("SET a = $$it's$$", "a", "it's"),
        ("SET a = ''", "a", ""),
        ("SET route = DEFAULT", "route", None),
        ("SET route TO default", "route", None),
        ("SET a = 'default'", "a", "default"),
        ("RESET route", "route", None),
        ("RESET SESSION route", "route", None),
        ('RESET "ALL"', "all", None),
        ("RESET ALL", None, None),
    ],
)
def test_set(text: str, name: str | None, value: str | None) -> None:
    made = parse_one(text)
    assert isinstance(made, st.SetVariable)
    assert (made.name, made.value) == (name, value)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("SHOW route", "route"),
        ("SHOW ROUTE", "route"),
        ("SHOW ALL", None),
        ('SHOW "tables"', "tables"),
        ('SHOW "a;b"', "a;b"),
    ],
)
def test_show(text: str, name: str | None) -> None:
    made = parse_one(text)
    assert isinstance(made, st.ShowVariable)
    assert made.name == name


@pytest.mark.parametrize(
    ("text", "kind", "place", "hint"),
    [
        ("SET LOCAL route = 'x'", UnsupportedError, (1, 5, "LOCAL"), "transaction"),
        ("SET GLOBAL route TO x", UnsupportedError, (1, 5, "GLOBAL"), "open("),
        ("SET VARIABLE a = 1", UnsupportedError, (1, 5, "VARIABLE"), "parameters"),
        ("SET", SqlSyntaxError, (1, 4, ""), ""),
        ("SET route", SqlSyntaxError, (1, 10, ""), ""),
        ("SET route 'x'", SqlSyntaxError, (1, 11, "'x'"), ""),
        ("SET route =", SqlSyntaxError, (1, 12, ""), "SET route"),
        ("SET route = (SELECT 1)", SqlSyntaxError, (1, 13, "("), "string"),
        ("SET route = - x", SqlSyntaxError, (1, 15, "x"), "number"),
        ("SET route = a, b", SqlSyntaxError, (1, 14, ","), ";"),
        ("SET a.b = 1", SqlSyntaxError, (1, 6, "."), ""),
        ("SET to = 1", SqlSyntaxError, (1, 5, "to"), "quotes"),
        ("SET 'a' = 1", SqlSyntaxError, (1, 5, "'a'"), "double quotes"),
        ("RESET", SqlSyntaxError, (1, 6, ""), ""),
        ("SELECT 1;\n RESET route x", SqlSyntaxError, (2, 14, "x"), ";"),
        ("SHOW route x", SqlSyntaxError, (1, 12, "x"), ";"),
        ("SHOW 5", SqlSyntaxError, (1, 6, "5"), ""),
    ],
)
def test_refused(
    text: str, kind: type[TidemillError], place: tuple[int, int, str], hint: str
) -> None:
    with pytest.raises(kind) as caught:
        parse(text)
    error = caught.value
    assert error.position is not None
    assert (error.position.line, error.position.column, error.position.words) == place
    assert error.hint
    assert hint in error.hint
