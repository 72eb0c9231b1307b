"""What a view may read: streams and reference tables, and nothing that is different next time.

Everything here is decided on the query as it was written, before windows are rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from tidemill.errors import UnknownNameError
from tidemill.sql.decompose.calls import duckdb_name
from tidemill.sql.maintain.plan import DIGEST, REFERENCE, ROWS, ViewTable
from tidemill.sql.maintain.refusals import refusal
from tidemill.sql.names import SYSTEM_SCHEMA, position_of, table_name_of
from tidemill.sql.params import placeholders
from tidemill.sql.scopes import with_query
from tidemill.sql.spelling import WINDOW_FUNCTIONS
from tidemill.sql.tokens import words
from tidemill.sql.travel import find_clause

ViewTables = Callable[[str], ViewTable | None]

_RESERVED = re.compile(
    rf"{ROWS}|{DIGEST}\d+|{REFERENCE}\d+|tm_(sessions|session|opens|opened|keyed|first|last|joined|merged|j)_?\d*",
    re.I,
)
_CHANGING = words(
    "random uuid gen_random_uuid uuidv4 uuidv7 nextval currval setval setseed sleep_ms write_log "
    "current_query current_query_id current_transaction_id current_connection_id txid_current "
    "current_setting getvariable current_database current_schema current_schemas in_search_path "
    "current_user session_user get_current_time current_time localtime"
)
_CHANGING_NODES = (exp.Rand, exp.Uuid, exp.CurrentTime, exp.Localtime, exp.CurrentUser)
_TABLE_FUNCTIONS = frozenset(("range", "generate_series", "unnest"))


def check_query(query: exp.Expression, tables: ViewTables) -> None:
    """Raise if the query reads or calls what no view can."""
    if not isinstance(query, exp.Query) or isinstance(query, exp.Values):
        raise refusal(
            "only SELECT queries are maintained", "CREATE MATERIALIZED VIEW v AS SELECT …"
        )
    if placeholders(query):
        raise refusal(
            "a view has no parameters", "write the value itself, or filter when the view is read"
        )
    if (clause := find_clause(query)) is not None:
        raise refusal(
            "FOR SYSTEM_TIME reads the past, which never changes",
            "leave it out, or query the table directly",
            clause,
        )
    for found in query.find_all(exp.Identifier):
        if _RESERVED.fullmatch(str(found.this)):
            raise refusal(f'the name "{found.this}" is used inside views', "rename it", found)
    _check_functions(query)
    for node in query.find_all(exp.Table):
        _check_table(node, tables)


def _check_functions(query: exp.Expression) -> None:
    for node in query.find_all(exp.Func):
        name = duckdb_name(node) or node.sql_name().lower()
        if isinstance(node, _CHANGING_NODES) or name in _CHANGING:
            raise refusal(
                f"{name} gives something else each time it is called",
                "leave it out of the view, or call it when the view is read",
                node,
            )
        if name == "age" and len(node.expressions) == 1:
            raise refusal("age(x) with one value counts from today", "age(today(), x)", node)
        if name == "prev":
            raise refusal(
                "PREV compares a row with the one before it",
                "CREATE STREAMING TABLE … AS SELECT … EVERY ROW keeps such answers",
                node,
            )


def _check_table(node: exp.Table, tables: ViewTables) -> None:
    if not isinstance(node.this, exp.Identifier):
        return _check_table_function(node)
    if with_query(node) is not None:
        return None
    name = table_name_of(node)
    table = tables(name) if name is not None else None
    if table is not None:
        return check_kind(node, table)
    written = ".".join(part.name for part in node.parts)
    if written.lower().startswith(f"{SYSTEM_SCHEMA}."):
        raise refusal(f"system table {written} is no stream", "query it directly", node)
    if written.lower().endswith(("$late", "$rejected")):
        raise refusal(f'"{written}" holds rows set aside', "query it directly", node)
    if "." in written or "/" in written:
        raise refusal(
            f"{written} is no table of this warehouse",
            "COPY the file into a reference table and read that",
            node,
        )
    raise UnknownNameError(
        f'table "{written}" does not exist',
        hint="SHOW TABLES lists the tables",
        position=position_of(node),
    )


def _check_table_function(node: exp.Table) -> None:
    this = node.this
    if isinstance(this, exp.Anonymous) and this.name.upper() == "TABLE" and this.expressions:
        this = this.expressions[0]
    name = this.name if isinstance(this, exp.Anonymous) else this.sql_name()
    if name.upper() not in WINDOW_FUNCTIONS and name.lower() not in _TABLE_FUNCTIONS:
        raise refusal(
            f"the table function {name.lower()} reads what may change unseen",
            "COPY its rows into a reference table and read that",
            node,
        )


def check_kind(node: exp.Expression, table: ViewTable) -> None:
    """Raise if the rows of a table do not stay as they are."""
    if table.is_streaming and table.settings["on_conflict"] == "replace":
        raise refusal(
            f"\"{table.name}\" has on_conflict = 'replace': its rows may leave their groups again",
            "a stream with on_conflict = 'ignore', or a kept query: CREATE STREAMING TABLE … AS",
            node,
        )
    assert table.is_streaming or table.is_reference, f"{table.name} is a {table.kind}"
