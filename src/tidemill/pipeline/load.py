"""Loading packages: the plan, the job, and what it commits (document 003 §4.2).

1. **Plan.** ``Load`` names the packages, dealt out to tasks by their weight.
2. **Run.** Sequence numbers are set apart, ``PACKAGE_ROWS_MAX`` for each package, so that loaded
   rows never meet those of the hot tier; tasks (``loading``) read, check, collate and write.
3. **Commit.** Primary keys are compared with all there is, then one transaction of the catalog
   names the files and records the packages. A package that is recorded is never loaded again, so
   each is loaded exactly once, whatever failed on the way and however often it is tried.

Partials of the table's digests are written by the tasks, for all partitions. A load has its table
for itself only to commit, so it then looks again: files of partitions that a digest does not cover
are left out, and what a digest lacks, because it is new or because rows gave way to others with
their key, is computed from the files of rows there and then.

A bad package of a source is set aside with its reason, and the others are loaded; a bad package of
COPY fails the statement. Loads are history: a row's time is compared with no watermark, no row of
a load is late, and no watermark moves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tidemill.catalog.commits import SeqRange
from tidemill.catalog.frozen import FrozenMap
from tidemill.catalog.model import (
    APPENDED,
    FILE_DELETES,
    FILE_DIGEST,
    FILE_ROWS,
    NewFile,
    Package,
    Table,
)
from tidemill.catalog.store import Catalog
from tidemill.clock import Clock
from tidemill.digests.definition import Digest
from tidemill.digests.progress import Progress
from tidemill.errors import DuplicateKeyError, TidemillError
from tidemill.history.partitions import partition_of, suitable_us
from tidemill.history.storage import Storage
from tidemill.history.writing import WriteSpec, write_deletes
from tidemill.pipeline.backfill import FilesTask, digest_files
from tidemill.pipeline.digesting import Digested, DigestWork, by_digest
from tidemill.pipeline.executor import PipelineError
from tidemill.pipeline.job import JobContext, Outcome, Written
from tidemill.pipeline.loading import (
    CHANGED,
    KNOWN,
    LOADED,
    ORIGIN,
    PACKAGE_ROWS_MAX,
    SET_ASIDE,
    LoadedTask,
    LoadTask,
    Taken,
    TaskPackage,
    load_packages,
)
from tidemill.pipeline.packages import Listed, group
from tidemill.stream.keys import KeyConflicts
from tidemill.stream.relation import scan_without

COPY = "copy"
REACH_PREFIX = "storage."
SHOWN_PACKAGES = 5

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Load:
    """The plan of a load. ``options`` are those of the statement: of the reader, and, after
    ``storage.``, of the place where the packages lie. ``source`` is a source's name, or COPY."""

    table: Table
    storage: Storage
    packages: tuple[Listed, ...]
    form: str
    columns: tuple[str, ...] | None = None
    options: Mapping[str, str] = field(default_factory=FrozenMap)
    source: str = COPY
    is_forced: bool = False  # whether packages that are loaded are loaded once more
    kind: str = field(default="load", init=False)

    @property
    def is_strict(self) -> bool:
        """Whether one bad package fails all."""
        return self.source == COPY

    @property
    def bytes(self) -> int:
        return sum(package.size for package in self.packages)

    def explain(self) -> list[str]:
        shown = [f"  {each.name} ({each.size:,} bytes)" for each in self.packages[:SHOWN_PACKAGES]]
        if len(self.packages) > SHOWN_PACKAGES:
            shown.append(f"  and {len(self.packages) - SHOWN_PACKAGES:,} more")
        return [
            f"load {len(self.packages):,} {self.form} packages of {self.bytes:,} bytes into "
            f'table "{self.table.name}"',
            *shown,
            "a bad package fails the load" if self.is_strict else "bad packages are set aside",
        ]


