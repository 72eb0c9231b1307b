"""Python values over the wire: what comes back is what was given."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import ormsgpack
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tidemill.errors import ProtocolError, RowsRejectedError
from tidemill.server.values import decode, encode

SCALARS = (
    some.none()
    | some.booleans()
    | some.integers(-(2**130), 2**130)
    | some.floats(allow_nan=False)
    | some.text()
    | some.binary()
    | some.dates()
    | some.datetimes(timezones=some.none() | some.just(dt.UTC))
    | some.times()
    | some.timedeltas()
    | some.uuids()
    | some.decimals(allow_nan=False)
)
NESTED = some.recursive(
    SCALARS, lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner)
)


@settings(deadline=None)
@given(some.lists(some.dictionaries(some.text(), NESTED)))
def test_values_come_back_as_they_were(rows: list[dict[str, Any]]) -> None:
    assert decode(encode(rows)) == rows


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.int64(3), 3),
        (np.float32(1.5), 1.5),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
        (np.array([1, 2]), [1, 2]),
        (np.datetime64("2026-01-02T03:04:05.5"), dt.datetime(2026, 1, 2, 3, 4, 5, 500_000)),
        (np.datetime64("NaT"), None),
        (np.datetime64("2026-01-02T00:00:00.000000001"), "2026-01-02T00:00:00.000000001"),
        (np.timedelta64(90, "s"), dt.timedelta(seconds=90)),
        (pd.Timestamp("2026-01-02"), dt.datetime(2026, 1, 2)),
        (pd.Timestamp("2026-01-02 00:00:00.000000001"), "2026-01-02 00:00:00.000000001"),
        (pd.NaT, None),
        (pd.NA, None),
        ((1, 2), [1, 2]),
        (bytearray(b"x"), b"x"),
        (Decimal("1.50"), Decimal("1.50")),
        (uuid.UUID(int=7), uuid.UUID(int=7)),
        (2**200, 2**200),
    ],
    ids=repr,
)
def test_values_of_other_libraries(value: object, plain: object) -> None:
    assert decode(encode([value])) == [plain]


def test_a_value_that_cannot_travel_is_named() -> None:
    with pytest.raises(RowsRejectedError, match="a value of type object"):
        encode([object()])


def test_a_list_in_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(RowsRejectedError):
        encode(endless)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        ormsgpack.packb(ormsgpack.Ext(99, b"x")),
        ormsgpack.packb(ormsgpack.Ext(0, b"9" * 100_000)),
        ormsgpack.packb(ormsgpack.Ext(1, b"no number")),
        ormsgpack.packb(ormsgpack.Ext(5, b"999999999999 0 0")),
        ormsgpack.packb(ormsgpack.Ext(2, b"\xff")),
    ],
    ids=["nothing", "no type", "deep", "long list", "long bytes", "tag", "digits", "decimal",
         "span", "utf-8"],
)  # fmt: skip
def test_bytes_that_are_no_values_are_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(body)


def test_random_bytes_are_values_or_refused() -> None:
    chance = random.Random(1)
    for _ in range(5_000):
        try:
            decode(chance.randbytes(chance.randrange(40)))
        except ProtocolError:
            continue
