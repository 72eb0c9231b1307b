"""Superseded versions of reference tables, for the rows at the edges of sliding windows.

A row keeps the partners that it had when it arrived. What lies inside a window was summed up then;
rows at its edges are read and joined again at every read, and by then the table may be another. So:

1. Before a table changes that a digest with panes joins (nothing arrives then), it is copied: that
   is version n, and the rows of the digest up to the stream's newest number were joined with it or
   an earlier one. If no row came since version n - 1, nothing is copied.
2. Only the newest version is whole. When another comes, the one before becomes its difference: rows
   that it had in addition (sign 1), rows that it did not have (sign -1). A version is the whole one
   behind it, with the rows of all differences on the way added and taken away.
3. A read divides its edge rows by number, and joins each part with its version; rows behind all of
   them are joined with the table itself.
4. Windows go forward. A version goes when no window reaches back to a row of it any more.

Versions are Arrow files beside the reference tables, made durable before the change, and found
again at the next start. Differences of more than ``CHANGED_ROWS_MAX`` rows of a table are not kept:
the oldest version goes, and its rows are joined with the next one.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.checksums import SEAL_BYTES, SummedFile, check_seal, has_seal, sealed
from tidemill.errors import DamagedFileError
from tidemill.federation.duck import REFERENCE, Duck
from tidemill.federation.references import place_of
from tidemill.hot.ending import sync_folder
from tidemill.permissions import make_file, make_folder

CHANGED_ROWS_MAX = 1_000_000
CACHED_MAX = 8
FOLDER = "superseded"
_SIGN = "tm_sign"
_KEY = b"tidemill"
_NAME = re.compile(r"t(\d+)-v(\d+)\.arrow")
_log = logging.getLogger("tidemill.views")

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Span:
    """Rows of a digest that a version, or one before it, belongs to: those behind ``base_seq`` and
    up to ``upto_seq``, none of them newer than ``newest_us``."""

    digest_id: int
    base_seq: int
    upto_seq: int
    newest_us: int


@dataclass(eq=False)
class _Version:
    number: int
    spans: tuple[Span, ...]
    rows: pa.Table

    @property
    def is_whole(self) -> bool:
        return _SIGN not in self.rows.column_names

    def span_of(self, digest_id: int) -> Span | None:
        return next((span for span in self.spans if span.digest_id == digest_id), None)


@dataclass(frozen=True)
class Part:
    """Some rows, by their places, and the tables that they are joined with, by id; tables that are
    not here are as they are now."""

    places: Numbers
    tables: Mapping[int, pa.Table]


class Versions:
    def __init__(self, duck: Duck) -> None:
        self._duck = duck
        self._lock = threading.RLock()
        self._folder: Path | None = None
        self._of: dict[int, list[_Version]] = {}  # by table, the oldest first
        self._lows: dict[int, int] = {}  # by digest: no window reaches further back
        self._cache: OrderedDict[tuple[int, int], pa.Table] = OrderedDict()

    def open(self, digests: Collection[int]) -> None:
        """Find the versions that were kept for digests that are still there."""
        query = f"SELECT path FROM duckdb_databases() WHERE database_name = '{REFERENCE}'"
        self._folder = Path(self._duck.execute(query)[0][0]).parent / FOLDER
        make_folder(self._folder)
        for path in list(self._folder.iterdir()):
            found = _NAME.fullmatch(path.name)
            if found is None:
                path.unlink()  # it was being written
                continue
            rows = _checked(path)
            spans = json.loads((rows.schema.metadata or {})[_KEY])
            made = tuple(Span(**span) for span in spans)
            self._of.setdefault(int(found[1]), []).append(_Version(int(found[2]), made, rows))
        for table_id, versions in self._of.items():
            versions.sort(key=lambda version: version.number)
            self._prune(table_id, digests)

    # -- before a change

    def keep(self, table_id: int, spans: Iterable[Span], digests: Collection[int]) -> None:
        """Remember a table for rows that have arrived; ``digests`` are all there are."""
        with self._lock:
            self._prune(table_id, digests)
            versions = self._of.setdefault(table_id, [])
            following = [_following(span, versions) for span in spans]
            new = [span for span in following if span is not None and self._is_reached(span)]
            if not new:
                return
            rows, _ = self._duck.query(f"SELECT * FROM {place_of(table_id)}", {}, {}, exact=True)
            number = versions[-1].number + 1 if versions else 1
            made = _Version(number, tuple(new), rows)
            self._store(table_id, made)
            if versions and versions[-1].is_whole:
                last = versions[-1]
                last.rows = self._difference(last.rows, made.rows)
                self._store(table_id, last)
            versions.append(made)
            self._limit(table_id)

    def _difference(self, was: pa.Table, now: pa.Table) -> pa.Table:
        sql = (
            f"SELECT *, 1::TINYINT AS {_SIGN} FROM (FROM tm_was EXCEPT ALL FROM tm_now) UNION ALL "
            f"SELECT *, -1::TINYINT FROM (FROM tm_now EXCEPT ALL FROM tm_was)"
        )
        return self._duck.query(sql, {}, {"tm_was": was, "tm_now": now}, exact=True)[0]

    def _limit(self, table_id: int) -> None:
        versions = self._of[table_id]
        while sum(v.rows.num_rows for v in versions if not v.is_whole) > CHANGED_ROWS_MAX:
            self._forget(table_id, versions.pop(0))
            _log.warning(
                "reference table %s changes more than is kept for sliding windows: rows at their "
                "edges may be joined with a later version of it",
                table_id,
            )

    # -- at a read

    @contextmanager
    def held(self) -> Iterator[None]:
        """While rows are divided and joined: no table changes for which something is kept."""
        with self._lock:
            yield

    def reached(self, digest_id: int, low_us: int) -> None:
        """A digest's window reaches back to there, and never further again."""
        self._lows[digest_id] = low_us

    def divide(self, digest_id: int, tables: Sequence[int], seqs: Numbers) -> list[Part]:
        """Rows of a digest by their numbers, divided by what they are joined with."""
        chosen = [self._choice(digest_id, table_id, seqs) for table_id in tables]
        whole = np.arange(len(seqs))
        if not any((choice >= 0).any() for choice in chosen):
            return [Part(whole, {})]
        kinds, of = np.unique(np.stack(chosen), axis=1, return_inverse=True)
        of = of.reshape(-1)
        return [
            Part(
                np.flatnonzero(of == kind),
                {
                    table_id: self._table(table_id, int(number))
                    for table_id, number in zip(tables, kinds[:, kind], strict=True)
                    if number >= 0
                },
            )
            for kind in range(kinds.shape[1])
        ]

    def _choice(self, digest_id: int, table_id: int, seqs: Numbers) -> Numbers:
        """The place of each row's version among those of a table; -1 is the table itself."""
        found = [
            (span, place)
            for place, version in enumerate(self._of.get(table_id, ()))
            if (span := version.span_of(digest_id)) is not None
        ]
        if not found:
            return np.full(len(seqs), -1)
        ends = np.array([span.upto_seq for span, _ in found])
        places = np.array([*(place for _, place in found), -1])
        chosen = places[np.searchsorted(ends, seqs)]
        chosen[seqs <= found[0][0].base_seq] = -1
        return chosen

    def _table(self, table_id: int, place: int) -> pa.Table:
        versions = self._of[table_id]
        key = table_id, versions[place].number
        if key not in self._cache:
            self._cache[key] = self._made(versions[place:])
            while len(self._cache) > CACHED_MAX:
                self._cache.popitem(last=False)
        self._cache.move_to_end(key)
        return self._cache[key]

    def _made(self, versions: Sequence[_Version]) -> pa.Table:
        at = next(at for at, version in enumerate(versions) if version.is_whole)
        if at == 0:
            return versions[0].rows
        sql = (
            f"(FROM tm_whole UNION ALL SELECT * EXCLUDE ({_SIGN}) FROM tm_differences WHERE "
            f"{_SIGN} = 1) EXCEPT ALL "
            f"SELECT * EXCLUDE ({_SIGN}) FROM tm_differences WHERE {_SIGN} = -1"
        )
        rows = [version.rows.replace_schema_metadata() for version in versions[:at]]
        sources = {"tm_whole": versions[at].rows, "tm_differences": pa.concat_tables(rows)}
        return self._duck.query(sql, {}, sources, exact=True)[0]

    # -- files

    def _prune(self, table_id: int, digests: Collection[int]) -> None:
        versions = self._of.get(table_id, [])
        while versions and not any(
            span.digest_id in digests and self._is_reached(span) for span in versions[0].spans
        ):
            self._forget(table_id, versions.pop(0))

    def _is_reached(self, span: Span) -> bool:
        """Whether a window may still reach back to one of the rows."""
        low_us = self._lows.get(span.digest_id)
        return low_us is None or span.newest_us >= low_us

    def _store(self, table_id: int, version: _Version) -> None:
        if self._folder is None:
            return
        path = self._path(table_id, version)
        spans = json.dumps([asdict(span) for span in version.spans]).encode()
        rows = version.rows.replace_schema_metadata({_KEY: spans})
        unfinished = path.with_suffix(".new")
        make_file(unfinished)
        with open(unfinished, "wb") as file:
            summed = SummedFile(file, is_whole=True)
            with pa.ipc.new_file(pa.PythonFile(summed, "w"), rows.schema) as writer:
                writer.write_table(rows)
            file.write(sealed(summed.crc))
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        sync_folder(path.parent)
        version.rows = _read(path)

    def _forget(self, table_id: int, version: _Version) -> None:
        self._cache.pop((table_id, version.number), None)
        if self._folder is not None:
            self._path(table_id, version).unlink(missing_ok=True)

    def _path(self, table_id: int, version: _Version) -> Path:
        assert self._folder is not None
        return self._folder / f"t{table_id}-v{version.number}.arrow"


