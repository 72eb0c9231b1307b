"""What a streaming table in memory needs of the rooms above it, which it does not know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from tidemill.hot.primary import Key

if TYPE_CHECKING:
    from tidemill.hot.table import HotTable


@dataclass(frozen=True)
class Relief:
    """Whether rows are leaving memory now, and if not, why the last attempt failed."""

    is_coming: bool = False
    failure: str = ""


class Environment(Protocol):
    """Where a table's rows go when they leave memory. Called by writers; must be quick."""

    def find_keys(self, hot: HotTable, batch: pa.RecordBatch) -> dict[Key, int]:
        """Which primary keys of a batch history holds, with the sequence number of each. Called
        under the table's write lock, for tables with a primary key."""
        ...

    def make_room(self, hot: HotTable) -> None:
        """A writer waits for memory. Must not wait itself."""
        ...

    def relief(self, hot: HotTable) -> Relief:
        """Whether waiting for memory is worth while."""
        ...

    def carry_out(self, hot: HotTable) -> None:
        """Carry all changes (UPDATE, DELETE) out in files, and wait for it. Called without locks
        by writers of tables with ``changes = 'eager'``."""
        ...


class NoHistory:
    """The environment of a table whose rows stay in memory."""

    def find_keys(self, hot: HotTable, batch: pa.RecordBatch) -> dict[Key, int]:
        return {}

    def make_room(self, hot: HotTable) -> None: ...

    def relief(self, hot: HotTable) -> Relief:
        return Relief()

    def carry_out(self, hot: HotTable) -> None: ...
