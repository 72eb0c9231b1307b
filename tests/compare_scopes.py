"""Which column a name means: sqlglot's qualify and our scopes, each compared with DuckDB.

``python tests/compare_scopes.py`` (with ``src`` on the path) prints the figures of
docs/design/20261118-scopes.md; ``--cases`` prints each query that sqlglot takes otherwise. A query
runs three times on DuckDB, over small tables: as it is, as ``sqlglot.optimizer.qualify`` rewrites
it, and with the names of tables before the columns that ``sql.scopes`` claims to know. Whoever
knows what names mean changes no answer, and no error into an answer.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import duckdb
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope as SqlglotScope
from sqlglot.optimizer.scope import traverse_scope

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE / "unit" / "sql")]

from random_queries import COLUMN_LIST, Queries, random_rows  # noqa: E402
from scope_tables import CASE_TABLES  # noqa: E402
from stream_queries import StreamQueries  # noqa: E402
from support import FakeTable, table  # noqa: E402
from test_duckdb_queries import SETUP  # noqa: E402

from benchmarks import lineitem, tpch_data, tpch_questions  # noqa: E402
from tidemill.sql.predicates import find_scans  # noqa: E402
from tidemill.sql.scopes import Scope, with_query  # noqa: E402
from tidemill.types import Column, SqlType  # noqa: E402

Schema = dict[str, dict[str, str]]
CASES = HERE / "unit" / "sql" / "scope_cases.sql"
_NOW = re.compile(r"\bNOW\(|CURRENT_", re.I)
SAME, OTHER, REFUSED, FAILED, LENIENT = (
    "same answer",
    "another answer",
    "sqlglot refuses",
    "DuckDB refuses what came out",
    "an error became an answer",
)


@dataclass(frozen=True)
class Asked:
    """A query of a corpus, and the database that it is asked of."""

    corpus: str
    text: str
    database: duckdb.DuckDBPyConnection
    params: tuple[object, ...] = ()


def answer(asked: Asked, text: str) -> tuple[list[str], list[str]] | None:
    """The names of the columns, and the rows as texts, in some order; None for an error."""
    try:
        found = asked.database.execute(text, list(asked.params) or None)
        names = [each[0].lower() for each in found.description]
        return names, sorted(map(repr, found.fetchall()))
    except duckdb.Error:
        return None


# -- the corpora


def corpora(seeds: int) -> Iterator[Asked]:
    yield from _cases()
    yield from _parser_queries()
    yield from _written(*sorted((HERE / "sql").glob("*.slt")), corpus="tests/sql")
    yield from _written(HERE.parent / "docs" / "sql.md", corpus="docs/sql.md")
    yield from _tpch()
    yield from _random(seeds)


def _cases() -> Iterator[Asked]:
    database = _database(CASE_TABLES)
    for line in CASES.read_text().splitlines():
        if not line.startswith("--"):
            yield Asked("written for this", line, database)


def _parser_queries() -> Iterator[Asked]:
    database = _database(SETUP)
    for line in (HERE / "unit" / "sql" / "duckdb_queries.sql").read_text().splitlines():
        yield Asked("duckdb_queries.sql", line, database)


def _written(*files: Path, corpus: str) -> Iterator[Asked]:
    """The queries that plain DuckDB can answer; tables are made on the way."""
    for file in files:
        database = _database(())
        for text in re.split(r"\n\s*\n|```\w*|\n----\n|;\n", file.read_text()):
            text = re.sub(r"^(statement|query|onlyif|#).*\n", "", text.strip(), flags=re.M).strip()
            text = text.replace("STREAMING TABLE", "TABLE").rstrip(";")
            if re.match(r"(CREATE TABLE|INSERT)\b", text, re.I):
                answer(Asked("", "", database), re.sub(r"\)\s*WITH\s*\(.*", ")", text, flags=re.S))
            elif re.match(r"(SELECT|WITH|FROM|PIVOT)\b", text, re.I):
                asked = Asked(corpus, text, database)
                if answer(asked, text) is not None:
                    yield asked


def _tpch() -> Iterator[Asked]:
    database = _database(())
    tables = dict(tpch_data.tables(4_000))
    for name, rows in (tables | {"lineitem": lineitem.table(0, 4_000, 0.001)}).items():
        database.register("given", rows)
        database.execute(f"CREATE TABLE {name} AS FROM given")
        database.unregister("given")
    for question in tpch_questions.QUESTIONS:
        yield Asked("TPC-H", question.sql, database)


def _random(seeds: int) -> Iterator[Asked]:
    database = _database(f"CREATE TABLE {name} ({COLUMN_LIST})" for name in ("s", "r"))
    for number, name in enumerate(("s", "r")):
        for row in random_rows(random.Random(number), 60):
            marks = ", ".join("?" * len(row))
            database.execute(f"INSERT INTO {name} VALUES ({marks})", list(row.values()))
    database.execute("CREATE TABLE c (k INT, label VARCHAR)")
    database.execute("INSERT INTO c VALUES (1, 'x'), (3, 'y'), (5, NULL), (NULL, 'z')")
    for seed in range(seeds):
        text, params = Queries(seed).next()
        yield Asked("random queries", text, database, tuple(params))
        stream = StreamQueries(seed).take()
        yield Asked("random queries", stream.plain, database, tuple(stream.params))


def _database(statements: Iterable[str]) -> duckdb.DuckDBPyConnection:
    made = duckdb.connect(config={"threads": 1})
    made.execute("SET TimeZone = 'UTC'")
    for statement in statements:
        made.execute(statement)
    return made


# -- what is compared


def schema_of(database: duckdb.DuckDBPyConnection) -> Schema:
    found: Schema = {}
    for name, column, kind in database.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal"
    ).fetchall():
        found.setdefault(name, {})[column] = kind
    return found


def written(text: str) -> str | None:
    """A query as sqlglot writes it again: with that, what its parser changes is not compared."""
    try:
        return parse_one(text, dialect="duckdb").sql(dialect="duckdb")
    except SqlglotError:
        return None


def qualified(text: str, schema: Schema) -> str:
    tree = parse_one(text, dialect="duckdb")
    return qualify(tree, dialect="duckdb", schema=schema).sql(dialect="duckdb")


def claimed(text: str, schema: Schema) -> tuple[str, int, int]:
    """A query with tables before the columns of WHERE and ON that our scopes claim to know; how
    many these are, and of how many."""
    lower = {name.lower(): _table(name, columns) for name, columns in schema.items()}
    tree = parse_one(text, dialect="duckdb")
    known = count = 0
    for select in tree.find_all(exp.Select):
        scope = Scope(select, lambda name: lower.get(name.lower()))
        for column in list(_conditioned(select)):
            count += 1
            owner = scope.resolve(column)
            if owner is None or not owner.alias:
                continue
            known += 1
            if not column.table:
                name = exp.to_identifier(owner.node.alias_or_name, quoted=True)
                column.set("table", name)
    return tree.sql(dialect="duckdb"), known, count


def _conditioned(select: exp.Select) -> Iterator[exp.Column]:
    where = [select.args["where"]] if select.args.get("where") else []
    ons = [join.args["on"] for join in select.args.get("joins") or [] if join.args.get("on")]
    for part in (*where, *ons):
        for column in part.find_all(exp.Column):
            if column.find_ancestor(exp.Select) is select:
                yield column


def _table(name: str, columns: dict[str, str]) -> FakeTable:
    return FakeTable(name, tuple(Column(each, SqlType("BIGINT")) for each in columns), None)


def with_queries(text: str) -> Counter[str]:
    """For each FROM item: whether sqlglot's scopes reach it, and agree with ours on whether it
    reads a WITH query, and which."""
    tree = normalize_identifiers(parse_one(text, dialect="duckdb"), dialect="duckdb")
    theirs: dict[int, exp.Expression | None] = {}
    for scope in traverse_scope(tree):
        for node in scope.tables:
            source = scope.sources.get(node.alias_or_name)
            is_query = isinstance(source, SqlglotScope)
            theirs[id(node)] = source.expression.find_ancestor(exp.CTE) if is_query else None
    found: Counter[str] = Counter()
    for node in tree.find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier):
            continue
        if id(node) not in theirs:
            found["not reached"] += 1
        else:
            found["agree" if theirs[id(node)] is with_query(node) else "differ"] += 1
    return found


def judged(asked: Asked, rewritten: str | None) -> str:
    """What became of a query that was rewritten; None if that failed."""
    expected = answer(asked, asked.text)
    if rewritten is None:
        return REFUSED if expected is not None else SAME
    got = answer(asked, rewritten)
    if expected is None:
        return SAME if got is None else LENIENT
    if got is None:
        return FAILED
    return SAME if got[1] == expected[1] else OTHER


@dataclass
class Found:
    """What became of all queries, by corpus, and what else was counted."""

    theirs: dict[str, Counter[str]] = field(default_factory=dict)
    ours: dict[str, Counter[str]] = field(default_factory=dict)
    bound: Counter[str] = field(default_factory=Counter)
    renamed: int = 0
    known: int = 0
    columns: int = 0


def compare(seeds: int, show_cases: bool) -> Found:
    found = Found()
    for given in corpora(seeds):
        text = written(given.text)
        if text is not None and not _NOW.search(text):  # else it is a matter of the parser
            _compare_one(replace(given, text=text), found, show_cases)
    return found


def _compare_one(asked: Asked, found: Found, show_cases: bool) -> None:
    schema = schema_of(asked.database)
    try:
        rewritten, told = qualified(asked.text, schema), ""
    except Exception as error:  # sqlglot raises what it likes
        rewritten, told = None, f"{type(error).__name__}: {str(error).splitlines()[0]}"
    verdict = judged(asked, rewritten)
    found.theirs.setdefault(asked.corpus, Counter())[verdict] += 1
    text, known, columns = claimed(asked.text, schema)
    own = judged(asked, text)
    found.ours.setdefault(asked.corpus, Counter())[own] += 1
    found.known, found.columns = found.known + known, found.columns + columns
    bound = with_queries(asked.text)
    found.bound += bound
    found.renamed += verdict == SAME and _is_renamed(asked, rewritten)
    if show_cases and verdict != SAME:
        print(f"{verdict}: {asked.text}\n    {rewritten or told}")
    if show_cases and len(bound) > bool(bound["agree"]):
        print(f"{dict(bound)}: {asked.text}")
    if own != SAME:
        print(f"OURS {own}: {asked.text}")


def _is_renamed(asked: Asked, rewritten: str | None) -> bool:
    before = answer(asked, asked.text)
    after = None if rewritten is None else answer(asked, rewritten)
    return before is not None and after is not None and before[0] != after[0]


def show(found: Found) -> None:
    _show_counts("sqlglot's qualify", found.theirs)
    print(f"  names of columns changed in {found.renamed} answers that are the same")
    print(f"sqlglot's scopes, by FROM items: {dict(found.bound)}")
    _show_counts("our scopes", found.ours)
    print(f"  the source of {found.known} of {found.columns} columns in WHERE and ON is known")


def _show_counts(head: str, found: dict[str, Counter[str]]) -> None:
    print(f"\n{head}")
    for corpus, counts in found.items():
        told = ", ".join(f"{name} {count}" for name, count in counts.items())
        print(f"  {corpus}: {counts.total()}, {told}")


# -- time


def clock() -> None:
    """How long each takes for a typical short query, without the parser."""
    columns = {f"c{at}": "BIGINT" for at in range(12)} | {"ts": "TIMESTAMP", "vid": "BIGINT"}
    schema = {"positions": columns, "cars": {"vid": "BIGINT", "label": "VARCHAR"}}
    stream = table("positions", "ts", **columns)
    cars = table("cars", None, **schema["cars"])
    texts = (
        "SELECT ts, c1, c2 FROM positions WHERE vid = 77 AND ts >= TIMESTAMP '2024-01-01'",
        "SELECT p.vid, c.label, avg(c1) AS a FROM positions p JOIN cars c ON p.vid = c.vid "
        "WHERE ts > TIMESTAMP '2024-01-01' AND c2 > 3 GROUP BY ALL HAVING a > 1 ORDER BY a LIMIT 5",
    )
    for text in texts:
        _clock_one(text, schema, {"positions": stream, "cars": cars}.get)


def _clock_one(text: str, schema: Schema, tables: Callable[[str], FakeTable | None]) -> None:
    tree = parse_one(text, dialect="duckdb")
    works: dict[str, Callable[[], object]] = {
        "parse": lambda: parse_one(text, dialect="duckdb"),
        "copy": tree.copy,
        "sqlglot's scopes": lambda: traverse_scope(tree),
        "copy and qualify": lambda: qualify(tree.copy(), dialect="duckdb", schema=schema),
        "find_scans, all of it": lambda: find_scans(tree, tables),
    }
    print(f"{text[:60]}… takes, in µs:")
    print("    " + ", ".join(f"{name} {_us(work):.0f}" for name, work in works.items()))


def _us(work: Callable[[], object]) -> float:
    def once() -> float:
        began = time.perf_counter()
        for _ in range(200):
            work()
        return (time.perf_counter() - began) / 200 * 1e6

    return statistics.median(once() for _ in range(9))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=150)
    parser.add_argument("--cases", action="store_true")
    given = parser.parse_args()
    show(compare(given.seeds, given.cases))
    clock()
