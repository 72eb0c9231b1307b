"""What a definition must satisfy before the catalog stores it.

The parser checks most of this earlier, where it can point at the words; here it is the last line,
for definitions that come from Python. All checks of an operation run before its first write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidemill.catalog.commits import SeqRange
from tidemill.catalog.model import (
    DIGEST,
    FILE_DIGEST,
    FILE_KINDS,
    LOADED,
    ORIGINS,
    REFERENCE,
    SET_ASIDE,
    STREAMING,
    TABLE_KINDS,
    VIEW,
    History,
    Index,
    NewFile,
    NewTable,
    Package,
    Reservation,
    Snapshot,
    Source,
    Table,
)
from tidemill.config import TABLE_SETTINGS, Settings, check
from tidemill.errors import (
    ConflictError,
    DefinitionError,
    DuplicateNameError,
    SettingError,
    UnknownNameError,
    did_you_mean,
)
from tidemill.types import Column

NAME_CHARS_MAX = 10_000
PATH_CHARS_MAX = 600
"""Paths are unique by an index; PostgreSQL's holds no more than some 2,700 bytes."""

INDEX_METHODS = ("ordered", "hash")
DIGEST_MARK = "$digest"
"""Stands between a view's name and a number in the names of its digests, and in no other name."""

_DIGEST_NAME = re.compile(rf".+{re.escape(DIGEST_MARK)}[0-9]+", re.DOTALL)
_SHOWN_CHARS = 80


def shorten(name: str) -> str:
    """A name as an error shows it, in quotes.

    >>> shorten("cars")
    '"cars"'
    """
    return f'"{name}"' if len(name) <= _SHOWN_CHARS else f'"{name[:_SHOWN_CHARS]}…"'


def checked_table(new: NewTable) -> NewTable:
    """The definition with its names spelled as the columns are; an error if it cannot be."""
    if new.kind not in TABLE_KINDS:
        raise DefinitionError(f'table {shorten(new.name)} cannot be of kind "{new.kind}"')
    check_table_name(new.kind, new.name)
    check_definition(new.kind, new.name, new.definition)
    columns = _columns(new)
    primary_key = named("primary key", new.primary_key, columns, new.name)
    for text in (*new.constraints, *(column.default or "" for column in new.columns)):
        check_text("constraint or default", text)
    settings = Settings(TABLE_SETTINGS, new.settings).given
    for value in settings.values():
        check_text("setting", value)
    checked = replace(new, primary_key=primary_key, settings=settings)
    return _checked_time(checked, columns) if new.kind == STREAMING else checked


def check_table_name(kind: str, name: str) -> None:
    """A digest is named as its view is, with a number; others are not named so."""
    check_name("table", name)
    if kind == DIGEST:
        assert _DIGEST_NAME.fullmatch(name), name
    elif DIGEST_MARK in name.lower():
        raise DefinitionError(
            f'table {shorten(name)} cannot have "{DIGEST_MARK}" in its name',
            hint="such names belong to the digests of views",
        )


def check_definition(kind: str, name: str, definition: str | None) -> None:
    """Views and digests are nothing without one; a stream may have one, a reference table none."""
    if definition is None and kind in (VIEW, DIGEST):
        raise DefinitionError(f"{kind} {shorten(name)} has no definition")
    if definition is not None and kind == REFERENCE:
        raise DefinitionError(f"reference table {shorten(name)} cannot have a definition")
    check_text("definition", definition or "")


def check_digested(snapshot: Snapshot, new: NewTable) -> None:
    """A digest, and nothing else, has a stream whose rows it sums up."""
    assert (new.source_id is not None) == (new.kind == DIGEST), new
    if new.source_id is None:
        return
    source = live_table(snapshot, new.source_id)
    if not source.is_streaming:
        raise DefinitionError(
            f"digest {shorten(new.name)} cannot be made of table {shorten(source.name)}",
            hint=f"it is of kind {source.kind} and must be of kind {STREAMING}",
        )


