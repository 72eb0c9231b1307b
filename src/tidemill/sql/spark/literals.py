"""Constants as Spark SQL text: exactly typed, and safe for any text.

Every literal is a cast of a quoted text, so its type is the one that is written; the reader of a
plan may find them long, Spark folds them before anything runs.
"""

from __future__ import annotations

import re

from tidemill.sql.spark.kinds import (
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT,
    NULL,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    Kind,
)

# Only years that both engines write with four digits; infinities and years BC are left out.
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?")
_ESCAPED = {"\\": "\\\\", "'": "\\'", "$": "\\u0024", "\0": "\\0"}


def text_literal(text: str) -> str:
    r"""A text as Spark reads it back: no escape, no variable and no quote is left to chance.

    >>> print(text_literal("it's ${x} \\ "))
    'it\'s \u0024{x} \\ '
    """
    return "'" + "".join(_ESCAPED.get(sign, sign) for sign in text) + "'"


def name_literal(name: str) -> str:
    """An identifier in backticks."""
    return "`" + name.replace("`", "``") + "`"


def literal_of(kind: Kind, text: str | None) -> str | None:
    """The Spark literal of DuckDB's text for a value; None for values that have none.

    >>> from tidemill.sql.spark.kinds import kind_of
    >>> literal_of(kind_of("TIMESTAMP"), "2024-03-01 10:00:00")
    "TIMESTAMP_NTZ'2024-03-01 10:00:00'"
    """
    if text is None:
        return "NULL" if kind.family == NULL else f"CAST(NULL AS {kind.spark})"
    if kind.family in (TEXT, UUID):
        return text_literal(text)
    if kind.family == BOOLEAN:
        return text.upper()
    if kind.family == BLOB:
        return f"X'{text}'"
    if kind.family == DATE:
        return f"DATE'{text}'" if _DATE.fullmatch(text) else None
    if kind.family in (TIMESTAMP, TIMESTAMPTZ):
        if not _MOMENT.fullmatch(text):
            return None
        return f"TIMESTAMP_NTZ'{text}'" if kind.family == TIMESTAMP else f"TIMESTAMP'{text}Z'"
    if kind.family == FLOAT and text.endswith("nan"):
        text = "NaN"  # DuckDB writes its sign, too
    return f"CAST('{text}' AS {kind.spark})"
