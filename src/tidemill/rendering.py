"""Values in plainer forms: rows as JSON texts (rejected rows, messages), numpy's as Python's."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa


def rows_as_json(batch: pa.RecordBatch) -> list[str]:
    """Each row of a batch as a JSON text."""
    names = batch.schema.names
    rows = zip(*([shown(value) for value in column] for column in batch.columns), strict=True)
    return [row_as_json(dict(zip(names, row, strict=True))) for row in rows]


def from_numpy(value: Any) -> Any:
    """A scalar or an array of numpy as Python has it: a number, text, moment or span, a list;
    what is not numpy's, as it is."""
    if not (hasattr(value, "dtype") and hasattr(value, "tolist")):
        return value
    kind = value.dtype.kind
    if kind == "M":
        text = str(value)  # of nanoseconds that Python does not have, a text
        coarse = value.astype("datetime64[us]")
        return coarse.tolist() if (coarse == value).all() or text == "NaT" else text
    return (value.astype("timedelta64[us]") if kind == "m" else value).tolist()


def shown(value: pa.Scalar) -> Any:
    """The value as Python has it, or as text where Python has no such value (the year 10000)."""
    try:
        return value.as_py()
    except (ValueError, LookupError, OverflowError, RecursionError, pa.ArrowException):
        pass
    try:
        return value.cast(pa.string()).as_py()
    except pa.ArrowException:
        return f"a {value.type}"


def row_as_json(row: object) -> str:
    """A row as JSON, whatever is in it; values that JSON does not know become strings.

    >>> row_as_json({"a": 1, "b": float("nan")})
    '{"a": 1, "b": "nan"}'
    """
    return json.dumps(_plain(row), ensure_ascii=False, default=str)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value
