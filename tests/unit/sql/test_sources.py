"""CREATE SOURCE: its clauses in any order, the format from the name, and what is refused."""

from __future__ import annotations

import pytest

from tidemill.errors import DefinitionError, SqlSyntaxError, TidemillError
from tidemill.sql import statements as st
from tidemill.sql.parser import parse_one


def source(text: str) -> st.CreateSource:
    made = parse_one(text)
    assert isinstance(made, st.CreateSource)
    return made


def test_all_of_it() -> None:
    text = (
        'CREATE OR REPLACE SOURCE "S ""1""" FROM \'in/it\'\'s;/*.csv.gz\' FORMAT csv '
        'WITH (delimiter = \'|\', HEADER true, quote \'"\') INTO main."T u" (a, "b c") '
        "EVERY INTERVAL '10' SECOND"
    )
    made = source(text)
    assert (made.name, made.pattern, made.format) == ('S "1"', "in/it's;/*.csv.gz", "csv")
    assert made.options == {"delimiter": "|", "header": True, "quote": '"'}
    assert (made.table, made.columns, made.every_us) == ("T u", ("a", "b c"), 10_000_000)
    assert (made.or_replace, made.if_not_exists) == (True, False)
    assert made.text == text


def test_least_of_it() -> None:
    made = source("create source if not exists s from 'a.parquet' into t")
    assert (made.format, made.options, made.columns, made.every_us) == ("parquet", {}, None, None)
    assert (made.or_replace, made.if_not_exists) == (False, True)


def test_clauses_in_any_order() -> None:
    clauses = ["FORMAT ndjson", "WITH (a = 1)", "INTO t", "EVERY '1 minute'"]
    for first in range(len(clauses)):
        order = clauses[first:] + clauses[:first]
        made = source(f"CREATE SOURCE s FROM 'x' {' '.join(order)}")
        assert (made.format, made.options, made.table) == ("ndjson", {"a": 1}, "t")
        assert made.every_us == 60_000_000


@pytest.mark.parametrize(
    ("pattern", "clauses", "format_", "options"),
    [
        ("d/*.csv.gz", "", "csv", {}),
        ("d/*.ndjson.zst", "", "ndjson", {}),
        ("d/**/*.JSONL", "", "ndjson", {}),
        ("d/*.json", "", "json", {}),
        ("s3://b/d.x/*.parquet", "", "parquet", {}),
        ("https://h/p.csv?sig=a.b", "", "csv", {}),
        ("d/*.tsv", "", "csv", {"delimiter": "\t"}),
        ("d/*.tsv", "WITH (sep = ';')", "csv", {"sep": ";"}),
        ("d/*", "FORMAT 'Parquet'", "parquet", {}),
        ("d/*", "WITH (FORMAT csv)", "csv", {}),
        ("d/*", "WITH (FORMAT csv) FORMAT CSV", "csv", {}),
        ("d/*.csv", "FORMAT json", "json", {}),
    ],
)
def test_format(pattern: str, clauses: str, format_: str, options: dict[str, object]) -> None:
    made = source(f"CREATE SOURCE s FROM '{pattern}' {clauses} INTO t")
    assert (made.format, made.options) == (format_, options)


@pytest.mark.parametrize(
    ("every", "us"),
    [
        ("INTERVAL '10' SECOND", 10_000_000),
        ("INTERVAL 10 SECONDS", 10_000_000),
        ("INTERVAL '10 seconds'", 10_000_000),
        ("'1 hour 30 minutes'", 5_400_000_000),
        ("'00:00:05'", 5_000_000),
        ("5 minutes", 300_000_000),
        ("'250 ms'", 250_000),
        ("1.5 s", 1_500_000),
    ],
)
def test_every(every: str, us: int) -> None:
    assert source(f"CREATE SOURCE s FROM 'x.csv' INTO t EVERY {every}").every_us == us


START = "CREATE SOURCE s FROM 'x.csv' INTO t "


