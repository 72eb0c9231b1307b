"""The pager: answers that are longer than the screen go through ``$PAGER``, or ``less``."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterable

LESS = "less"
LESS_OPTIONS = "FRSX"  # leave if it fits, keep colours, do not fold lines, keep the screen


def find_pager() -> list[str] | None:
    """The command of the pager; None where there is none, or an empty $PAGER forbids it."""
    if (chosen := os.environ.get("PAGER")) is not None:
        words = shlex.split(chosen)
        return words if words and shutil.which(words[0]) else None
    return [LESS] if shutil.which(LESS) else None


def page(lines: Iterable[str], pager: list[str]) -> None:
    """Show lines in a pager until the user leaves it."""
    environment = {"LESS": LESS_OPTIONS, "LESSCHARSET": "utf-8", **os.environ}
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pager's while it is up
    try:
        process = subprocess.Popen(pager, stdin=subprocess.PIPE, env=environment)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the user has seen enough
            for line in lines:
                process.stdin.write(f"{line}\n".encode())
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
