"""Keys: the keys that files hold, exactly, without opening files that cannot hold them."""

from __future__ import annotations

from decimal import Decimal

import duckdb
import pyarrow as pa
from history_kit import HOUR_US, NOW_US, make_batch, make_table, some_uuid, write

from tidemill.catalog.model import NewFile, Table
from tidemill.history.storage import Storage
from tidemill.history.writing import WriteSpec, write_deletes
from tidemill.stream.keys import find_keys
from tidemill.stream.relation import FileScan
from tidemill.stream.removed import Removed

Duck = duckdb.DuckDBPyConnection


def test_keys_are_found(storage: Storage, duck: Duck, by_k: Table, files: list[NewFile]) -> None:
    keys = pa.table(
        {
            "k": pa.array([15, 16, 99, 1, 2], pa.int64()),
            "ts": pa.array(
                [NOW_US + HOUR_US + 14, NOW_US, NOW_US, NOW_US, NOW_US + 1], pa.int64()
            ).view(pa.timestamp("us")),
        }
    )
    spec = WriteSpec.of(by_k)
    gone = [write_deletes(storage, spec, NOW_US, NOW_US + HOUR_US, [2], "d", 0, "move")]
    scan = FileScan(tuple(files), Removed.of(gone))
    found = find_keys(storage, duck, by_k, scan, keys)
    assert found.schema.names == ["k", "ts", "_seq"]
    assert found.schema.types == [*keys.schema.types, pa.int64()]
    assert found.column("k").to_pylist() == [15, 1]
    assert found.column("_seq").to_pylist() == [15, 1]
    assert find_keys(storage, duck, by_k, scan, keys.slice(0, 0)).num_rows == 0
    assert find_keys(storage, duck, by_k, FileScan(()), keys).schema.equals(found.schema)


def test_keys_of_every_kind_are_exact(storage: Storage, duck: Duck) -> None:
    kinds = {
        "k": "BIGINT",
        "u": "UBIGINT",
        "s": "VARCHAR",
        "x": "BLOB",
        "d": "DECIMAL(10,2)",
        "b": "BOOLEAN",
        "day": "DATE",
        "id": "UUID",
    }
    table = make_table(list(kinds.items()), [("k",)])
    row = (2**63 - 1, 2**64 - 1, "é", b"\xff", Decimal("1.50"), True, -3, some_uuid(9))
    batch = make_batch(table, [(NOW_US, *row), (NOW_US + 1, *row)], first_seq=4)
    written = tuple(write(storage, table, batch))
    keys = pa.Table.from_batches([batch.slice(0, 1)]).select(["ts", *kinds])
    found = find_keys(storage, duck, table, FileScan(written), keys)
    assert found.column("_seq").to_pylist() == [4]
    assert found.drop_columns(["_seq"]).equals(keys)