def _columns(new: NewTable) -> dict[str, Column]:
    if not new.columns:
        raise DefinitionError(f"table {shorten(new.name)} has no columns")
    by_lower: dict[str, Column] = {}
    for column in new.columns:
        check_name("column", column.name)
        if column.name.lower() in by_lower:
            raise DefinitionError(
                f"column {shorten(column.name)} appears twice in table {shorten(new.name)}",
                hint="names are compared without case",
            )
        by_lower[column.name.lower()] = column
    return by_lower


def _checked_time(new: NewTable, columns: Mapping[str, Column]) -> NewTable:
    if new.time_column is None:
        raise DefinitionError(f"streaming table {shorten(new.name)} has no time column")
    (name,) = named("time column", (new.time_column,), columns, new.name)
    kind = columns[name.lower()].type
    if not kind.is_time:
        raise DefinitionError(
            f"time column {shorten(name)} of table {shorten(new.name)} has type {kind}",
            hint="it must be TIMESTAMP or TIMESTAMP WITH TIME ZONE",
        )
    if new.watermark_delay_us is not None and new.watermark_delay_us < 0:
        raise DefinitionError(f"watermark delay of table {shorten(new.name)} is negative")
    if new.primary_key and name not in new.primary_key:
        raise DefinitionError(
            f"primary key of table {shorten(new.name)} lacks its time column",
            hint=f"add {shorten(name)} to the primary key",
        )
    return replace(new, time_column=name)


def check_free(snapshot: Snapshot, name: str) -> None:
    existing = snapshot.find(name)
    if existing is not None:
        raise DuplicateNameError(
            f"{'view' if existing.is_view else 'table'} {shorten(name)} already exists",
            hint="names are compared without case; CREATE OR REPLACE and IF NOT EXISTS may help",
        )


def live_table(snapshot: Snapshot, table_id: int) -> Table:
    table = snapshot.table(table_id)
    if table is None:
        raise UnknownNameError(
            f"table with id {table_id} does not exist", hint="it was dropped or replaced"
        )
    return table


def history_of(snapshot: Snapshot, table_id: int) -> History:
    """The history of a table that lives; a job's table may have been dropped meanwhile."""
    if snapshot.table(table_id) is None:
        raise ConflictError(
            f"table with id {table_id} does not exist any more",
            hint="it was dropped or replaced while the job ran",
        )
    return snapshot.history(table_id)


def check_moved(history: History, moved_seq: int | None) -> int:
    """How far rows are in files after a commit; it never goes back."""
    if moved_seq is None:
        return history.moved_seq
    if moved_seq < history.moved_seq:
        raise ConflictError(
            f"rows of the table with id {history.table_id} are in files up to number "
            f"{history.moved_seq}, which is after {moved_seq}",
            hint="another job moved them first; plan the move again",
        )
    return moved_seq


def check_reserved(history: History, reserved: Sequence[SeqRange]) -> None:
    """Numbers belong to one load: those of two overlap only if one was committed twice."""
    for number, asked in enumerate(reserved):
        first, last = asked.first_seq, asked.last_seq
        assert 0 < first <= last, asked
        others: list[SeqRange | Reservation] = [*history.reservations, *reserved[:number]]
        for other in others:
            if first <= other.last_seq and other.first_seq <= last:
                raise ConflictError(
                    f"numbers {first} to {last} of the table with id {history.table_id} "
                    "belong to a load that was committed before",
                    hint="plan the load again",
                )


def check_files(table: Table, files: Sequence[NewFile], kinds: Sequence[str] = FILE_KINDS) -> None:
    for file in files:
        check_name("file", file.path, PATH_CHARS_MAX)
        assert file.kind in kinds, file
        assert (file.kind == FILE_DIGEST) == table.is_digest, file
        assert file.origin in ORIGINS, file
        assert file.lo_us < file.hi_us, file


def check_packages(packages: Sequence[Package]) -> None:
    for each in packages:
        check_name("package", each.name)
        assert each.state in (LOADED, SET_ASIDE), each
        for text in (each.digest, each.source, each.job_id):
            check_text("record of a package", text)


def check_source(
    snapshot: Snapshot, name: str, pattern: str, format: str, options: Mapping[str, str]
) -> None:
    check_name("source", name)
    if snapshot.find_source(name) is not None:
        raise DuplicateNameError(
            f"source {shorten(name)} already exists",
            hint="names are compared without case; CREATE OR REPLACE and IF NOT EXISTS may help",
        )
    check_name("source's files", pattern)
    for text in (format, *options, *options.values()):
        check_text("source's definition", text)


