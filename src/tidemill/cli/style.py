"""Colours on a terminal, and nothing elsewhere."""

from __future__ import annotations

import os
from typing import TextIO

BOLD = "\x1b[1m"
DIM = "\x1b[2m"
RED = "\x1b[31m"
_RESET = "\x1b[0m"


def paint(text: str, style: str, color: bool) -> str:
    """Text in a style, where styles are wanted."""
    return f"{style}{text}{_RESET}" if color else text


def wants_color(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose user did not switch colours off."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