def split_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The options of the reader, and those of the place.

    >>> split_options({"header": "true", "storage.key": "k"})
    ({'header': 'true'}, {'key': 'k'})
    """
    reach = {n[len(REACH_PREFIX) :]: v for n, v in options.items() if n.startswith(REACH_PREFIX)}
    return {n: v for n, v in options.items() if not n.startswith(REACH_PREFIX)}, reach


@dataclass(frozen=True)
class LoadCommit:
    """What a load asks the catalog to record, in one transaction.

    ``reserved`` is the range of sequence numbers that rows of it have. ``replaced`` are rows that
    give way to loaded ones; those in history are in files of deletes among ``files`` already, so
    what remains to be done is to forget those that are still in memory. ``digested`` are the
    partials of its rows, to be named in the same transaction (``digesting.commit_loaded``).
    """

    table_id: int
    job_id: str
    files: tuple[NewFile, ...]
    packages: tuple[Package, ...]
    reserved: SeqRange | None = None
    replaced: tuple[int, ...] = ()
    digested: Digested = field(default_factory=FrozenMap)


@dataclass(frozen=True)
class DigestWriting:
    """What a load needs to know of its table's digests."""

    catalog: Catalog

    def digests(self, table_id: int) -> tuple[DigestWork, ...]:
        """The digests as they are now, each with its progress, without those that failed."""
        found = (
            DigestWork(
                Digest.of(table), Progress.read(self.catalog.records.progress(table.table_id))
            )
            for table in self.catalog.snapshot().digests_of(table_id)
        )
        return tuple(work for work in found if work.progress.failed is None)


class LoadEnvironment(Protocol):
    """What a load needs of the warehouse; the engine provides it."""

    def known(self, table_id: int, names: Sequence[str]) -> Sequence[Package]:
        """What the catalog has recorded of packages of these names."""
        ...

    def reserve(self, table_id: int, count: int) -> int:
        """Set consecutive sequence numbers apart for good; answers the first."""
        ...

    def check_keys(self, table: Table, files: Sequence[NewFile]) -> KeyConflicts:
        """Compare the primary keys of new files with each other, with history and with the hot
        rows. Called from the commit, when no other job of the table commits."""
        ...

    def commit(self, commit: LoadCommit) -> None: ...


@dataclass(frozen=True)
class LoadReport:
    """What became of a load's packages."""

    job_id: str
    packages: tuple[Taken, ...]
    rows: int
    rejected: int

    def count(self, state: str) -> int:
        return sum(package.state == state for package in self.packages)

    def explain(self) -> str:
        words = {
            LOADED: "loaded",
            SET_ASIDE: "set aside",
            KNOWN: "known already",
            CHANGED: "still changing",
        }
        counts = [(self.count(state), word) for state, word in words.items()]
        told = [f"{count} {word}" for count, word in counts if count]
        return f"packages: {', '.join(told) or 'none'}"


@dataclass(frozen=True)
class WrittenLoad:
    """A load that has run."""

    job_id: str
    first_seq: int
    packages: tuple[Taken, ...]
    files: tuple[NewFile, ...]  # of rows, rejected rows, deletes and partials
    digests: frozenset[int] = frozenset()  # those whose partials the tasks wrote
    ignored: frozenset[int] = frozenset()  # rows that are in files and were taken away again

    @property
    def stored(self) -> tuple[NewFile, ...]:
        """What belongs to the table itself."""
        return tuple(file for file in self.files if file.kind != FILE_DIGEST)


