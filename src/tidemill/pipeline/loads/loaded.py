"""Which files a table has: one rule for COPY, sources and ``tidemill load``.

A file is known by its name (an absolute path or a URL), its size and the digest of its bytes. One
that was loaded is not loaded again as long as it is unchanged; if it changed, it is refused,
because nobody can say which of its rows are new. FORCE (``--again``) loads it all the same.

What the pipeline loads is recorded with the rows in one transaction of the catalog. The record of a
file that goes through memory is in the frame of its rows, so that it is stored once whatever breaks
off, and the catalog takes it over (``appending``). ``tidemill load`` appends batches under the
file's source and marks the last one; such a file is known to the others by that mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidemill.catalog.model import APPENDED, LOADED, Package, Table
from tidemill.catalog.store import Catalog
from tidemill.errors import FileFormatError
from tidemill.hot.table import HotTable
from tidemill.pipeline.file_digests import digest_of, has_digest
from tidemill.pipeline.packages import WHOLE_FILE, file_source


@dataclass(frozen=True)
class FileState:
    """A local file as it is now."""

    name: str
    size: int
    digest: str


def marked(hot: HotTable, names: Sequence[str]) -> list[Package]:
    """Files of these names that were appended whole in batches, as packages."""
    sources = hot.offsets.newest()
    found = []
    for name in names:
        path = Path(name)
        if "://" in name or not path.is_file():
            continue
        size = path.stat().st_size
        start = f"file:{path.name}:{size}:"
        if any(source.startswith(start) for source in sources):
            source = file_source(path)
            if sources.get(source) == WHOLE_FILE:
                found.append(_package(name, size, digest_of(path), 0))
    return found


def look_up(catalog: Catalog, hot: HotTable, table: Table, path: Path) -> FileState | None:
    """The file, or None if the table has it as it is; raises if it has it otherwise."""
    name, size, digest = str(path.absolute()), path.stat().st_size, digest_of(path)
    loaded = [p for p in catalog.records.packages(table.table_id, [name]) if p.state == LOADED]
    if any(each.size == size and has_digest(path, each.digest, digest) for each in loaded):
        return None
    if loaded:
        raise FileFormatError(
            f'"{name}" changed after it was loaded',
            hint="give changed data a name of its own, or load all of it again with (FORCE)",
        )
    source, newest = file_source(path), hot.offsets.newest()
    if newest.get(source) == WHOLE_FILE:
        return None
    if source in newest:
        raise FileFormatError(
            f'"{name}" was loaded in part by tidemill load',
            hint="the same tidemill load goes on with it; (FORCE) loads all of it",
        )
    return FileState(name, size, digest)


def record(file: FileState, rows: int, rejected: int, at_us: int) -> Package:
    """The record of a file whose rows go through memory."""
    package = _package(file.name, file.size, file.digest, at_us)
    return replace(package, rows=rows, rejected=rejected)


def _package(name: str, size: int, digest: str, at_us: int) -> Package:
    return Package(
        name=name,
        size=size,
        digest=digest,
        state=LOADED,
        reason=None,
        rows=0,
        rejected=0,
        late=0,
        loaded_at_us=at_us,
        source=APPENDED,
        job_id="",
        replaced=0,
    )
