"""Named points at which a test may kill the process, to prove that nothing acknowledged is lost.

``TIDEMILL_CRASH_AT=log.written:17`` kills this process with SIGKILL when the point ``log.written``
is passed for the 17th time. Unset, a point costs one comparison.
"""

from __future__ import annotations

import os
import signal

POINTS = (
    "append.checked",
    "log.partial",
    "log.unsealed",
    "log.written",
    "log.synced",
    "append.published",
    "segment.created",
    "segment.removed",
    "move.planned",
    "task.written",
    "move.written",
    "move.committed",
    "move.released",
    "load.written",
    "load.committed",
    "compact.written",
    "compact.committed",
    "expire.committed",
)

_armed, _, _count = os.environ.get("TIDEMILL_CRASH_AT", "").partition(":")
_left = int(_count or 1)


def point(name: str) -> None:
    if _armed and name == _armed:
        _pass()


def _pass() -> None:
    global _left
    _left -= 1
    if _left <= 0:  # threads may pass together
        os.kill(os.getpid(), signal.SIGKILL)


def is_armed(name: str) -> bool:
    """Whether the next pass of a point will kill, so that a half-done step can be staged."""
    return _armed == name and _left == 1
