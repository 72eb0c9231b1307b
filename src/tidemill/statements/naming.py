"""What a statement names: a view where a view is wanted, a table that may be written."""

from __future__ import annotations

from tidemill.catalog.model import Snapshot, Table
from tidemill.errors import UnsupportedError
from tidemill.sql import statements as st
from tidemill.views.kept.definition import is_kept


def get_view(snapshot: Snapshot, name: str, statement: st.Statement) -> Table:
    view = snapshot.get(name, statement.position)
    if not view.is_view:
        raise UnsupportedError(
            f'"{view.name}" is not a view',
            hint="SHOW VIEWS lists the views",
            position=statement.position,
        )
    return view


def check_writable(table: Table) -> None:
    """Refuse rows for a table that a kept query fills."""
    if is_kept(table):
        raise UnsupportedError(
            f'table "{table.name}" keeps the answers of a query and takes no other rows',
            hint="append to the streams that it reads",
        )
