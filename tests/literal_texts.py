"""Literals as people write them, sure ones and odd ones, for tests that read them in two ways."""

from __future__ import annotations

from hypothesis import strategies as some

TYPES = (
    "INT",
    "INTEGER",
    "TINYINT",
    "SMALLINT",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "UBIGINT",
    "DOUBLE",
    "DOUBLE PRECISION",
    "FLOAT",
    "DECIMAL",
    "DECIMAL(5,2)",
    "decimal(18, 0)",
    "NUMERIC(9)",
    "DECIMAL(30,10)",
    "VARCHAR",
    "text",
    "VARCHAR(3)",
    "BOOLEAN",
    "DATE",
    "TIMESTAMP",
    "timestamptz",
    "TIMESTAMP WITH TIME ZONE",
    "TIME",
    "INTERVAL",
    "UUID",
    "BLOB",
    "JSON",
    "INT[]",
)
_WHOLE = (0, 1, 7, 127, 128, 32767, 32768, 2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63)
_UNITS = ("YEAR", "months", "WEEK", "day", "DAYS", "hour", "MINUTES", "SECOND", "milliseconds")
_MOMENTS = (
    "2024-02-29",
    "2024-2-9",
    "2024-02-29 12:34:56",
    "2024-02-29T12:34",
    "2024-02-29 12:34:56.789012",
    "2024-02-29 12:34:56+02",
    "2024-02-29 12:34:56Z",
    "2023-02-29",
    "0001-01-01",
    "9999-12-31 23:59:59.999999",
    "infinity",
    " 2024-01-01 ",
    "12:34:56",
    "1:02:03.5",
    "25:00:00",
    "24:00:00",
)
_WORDS = ("true", "false", "TRUE", "t", "1", "-1", "007", " 5 ", "+5", "1.50", "-0.0", "1e3", "nan")
_OTHERS = ("1 day", "2 hours 3 minutes", "-1 month", "1.5 days", "1day", "01:00:00", "", "x")
_UUIDS = ("12345678-9abc-def0-1234-56789abcdef0", "12345678-9ABC-DEF0-1234-56789ABCDEF0")

_plain_texts = some.text(
    some.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8
)
texts = some.one_of(
    some.sampled_from([*_MOMENTS, *_WORDS, *_OTHERS, *_UUIDS]),
    _plain_texts,
    some.integers(-(2**65), 2**65).map(str),
    some.floats(allow_nan=False).map(repr),
)
strings = texts.map(lambda text: "'" + text.replace("'", "''") + "'")
wholes = some.one_of(some.sampled_from(_WHOLE), some.integers(0, 2**66)).map(str)


@some.composite
def decimals(draw: some.DrawFn) -> str:
    whole = draw(some.one_of(some.just(""), some.integers(0, 10**20).map(str)))
    fraction = draw(some.text("0123456789", max_size=20))
    return f"{whole}.{fraction}" if whole or fraction else "0."


floats = some.one_of(
    some.floats(0, allow_infinity=False).map(lambda number: f"{number:.17e}"),
    some.sampled_from(["1e3", "1.5E-2", ".5e1", "1e400", "2.2250738585072011e-308"]),
)
signs = some.sampled_from(["", "", "-", "+", "- "])
numbers = some.tuples(signs, some.one_of(wholes, decimals(), floats)).map("".join)
typed = some.tuples(
    some.sampled_from(["DATE", "TIMESTAMP", "timestamp ", "TIMESTAMPTZ", "TIME"]),
    some.sampled_from(_MOMENTS),
).map(lambda pair: f"{pair[0]} '{pair[1]}'")
intervals = some.one_of(
    some.tuples(some.integers(-99, 99), some.sampled_from(_UNITS)).map(
        lambda pair: f"INTERVAL '{pair[0]}' {pair[1]}"
    ),
    some.tuples(some.integers(0, 99), some.sampled_from(_UNITS)).map(
        lambda pair: f"interval {pair[0]} {pair[1]}"
    ),
    some.tuples(some.integers(-99, 99), some.sampled_from(_UNITS)).map(
        lambda pair: f"INTERVAL '{pair[0]} {pair[1]}'"
    ),
    some.sampled_from(_OTHERS[:-2]).map(lambda text: f"INTERVAL '{text}'"),
)
words = some.sampled_from(["NULL", "null", "TRUE", "False"])
bases = some.one_of(numbers, numbers, strings, strings, typed, intervals, words)


@some.composite
def literals(draw: some.DrawFn) -> str:
    """A literal with up to three casts around it."""
    text = draw(bases)
    for _ in range(draw(some.sampled_from([0, 0, 0, 1, 1, 2, 3]))):
        kind = draw(some.sampled_from(TYPES))
        text = f"{text}::{kind}" if draw(some.booleans()) else f"CAST({text} AS {kind})"
    return text
