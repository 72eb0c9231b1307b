"""What a query may name: it reads, and it reads the warehouse's own tables through Tidemill.

``check_permitted`` looks at every tree that a text gives, wherever a query may stand:

- INSERT, UPDATE, DELETE and MERGE inside a query are refused: they would write past checks and
  views;
- so are names with a schema that is not Tidemill's: they would reach DuckDB's inner tables;
- so are DuckDB's functions that change its state or show its insides (``REFUSED``).

Functions that read files (``FILE_FUNCTIONS``) are left to whoever knows the warehouse's place.
Together with the list that a test keeps, every function of the DuckDB in use is decided on.
"""

from __future__ import annotations

from sqlglot import exp

from tidemill.errors import TidemillError, UnknownNameError, UnsupportedError
from tidemill.sql.names import INFORMATION_SCHEMA, SYSTEM_SCHEMA, position_of
from tidemill.sql.tokens import words

_SYSTEM_HINT = (
    "SHOW TABLES, information_schema.tables and the system tables in the schema tidemill show what "
    "there is"
)
_FILE_HINT = "write the name of the file: FROM 'file.csv', read_csv('file.csv')"
_CONTENT_HINT = "name the table itself: SELECT … FROM t"
_SETTING_HINT = "tidemill.settings shows settings; SET sets what a session may set"
_SEQUENCE_HINT = "row_number() numbers rows in a query"

FILE_FUNCTIONS = words(
    "glob parquet_bloom_probe parquet_file_metadata parquet_full_metadata parquet_kv_metadata "
    "parquet_metadata parquet_scan parquet_schema read_blob read_csv read_csv_auto read_json "
    "read_json_auto read_json_objects read_json_objects_auto read_ndjson read_ndjson_auto "
    "read_ndjson_objects read_parquet read_text sniff_csv"
)
_HINTS = {
    _SYSTEM_HINT: "duckdb_approx_database_count duckdb_available_metrics duckdb_columns "
    "duckdb_connection_count duckdb_constraints duckdb_coordinate_systems duckdb_databases "
    "duckdb_dependencies duckdb_dialects duckdb_eviction_queues duckdb_extension_repositories "
    "duckdb_extensions duckdb_external_file_cache duckdb_external_resource_types "
    "duckdb_external_resources duckdb_functions duckdb_grammar_extensions duckdb_indexes "
    "duckdb_log_contexts duckdb_logs duckdb_logs_parsed duckdb_memory duckdb_optimizers "
    "duckdb_prepared_statements duckdb_schemas duckdb_secret_type_parameters duckdb_secret_types "
    "duckdb_secrets duckdb_sequences duckdb_table_sample duckdb_tables duckdb_temporary_files "
    "duckdb_triggers duckdb_types duckdb_variables duckdb_views pragma_collations "
    "pragma_database_size pragma_metadata_info pragma_platform pragma_show pragma_storage_info "
    "pragma_table_info pragma_user_agent pragma_version which_secret pg_get_viewdef "
    "pg_get_constraintdef get_block_size index_key current_query current_connection_id "
    "current_query_id current_transaction_id txid_current in_search_path collations database_list "
    "database_size extension_versions functions metadata_info platform show show_databases "
    "show_tables show_tables_expanded storage_info table_info user_agent",
    _SETTING_HINT: "duckdb_settings duckdb_profiling_settings current_setting getvariable "
    "setseed enable_logging disable_logging enable_profiling disable_profiling enable_profile "
    "disable_profile truncate_duckdb_logs write_log checkpoint force_checkpoint "
    "create_external_resource deregister_external_resource destroy_external_resource "
    "register_external_resource register_external_resource_type add_parquet_key copy_database "
    "import_database disable_checkpoint_on_shutdown disable_object_cache disable_optimizer "
    "disable_print_progress_bar disable_progress_bar disable_verification "
    "disable_verify_parallelism enable_checkpoint_on_shutdown enable_object_cache "
    "enable_optimizer enable_print_progress_bar enable_progress_bar enable_verification "
    "verify_parallelism sleep_ms pg_sleep",
    _FILE_HINT: "read_duckdb read_single_csv_file read_single_json_file read_single_parquet_file",
    _CONTENT_HINT: "query query_table json_execute_serialized_sql json_serialize_plan seq_scan "
    "arrow_scan arrow_scan_dumb pandas_scan python_arrow_scan python_map_function "
    "histogram_values",
    _SEQUENCE_HINT: "nextval currval setval",
}
REFUSED = {name: hint for hint, names in _HINTS.items() for name in words(names)}
_REFUSED_TABLES = words("histogram")  # it is an aggregate too
_INNER = "__internal"
_REJECTS = words("store_rejects rejects_table rejects_scan rejects_limit")
_WRITES = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Alter)
_COMMANDS = (exp.Command, exp.Pragma, exp.Set, exp.Show, exp.Attach, exp.Detach, exp.Use, exp.Copy)
_REFUSED_WITHIN = (*_WRITES, *_COMMANDS)
_SCHEMAS = ("", "main", SYSTEM_SCHEMA, INFORMATION_SCHEMA)


