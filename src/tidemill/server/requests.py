"""Requests of the local protocol, carried out on the database; answers, with their bodies.

``sql`` gives Arrow, or texts for a shell; ``append``, ``update`` and ``delete`` take Arrow, or rows
as Python has them; ``cancel`` breaks off what another connection runs. A connection's session is
kept by the token it gives, ``SESSIONS_MAX`` of them, so that one that had to connect again finds
what it SET.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import pyarrow as pa

from tidemill.engine import Database
from tidemill.errors import InternalError, ProtocolError, TidemillError
from tidemill.result import ChangeResult, Result
from tidemill.server import values, wire
from tidemill.statements.session import Session
from tidemill.text_result import TextResult

SESSIONS_MAX = 1_000
ROWS_PER_BATCH = 65_536
TOKEN_CHARS_MAX = 100

Body = Callable[[BinaryIO], None]


@dataclass(frozen=True)
class Answer:
    """A response: its header, and what writes its body, if it has one."""

    header: dict[str, object]
    body: Body | None = None

    def send(self, connection: socket.socket) -> None:
        try:
            frame = wire.pack({**self.header, "body": self.body is not None})
        except ProtocolError:  # names or messages beyond all bounds
            connection.sendall(_failed(InternalError("the answer's header is too large")))
            return
        connection.sendall(frame)
        if self.body is not None:
            self._send_body(connection, self.body)

    def _send_body(self, connection: socket.socket, body: Body) -> None:
        chunks = wire.ChunkWriter(connection)
        try:
            body(cast(BinaryIO, chunks))
        except OSError:
            raise
        except Exception as error:  # half of it is sent; the client hears why there is no more
            chunks.give_up(_translated(error))
            return
        chunks.finish()


class Requests:
    """What clients may ask of a database."""

    def __init__(self, database: Database, cancel: Callable[[str], None]) -> None:
        self._database = database
        self._cancel = cancel
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def answer(self, request: dict[str, Any], body: bytearray) -> Answer:
        """Carry out a request. What is none at all is a ProtocolError; any other error is an
        answer."""
        try:
            return self._run(request, body)
        except ProtocolError:
            raise
        except Exception as error:
            return Answer({"ok": False, "error": wire.told(_translated(error))})

    def _run(self, request: dict[str, Any], body: bytearray) -> Answer:
        match request:
            case {"sql": str(text), "form": str(form)}:
                return self._sql_text(text, form, request, body)
            case {"sql": str(text)}:
                session = self._session(request)
                params = values.decode(body) if body else None
                return _arrow_answer(self._database.sql(text, params, session=session))
            case {"append": str(name)}:
                return self._append(name, request, body)
            case {"update": str(name)}:
                return self._correct(self._database.update, name, request, body)
            case {"delete": str(name)}:
                return self._correct(self._database.delete, name, request, body)
            case {"create": str(name), "replace": bool(replace)}:
                made = self._database.create_table(name, read_table(body), replace=replace)
                return _arrow_answer(made)
            case {"cancel": str(token)}:
                self._cancel(token)
                return Answer({"ok": True})
        raise ProtocolError("a request must have sql, append, update, delete, create or cancel")

    def _sql_text(self, text: str, form: str, request: dict[str, Any], body: bytearray) -> Answer:
        rows_max = _typed(request, "rows_max", int)
        params = values.decode(body) if body else request.get("values")
        if not isinstance(params, list | dict | None):
            raise ProtocolError("values must be a list or an object")
        result = self._database.sql_text(
            text, params, form=form, rows_max=rows_max, session=self._session(request)
        )
        header = {
            "ok": True,
            "columns": result.columns,
            "types": result.types,
            "message": result.message,
            "elapsed_s": result.elapsed_s,
            "rowcount": result.rowcount,
        }
        return Answer(header, lambda sink: _write_texts(sink, result))

    def _append(self, name: str, request: dict[str, Any], body: bytearray) -> Answer:
        rejects = request.get("rejects") or []
        if not isinstance(rejects, list) or not all(map(_is_pair, rejects)):
            raise ProtocolError("rejects must be pairs of texts")
        outcome = self._database.append(
            name,
            _rows(request.get("rows"), body),
            source=_typed(request, "source", str),
            offset=_typed(request, "offset", int),
            rejects=[(text, reason) for text, reason in rejects],
        )
        return Answer({"ok": True, "appended": dataclasses.asdict(outcome)})

    def _correct(
        self,
        carry_out: Callable[..., ChangeResult],
        name: str,
        request: dict[str, Any],
        body: bytearray,
    ) -> Answer:
        key = request.get("key")
        if key is not None and not (
            isinstance(key, list) and all(isinstance(each, str) for each in key)
        ):
            raise ProtocolError("key must be a list of names")
        outcome = carry_out(
            name,
            _rows(request.get("rows"), body),
            key=key,
            source=_typed(request, "source", str),
            offset=_typed(request, "offset", int),
        )
        return Answer({"ok": True, "changed": dataclasses.asdict(outcome)})

    def _session(self, request: dict[str, Any]) -> Session:
        token = request.get("token")
        if not isinstance(token, str) or len(token) > TOKEN_CHARS_MAX:
            raise ProtocolError("a request must have a token")
        with self._lock:
            session = self._sessions.setdefault(token, Session())
            self._sessions.move_to_end(token)
            while len(self._sessions) > SESSIONS_MAX:
                self._sessions.popitem(last=False)
        return session


def _rows(form: object, body: bytearray) -> Any:
    """The rows of an append: Arrow, one row, or a list of rows."""
    if form == "arrow":
        return read_table(body)
    rows = values.decode(body)
    if form == "tuple" and isinstance(rows, list):
        return tuple(rows)
    if form == "values" and isinstance(rows, list | dict):
        return rows
    raise ProtocolError("the rows of an append must be arrow, values or a tuple")


def read_table(body: bytes | bytearray) -> pa.Table:
    """An Arrow table from the wire. A claim of rows that the bytes cannot hold is refused: such
    rows cost nothing to send, and everything to store."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            table = reader.read_all()
    except (pa.ArrowException, OSError, ValueError, TypeError, MemoryError) as error:
        raise ProtocolError("the rows of a frame are not Arrow", detail=str(error)) from error
    if table.num_rows > 8 * len(body):
        raise ProtocolError(f"{table.num_rows:,} rows are said to be in {len(body):,} bytes")
    return table


def _arrow_answer(result: Result) -> Answer:
    table = result.arrow()

    def write(sink: BinaryIO) -> None:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=ROWS_PER_BATCH)

    header = {
        "ok": True,
        "types": list(result.types),
        "message": result.message,
        "elapsed_s": result.elapsed_s,
    }
    return Answer(header, write if table.num_columns else None)


def _write_texts(sink: BinaryIO, result: TextResult) -> None:
    for chunk in result.chunks:
        sink.write(json.dumps(chunk).encode() + b"\n")


def _typed(request: dict[str, Any], name: str, kind: type[Any]) -> Any:
    value = request.get(name)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise ProtocolError(f"{name} cannot be {str(value)[:100]}")
    return value


def _is_pair(item: object) -> bool:
    return isinstance(item, list) and len(item) == 2 and all(isinstance(part, str) for part in item)


def _translated(error: Exception) -> TidemillError:
    if isinstance(error, TidemillError):
        return error
    return InternalError(f"{type(error).__name__}: {error}"[: wire.TEXT_CHARS_MAX])


def _failed(error: TidemillError) -> bytes:
    return wire.pack({"ok": False, "error": wire.told(error)})
