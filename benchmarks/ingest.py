"""Ingest: how fast rows become durable, indexed and ready to be asked for.

1. Batches of 10,000 reports, each acknowledged only when it is durable, into Tidemill and each
   peer in turn; every system's answers are compared with sums that numpy computed.
2. The ways into Tidemill: durabilities, writer threads, single rows as statements and dicts.
3. A CSV file by ``COPY``, beside DuckDB's own reading of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from benchmarks import data
from benchmarks.harness import Options, Worker, WorkerError, progress, scratch
from benchmarks.peers import install_peers
from benchmarks.report import OURS, Report

BATCHES = "Durable batches of 10,000 rows, indexed"
WAYS = "Batches of 10,000 rows into Tidemill"
SINGLES = "Single rows"
FILES = "A CSV file of {rows:,} rows"
PEERS = ("postgres", "duckdb", "chdb", "sqlite")
PEER_ROWS = 2_000_000
PEER_REPEAT_MAX = 3
RELAXED = {  # what comes nearest to durability = 'batch'; DuckDB has nothing like it
    OURS: {"durability": "batch"},
    "postgres": {"synchronous_commit": "off"},
    "sqlite": {"synchronous": "NORMAL"},
}
STATEMENT = "INSERT statement, durability = 'batch' or nearest"
DURABILITIES = ("sync", "batch", "none")
THREADS = (1, 2, 4)


def run(options: Options) -> Report:
    with scratch() as folder:
        report = Report("ingest", "Ingest", options, folder)
        _pour_batches(report, options, folder)
        if options.wants(OURS):
            _pour_ways(report, options, folder)
            _pour_singles(report, options, folder)
            _read_files(report, options, folder)
        _set_goals(report, options)
    report.notes += [
        "Rows are made and brought into each system's own form (binary COPY for PostgreSQL, tuples "
        "for SQLite) before the clock starts; this favours the peers. DuckDB and chdb take the "
        "same Arrow data as Tidemill.",
        f"Peers take at most {PEER_ROWS:,} rows; their indices would only grow slower with more.",
        "Each run begins with an empty system in a new process; systems take turns.",
    ]
    return report


def _pour_batches(report: Report, options: Options, folder: Path) -> None:
    systems = [name for name in (OURS, *PEERS) if options.wants(name)]
    if "chdb" in systems and (reason := install_peers()):
        report.missing["chdb"] = reason
    rates: dict[str, list[float]] = {name: [] for name in systems}
    latencies_ms: dict[str, list[float]] = {name: [] for name in systems}
    first_rates: list[float] = []
    peer_rows = min(options.rows, PEER_ROWS)
    wanted = {rows: data.expected(rows) for rows in {options.rows, peer_rows}}
    with progress(options.repeat * len(systems), "ingest, batches") as advance:
        for turn in range(options.repeat):
            for name in systems:
                advance(f"{name}, turn {turn + 1}", 1)
                if name in report.missing or (name != OURS and turn >= PEER_REPEAT_MAX):
                    continue
                rows = options.rows if name == OURS else peer_rows
                try:
                    seconds = _pour_once(
                        report, name, folder / f"{name}-{turn}", rows, wanted[rows]
                    )
                except WorkerError as error:
                    report.missing[name] = str(error)
                    continue
                rates[name].append(rows / sum(seconds))
                latencies_ms[name] += [s * 1_000 for s in seconds]
                if name == OURS:
                    first_rates.append(peer_rows / sum(seconds[: peer_rows // data.BATCH_ROWS]))
    for name, values in rates.items():
        if values:
            rows = options.rows if name == OURS else peer_rows
            report.add(BATCHES, "rate", name, "rows/s", values, f"{rows:,} rows")
    if first_rates and peer_rows < options.rows:
        note = f"the first {peer_rows:,} rows"
        report.add(BATCHES, "rate at the peers' size", OURS, "rows/s", first_rates, note)
    for name, values in latencies_ms.items():
        if values:
            report.add(BATCHES, "one insert", name, "ms", values)


def _pour_once(
    report: Report, name: str, folder: Path, rows: int, wanted: data.Expected
) -> list[float]:
    with Worker("benchmarks.pouring:Pour", name, folder, {}) as worker:
        report.systems[name] = worker.call("settings")
        seconds: list[float] = worker.call("batches", rows)
        totals, lookup = worker.call("answers", wanted.lookup_vid)
    report.check(name, "count and sums", totals == (wanted.count, *wanted.sums), str(totals))
    report.check(name, "one car's rows", lookup == list(wanted.lookup), f"{len(lookup)} rows")
    return seconds


def _pour_ways(report: Report, options: Options, folder: Path) -> None:
    rows = min(options.rows, options.smaller(2_000_000, 100_000))
    ways = [(durability, 1) for durability in DURABILITIES]
    ways += [("sync", threads) for threads in THREADS[1:]]
    taken: dict[str, list[float]] = {}
    with (
        Worker("benchmarks.pouring:PourTide", folder / "ways") as worker,
        progress(options.repeat * len(ways), "ingest, ways") as advance,
    ):
        worker.call("batches", 10 * data.BATCH_ROWS, "none", 1)  # warm-up
        for _ in range(options.repeat):
            for durability, threads in ways:
                what = f"durability = '{durability}', {threads} writer{'s' * (threads > 1)}"
                advance(what, 1)
                seconds = worker.call("batches", rows, durability, threads)
                taken.setdefault(what, []).append(rows / seconds)
    for what, values in taken.items():
        report.add(WAYS, what, OURS, "rows/s", values, f"{rows:,} rows")


def _pour_singles(report: Report, options: Options, folder: Path) -> None:
    _single_statements(report, options, folder)
    count = options.smaller(100_000, 10_000)
    ways = [("batch", 1, count), ("none", 1, count), ("sync", 1, count // 20)]
    ways += [("sync", 4, count // 20)]
    taken: dict[str, list[float]] = {}
    with (
        Worker("benchmarks.pouring:PourTide", folder / "dicts") as worker,
        progress(options.repeat * len(ways), "ingest, dicts") as advance,
    ):
        worker.call("dicts", 1_000, "none", 1)
        for _ in range(options.repeat):
            for durability, threads, rows in ways:
                many = f", {threads} writers" if threads > 1 else ""
                what = f"append of one dict, durability = '{durability}'{many}"
                advance(what, 1)
                seconds = worker.call("dicts", rows, durability, threads)
                taken.setdefault(what, []).append(rows / seconds)
    for what, values in taken.items():
        report.add(SINGLES, what, OURS, "rows/s", values)


def _single_statements(report: Report, options: Options, folder: Path) -> None:
    """Literal INSERT statements; the peers with what comes nearest to durability = 'batch'."""
    count = options.smaller(5_000, 500)
    systems = [name for name in (OURS, "postgres", "sqlite", "duckdb") if options.wants(name)]
    with progress(len(systems) * options.repeat, "ingest, statements") as advance:
        for name in systems:
            if name in report.missing:
                continue
            relaxed = RELAXED.get(name, {})
            rows, turns = (count // 5, 2) if name == "duckdb" else (count, options.repeat)
            rates = []
            for turn in range(turns):
                advance(name, 1)
                place = folder / f"statements-{name}-{turn}"
                try:
                    with Worker("benchmarks.pouring:Pour", name, place, relaxed) as worker:
                        rates.append(rows / worker.call("statements", rows))
                except WorkerError as error:
                    report.missing[name] = f"failed at single statements: {error}"
                    break
            note = ", ".join(f"{k} = {v}" for k, v in relaxed.items()) or "synced at each commit"
            if rates:
                report.add(SINGLES, STATEMENT, name, "statements/s", rates, note)


def _read_files(report: Report, options: Options, folder: Path) -> None:
    rows = min(options.rows, 1_000_000)
    group = FILES.format(rows=rows)
    path = folder / "reports.csv"
    pa.csv.write_csv(pa.Table.from_batches(data.batches(rows)), path)
    wanted = data.expected(rows)
    right = (wanted.count, *wanted.sums)
    kinds = {
        ("COPY t FROM", OURS): "durable, indexed",
        ("COPY t FROM", "duckdb-memory"): "CREATE TABLE … AS FROM read_csv, in memory, typed",
        ("sums over read_csv, nothing kept", "duckdb-memory"): "",
    }
    taken: dict[tuple[str, str], list[float]] = {kind: [] for kind in kinds}
    with (
        Worker("benchmarks.pouring:PourTide", folder / "files") as ours,
        Worker("benchmarks.pouring:ReadWithDuck") as duck,
        progress(options.repeat, "ingest, CSV") as advance,
    ):
        for turn in range(options.repeat + 1):
            advance(f"turn {turn}", 1)
            answers = [
                ours.call("file", path),
                duck.call("file", path, True),
                duck.call("file", path, False),
            ]
            for kind, (seconds, totals) in zip(kinds, answers, strict=True):
                report.check(kind[1], f"sums of the file ({kind[0]})", totals == right)
                if turn:  # the first one warms up
                    taken[kind].append(seconds)
    for (what, system), values in taken.items():
        report.add(group, what, system, "s", values, kinds[what, system])
    ours_s = report.find(group, "COPY t FROM", OURS)
    duck_s = report.find(group, "COPY t FROM", "duckdb-memory")
    assert ours_s is not None
    assert duck_s is not None
    times = ours_s.summary.median / duck_s.summary.median
    report.goal_at_most("CSV by COPY within 2 × DuckDB's own reading time", times, 2, "×")


def _set_goals(report: Report, options: Options) -> None:
    def rate(system: str, group: str = BATCHES, what: str = "rate") -> float | None:
        found = report.find(group, what, system)
        return None if found is None else found.summary.median

    ours = rate(OURS)
    report.goal_at_least("durable indexed ingest ≥ 3,000,000 rows/s", ours, 3_000_000, "rows/s")
    for name, times in (("postgres", 5), ("duckdb", 1), ("chdb", 1)):
        theirs = rate(name)
        ratio = ours / theirs if ours and theirs else None
        word = f"≥ {times} × {name}'s" if times > 1 else f"ahead of {name}'s"
        report.goal_at_least(f"durable indexed ingest {word}", ratio, times, "×")
    statements = rate(OURS, SINGLES, STATEMENT)
    report.goal_at_least(
        "single-row INSERT statements, durability = 'batch' ≥ 2,000/s", statements, 2_000, "/s"
    )
    dicts = rate(OURS, SINGLES, "append of one dict, durability = 'batch'")
    report.goal_at_least("append of one dict ≥ 20,000/s", dicts, 20_000, "/s")


if __name__ == "__main__":
    from benchmarks.__main__ import main

    main(["ingest", *sys.argv[1:]])