def check_permitted(tree: exp.Expression) -> None:
    """Refuse a tree that does more than read what Tidemill shows. A statement that writes is
    itself allowed, but not within another."""
    for node in tree.walk():
        kind = type(node)
        if kind not in _looked_at:
            _looked_at[kind] = issubclass(kind, (exp.Table, exp.Func, *_REFUSED_WITHIN))
        if not _looked_at[kind]:  # as most are: names and constants
            continue
        if isinstance(node, exp.Table):
            _check_table(node)
        elif isinstance(node, exp.Func):
            _check_call(node)
        elif node is not tree and not _is_of_merge(node):
            raise _writes(node)


_looked_at: dict[type, bool] = {}  # by kind of nodes, whether they may be refused


def _is_of_merge(node: exp.Expr) -> bool:
    """Whether it is what a WHEN of a MERGE does."""
    return isinstance(node.parent, exp.When)


def call_name(node: exp.Func) -> str:
    """The name of a function as DuckDB knows it, in lower case."""
    if isinstance(node, (exp.Anonymous, exp.AnonymousAggFunc)):
        return node.name.lower()
    return node.sql_name().lower()


def file_call(node: exp.Table) -> exp.Func | None:
    """The call of a function that reads files, if a table is one."""
    call = node.this
    return call if isinstance(call, exp.Func) and call_name(call) in FILE_FUNCTIONS else None


def _check_table(node: exp.Table) -> None:
    schema, catalog = node.text("db").lower(), node.text("catalog")
    is_call = not isinstance(node.this, exp.Identifier)
    if catalog or schema not in _SCHEMAS or (is_call and schema not in ("", "main")):
        name = ".".join(part.name for part in node.parts)
        raise UnknownNameError(
            f"{name[:60]} is not a table of this warehouse",
            hint=f"tables have no schema (or main); {_SYSTEM_HINT}",
            position=position_of(node),
        )
    call = file_call(node)
    if call is not None:
        named = {part.this.name.lower() for part in call.find_all(exp.EQ, exp.PropertyEQ)}
        if refused := sorted(named & _REJECTS):
            raise UnsupportedError(
                f"{refused[0]} is not offered: a query keeps nothing",
                hint="COPY … FROM sets rows aside that do not fit, in a table's $rejected",
                position=position_of(node),
            )


def _check_call(node: exp.Func) -> None:
    name = call_name(node)
    is_table = isinstance(node.parent, exp.Table) and name in _REFUSED_TABLES
    if name not in REFUSED and not name.startswith(_INNER) and not is_table:
        return
    raise UnsupportedError(
        f"function {name} is not offered",
        hint=REFUSED.get(name, _CONTENT_HINT if is_table else _SYSTEM_HINT),
        position=position_of(node),
    )


def _writes(node: exp.Expr) -> TidemillError:
    word = node.key.upper()
    return UnsupportedError(
        f"{word} inside a query is not offered",
        hint=f"a query only reads; write the {word} as a statement of its own, before it",
        position=position_of(node),
    )
