"""Publishing: a Delta table of the very files that history consists of, for others to read.

The files of a table lie in one folder; its Delta log is the folder ``_delta_log`` beside them, and
names the files of rows of one snapshot. The catalog stays the only truth, the log is derived from
it, and whatever happened to the log, the next publishing brings it to the present:

1. Open the log and read the set of files that its newest version names.
2. Compare with the files of rows in the history; add what is new, remove what is gone, in one
   version, with the snapshot's id as the version of the application transaction ``tidemill``.
3. Every ``CHECKPOINT_EVERY`` versions deltalake writes a checkpoint and forgets old versions.

A crash between the catalog's commit and step 2 leaves an older version, which the next publishing
finds. Deleted rows cannot be expressed: a history with deletes that touch its files waits until
compaction has left the rows out, and readers keep the version before. Names and types are checked
when a table is to be published (``check_publishable``). docs/design/20261115-publishing.md tells
which types others can read, and why.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.schema import ArrayType, MapType, PrimitiveType, StructType
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from tidemill.catalog.model import FILE_DELETES, FILE_ROWS, DataFile, History, Table
from tidemill.errors import DurabilityError, UnsupportedError
from tidemill.history.checking import check_files
from tidemill.history.deletes import may_delete
from tidemill.history.storage import Storage
from tidemill.permissions import tighten
from tidemill.types import SEQ

APPLICATION = "tidemill"
LOG_FOLDER = "_delta_log"
CHECKPOINT_EVERY = 50
KEPT = "interval 1 hour"

_CONFIGURATION: dict[str, str | None] = {
    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
    "delta.enableExpiredLogCleanup": "true",
    "delta.logRetentionDuration": KEPT,
    "delta.deletedFileRetentionDuration": KEPT,
}
_PRIMITIVES = {
    "boolean": "boolean",
    "tinyint": "byte",
    "smallint": "short",
    "integer": "integer",
    "bigint": "long",
    "utinyint": "short",  # Delta has no unsigned types: the next wider one holds all values
    "usmallint": "integer",
    "uinteger": "long",
    "hugeint": "string",  # stored as text, as are the next two
    "uhugeint": "string",
    "interval": "string",
    "float": "float",
    "double": "double",
    "varchar": "string",
    "blob": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamp with time zone": "timestamp",
    "uuid": "binary",
    "json": "binary",  # its UTF-8 text; as a string, Polars refuses Parquet's JSON
}
_DeltaType = PrimitiveType | ArrayType | MapType | StructType
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")
_PROTOCOLS = ("s3", "s3a", "gs", "az", "abfs", "abfss")
_log = logging.getLogger("tidemill.history")
_EPOCH = datetime(1970, 1, 1)
_TOLD_US = range(-62_135_596_800_000_000, 253_402_300_800_000_000)  # the years 1 to 9999


def check_publishable(table: Table, storage: Storage | None = None) -> None:
    """An error if others could not read the table, or if the storage has no Delta tables."""
    if not table.is_streaming:
        raise UnsupportedError(f'reference table "{table.name}" has no history to publish')
    delta_schema(table)
    if storage is not None and not _is_reached(storage):
        raise UnsupportedError(
            f'a table in storage "{storage.root}" cannot be published as Delta',
            hint=f"storage may be a folder or a URL of {', '.join(_PROTOCOLS)}, without any %",
        )


def _is_reached(storage: Storage) -> bool:
    """Whether deltalake finds the place. It would decode a % in a name, and look elsewhere."""
    protocol = "" if storage.folder is not None else storage.root.partition("://")[0].lower()
    return "%" not in storage.place("") and protocol in ("", *_PROTOCOLS)


def delta_schema(table: Table) -> Schema:
    """The columns as others read them. All may be NULL: not every reader accepts a promise that
    a Parquet file does not make itself."""
    fields = []
    for column in table.columns:
        about = f'column "{column.name}" of table "{table.name}"'
        _check_name(column.name, about)
        fields.append(Field(column.name, _delta_type(duckdb.sqltype(column.type.name), about)))
    return Schema([*fields, Field(SEQ, PrimitiveType("long"))])


def waits_for_compaction(history: History) -> bool:
    """Whether files of rows hold rows that are deleted, so that others must not read them."""
    deletes = [file for file in history.files if file.kind == FILE_DELETES]
    rows = [file for file in history.files if file.kind == FILE_ROWS]
    return any(may_delete(gone, file) for gone in deletes for file in rows)


def publish_delta(storage: Storage, table: Table, history: History, snapshot_id: int) -> int | None:
    """Bring the table's Delta log to a snapshot; answers the version written, or None if the log
    told the same before, or told a later snapshot. One caller at a time for each table."""
    if waits_for_compaction(history):
        raise UnsupportedError(
            f'table "{table.name}" cannot be published as it is now',
            detail="rows are deleted in files not yet compacted; others read the version before",
            hint="it is published after the next compaction",
        )
    try:
        return _publish(storage, table, history, snapshot_id)
    except (DeltaError, OSError) as error:
        raise DurabilityError(
            f'table "{table.name}" could not be published', detail=_first_line(error)
        ) from error


def unpublish(storage: Storage, table: Table) -> None:
    """Remove the table's Delta log, if there is one. The newest versions go first: what a crash
    leaves is an older version of the table, never a torn one."""
    prefix = f"{table.table_id}/{LOG_FOLDER}/"
    names = sorted((path.removeprefix(prefix) for path, _, _ in storage.list(prefix)), reverse=True)
    for name in sorted(names, key=lambda name: name[:1].isdecimal()):  # _last_checkpoint first
        storage.delete(prefix + name)


def _publish(storage: Storage, table: Table, history: History, snapshot_id: int) -> int | None:
    wanted = {_inner_path(file): file for file in history.files if file.kind == FILE_ROWS}
    schema = delta_schema(table)
    published = _open(storage, table)
    if published is not None and published.schema() != schema:  # of an older Tidemill
        unpublish(storage, table)
        published = None
    commit = CommitProperties(
        max_commit_retries=0,  # nobody else writes: a conflict must not be resolved, but told
        app_transactions=[Transaction(APPLICATION, snapshot_id)],
    )
    now_ms = time.time_ns() // 1_000_000
    if published is None:
        _check(storage, table, list(wanted.values()))
        create_table_with_add_actions(
            _place(storage, table),
            schema,
            [_add(table, path, file, now_ms) for path, file in wanted.items()],
            name=table.name,
            description=f'history of the Tidemill table "{table.name}"; not to be written',
            configuration=_CONFIGURATION,
            storage_options=_options(storage),
            commit_properties=commit,
        )
        return _made_durable(storage, table, 0)
    if (published.transaction_version(APPLICATION) or 0) > snapshot_id:
        return None
    sizes = _sizes(published)
    actions: list[AddAction | RemoveAction] = [
        _add(table, path, file, now_ms) for path, file in wanted.items() if path not in sizes
    ]
    actions += [
        RemoveAction(path, True, now_ms, size, {})
        for path, size in sizes.items()
        if path not in wanted
    ]
    if not actions:
        return None
    _check(storage, table, [file for path, file in wanted.items() if path not in sizes])
    published.create_write_transaction(actions, "append", schema, commit_properties=commit)
    return _made_durable(storage, table, published.version() + 1)


def _check(storage: Storage, table: Table, files: list[DataFile]) -> None:
    """Others have no checksums: what is damaged is not given to them. Files in a store would have
    to be fetched for that."""
    if storage.folder is not None:
        check_files(storage, table.name, files)


def _open(storage: Storage, table: Table) -> DeltaTable | None:
    try:
        return DeltaTable(_place(storage, table), storage_options=_options(storage))
    except TableNotFoundError:
        return None
    except DeltaError as error:  # torn by a crash of the machine, or by somebody's hand
        _log.warning("the Delta log of %s is written anew: %s", table.name, _first_line(error))
        unpublish(storage, table)
        return None


def _first_line(error: Exception) -> str:
    """What deltalake says, without the stack that follows."""
    return str(error).partition("\n")[0]


def _sizes(published: DeltaTable) -> dict[str, int]:
    """The files that the newest version names, with their bytes."""
    held = pa.table(published.get_add_actions()).select(["path", "size_bytes"]).to_pydict()
    return dict(zip(held["path"], held["size_bytes"], strict=True))


def _place(storage: Storage, table: Table) -> str:
    return storage.place(str(table.table_id))


def _options(storage: Storage) -> dict[str, str] | None:
    """deltalake finds keys, region and endpoint where s3fs finds them, in the environment, but
    wants to be told that an endpoint without encryption is meant."""
    if storage.folder is not None:
        return None
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
    return {"allow_http": "true"} if endpoint.startswith("http://") else None


def _made_durable(storage: Storage, table: Table, version: int) -> int:
    if storage.folder is not None:
        storage.finish(f"{table.table_id}/{LOG_FOLDER}/{version:020d}.json")
        # deltalake makes it as the umask says
        tighten(Path(storage.place(f"{table.table_id}/{LOG_FOLDER}")))
    return version


def _add(table: Table, path: str, file: DataFile, now_ms: int) -> AddAction:
    return AddAction(path, file.bytes, {}, now_ms, True, json.dumps(_stats(table, file)))


def _stats(table: Table, file: DataFile) -> dict[str, object]:
    """What readers skip files by: rows, sequence numbers and times."""
    least: dict[str, object] = {SEQ: file.seq_min}
    greatest: dict[str, object] = {SEQ: file.seq_max}
    time_column = table.get_column(table.time_column or "")
    if file.time_min_us in _TOLD_US and file.time_max_us in _TOLD_US:
        zone = "Z" if "ZONE" in time_column.type.name else ""
        least[time_column.name] = _moment(file.time_min_us) + zone
        greatest[time_column.name] = _moment(file.time_max_us) + zone
    return {
        "numRecords": file.rows,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": dict.fromkeys((time_column.name, SEQ), 0),
    }


def _moment(time_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=time_us)).isoformat(timespec="microseconds")


def _inner_path(file: DataFile) -> str:
    """A file's path inside the table's folder."""
    return file.path.partition("/")[2]


def _delta_type(duck: Any, about: str) -> _DeltaType:
    """The type as which others read a column, or an error."""
    if duck.id == "struct":
        return StructType(list(_struct_fields(duck, about)))
    parts = dict(duck.children) if duck.id in ("list", "array", "map", "decimal") else {}
    if duck.id in ("list", "array"):
        return ArrayType(_delta_type(parts["child"], about), contains_null=True)
    if duck.id == "map":
        key, value = (_delta_type(parts[name], about) for name in ("key", "value"))
        return MapType(key, value, value_contains_null=True)
    if duck.id == "decimal":
        return PrimitiveType(f"decimal({parts['precision']},{parts['scale']})")
    name = _PRIMITIVES.get(str(duck).lower())
    if name is None:
        raise UnsupportedError(
            f"{about} cannot be published as Delta",
            detail=f"Delta has no type for {duck} that all readers read from these files",
            hint="leave the column out, or keep it in another type",
        )
    return PrimitiveType(name)


def _struct_fields(duck: Any, about: str) -> Iterator[Field]:
    for name, part in duck.children:
        _check_name(name, about)
        yield Field(name, _delta_type(part, about))


def _check_name(name: str, about: str) -> None:
    if _FORBIDDEN.search(name):
        raise UnsupportedError(
            f"{about} cannot be published as Delta",
            detail=f'Delta allows no blanks and none of ,;{{}}()= in names: "{name}"',
            hint="give it another name",
        )
