"""The short way of one row never disagrees with the long way."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from accept_kit import QUICK, accept, evaluate, make_column, make_table, stored
from hypothesis import example, given
from hypothesis import strategies as st

from tidemill.accept.defaults import Defaults
from tidemill.accept.single import RowReader
from tidemill.errors import TidemillError
from tidemill.plain_rows import batch_of_rows

TS = dt.datetime(2024, 1, 1, 12)
TABLE = make_table(
    make_column("tiny", "TINYINT", default="7"),
    make_column("big", "BIGINT"),
    make_column("un", "UBIGINT", nullable=False, default="1"),
    make_column("f", "DOUBLE", default="random()"),
    make_column("b", "BOOLEAN"),
    make_column("s", "VARCHAR", default="'it''s'"),
    make_column("raw", "BLOB"),
    make_column("z", "TIMESTAMPTZ"),
)
ZONES = st.sampled_from([dt.timezone(dt.timedelta(hours=h)) for h in (-12, 0, 14)])
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**65),
    st.integers(-130, 130),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from(["\ud800", "7", "2024-01-01", "1.5"]),
    st.binary(max_size=3),
    st.datetimes(),
    st.datetimes(timezones=ZONES),
    st.sampled_from([dt.datetime.min, dt.datetime.max]).flatmap(
        lambda moment: ZONES.map(lambda zone: moment.replace(tzinfo=zone))
    ),
    st.decimals(allow_nan=True),
    st.dates(),
)
FITTING: dict[str, st.SearchStrategy[Any]] = {
    "ts": st.datetimes(),
    "tiny": st.integers(-128, 127),
    "big": st.integers(-(2**63), 2**63 - 1),
    "un": st.integers(0, 2**64 - 1),
    "f": st.floats(),
    "b": st.booleans(),
    "s": st.text(max_size=3),
    "raw": st.binary(max_size=3),
    "z": st.datetimes(timezones=ZONES),
}
DICTS = st.fixed_dictionaries(
    {"ts": st.datetimes() | VALUES},
    optional={name: values | VALUES for name, values in FITTING.items() if name != "ts"},
)


def reader() -> RowReader:
    return RowReader(TABLE, Defaults(evaluate))


@QUICK
@given(DICTS)
def test_a_row_that_is_read_is_the_row_that_is_stored(row: dict[str, Any]) -> None:
    short = reader().read_dict(row)
    if short is None:
        return
    batch = batch_of_rows([short], TABLE.schema)
    if "f" not in row:
        assert False, "random() must be evaluated for every row"  # noqa: B011, PT015
    long = pa.Table.from_batches(accept(row, TABLE).batches)
    assert repr(batch.to_pylist()) == repr(long.to_pylist())


@QUICK
@given(st.fixed_dictionaries(FITTING))
def test_what_fits_is_read(row: dict[str, Any]) -> None:
    assert reader().is_usable
    zoned_us = (row["z"] - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    is_inside = -62_135_596_800_000_000 <= zoned_us <= 253_402_300_799_999_999
    as_dict, as_tuple = (
        reader().read_dict(row),
        reader().read_tuple(tuple(row[name] for name in FITTING)),
    )
    assert repr(as_dict) == repr(as_tuple)
    assert (as_dict is not None) == is_inside


def test_defaults_and_missing_columns() -> None:
    row = {"ts": TS, "f": 0.5}
    got = reader().read_dict(row)
    assert got is not None
    assert got[1:] == (7, None, 1, 0.5, None, "it's", None, None)
    [long] = stored(row, TABLE)
    assert tuple(long.values())[1:] == got[1:]


def test_everything_else_goes_the_long_way() -> None:
    reads = reader().read_dict
    full = {"ts": TS, "f": 0.5}
    assert reads({**full, "unknown": 1}) is None
    assert reads({**full, "TINY": 1}) is None
    assert reads({**full, "tiny": 1, "TINY": 1}) is None
    assert reads({"f": 0.5}) is None
    assert reads({**full, "un": None}) is None
    assert reads({**full, "tiny": 128}) is None
    assert reads({**full, "tiny": True}) is None
    assert reads({**full, "s": "\ud800"}) is None
    assert reads({**full, "z": TS}) is None
    assert reads({**full, "f": Decimal("NaN")}) is None
    assert reads({"ts": TS}) is None
    assert reader().read_tuple((TS,)) is None
    assert reader().read_tuple((TS, 1, 1, None, 0.5, True, "", b"", None)) is None


def test_tables_with_other_types_have_no_short_way() -> None:
    for kind in ("DECIMAL(5,2)", "UUID", "JSON", "INTEGER[]", "HUGEINT", "INTERVAL"):
        assert not RowReader(make_table(make_column("x", kind)), Defaults(evaluate)).is_usable


@QUICK
@given(st.dictionaries(st.sampled_from([*FITTING, "nope", 5]), VALUES, max_size=6))
@example({"ts": None, "tiny": Decimal("sNaN")})
def test_whatever_comes_the_error_is_ours(row: dict[Any, Any]) -> None:
    reader().read_dict(row)
    try:
        accept(row, TABLE)
    except TidemillError:
        return
