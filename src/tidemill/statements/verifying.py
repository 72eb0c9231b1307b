"""Verifying: VACUUM reads all that the warehouse keeps and compares it with its checksums.

What a query meets is checked when it is read; what nobody asks for may lie damaged for years, and
copies of it are thrown away meanwhile. So VACUUM checks everything, believing nothing that was
checked before: files of history (those of older snapshots, too), closed segments of the log,
reference tables and the catalog. All damage is found before it is told, as one error.

``drop_damaged`` is the way out where there is no copy: files of a stream's rows leave the catalog,
and their rows with them. It does nothing that would make other rows wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidemill.catalog.commits import FileCommit
from tidemill.catalog.model import FILE_DELETES, FILE_DIGEST, DataFile, Snapshot, Table
from tidemill.catalog.store import Catalog
from tidemill.errors import CorruptLogError, DamagedFileError, DependencyError, TidemillError
from tidemill.federation.references import References
from tidemill.history.checking import damaged_files
from tidemill.history.storage import Storage
from tidemill.hot.recovery import check_log
from tidemill.hot.table import HotTable

SHOWN_MAX = 10

Damaged = list[tuple[DataFile, DamagedFileError]]


class Verifying:
    def __init__(
        self,
        catalog: Catalog,
        storage: Storage,
        hot: Mapping[int, HotTable],
        references: References,
    ) -> None:
        self._catalog = catalog
        self._storage = storage
        self._hot = hot
        self._references = references

    def check(self, table: Table | None) -> None:
        """Raise one error for all damage to a stream, or to the warehouse."""
        found: list[TidemillError] = [error for _, error in self._damaged(table)]
        chosen = [
            each
            for each in self._hot.values()
            if table is None or each.table.table_id == table.table_id
        ]
        for hot in chosen:
            try:
                check_log(hot)
            except CorruptLogError as error:
                found.append(error)
        if table is None:
            found += self._check_rest()
        if len(found) == 1:
            raise found[0]
        if found:
            shown = "; ".join(error.message for error in found[:SHOWN_MAX])
            rest = f"; and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
            raise DamagedFileError(
                f"{len(found)} files are damaged", detail=shown + rest, hint=found[0].hint
            )

    def drop_damaged(self, table: Table) -> tuple[int, int]:
        """Take damaged files out of a stream's history; answers files and rows."""
        snapshot = self._catalog.snapshot()
        live = {file.file_id for file in snapshot.history(table.table_id).files}
        damaged = [(file, error) for file, error in self._damaged(table) if file.file_id in live]
        _check_droppable(snapshot, table, damaged)
        files = [file for file, _ in damaged]
        if files:
            with self._catalog.transaction() as change:
                left_out = FileCommit(drop=[file.file_id for file in files])
                change.commit_files(table.table_id, left_out)
        return len(files), sum(file.rows for file in files)

    def _damaged(self, table: Table | None) -> Damaged:
        snapshot = self._catalog.snapshot()
        files = self._catalog.records.known_files()
        if table is not None:
            digests = (each.table_id for each in snapshot.digests_of(table.table_id))
            own = {table.table_id, *digests}
            files = [file for file in files if file.table_id in own]
        named = [(_name(snapshot, file.table_id), file) for file in files]
        by_path = {file.path: file for file in files}
        found = [(by_path[f.path], error) for f, error in damaged_files(self._storage, named)]
        known = self._catalog.records.known_paths() if found else set()
        return [(file, error) for file, error in found if file.path in known]  # others went since

    def _check_rest(self) -> list[TidemillError]:
        tables = self._catalog.snapshot().tables.values()
        found: list[TidemillError] = []
        try:
            self._references.check(table for table in tables if table.is_reference)
        except DamagedFileError as error:
            found.append(error)
        try:
            self._catalog.verify()
        except TidemillError as error:
            found.append(error)
        return found


def _check_droppable(snapshot: Snapshot, table: Table, damaged: Damaged) -> None:
    for file, error in damaged:
        if file.kind == FILE_DELETES:
            raise DamagedFileError(
                f'file "{file.path}" of table "{table.name}" cannot be dropped',
                detail=f"{error.message}; without it rows that were replaced would come back",
                hint="restore the file from a copy",
            )
    digests = snapshot.digests_of(table.table_id)
    if digests and any(file.kind != FILE_DIGEST for file, _ in damaged):
        names = _views_of(snapshot, digests)
        raise DependencyError(
            f'damaged files of table "{table.name}" cannot be dropped: views sum up its rows',
            detail=f"the views are {', '.join(names)}",
            hint="drop these views first, and create them again afterwards",
        )


def _views_of(snapshot: Snapshot, digests: Sequence[Table]) -> list[str]:
    return sorted({digest.name.partition("$")[0] for digest in digests})


def _name(snapshot: Snapshot, table_id: int) -> str:
    table = snapshot.table(table_id)
    return f"number {table_id}, dropped" if table is None else table.name
