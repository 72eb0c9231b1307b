"""Which files of rows a file of deletes concerns: one rule for compaction, Delta and the past.

A file of deletes names rows by their sequence numbers. The catalog knows the least and the greatest
of them, and the span of time in which the rows lie; a file of rows outside of either loses none.
"""

from __future__ import annotations

from tidemill.catalog.model import DataFile


def may_delete(deletes: DataFile, file: DataFile) -> bool:
    """Whether rows of a file may be deleted. A file that was named later was written without
    them: a move or a load has no deleted rows, and a compaction leaves them out. One that was named
    together with it may hold them: a load takes its own rows back whose key was there."""
    return (
        file.created_snapshot <= deletes.created_snapshot
        and deletes.seq_min <= file.seq_max
        and deletes.seq_max >= file.seq_min
        and deletes.lo_us < file.hi_us
        and deletes.hi_us > file.lo_us
    )
