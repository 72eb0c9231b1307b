"""The client's database: a warehouse that another process owns, with the same surface.

``tidemill.connect`` gives one. It loads Arrow and nothing of the engine; pandas and Polars come in
when their frames do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from tidemill.errors import CatalogError
from tidemill.frames import as_table, is_frame, no_rows
from tidemill.result import AppendResult, ChangeResult, Result
from tidemill.server import values, wire
from tidemill.server.connection import Connection, connect_owner, find_owner
from tidemill.text_result import TextResult

Params = Sequence[object] | Mapping[str, object] | None


class RemoteDatabase:
    """A connection to the process that owns a warehouse; also a context manager.

    It may be used from many threads, one statement at a time; who wants several at once connects
    several times. What SET sets belongs to the connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.path = connection.path
        self.owner_info = connection.owner_info

    def sql(self, text: str, params: Params = None) -> Result:
        """Run the statements of a text where the warehouse is; answers the last one's result."""
        body = b"" if params is None else values.encode(params)
        header, answer = self._connection.request({"sql": text}, body)
        table = pa.table({})
        if answer is not None:
            with self._connection.guarded():
                with pa.ipc.open_stream(answer) as reader:
                    table = reader.read_all()
                answer.read()  # the chunk that ends it
        return Result(
            table, list(header["types"]), str(header["message"]), float(header["elapsed_s"])
        )

    def sql_text(
        self, text: str, params: Any = None, *, form: str = "text", rows_max: int | None = None
    ) -> TextResult:
        """The same with the rows as texts, as the shell shows them."""
        return self._connection.sql_text(text, params, form=form, rows_max=rows_max)

    def append(
        self,
        table: str,
        rows: Any,
        *,
        source: str | None = None,
        offset: int | None = None,
        rejects: Sequence[tuple[str, str]] = (),
    ) -> AppendResult:
        """Append Arrow, pandas or Polars data, dicts or tuples. Returns once they are stored."""
        form, body = _encoded(rows)
        request = {
            "append": table,
            "rows": form,
            "source": source,
            "offset": offset,
            "rejects": list(rejects),
        }
        header, _ = self._connection.request(request, body)
        return AppendResult(**header["appended"])

    def update(
        self,
        table: str,
        rows: Any,
        *,
        key: Sequence[str] | None = None,
        source: str | None = None,
        offset: int | None = None,
    ) -> ChangeResult:
        """Correct rows of a streaming table by key."""
        return self._correct("update", table, rows, key, source, offset)

    def delete(
        self,
        table: str,
        keys: Any,
        *,
        key: Sequence[str] | None = None,
        source: str | None = None,
        offset: int | None = None,
    ) -> ChangeResult:
        """Delete rows of a streaming table by key."""
        return self._correct("delete", table, keys, key, source, offset)

    def _correct(
        self,
        kind: str,
        table: str,
        rows: Any,
        key: Sequence[str] | None,
        source: str | None,
        offset: int | None,
    ) -> ChangeResult:
        form, body = _encoded(rows)
        by = None if key is None else [key] if isinstance(key, str) else list(key)
        request = {kind: table, "rows": form, "key": by, "source": source, "offset": offset}
        header, _ = self._connection.request(request, body)
        return ChangeResult(**header["changed"])

    def create_table(self, name: str, frame: Any, *, replace: bool = False) -> Result:
        """Make a reference table of a pandas or Polars data frame or an Arrow table."""
        if not is_frame(frame):
            raise no_rows(frame)
        _, body = _encoded(frame)
        header, _ = self._connection.request({"create": name, "replace": replace}, body)
        return Result(pa.table({}), [], str(header["message"]), float(header["elapsed_s"]))

    def cancel(self, thread: int | None = None) -> None:
        """Break off the statement that another thread of this program waits for here; there is
        at most one, whichever thread is named."""
        self._connection.cancel()

    def close(self) -> None:
        """Ends the connection; harmless to repeat."""
        self._connection.close()

    def __enter__(self) -> RemoteDatabase:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def connect(path: str | Path) -> RemoteDatabase:
    """The warehouse in a folder, through the process that has it open."""
    folder = Path(path)
    owner = find_owner(folder)
    if owner is None:
        raise CatalogError(
            f'no process owns warehouse "{folder}"', hint="open it with tidemill.open"
        )
    return RemoteDatabase(connect_owner(folder, owner))


def _encoded(rows: Any) -> tuple[str, bytes | memoryview]:
    """Rows as they travel: Arrow where they are columns, else as Python has them."""
    table = as_table(rows)
    if table is not None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        body = memoryview(sink.getvalue())
        wire.check_sizes(0, len(body))
        return "arrow", body
    if isinstance(rows, tuple):
        return "tuple", values.encode(rows)
    if isinstance(rows, Mapping):
        return "values", values.encode(dict(rows))
    if isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        return "values", values.encode(list(rows))
    raise no_rows(rows)
