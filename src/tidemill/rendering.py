"""Rows as JSON texts, for the rows that fit no type: rejected rows and error messages."""

from __future__ import annotations

import json
import math

import pyarrow as pa


def rows_as_json(batch: pa.RecordBatch) -> list[str]:
    """Each row of a batch as a JSON text."""
    return [row_as_json(row) for row in batch.to_pylist()]


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
