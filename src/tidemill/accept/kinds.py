"""Kinds of Arrow types and spellings of values, as casting tells them apart."""

from __future__ import annotations

import pyarrow as pa

TOO_FINE = r"\.\d{6}0*[1-9]"
INFINITE = r"(?i)^\s*[+-]?inf(inity)?\s*$"


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def plain(array: pa.Array) -> pa.Array:
    """The same values without the encodings in which Arrow may keep them."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return plain(array.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return plain(pa.compute.run_end_decode(array))
    if pa.types.is_string_view(kind):
        return array.cast(pa.string())
    if pa.types.is_binary_view(kind):
        return array.cast(pa.binary())
    return array
