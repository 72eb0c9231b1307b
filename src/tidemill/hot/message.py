"""Record batches as the buffers of their IPC messages, without a copy.

``RecordBatch.serialize`` copies all rows into one new buffer. A gathered write takes many buffers,
so the copy is not needed: Arrow's stream writer gives each buffer to its sink as it is, and the
sink keeps them for the write.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Message:
    """The bytes of one message, in pieces."""

    parts: tuple[bytes | pa.Buffer, ...]

    @property
    def size(self) -> int:
        return sum(len(part) for part in self.parts)


class Messages:
    """Messages of batches of one schema; not for two threads at once."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = _Sink()
        self._writer = pa.ipc.new_stream(self._sink, schema)
        nothing = [pa.nulls(0, field.type) for field in schema]
        empty = pa.RecordBatch.from_arrays(nothing, schema=schema)
        self._writer.write_batch(empty)  # the schema goes first
        self._sink.take()

    @staticmethod
    def can_write(schema: pa.Schema) -> bool:
        """Whether each batch is one message: dictionaries would be messages of their own."""
        return not any(_has_dictionary(field.type) for field in schema)

    def of(self, batch: pa.RecordBatch) -> Message:
        self._writer.write_batch(batch)
        return Message(self._sink.take())


class _Sink:
    """What Arrow takes for a file."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes | pa.Buffer] = []

    def take(self) -> tuple[bytes | pa.Buffer, ...]:
        parts, self._parts = self._parts, []
        return tuple(parts)

    def write(self, part: bytes | pa.Buffer) -> int:
        self._parts.append(part)
        return len(part)

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return 0

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return _has_dictionary(kind.storage_type)
    return any(_has_dictionary(kind.field(at).type) for at in range(kind.num_fields))