@pytest.mark.parametrize(
    ("text", "kind", "place", "hint"),
    [
        ("CREATE SOURCE", SqlSyntaxError, (1, 14, ""), ""),
        ("CREATE SOURCE 's' FROM 'x'", SqlSyntaxError, (1, 15, "'s'"), "double quotes"),
        ("CREATE SOURCE from FROM 'x'", SqlSyntaxError, (1, 15, "from"), "quotes"),
        ("CREATE SOURCE s FORM 'x.csv'", SqlSyntaxError, (1, 17, "FORM"), '"FROM"'),
        ("CREATE SOURCE s FROM x", SqlSyntaxError, (1, 22, "x"), "'…'"),
        ("CREATE SOURCE s FROM ' ' INTO t", SqlSyntaxError, (1, 22, "' '"), "folder"),
        ("CREATE SOURCE s FROM 'x.csv'", SqlSyntaxError, (1, 29, ""), "INTO"),
        ("CREATE SOURCE s FROM 'd/*' INTO t", SqlSyntaxError, (1, 22, "'d/*'"), "FORMAT csv"),
        ("CREATE SOURCE s\nFROM 'x.avro' INTO t", SqlSyntaxError, (2, 6, "'x.avro'"), "parquet"),
        (START + "FORMAT cvs", SqlSyntaxError, (1, 44, "cvs"), '"csv"'),
        (START + "WITH (FORMAT avro)", SqlSyntaxError, (1, 42, "("), "parquet"),
        (START + "FORMAT csv WITH (FORMAT json)", SqlSyntaxError, (1, 44, "csv"), "one"),
        (START + "INTO u", SqlSyntaxError, (1, 37, "INTO"), "once"),
        (START + "WITH delimiter = '|'", SqlSyntaxError, (1, 42, "delimiter"), "WITH ("),
        (START + "EVRY '1 s'", SqlSyntaxError, (1, 37, "EVRY"), '"EVERY"'),
        (START + "'EVERY' '1 s'", SqlSyntaxError, (1, 37, "'EVERY'"), ""),
        (START + "\"EVERY\" '1 s'", SqlSyntaxError, (1, 37, '"EVERY"'), ""),
        (START + "EVERY", SqlSyntaxError, (1, 42, ""), "EVERY INTERVAL"),
        (START + "EVERY second", SqlSyntaxError, (1, 43, "second"), "EVERY INTERVAL"),
        (START + "EVERY '1 month'", DefinitionError, (1, 43, "'1 month'"), "EVERY"),
        (START + "EVERY '0 s'", DefinitionError, (1, 43, "'0 s'"), "EVERY"),
        (START + "EVERY '-5 s'", DefinitionError, (1, 43, "'-5 s'"), "EVERY"),
        (START + "EVERY INTERVAL 10", DefinitionError, (1, 52, "10"), "EVERY"),
        (START + "EVERY 'now'", DefinitionError, (1, 43, "'now'"), "EVERY"),
        (START + "EVERY '1 us'", DefinitionError, (1, 43, "'1 us'"), "EVERY"),
        (START + "EVERY '5 s' 6", SqlSyntaxError, (1, 49, "6"), ""),
        ("CREATE SOURCE s FROM 'x.csv' INTO t$late", DefinitionError, (1, 35, "t$late"), "table"),
        (
            "CREATE SOURCE s FROM 'x.csv' INTO tidemill.jobs",
            DefinitionError,
            (1, 35, "tidemill"),
            "table",
        ),
        ("CREATE SOURCE s FROM 'x.csv' INTO t (a, A)", SqlSyntaxError, (1, 41, "A"), "once"),
        (
            "CREATE OR REPLACE SOURCE IF NOT EXISTS s FROM 'x.csv' INTO t",
            SqlSyntaxError,
            (1, 26, "IF"),
            "one",
        ),
    ],
)
def test_refused(
    text: str, kind: type[TidemillError], place: tuple[int, int, str], hint: str
) -> None:
    with pytest.raises(kind) as caught:
        parse_one(text)
    error = caught.value
    assert error.position is not None
    assert (error.position.line, error.position.column, error.position.words) == place
    assert error.hint
    assert hint in error.hint
