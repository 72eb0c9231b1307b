"""What the footer of a file says: where its columns lie, and the times of its row groups."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from tidemill.history.partitions import US_MAX, US_MIN

Range = tuple[int, int]
Spans = npt.NDArray[np.int64]
"""Of each row group: begin and end."""


@dataclass(frozen=True)
class Footer:
    """Where the wanted columns lie in each row group, by their paths in lower case; the least and
    the greatest time of each row group, if a time column was named; and where the last of all
    columns ends."""

    columns: Mapping[str, Spans]
    times_us: Spans | None
    end: int

    @classmethod
    def read(
        cls, content: bytes, wanted: Collection[str] | None, time_column: str | None
    ) -> Footer:
        """From the bytes of a footer, up to the end of the file. ``wanted`` are names of columns,
        None all of them."""
        about = pq.read_metadata(io.BytesIO(b"PAR1" + content))
        groups = [about.row_group(at) for at in range(about.num_row_groups)]
        paths = [about.schema.column(at).path.lower() for at in range(about.num_columns)]
        columns = {
            path: _array([_span(group.column(at)) for group in groups])
            for at, path in enumerate(paths)
            if wanted is None or _is_of(path, wanted)
        }
        times_us = None
        if time_column is not None and time_column.lower() in paths:
            at = paths.index(time_column.lower())
            times_us = _array([_times(group.column(at)) for group in groups])
        last = [group.column(at) for group in groups[-1:] for at in range(about.num_columns)]
        return cls(columns, times_us, max((_span(chunk)[1] for chunk in last), default=0))

    def spans(self, low_us: int | None = None, high_us: int | None = None) -> list[Range]:
        """Where the columns lie in row groups that may have rows of a span of time."""
        places = self.columns.values()
        if self.times_us is not None:
            firsts, lasts = self.times_us[:, 0], self.times_us[:, 1]
            low = US_MIN if low_us is None else low_us
            high = US_MAX if high_us is None else high_us
            is_met = (lasts >= low) & (firsts <= high)
            return [(begin, end) for each in places for begin, end in each[is_met].tolist()]
        return [(begin, end) for each in places for begin, end in each.tolist()]


def _array(spans: list[Range]) -> Spans:
    return np.array(spans, np.int64).reshape(-1, 2)


def _span(chunk: pq.ColumnChunkMetaData) -> Range:
    begin = chunk.data_page_offset
    if chunk.dictionary_page_offset is not None:
        begin = min(begin, chunk.dictionary_page_offset)
    return begin, begin + chunk.total_compressed_size


def _times(chunk: pq.ColumnChunkMetaData) -> Range:
    """The least and the greatest time of a row group, as microseconds."""
    told = chunk.statistics
    return (told.min_raw, told.max_raw) if told and told.has_min_max else (US_MIN, US_MAX)


def _is_of(path: str, columns: Collection[str]) -> bool:
    """Whether a column of a file belongs to one of those wanted; parts of nested ones do."""
    return path in columns or any(path.startswith(f"{name}.") for name in columns)
