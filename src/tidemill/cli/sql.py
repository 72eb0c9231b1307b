"""``tidemill sql``: statements from the command line, a file, a pipe, or a prompt."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from tidemill.cli.render import FORMATS
from tidemill.cli.session import (
    AUTO,
    SHORT,
    Session,
    add_settings_option,
    add_warehouse_option,
    open_session,
)
from tidemill.cli.shell import Quit, Shell, read_file


class _Source(argparse.Action):
    """Collects -c and -f in the order in which they are given."""

    def __call__(
        self, parser: Any, namespace: Any, values: Any, option_string: str | None = None
    ) -> None:
        sources = [*(namespace.sources or []), (self.const, values)]
        namespace.sources = sources


def configure(parser: argparse.ArgumentParser) -> None:
    add_warehouse_option(parser)
    add_settings_option(parser)
    parser.add_argument(
        "-c",
        dest="sources",
        action=_Source,
        const="text",
        metavar="SQL",
        help="run this text and leave (may be repeated)",
    )
    parser.add_argument(
        "-f",
        dest="sources",
        action=_Source,
        const="file",
        metavar="FILE",
        help="run this file and leave (may be repeated)",
    )
    parser.add_argument(
        "--format", choices=FORMATS, default="table", help="how results look (default: table)"
    )


def run(options: argparse.Namespace) -> int:
    interactive = not options.sources and sys.stdin.isatty() and sys.stdout.isatty()
    lifetime = AUTO if interactive else SHORT
    with open_session(options.warehouse, settings=options.settings, lifetime=lifetime) as session:
        if interactive:
            return _prompt(session, options.format)
        if session.alert:
            print(session.alert, file=sys.stderr)
        shell = Shell(session, sys.stdout, style=options.format)
        try:
            return 0 if _run_sources(shell, options.sources) else 1
        except Quit:
            return 0
        finally:
            sys.stdout.flush()


def _run_sources(shell: Shell, sources: list[tuple[str, str]] | None) -> bool:
    if not sources:
        return shell.run_lines(sys.stdin)
    for kind, value in sources:
        if kind == "text":
            done = shell.run_lines(value.splitlines(keepends=True))
        else:
            done = shell.run_lines(read_file(Path(value)), place=value)
        if not done:
            return False
    return True


def _prompt(session: Session, style: str) -> int:
    from tidemill.cli.prompt import run_prompt

    return run_prompt(Shell(session, sys.stdout, style=style, timing=True, interactive=True))
