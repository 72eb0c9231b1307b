"""Which values of a column surely cannot be cast, found in one pass over the whole column.

``cast`` tries the whole column first. Only when that fails it asks here, sets the values aside that
are named, and casts the others whole. A value that is named here must fail by itself as well; one
that fails and is not named is found by halving, which is slow only where there are many of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.accept.kinds import TOO_FINE, is_number, is_text
from tidemill.accept.nearest import nearest
from tidemill.types import SqlType

Mask = npt.NDArray[np.bool_]
Failing = tuple[Mask, str]  # the rows, and why ("" where the type alone says it)

LOST = "part of it would be lost"
TOO_LARGE = "it is too large"
_INTEGER = r"^(-?[0-9]+|0[xX][0-9a-fA-F]+)$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_NO_NUMBER = r"(?i)^[+-]?(inf|nan)"
_READ_BY_ARROW_ALONE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}$"
_TRIED = re.compile(r"\b(?:TRY_)?CAST\(")
_DIGITS_MAX = 38


def failing_texts(array: pa.Array, target: pa.DataType) -> Iterator[Failing]:
    """Texts that are no numbers of the target type, which Arrow reads."""
    texts = pc.utf8_trim_whitespace(array)
    if pa.types.is_integer(target):
        yield from _no_integers(texts, target)
    elif pa.types.is_floating(target):
        yield from _no_floats(texts, target)
    elif pa.types.is_decimal(target):
        yield from _no_decimals(texts, target)


def _no_integers(texts: pa.Array, target: pa.DataType) -> Iterator[Failing]:
    yield _not(pc.match_substring_regex(texts, _INTEGER)), ""
    digits = _kept(texts, pc.match_substring_regex(texts, r"^-?[0-9]+$"))
    short = pc.replace_substring_regex(digits, r"^(-?)0+([0-9])", r"\1\2")
    is_long = pc.greater(pc.utf8_length(short), _DIGITS_MAX)
    yield _true(is_long), ""
    numbers = _kept(short, pc.invert(is_long)).cast(pa.decimal128(_DIGITS_MAX, 0))
    yield _outside(numbers, *_limits(target)), ""


def _no_floats(texts: pa.Array, target: pa.DataType) -> Iterator[Failing]:
    is_number = pc.match_substring_regex(texts, _NUMBER)
    yield _not(pc.or_(is_number, pc.match_substring_regex(texts, _NO_NUMBER))), ""
    numbers = _kept(texts, is_number).cast(target)
    yield _true(pc.is_inf(numbers)), TOO_LARGE


def _no_decimals(texts: pa.Array, target: pa.DataType) -> Iterator[Failing]:
    yield _not(pc.match_substring_regex(texts, _NUMBER)), ""
    plain = _kept(texts, pc.match_substring_regex(texts, r"^[+-]?[0-9.]+$"))
    scale, whole = max(target.scale, 0), target.precision - target.scale
    fraction = rf"\.[0-9]{{{scale}}}[0-9]*[1-9]"
    yield _true(pc.match_substring_regex(plain, fraction)), ""
    yield _true(pc.match_substring_regex(plain, rf"^[+-]?0*[1-9][0-9]{{{whole}}}")), ""


def failing_by_duckdb(
    connection: duckdb.DuckDBPyConnection,
    array: pa.Array,
    cast: str,
    test: str | None,
    is_nested: bool,
) -> Iterator[Failing]:
    """What DuckDB cannot cast, by ``cast``, or changes, by ``test``: SQL over a column ``v``.

    TRY_CAST is quick, and makes single elements of nested values NULL; TRY does not."""
    given = pa.table({"v": array})  # noqa: F841  (DuckDB finds it by name)
    trying, changed = f"TRY({cast})", f"TRY({test or 'false'})"
    if not is_nested:
        trying, changed = cast.replace("CAST(", "TRY_CAST("), _TRIED.sub("TRY_CAST(", test or "")
    sql = (
        f"SELECT v IS NOT NULL AND {trying} IS NULL, coalesce({changed or 'false'}, false) "
        "FROM given"
    )
    found = connection.sql(sql).to_arrow_table()
    failed, lossy = (_true(_plain(found.column(at).combine_chunks())) for at in range(2))
    if is_text(array.type):
        failed &= ~_true(pc.match_substring_regex(array, _READ_BY_ARROW_ALONE))
    yield failed, ""
    yield lossy & ~failed, LOST


def _plain(flags: pa.Array) -> pa.Array:
    return flags.storage.cast(pa.bool_()) if isinstance(flags, pa.ExtensionArray) else flags


def failing_times(texts: pa.Array) -> Failing:
    return _true(pc.match_substring_regex(texts, TOO_FINE)), "it is finer than a microsecond"


def failing_values(array: pa.Array, kind: SqlType) -> Iterator[Failing]:
    """Values of another type that the target cannot hold."""
    target, source = kind.arrow, array.type
    if pa.types.is_decimal(source) and pa.types.is_floating(target):
        yield _true(pc.is_inf(nearest(array, target))), TOO_LARGE
    elif pa.types.is_decimal(target) and pa.types.is_floating(source):
        yield from _floats_for_decimals(array, target)
    elif pa.types.is_decimal(source) or pa.types.is_decimal(target):
        yield from _decimals(array, target)
    elif _is_binary(source) and is_text(target):
        yield _no_texts(array), "it is not UTF-8"
    elif pa.types.is_floating(source) and pa.types.is_floating(target):
        is_inf = pc.is_inf(array.cast(target, safe=False))
        yield _true(pc.and_not(is_inf, pc.is_inf(array))), "it is too large for a REAL"
    else:
        yield _changed(array, target), "" if pa.types.is_integer(target) else LOST


def _changed(array: pa.Array, target: pa.DataType) -> Mask:
    back = array.cast(target, safe=False).cast(array.type, safe=False)
    changed = pc.not_equal(back, array)
    if pa.types.is_floating(array.type):
        changed = pc.and_not(changed, pc.and_(pc.is_nan(back), pc.is_nan(array)))
    return _true(changed)


def _decimals(array: pa.Array, target: pa.DataType) -> Iterator[Failing]:
    """Decimals for decimals or integers, integers for decimals."""
    if is_number(array.type):
        array = array.cast(pa.decimal128(20, 0))
    if not pa.types.is_decimal(array.type):
        return
    scale = target.scale if pa.types.is_decimal(target) else 0
    wide = pa.decimal256(76, max(scale, array.type.scale))
    exact = array.cast(wide)
    cut = array.cast(pa.decimal256(76, scale), safe=False)
    yield _true(pc.not_equal(cut.cast(wide), exact)), LOST
    yield _outside(cut, *_limits(target)), ""


def _floats_for_decimals(array: pa.Array, target: pa.DataType) -> Iterator[Failing]:
    size = pc.abs(array)
    small = pc.less(size, 10.0 ** (target.precision - target.scale))  # false for NaN
    yield _not(small), ""
    given = _kept(array, small)
    back = nearest(given.cast(target), array.type)
    yield _true(pc.not_equal(back, given)), LOST


def _no_texts(array: pa.Array) -> Mask:
    def fails(value: bytes | None) -> bool:
        try:
            return value is not None and value.decode() is None
        except UnicodeDecodeError:
            return True

    return np.fromiter((fails(value) for value in array.to_pylist()), np.bool_, len(array))


def _limits(target: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
    """The least and the greatest value of a type, as a decimal."""
    if pa.types.is_decimal(target):
        high = 10**target.precision - 1
        kind = pa.decimal256(76, target.scale)
        texts = [f"{sign}{high}E{-target.scale}" for sign in ("-", "")]
        low_text, high_text = texts
        return pa.scalar(low_text).cast(kind), pa.scalar(high_text).cast(kind)
    is_signed = pa.types.is_signed_integer(target)
    bits = target.bit_width - is_signed
    low, high = (-(1 << bits) if is_signed else 0), (1 << bits) - 1
    kind = pa.decimal128(_DIGITS_MAX, 0)
    return pa.scalar(str(low)).cast(kind), pa.scalar(str(high)).cast(kind)


def _outside(numbers: pa.Array, low: pa.Scalar, high: pa.Scalar) -> Mask:
    return _true(pc.or_(pc.less(numbers, low), pc.greater(numbers, high)))


def _kept(array: pa.Array, wanted: pa.Array) -> pa.Array:
    """The array with NULL where it is not wanted."""
    return pc.if_else(wanted, array, pa.scalar(None, array.type))


def _true(mask: pa.Array) -> Mask:
    return np.asarray(pc.fill_null(mask, False).to_numpy(zero_copy_only=False))


def _not(mask: pa.Array) -> Mask:
    """Where the mask is false; NULL never fails."""
    return ~np.asarray(pc.fill_null(mask, True).to_numpy(zero_copy_only=False))


def _is_binary(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
