"""TPC-H's lineitem, made with numpy: DuckDB's generator is an extension that has to be downloaded.

Columns, types and distributions are those of the TPC-H specification, section 4.2.3: one to seven
lines an order, sparse order keys, dates that follow from the order's date, prices from the part,
flags from the dates. Two things differ: ``l_shipdate`` is a TIMESTAMP (it is the table's time
column), and comments are drawn from a pool of 65,536 instead of being all different. A piece
(25,000 orders, about 100,000 lines) depends on nothing but the scale, the seed and its number.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SEED = 4
PIECE_ORDERS = 25_000
ROWS_A_SCALE = 6_000_000
_DAY_US = 86_400_000_000
_FIRST_DAY = 8_035  # 1992-01-01
_ORDER_DAYS = 2_406  # until 1998-08-02, both counted
_CURRENT_DAY = 9_298  # 1995-06-17
_MODES = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
_INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
_WORDS = (  # noqa: SIM905
    "the quickly final regular ironic express special pending bold even silent careful accounts "
    "deposits requests packages instructions theodolites foxes pinto beans ideas dependencies "
    "sleep haggle nag wake cajole integrate boost detect among above across along about after"
).split()
_POOL = 65_536
_COMMENT_LOW, _COMMENT_HIGH = 10, 43

DECIMAL = pa.decimal128(15, 2)
SCHEMA = pa.schema(
    [
        ("l_orderkey", pa.int64()),
        ("l_partkey", pa.int64()),
        ("l_suppkey", pa.int64()),
        ("l_linenumber", pa.int32()),
        ("l_quantity", DECIMAL),
        ("l_extendedprice", DECIMAL),
        ("l_discount", DECIMAL),
        ("l_tax", DECIMAL),
        ("l_returnflag", pa.string()),
        ("l_linestatus", pa.string()),
        ("l_shipdate", pa.timestamp("us")),
        ("l_commitdate", pa.date32()),
        ("l_receiptdate", pa.date32()),
        ("l_shipinstruct", pa.string()),
        ("l_shipmode", pa.string()),
        ("l_comment", pa.string()),
    ]
)
COLUMNS_SQL = (
    "l_orderkey BIGINT, l_partkey BIGINT, l_suppkey BIGINT, l_linenumber INTEGER, "
    "l_quantity DECIMAL(15, 2), l_extendedprice DECIMAL(15, 2), l_discount DECIMAL(15, 2), "
    "l_tax DECIMAL(15, 2), l_returnflag VARCHAR, l_linestatus VARCHAR, l_shipdate TIMESTAMP, "
    "l_commitdate DATE, l_receiptdate DATE, l_shipinstruct VARCHAR, l_shipmode VARCHAR, "
    "l_comment VARCHAR"
)

Ints = npt.NDArray[np.int64]


def lines(number: int) -> Ints:
    """How many lines each order of a piece has."""
    return np.random.default_rng([SEED, 1, number]).integers(1, 8, PIECE_ORDERS)


def pieces(rows: int) -> list[int]:
    """How many rows each piece has."""
    counts: list[int] = []
    while rows > 0:
        counts.append(min(rows, int(lines(len(counts)).sum())))
        rows -= counts[-1]
    return counts


def table(number: int, rows: int, scale: float) -> pa.Table:
    """The first ``rows`` lines of one piece of a lineitem of that scale."""
    rng = np.random.default_rng([SEED, 2, number])
    counts = lines(number)
    order = np.arange(number * PIECE_ORDERS, (number + 1) * PIECE_ORDERS)
    key = (order // 8) * 32 + order % 8 + 1  # eight keys of every 32 are used
    order_day = _FIRST_DAY + rng.integers(0, _ORDER_DAYS, PIECE_ORDERS)
    total = int(counts.sum())
    starts = np.cumsum(counts) - counts
    parts, suppliers = max(200, round(scale * 200_000)), max(10, round(scale * 10_000))
    part = rng.integers(1, parts + 1, total)
    corner = rng.integers(0, 4, total)
    supplier = (part + corner * (suppliers // 4 + (part - 1) // suppliers)) % suppliers + 1
    quantity = rng.integers(1, 51, total)
    price = 90_000 + (part // 10) % 20_001 + 100 * (part % 1_000)  # of the part, in cents
    day = np.repeat(order_day, counts)
    ship = day + rng.integers(1, 122, total)
    receipt = ship + rng.integers(1, 31, total)
    returned = np.where(receipt <= _CURRENT_DAY, rng.integers(0, 2, total), 2)
    made: list[pa.Array] = [
        pa.array(np.repeat(key, counts)),
        pa.array(part),
        pa.array(supplier),
        pa.array((np.arange(total) - np.repeat(starts, counts) + 1).astype(np.int32)),
        _cents(quantity * 100),
        _cents(quantity * price),
        _cents(rng.integers(0, 11, total)),
        _cents(rng.integers(0, 9, total)),
        _words(returned, ("R", "A", "N")),
        _words((ship > _CURRENT_DAY).astype(np.int64), ("F", "O")),
        pa.array(ship * _DAY_US).cast(pa.timestamp("us")),
        pa.array((day + rng.integers(30, 91, total)).astype(np.int32)).cast(pa.date32()),
        pa.array(receipt.astype(np.int32)).cast(pa.date32()),
        _words(rng.integers(0, len(_INSTRUCTIONS), total), _INSTRUCTIONS),
        _words(rng.integers(0, len(_MODES), total), _MODES),
        _words(rng.integers(0, _POOL, total), _comments()),
    ]
    return pa.table(made, schema=SCHEMA).slice(0, rows)


def _cents(values: Ints) -> pa.Array:
    """DECIMAL(15, 2) from whole cents: 128-bit little-endian numbers, none of them negative."""
    words = np.zeros((len(values), 2), dtype=np.int64)
    words[:, 0] = values
    return pa.Array.from_buffers(DECIMAL, len(values), [None, pa.py_buffer(words)])


def _words(at: npt.NDArray[Any], words: Any) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(at.astype(np.int32)), pa.array(words)).cast(
        pa.string()
    )


@cache
def _comments() -> tuple[str, ...]:
    rng = np.random.default_rng([SEED, 3])
    text = " ".join(np.array(_WORDS)[rng.integers(0, len(_WORDS), _POOL)])
    starts = rng.integers(0, len(text) - _COMMENT_HIGH, _POOL)
    lengths = rng.integers(_COMMENT_LOW, _COMMENT_HIGH + 1, _POOL)
    return tuple(text[s : s + n] for s, n in zip(starts.tolist(), lengths.tolist(), strict=True))
