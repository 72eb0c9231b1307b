"""The third route: a query in DuckDB's words as Spark SQL, if all of it is on a verified list.

Transpiling is silently wrong for some of SQL: ``7 / 2``, where NULLs sort, what a cast rounds, what
a backslash in LIKE means. So nothing is transpiled here. ``to_spark`` builds the Spark query itself
from parts that are each on the allow-list (``allowed``), and gives up at the first one that is not:

1. **bind**: parameters become constants of the type that DuckDB gives them;
2. **translate**: queries (``queries``, ``conditions``, ``sources``), aggregates and windows
   (``aggregates``), expressions (``expressions``, ``arithmetic``, ``functions``, ``casts``), each
   value with its DuckDB type;
3. **check**: DuckDB describes the same query over empty tables, and must see the same columns.

DuckDB says what types and constants are (``oracle``). Where an input would be treated differently,
the Spark query raises an error; so an error from Spark is never the answer, but a reason to take
another route. docs/design/20261115-spark-sql-route.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from tidemill.errors import TidemillError
from tidemill.sql.lists import spell_out_lists
from tidemill.sql.params import placeholder_key
from tidemill.sql.spark import oracle
from tidemill.sql.spark.allowed import ALLOWED
from tidemill.sql.spark.kinds import given_expression, spark_type, taken_expression
from tidemill.sql.spark.queries import Queries
from tidemill.sql.spark.sources import ColumnsOf, view_name
from tidemill.sql.spark.values import NotVerified, refuse
from tidemill.types import quote

__all__ = [
    "ALLOWED",
    "SPARK_SETTINGS",
    "NotOnTheList",
    "SparkQuery",
    "given_expression",
    "result_sql",
    "spark_type",
    "to_spark",
    "view_name",
]

# A longer text would take Spark's parser seconds.
SQL_LENGTH_MAX = 1_000_000
# What the session must be set to, for the translation counts on it.
SPARK_SETTINGS: Mapping[str, str] = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
}


@dataclass(frozen=True)
class SparkQuery:
    """What runs on Spark SQL.

    ``sql`` gives columns c0, c1 …; ``names`` and ``types`` are DuckDB's for them. ``reads`` names
    the views that must exist, and of each the columns that are needed; ``uses`` the entries of the
    allow-list.
    """

    sql: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    reads: Mapping[str, tuple[str, ...]]
    uses: frozenset[str]


@dataclass(frozen=True)
class NotOnTheList:
    """Why a query does not go to Spark SQL."""

    reason: str


def to_spark(
    tree: exp.Expr, columns_of: ColumnsOf, values: Mapping[str, object] | None = None
) -> SparkQuery | NotOnTheList:
    """The Spark query for a tree; ``columns_of`` says the columns and DuckDB types of a table.

    ``values`` are those of the tree's parameters: the type of a value decides what a comparison
    means, so they are needed here and not later. The tree stays as it is.
    """
    try:
        return _translate(tree, columns_of, values or {})
    except NotVerified as error:
        return NotOnTheList(error.reason)
    except (sqlglot.errors.SqlglotError, TidemillError, RecursionError) as error:
        return NotOnTheList(f"the query cannot be translated: {str(error).partition(chr(10))[0]}")


def _translate(tree: exp.Expr, columns_of: ColumnsOf, values: Mapping[str, object]) -> SparkQuery:
    bound = _bind(tree.copy(), values)
    spell_out_lists(bound)
    # Parsed again, so that every call is the node that a call in a text would be.
    query = sqlglot.parse_one(bound.sql(dialect="duckdb"), dialect="duckdb")
    queries = Queries(columns_of)
    relation, _ = queries.relation(query, None)
    before = f"WITH {', '.join(queries.withs)} " if queries.withs else ""
    sql = before + relation.sql
    if len(sql) > SQL_LENGTH_MAX:
        refuse("the query is too long for Spark SQL")
    for node in queries.base_nodes:
        _rename(node)
    found = oracle.describe(query.sql(dialect="duckdb"), queries.tables)
    _check(found, relation.columns)
    assert found is not None
    return SparkQuery(
        sql,
        tuple(name for name, _ in found),
        tuple(kind for _, kind in found),
        {view: tuple(columns) for view, columns in queries.reads.items()},
        frozenset(queries.ledger.used),
    )


def _bind(tree: exp.Expr, values: Mapping[str, object]) -> exp.Expr:
    for node in list(tree.find_all(exp.Placeholder, exp.Parameter)):
        key = placeholder_key(node)
        if key not in values:
            refuse(f'parameter "{key}" has no value')
        constant = oracle.parameter_of(values[key])
        if constant is None:
            refuse(f'the value of parameter "{key}" is not verified for Spark SQL')
        node.replace(sqlglot.parse_one(constant.sql, dialect="duckdb"))
    return tree


def _rename(node: exp.Table) -> None:
    if not node.alias:
        node.set("alias", exp.TableAlias(this=node.this.copy()))
    node.set("this", exp.to_identifier(view_name(node), quoted=True))
    node.set("db", None)
    node.set("catalog", None)


def _check(found: object, columns: object) -> None:
    pairs = list(found) if isinstance(found, list) else None
    ours = list(columns) if isinstance(columns, tuple) else []
    if pairs is None:
        refuse("DuckDB does not accept the query")
    if len(pairs) != len(ours):
        refuse("DuckDB sees other columns")
    for (name, kind), (our_name, our_kind) in zip(pairs, ours, strict=True):
        if kind != our_kind.name:
            refuse(f'DuckDB gives column "{name}" type {kind}, not {our_kind.name}')
        repeated = sum(1 for other, _ in ours if other == our_name) > 1
        if our_name is not None and not repeated and name.lower() != our_name.lower():
            refuse(f'DuckDB names a column "{name}", not "{our_name}"')


def result_sql(query: SparkQuery, source: str) -> str:
    """DuckDB SQL that turns Spark's answer, as Arrow data named ``source``, into DuckDB's."""
    columns = ", ".join(
        f"{taken_expression(f'c{at}', kind)} AS {quote(name)}"
        for at, (name, kind) in enumerate(zip(query.names, query.types, strict=True))
    )
    return f"SELECT {columns} FROM {quote(source)}"
