"""The ``tidemill`` program: finds the subcommand, runs it, and turns errors into exit codes.

A subcommand's module is imported when it is chosen, so that none pays for the others' tools.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, NoReturn

from tidemill.cli.report import print_error
from tidemill.errors import TidemillError

SUBCOMMANDS = {
    "sql": "ask a warehouse in SQL: a prompt, statements, files",
    "load": "load files into a table",
    "status": "what a warehouse holds and how it fares",
}
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and gives its exit code; as the program itself, ends with it."""
    if arguments is None:
        leave(run(sys.argv[1:]))
    return run(arguments)


def leave(code: int) -> NoReturn:
    """End the process after everything is closed and written. Python would take all modules
    apart first, which takes as long as a third of loading the engine, for nothing."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError):
            stream.flush()
    os._exit(code)


def run(words: Sequence[str]) -> int:
    """Finds the subcommand and runs it; errors become messages and exit codes."""
    parser, chosen = build_parser(words)
    options = parser.parse_args(words)
    if chosen is None:
        parser.print_help()
        return EXIT_USAGE
    try:
        return int(chosen.run(options))
    except TidemillError as error:
        print_error(error)
        return EXIT_ERROR
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR


def build_parser(words: Sequence[str]) -> tuple[argparse.ArgumentParser, Any]:
    """The parser, with the options of the one subcommand that is named, and its module."""
    parser = argparse.ArgumentParser(
        prog="tidemill", description="A stream warehouse: one SQL database over arriving data."
    )
    parser.add_argument("--version", action="version", version=f"tidemill {version('tidemill')}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    named = next((word for word in words if not word.startswith("-")), None)
    chosen = None
    for name, about in SUBCOMMANDS.items():
        command = commands.add_parser(name, help=about, description=about)
        if name == named:
            chosen = importlib.import_module(f"tidemill.cli.{name}")
            chosen.configure(command)
    return parser, chosen


if __name__ == "__main__":
    sys.exit(main())
