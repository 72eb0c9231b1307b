"""The TPC-H tables around a stream of line items, made with numpy as ``lineitem`` is.

Orders carry the very dates from which the line items' dates were derived, and parts have the very
suppliers that the line items name, so that joins find what the specification (section 4.2.3) says
they find. Columns that none of the five queries reads are left out. Line items come in the order of
their orders; ``l_shipdate`` is the stream's time and lies anywhere in seven years.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count

import numpy as np
import pyarrow as pa

from benchmarks import lineitem

BATCH_ROWS = 10_000
_FIRST_DAY = 8_035  # 1992-01-01, as in lineitem
_ORDER_DAYS = 2_406
_SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD")
_NATIONS = tuple("CANADA" if at == 3 else f"NATION {at}" for at in range(25))
_COLOURS = 92  # as many first words as the specification has: one part in 92 is of the forest
_FOREST = 31
_SUPPLIERS_A_PART = 4

SQL = {
    "orders": "o_orderkey BIGINT, o_custkey BIGINT, o_orderdate DATE, o_shippriority INTEGER",
    "customer": "c_custkey BIGINT, c_mktsegment VARCHAR",
    "supplier": "s_suppkey BIGINT, s_name VARCHAR, s_address VARCHAR, s_phone VARCHAR, "
    "s_nationkey INTEGER",
    "nation": "n_nationkey INTEGER, n_name VARCHAR",
    "part": "p_partkey BIGINT, p_name VARCHAR",
    "partsupp": "ps_partkey BIGINT, ps_suppkey BIGINT, ps_availqty INTEGER",
}
"""Columns of the tables that do not change."""


def scale_of(rows: int) -> float:
    return rows / lineitem.ROWS_A_SCALE


def lines(rows: int) -> list[pa.Table]:
    """The first ``rows`` line items as batches, each in memory of its own."""
    counts = lineitem.pieces(rows)
    scales = [scale_of(rows)] * len(counts)
    with ThreadPoolExecutor(cpu_count()) as pool:
        made = pool.map(lineitem.table, range(len(counts)), counts, scales)
        whole = pa.concat_tables(made).combine_chunks()
    return [whole.slice(at, BATCH_ROWS) for at in range(0, rows, BATCH_ROWS)]


def tables(rows: int) -> Mapping[str, pa.Table]:
    """All that the queries join with ``rows`` line items."""
    scale = scale_of(rows)
    parts, suppliers = max(200, round(scale * 200_000)), max(10, round(scale * 10_000))
    return {
        "orders": _orders(len(lineitem.pieces(rows)), max(15, round(scale * 150_000))),
        "customer": _customers(max(15, round(scale * 150_000))),
        "supplier": _suppliers(suppliers),
        "nation": pa.table(
            {"n_nationkey": np.arange(len(_NATIONS), dtype=np.int32), "n_name": list(_NATIONS)}
        ),
        "part": _parts(parts),
        "partsupp": _partsupps(parts, suppliers),
    }


def _orders(pieces: int, customers: int) -> pa.Table:
    """The orders of so many pieces of line items, their dates drawn as there.

    >>> made, first = _orders(1, 300), lineitem.table(0, 7, 1.0)
    >>> ordered = made["o_orderdate"][0].as_py()
    >>> 1 <= (first["l_shipdate"][0].as_py().date() - ordered).days <= 121
    True
    """
    made = []
    for number in range(pieces):
        order = np.arange(number * lineitem.PIECE_ORDERS, (number + 1) * lineitem.PIECE_ORDERS)
        days = np.random.default_rng([lineitem.SEED, 2, number]).integers(
            0, _ORDER_DAYS, lineitem.PIECE_ORDERS
        )
        rng = np.random.default_rng([lineitem.SEED, 5, number])
        customer = rng.integers(1, customers // 3 * 2 + 1, len(order))
        columns = {
            "o_orderkey": (order // 8) * 32 + order % 8 + 1,
            "o_custkey": customer + (customer - 1) // 2,  # a third of them never order
            "o_orderdate": pa.array((_FIRST_DAY + days).astype(np.int32)).cast(pa.date32()),
            "o_shippriority": np.zeros(len(order), dtype=np.int32),
        }
        made.append(pa.table(columns))
    return pa.concat_tables(made).combine_chunks()


def _customers(count: int) -> pa.Table:
    rng = np.random.default_rng([lineitem.SEED, 6])
    segments = np.array(_SEGMENTS)[rng.integers(0, len(_SEGMENTS), count)]
    return pa.table({"c_custkey": np.arange(1, count + 1), "c_mktsegment": segments.tolist()})


def _suppliers(count: int) -> pa.Table:
    rng = np.random.default_rng([lineitem.SEED, 7])
    nations, numbers = rng.integers(0, len(_NATIONS), count), range(1, count + 1)
    return pa.table(
        {
            "s_suppkey": np.arange(1, count + 1),
            "s_name": [f"Supplier#{number:09}" for number in numbers],
            "s_address": [f"{number * 7919 % 10_007} Quay" for number in numbers],
            "s_phone": [f"{10 + n}-{1_000_000 + i}" for i, n in enumerate(nations.tolist())],
            "s_nationkey": nations.astype(np.int32),
        }
    )


def _parts(count: int) -> pa.Table:
    words = ["forest" if at == _FOREST else f"colour{at}" for at in range(_COLOURS)]
    drawn = np.random.default_rng([lineitem.SEED, 8]).integers(0, _COLOURS, (count, 5))
    names = [" ".join(words[at] for at in five) for five in drawn.tolist()]
    return pa.table({"p_partkey": np.arange(1, count + 1), "p_name": names})


def _partsupps(parts: int, suppliers: int) -> pa.Table:
    part = np.repeat(np.arange(1, parts + 1), _SUPPLIERS_A_PART)
    corner = np.tile(np.arange(_SUPPLIERS_A_PART), parts)
    supplier = (part + corner * (suppliers // 4 + (part - 1) // suppliers)) % suppliers + 1
    pairs = np.unique(np.stack([part, supplier]), axis=1)  # at odd scales two corners may meet
    quantity = np.random.default_rng([lineitem.SEED, 9]).integers(1, 10_000, pairs.shape[1])
    columns = {"ps_partkey": pairs[0], "ps_suppkey": pairs[1]}
    return pa.table(columns | {"ps_availqty": quantity.astype(np.int32)})
