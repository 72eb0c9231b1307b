"""EVERY: a length of time in a head, for sources and for kept queries."""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from tidemill.errors import DefinitionError
from tidemill.sql.intervals import parse_interval, unit_interval
from tidemill.sql.tokens import Cursor

EVERY_US_MIN = 10_000
EVERY_US_MAX = 366 * 86_400 * 1_000_000
EVERY_HINT = "EVERY INTERVAL '10' SECOND"


def read_every(cursor: Cursor, what: str) -> int:
    """``INTERVAL '10' SECOND``, ``INTERVAL '10 seconds'``, ``'10 seconds'`` or ``10 seconds``, in
    microseconds; ``what`` is done so often, for the error."""
    start = cursor.at
    cursor.accept("INTERVAL")
    token = cursor.peek()
    if token is None or token.token_type not in (TokenType.STRING, TokenType.NUMBER):
        cursor.fail("expected a length of time after EVERY", hint=EVERY_HINT)
    cursor.at += 1
    unit = cursor.word()
    if unit and unit_interval(1, unit) is not None:
        cursor.at += 1
        span = parse_interval(f"{token.text} {unit}")
    else:
        span = parse_interval(token.text)
    if span is None or span.months or not EVERY_US_MIN <= span.us <= EVERY_US_MAX:
        raise DefinitionError(
            f"{what} every 10 milliseconds to 366 days",
            detail=f"found {cursor.slice(start, cursor.at)}",
            hint=EVERY_HINT,
            position=cursor.position(token),
        )
    return span.us