@dataclass(frozen=True)
class LoadJob:
    """A load on its way through the pipeline. It has its table for itself only to commit."""

    plan: Load
    environment: LoadEnvironment
    clock: Clock
    digests: DigestWriting | None = None
    exclusive: bool = field(default=False, init=False)

    @property
    def kind(self) -> str:
        return self.plan.kind

    @property
    def table_id(self) -> int:
        return self.plan.table.table_id

    @property
    def table_name(self) -> str:
        return self.plan.table.name

    def explain(self) -> list[str]:
        return self.plan.explain()

    # -- run

    def run(self, context: JobContext) -> Written[WrittenLoad, LoadReport]:
        plan = self.plan
        context.tell(plan.explain()[0])
        first_seq = self.environment.reserve(self.table_id, len(plan.packages) * PACKAGE_ROWS_MAX)
        return Written(self._run(context, first_seq, self._digests()), self.commit)

    def _digests(self) -> tuple[DigestWork, ...]:
        return () if self.digests is None else self.digests.digests(self.table_id)

    def _run(
        self, context: JobContext, first_seq: int, digests: Sequence[DigestWork]
    ) -> WrittenLoad:
        plan = self.plan
        # whatever their progress is now: it may be another when the load commits
        works = tuple(replace(work, progress=Progress()) for work in digests)
        tasks = self._tasks(context, first_seq, works)
        done: list[LoadedTask] = []

        def on_done(_index: int, task: LoadedTask) -> None:
            done.append(task)
            taken = [package for package in task.packages if package.state == LOADED]
            size = sum(package.listed.size for package in task.packages)
            context.count(rows=sum(package.rows for package in taken), bytes=size)

        try:
            name = f"load into {plan.table.name}"
            results = context.run_tasks(name, load_packages, tasks, on_done)
        except TidemillError:
            self._remove([file for task in done for file in task.files])
            raise
        packages = tuple(package for task in results for package in task.packages)
        files = tuple(file for task in results for file in task.files)
        known = frozenset(work.digest.table_id for work in works)
        return WrittenLoad(context.job_id, first_seq, packages, files, known)

    def _tasks(
        self, context: JobContext, first_seq: int, digests: tuple[DigestWork, ...]
    ) -> list[LoadTask]:
        plan = self.plan
        options, reach = split_options(plan.options)
        known: dict[str, list[Package]] = {}
        names = [] if plan.is_forced else [each.name for each in plan.packages]
        for package in self.environment.known(self.table_id, names):
            known.setdefault(package.name, []).append(package)
        packages = {
            listed.name: TaskPackage(
                listed, first_seq + at * PACKAGE_ROWS_MAX, tuple(known.get(listed.name, ()))
            )
            for at, listed in enumerate(plan.packages)
        }
        return [
            LoadTask(
                context.job_id,
                number,
                plan.table,
                plan.storage,
                plan.form,
                plan.columns,
                options,
                reach,
                tuple(packages[listed.name] for listed in dealt),
                self.clock.now_us(),
                apart=self._keeps_apart,
                strict=plan.is_strict,
                digests=digests,
            )
            for number, dealt in enumerate(group(plan.packages, context.executor.parallelism))
        ]

    @property
    def _keeps_apart(self) -> bool:
        """Whether a package may be set aside at commit, when its rows are in files already."""
        table = self.plan.table
        return bool(table.primary_key) and table.settings["on_conflict"] == "reject"

    # -- commit

    def commit(self, ready: WrittenLoad) -> Outcome[LoadReport]:
        self._refuse_twice(ready)
        replaced: tuple[int, ...] = ()
        if self.plan.table.primary_key and ready.files:
            ready, replaced = self._settle_keys(ready)
        rows = [package for package in ready.packages if package.state == LOADED and package.rows]
        last = ready.first_seq + len(self.plan.packages) * PACKAGE_ROWS_MAX - 1
        commit = LoadCommit(
            self.table_id,
            ready.job_id,
            ready.stored,
            self._records(ready),
            SeqRange(ready.first_seq, last) if rows else None,
            replaced,
            self._digested(ready),
        )
        if commit.files or commit.packages:
            self.environment.commit(commit)
        named = {file.path for files in commit.digested.values() for file in files}
        partials = (file for file in ready.files if file.kind == FILE_DIGEST)
        self._remove([file for file in partials if file.path not in named])
        return _outcome(ready)

    def _refuse_twice(self, ready: WrittenLoad) -> None:
        """Another load may have been faster with the same packages."""
        if self.plan.is_forced:
            return
        names = [package.listed.name for package in ready.packages if package.state == LOADED]
        before = {k.name for k in self.environment.known(self.table_id, names) if k.state == LOADED}
        if before:
            self._remove(ready.files)
            raise PipelineError(
                f'"{min(before)}" was loaded by another job meanwhile; nothing was stored',
                hint="load the others again",
            )

    def _settle_keys(self, ready: WrittenLoad) -> tuple[WrittenLoad, tuple[int, ...]]:
        policy = self.plan.table.settings["on_conflict"]
        if policy == "reject":
            return self._set_aside_repeats(ready), ()
        rows = [file for file in ready.files if file.kind == FILE_ROWS]
        found = self.environment.check_keys(self.plan.table, rows)
        if not len(found.seqs):
            return ready, ()
        gone = found.seqs if policy == "ignore" else found.against
        deletes = self._deletes(ready.job_id, gone, found.times_us)
        ready = replace(ready, files=(*ready.files, *deletes))
        if policy == "ignore":
            return _ignored(replace(ready, ignored=frozenset(gone.tolist())), found.seqs), ()
        return _replacing(ready, found.seqs), tuple(int(seq) for seq in gone)

    def _digested(self, ready: WrittenLoad) -> Digested:
        """The partials to be named: of partitions that a digest covers, and of all of them."""
        works, written = self._digests(), by_digest(ready.files)
        found = {
            work.digest.table_id: [
                file
                for file in written.get(work.digest.table_id, ())
                if work.progress.covers(file.lo_us)
            ]
            for work in works
        }
        lacking = [w for w in works if ready.ignored or w.digest.table_id not in ready.digests]
        for work in lacking:
            found[work.digest.table_id] = self._completed(ready, work, found[work.digest.table_id])
        return FrozenMap({digest_id: tuple(files) for digest_id, files in found.items()})

    def _completed(
        self, ready: WrittenLoad, work: DigestWork, made: Sequence[NewFile]
    ) -> list[NewFile]:
        """Partials of a digest that is new, or of partitions that lost rows, computed again."""
        if work.digest.table_id not in ready.digests:
            return self._computed(ready, work, None)
        deletes = [file for file in ready.files if file.kind == FILE_DELETES]
        lost = {
            (file.lo_us, file.hi_us)
            for file in made
            if any(_overlaps(file, each) for each in deletes)
        }
        kept = [file for file in made if (file.lo_us, file.hi_us) not in lost]
        return [*kept, *self._computed(ready, work, lost)]

    def _computed(
        self, ready: WrittenLoad, work: DigestWork, places: Collection[tuple[int, int]] | None
    ) -> list[NewFile]:
        """Partials from the files of rows, for some partitions or for all that are covered. Files
        of joined partitions give more than that, which is left out again."""
        by_place: dict[tuple[int, int], list[NewFile]] = {}
        for file in ready.files:
            if file.kind == FILE_ROWS and _reaches(file, places):
                by_place.setdefault((file.lo_us, file.hi_us), []).append(file)
        plan = self.plan
        tasks = [
            FilesTask(
                f"{ready.job_id}-again{number}",
                plan.table,
                plan.storage,
                work,
                scan_without(files, ready.ignored),
                ORIGIN,
            )
            for number, files in enumerate(by_place.values())
        ]
        made = [file for task in tasks for file in digest_files(task)]
        wanted = [
            file
            for file in made
            if work.progress.covers(file.lo_us)
            and (places is None or (file.lo_us, file.hi_us) in places)
        ]
        kept = {file.path for file in wanted}
        self._remove([file for file in made if file.path not in kept])
        return wanted

    def _set_aside_repeats(self, ready: WrittenLoad) -> WrittenLoad:
        """Set packages aside that repeat a key, in their order: a row whose rival went aside with
        its own package is compared with the one before that. Files hold the rows of one package
        each here, so they are left out as wholes."""
        rows = [file for file in ready.files if file.kind == FILE_ROWS]
        found = self.environment.check_keys(self.plan.table, rows)
        before = dict(zip(found.seqs.tolist(), found.against.tolist(), strict=True))
        bad: dict[int, int] = {}
        aside = np.zeros(len(self.plan.packages), dtype=bool)
        for first_seq, seqs in _by_package(sorted(before), ready.first_seq):
            repeats = 0
            for seq in seqs:
                rival: int | None = before[seq]
                while rival is not None and _is_aside(rival, ready.first_seq, aside):
                    rival = before.get(rival)
                repeats += rival is not None
            if repeats:
                bad[first_seq] = repeats
                aside[(first_seq - ready.first_seq) // PACKAGE_ROWS_MAX] = True
        return self._without(ready, bad) if bad else ready

    def _first_of(self, ready: WrittenLoad, seq: int) -> int:
        """The first sequence number of the package that a row belongs to."""
        return seq - (seq - ready.first_seq) % PACKAGE_ROWS_MAX

    def _without(self, ready: WrittenLoad, bad: Mapping[int, int]) -> WrittenLoad:
        packages = []
        for package in ready.packages:
            count = bad.get(package.first_seq) if package.state == LOADED else None
            if count is not None:
                error = DuplicateKeyError(
                    f'{count} of {package.rows} rows of "{package.listed.name}" repeat a primary '
                    f'key of table "{self.table_name}"',
                    hint="on_conflict = 'ignore' or 'replace' lets the others in",
                )
                if self.plan.is_strict:
                    self._remove(ready.files)
                    raise error
                package = Taken(package.listed, SET_ASIDE, package.digest, error=error)
            packages.append(package)
        kept = [f for f in ready.files if self._first_of(ready, f.seq_min) not in bad]
        left = [f for f in ready.files if self._first_of(ready, f.seq_min) in bad]
        self._remove(left)
        return replace(ready, packages=tuple(packages), files=tuple(kept))

    def _deletes(self, job_id: str, seqs: Numbers, times_us: Numbers) -> list[NewFile]:
        """Files that take rows away, one for each partition or range of joined ones."""
        spec = WriteSpec.of(self.plan.table)
        size_us = suitable_us(times_us, spec.partition_us, spec.range_us_max)
        places: dict[tuple[int, int], list[int]] = {}
        for seq, time_us in zip(seqs.tolist(), times_us.tolist(), strict=True):
            places.setdefault(partition_of(time_us, size_us), []).append(seq)
        return [
            write_deletes(self.plan.storage, spec, *place, gone, f"{job_id}-keys", number, ORIGIN)
            for number, (place, gone) in enumerate(sorted(places.items()))
        ]

    def _records(self, ready: WrittenLoad) -> tuple[Package, ...]:
        """What is new of the packages. One that is loaded once more keeps its record, which counts
        the rows of both times."""
        records = [self._record(each, ready.job_id) for each in ready.packages if _is_new(each)]
        if not self.plan.is_forced:
            return tuple(records)
        known = self.environment.known(self.table_id, [each.name for each in records])
        before = {(k.name, k.size, k.digest): k for k in known if k.source != APPENDED}
        return tuple(
            _added(each, before.get((each.name, each.size, each.digest))) for each in records
        )

    def _record(self, package: Taken, job_id: str) -> Package:
        return record_of(package, job_id, self.plan.source, self.clock.now_us())

    def _remove(self, files: Sequence[NewFile]) -> None:
        """Best effort; VACUUM finds what is left."""
        for file in files:
            with suppress(Exception):
                self.plan.storage.delete(file.path)


def _outcome(ready: WrittenLoad) -> Outcome[LoadReport]:
    loaded = [package for package in ready.packages if package.state == LOADED]
    rows = sum(package.rows for package in loaded)
    rejected = sum(package.rejected for package in loaded)
    report = LoadReport(ready.job_id, ready.packages, rows, rejected)
    size = sum(package.listed.size for package in ready.packages)
    return Outcome(report, rows, size, len(ready.stored), report.explain())


def _added(package: Package, before: Package | None) -> Package:
    if before is None:
        return package
    return replace(
        package,
        rows=package.rows + before.rows,
        rejected=package.rejected + before.rejected,
        late=package.late + before.late,
        replaced=package.replaced + before.replaced,
    )


def _overlaps(file: NewFile, other: NewFile) -> bool:
    return file.lo_us < other.hi_us and file.hi_us > other.lo_us


def _reaches(file: NewFile, places: Collection[tuple[int, int]] | None) -> bool:
    return places is None or any(file.lo_us < hi and file.hi_us > lo for lo, hi in places)


def _is_new(package: Taken) -> bool:
    return package.state in (LOADED, SET_ASIDE)


def _by_package(seqs: Sequence[int], first_seq: int) -> Iterator[tuple[int, list[int]]]:
    """Sorted sequence numbers by the package they belong to, under its first one."""
    for at, members in groupby(seqs, lambda seq: (seq - first_seq) // PACKAGE_ROWS_MAX):
        yield first_seq + at * PACKAGE_ROWS_MAX, list(members)


def _is_aside(seq: int, first_seq: int, aside: npt.NDArray[np.bool_]) -> bool:
    at = (seq - first_seq) // PACKAGE_ROWS_MAX
    return 0 <= at < len(aside) and bool(aside[at])


def _ignored(ready: WrittenLoad, seqs: Numbers) -> WrittenLoad:
    """Rows that were left out count as rejected, so that the sum of a package stays right."""
    by_first = _counted(ready, seqs)
    packages = [
        replace(
            package,
            rows=package.rows - by_first.get(package.first_seq, 0),
            rejected=package.rejected + by_first.get(package.first_seq, 0),
        )
        if package.state == LOADED
        else package
        for package in ready.packages
    ]
    return replace(ready, packages=tuple(packages))


def _replacing(ready: WrittenLoad, seqs: Numbers) -> WrittenLoad:
    """Packages know how many rows gave way to theirs, so that these are not taken for expired."""
    by_first = _counted(ready, seqs)
    packages = [
        replace(package, replaced=by_first.get(package.first_seq, 0))
        if package.state == LOADED
        else package
        for package in ready.packages
    ]
    return replace(ready, packages=tuple(packages))


def _counted(ready: WrittenLoad, seqs: Numbers) -> dict[int, int]:
    """How many of some rows each package has, under its first sequence number."""
    firsts, counts = np.unique((seqs - ready.first_seq) // PACKAGE_ROWS_MAX, return_counts=True)
    return {
        ready.first_seq + int(at) * PACKAGE_ROWS_MAX: int(n)
        for at, n in zip(firsts, counts, strict=True)
    }


def record_of(package: Taken, job_id: str, source: str, now_us: int) -> Package:
    """A package as the catalog keeps it."""
    return Package(
        name=package.listed.name,
        size=package.listed.size,
        digest=package.digest,
        state=package.state,
        reason=package.reason,
        rows=package.rows,
        rejected=package.rejected,
        late=0,
        loaded_at_us=now_us,
        source=source,
        job_id=job_id,
        replaced=package.replaced,
    )