def _following(span: Span, versions: Sequence[_Version]) -> Span | None:
    """The span that goes on where the digest's last one ended; None if no row came since."""
    known = [version.span_of(span.digest_id) for version in versions]
    before = [each for each in known if each is not None]
    if not before:
        return span if span.upto_seq > span.base_seq else None
    if span.upto_seq <= before[-1].upto_seq:
        return None
    return Span(span.digest_id, before[-1].base_seq, span.upto_seq, span.newest_us)


def _read(path: Path) -> pa.Table:
    """A file's rows, mapped and not loaded."""
    with pa.memory_map(str(path)) as file:
        content = file.read_buffer()
    is_sealed = has_seal(content)
    return pa.ipc.open_file(content.slice(0, content.size - SEAL_BYTES * is_sealed)).read_all()


def _checked(path: Path) -> pa.Table:
    """The same of a file that another process wrote."""
    hint = f"restore it from a copy; without it ({path} moved away) rows at the edges of sliding "
    hint += "windows are joined with a later version of the table"
    with pa.memory_map(str(path)) as file:
        check_seal(file.read_buffer(), str(path), hint)
    try:
        return _read(path)
    except (pa.ArrowException, OSError) as error:  # of an older release, without a checksum
        raise DamagedFileError(f'file "{path}" is damaged', detail=str(error), hint=hint) from error