def live_source(snapshot: Snapshot, source_id: int) -> Source:
    for source in snapshot.sources.values():
        if source.source_id == source_id:
            return source
    raise UnknownNameError(
        f"source with id {source_id} does not exist", hint="it was dropped, or its table was"
    )


def live_index(snapshot: Snapshot, index_id: int) -> Index:
    for table in snapshot.tables.values():
        for index in table.indexes:
            if index.index_id == index_id:
                return index
    raise UnknownNameError(
        f"index with id {index_id} does not exist", hint="it was dropped, or its table was"
    )


def index_name(snapshot: Snapshot, table: Table, columns: Sequence[str], name: str | None) -> str:
    """The given name if it is free, or a free one made of the table's and the columns' names."""
    taken = {index.name.lower() for each in snapshot.tables.values() for index in each.indexes}
    if name is not None:
        check_name("index", name)
        if name.lower() in taken:
            raise DuplicateNameError(
                f"index {shorten(name)} already exists", hint="index names belong to the database"
            )
        return name
    stem = "_".join((table.name, *columns))[: NAME_CHARS_MAX // 2] + "_idx"
    suffixes = ("" if number == 0 else str(number) for number in range(len(taken) + 1))
    return next(stem + suffix for suffix in suffixes if (stem + suffix).lower() not in taken)


def checked_index_columns(table: Table, columns: Sequence[str]) -> tuple[str, ...]:
    if not columns:
        raise DefinitionError(f"an index of table {shorten(table.name)} names no column")
    by_lower = {column.name.lower(): column for column in table.columns}
    return named("index", columns, by_lower, table.name)


def check_method(method: str) -> None:
    if method not in INDEX_METHODS:
        raise DefinitionError(
            f'index method "{method}" does not exist',
            hint=f"the methods are {' and '.join(INDEX_METHODS)}",
        )


def altered_settings(table: Table, changes: Mapping[str, str | None]) -> dict[str, str]:
    """The table's given settings after the changes; None takes one back to its default."""
    for name, text in changes.items():
        setting = TABLE_SETTINGS.get(name)
        check(TABLE_SETTINGS, name, setting.default if setting and text is None else text)
        if setting and not setting.alterable:
            raise SettingError(
                f'setting "{name}" of table {shorten(table.name)} cannot be changed',
                hint="it is fixed when the table is created",
            )
    kept = {name: text for name, text in table.given_settings.items() if name not in changes}
    given = {name: text for name, text in changes.items() if text is not None}
    after = Settings(TABLE_SETTINGS, {**kept, **given}).given
    for value in after.values():
        check_text("setting", value)
    return after


def named(
    what: str, names: Sequence[str], columns: Mapping[str, Column], table: str
) -> tuple[str, ...]:
    """The names as the columns spell them; each must exist and appear once."""
    for name in names:
        if name.lower() not in columns:
            known = [column.name for column in columns.values()]
            raise UnknownNameError(
                f"column {shorten(name)} of the {what} does not exist in table {shorten(table)}",
                hint=did_you_mean(name[:NAME_CHARS_MAX], known),
            )
    spelled = tuple(columns[name.lower()].name for name in names)
    if len(set(spelled)) < len(spelled):
        raise DefinitionError(f"the {what} of table {shorten(table)} names a column twice")
    return spelled


def check_name(what: str, name: str, chars_max: int = NAME_CHARS_MAX) -> None:
    if not name:
        raise DefinitionError(f"the name of a {what} cannot be empty")
    if len(name) > chars_max:
        raise DefinitionError(
            f"the name of a {what} is {len(name):,} characters long",
            hint=f"the limit is {chars_max:,}",
        )
    check_text(f"name of a {what}", name)


def check_text(what: str, text: str) -> None:
    """Only what both databases can hold: PostgreSQL has no NUL, UTF-8 no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DefinitionError(f"the {what} is not valid Unicode", detail=str(error)) from error
    if "\0" in text:
        raise DefinitionError(f"the {what} holds a NUL character")
