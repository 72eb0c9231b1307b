"""``python -m benchmarks [names…] [--rows N] [--repeat K] [--quick]``: run, print, write.

Goals are reported, never asserted: a goal that is not reached is a fact about the run. A wrong
answer, or a Tidemill that fails, is a fault and ends with exit code 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from benchmarks import (
    aim,
    changes,
    history_queries,
    hot_queries,
    ingest,
    literals,
    load,
    mixed,
    startup,
    tpch_stream,
    views_micro,
)
from benchmarks.harness import Options, console, parse_options
from benchmarks.report import Report

BENCHMARKS: dict[str, Callable[[Options], Report]] = {
    "ingest": ingest.run,
    "hot_queries": hot_queries.run,
    "literals": literals.run,
    "startup": startup.run,
    "load": load.run,
    "history_queries": history_queries.run,
    "mixed": mixed.run,
    "aim": aim.run,
    "changes": changes.run,
    "tpch_stream": tpch_stream.run,
    "views_micro": views_micro.run,
}


def main(arguments: Sequence[str]) -> None:
    names, options = parse_options(arguments, tuple(BENCHMARKS))
    is_right = True
    try:
        for name in names:
            report = BENCHMARKS[name](options)
            report.print()
            report.write()
            is_right &= report.answers_are_right
    except KeyboardInterrupt:
        console.print("interrupted; what was not finished is not written")
        sys.exit(130)
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
