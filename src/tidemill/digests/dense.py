"""Dense states: groups as slots of an index, states as arrays that rows are added to in place.

1. A batch becomes columns: keys and arguments (``batch``). Where the rows are joined,
   DuckDB computes them by a query of the group's own (``projection_sql``).
2. Whatever could not be held exactly raises NotPackable here, before anything is absorbed.
3. The index answers the slot of every row; cells absorb the arguments, one after the other.

Digests of one stream with the same keys and the same WHERE are members of one ``DenseGroup``:
columns and slots are computed once for all. Each member has cells of its own, so that members
may have absorbed different rows: one that was added later, or whose history is still read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from tidemill.clock import DATETIME_US_MAX, DATETIME_US_MIN
from tidemill.digests.arrays import (
    Array,
    Growing,
    NotPackable,
    Numbers,
    numbers_of,
    valid_of,
    whole,
)
from tidemill.digests.batch import Batch, Project, Rows
from tidemill.digests.cells import Cell, cell_for
from tidemill.digests.index import KeyIndex
from tidemill.digests.shape import CellPlan, DensePlan, plan_dense, projection_sql
from tidemill.sql.maintain.reading import moment_sql

# So many rows of a column stay in the processor's cache from one step to the next.
_ROWS_AT_ONCE = 1 << 16

__all__ = [
    "DenseGroup",
    "DensePlan",
    "NotPackable",
    "Project",
    "plan_dense",
]


class _Member:
    """The cells of one digest, and which groups have rows of it (None: all of the index)."""

    def __init__(self, plan: DensePlan, groups: int) -> None:
        self.plan = plan
        self.cells: list[Cell] = [cell_for(cell.function, cell.type) for cell in plan.cells]
        self._present: Growing | None = None
        self._grow(groups)
        if not plan.keys:  # the one group is there without rows
            for cell in self.cells:
                cell.absorb(np.zeros(0, np.intp), np.zeros(0, np.int8), 0)
        elif groups:
            self.pass_by(0, groups)

    def _grow(self, groups: int) -> None:
        for cell in self.cells:
            cell.grow(groups)

    def _note_absent(self, before: int) -> None:
        if self._present is None:
            self._present = Growing(np.bool_, False)
            self._present.grow(before)
            self._present.array[:] = True

    def pass_by(self, before: int, groups: int) -> None:
        """Other members got new groups, without rows of this one."""
        self._grow(groups)
        if groups > before:
            self._note_absent(before)
        if self._present is not None:
            self._present.grow(groups)

    def absorb(self, slots: Array, given: Sequence[Numbers], before: int, groups: int) -> None:
        """Add one value of each cell for every slot."""
        self._grow(groups)
        touched = self._touched(before)
        for cell, numbers in zip(self.cells, given, strict=True):
            if numbers.valid is None:
                cell.absorb(slots, numbers.values, None)
            else:
                cell.absorb(slots[numbers.valid], numbers.known, touched)
        if self._present is not None:
            self._present.grow(groups)
            self._present.array[slots] = True

    def _touched(self, before: int) -> Array | int:
        return before if self._present is None else self._present.array[:before].copy()

    def mask(self) -> Array | None:
        """Which groups of the index are groups of this digest; None: all."""
        if self._present is not None and self._present.array.all():
            self._present = None
        return None if self._present is None else self._present.array

    @property
    def nbytes(self) -> int:
        return sum(cell.nbytes for cell in self.cells)


GROUPS_KNOWN = 1_024  # from so many on, their size is known
GROUP_BYTES = 512  # of a group, before that: tables of places are made for many at once


class DenseGroup:
    """One index, and the cells of the digests that share it."""

    def __init__(self, plans: Mapping[str, DensePlan]) -> None:
        self._members: dict[str, _Member] = {}
        self._index: KeyIndex | None = None
        for name, plan in plans.items():
            self.add(name, plan)

    def add(self, name: str, plan: DensePlan) -> None:
        """A new member; it has no rows yet."""
        if self._index is None:
            self._index = KeyIndex([key.type for key in plan.keys])
            self._shape = plan
        assert plan.share == self._shape.share, "digests of other keys or rows"
        self._members[name] = _Member(plan, self._index.groups)
        self._plan_columns()

    def remove(self, name: str) -> None:
        del self._members[name]
        self._plan_columns()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._members)

    def _plan_columns(self) -> None:
        plans = [member.plan for member in self._members.values()]
        self._arguments = tuple(dict.fromkeys(text for plan in plans for text in plan.arguments))
        self._projection = projection_sql(self._shape, self._arguments)
        self._bare = {text: name for plan in plans for text, name in plan.bare.items()}

    @property
    def index(self) -> KeyIndex:
        assert self._index is not None, "a group without members"
        return self._index

    def plan(self, name: str) -> DensePlan:
        return self._members[name].plan

    # Absorbing.

    def absorb(
        self, rows: pa.Table | Rows, project: Project, only: Iterable[str] | None = None
    ) -> None:
        """Take in rows of the stream, into all members or some.

        Raises NotPackable; then nothing was absorbed."""
        batch = Batch(rows, project)
        self._prepare(batch)
        batch.compute()
        self._absorb_batch(batch, only)

    def _prepare(self, batch: Batch) -> None:
        """Tell a batch what is needed of it."""
        if self._shape.is_simple:
            where = self._shape.where
            wanted = [*self._shape.key_sources, *self._arguments]
            batch.need(wanted if where is None else [*wanted, where], self._bare)

    def _absorb_batch(self, batch: Batch, only: Iterable[str] | None) -> None:
        members = {name: self._members[name] for name in (self._members if only is None else only)}
        columns, size = self._columns_of(batch)
        keys = columns[: len(self._shape.keys)]
        arguments = dict(zip(self._arguments, columns[len(keys) :], strict=True))
        numbers: dict[tuple[str | None, bool], Numbers] = {}
        given = {
            name: [_given(cell, arguments, size, numbers) for cell in member.plan.cells]
            for name, member in members.items()
        }
        self._add(members, given, keys, size)

    def _columns_of(self, batch: Batch) -> tuple[list[pa.Array], int]:
        """Keys and arguments of the rows that the digests take, and how many rows these are."""
        if self._shape.is_simple:
            wanted, where = [*self._shape.key_sources, *self._arguments], self._shape.where
            return [batch.column(text, where) for text in wanted], batch.size(where)
        found = batch.project(self._projection, batch.rows)
        wanted_count = len(self._shape.keys) + len(self._arguments)
        return [whole(column) for column in found.columns[:wanted_count]], found.num_rows

    def absorb_partials(self, name: str, partials: pa.Table) -> None:
        """Take in partial results of one member, as DuckDB computed them."""
        member = self._members[name]
        keys = [whole(partials.column(key.name)) for key in member.plan.keys]
        given = [numbers_of(partials.column(cell.name)) for cell in member.plan.cells]
        self._add({name: member}, {name: given}, keys, partials.num_rows)

    def _add(
        self,
        members: Mapping[str, _Member],
        given: Mapping[str, Sequence[Numbers]],
        keys: Sequence[pa.Array],
        size: int,
    ) -> None:
        if size == 0:
            return
        for name, member in members.items():
            for cell, numbers in zip(member.cells, given[name], strict=True):
                cell.admit(numbers.known)
        first = self.index.groups
        found: list[tuple[int, int, Array]] = []  # from a row on: the groups so far, and slots
        for start in range(0, size, _ROWS_AT_ONCE):
            part = [key.slice(start, _ROWS_AT_ONCE) for key in keys]
            before, rows = self.index.groups, min(_ROWS_AT_ONCE, size - start)
            found.append((start, before, self.index.slots(part, rows)))
        groups = self.index.groups
        for name, member in self._members.items():
            if name not in members:
                member.pass_by(first, groups)
        with np.errstate(all="ignore"):  # NaN and infinity are values like others
            for start, before, slots in found:
                parts: dict[int, Numbers] = {}
                for name, member in members.items():
                    for numbers in given[name]:
                        if id(numbers) not in parts:
                            parts[id(numbers)] = numbers.slice(start, _ROWS_AT_ONCE)
                    member.absorb(slots, [parts[id(part)] for part in given[name]], before, groups)

    # Answers.

    def table(self, name: str) -> pa.Table:
        """The digest's groups; arrays are shared with the state until it absorbs again."""
        member = self._members[name]
        names = [key.name for key in member.plan.keys] + [cell.name for cell in member.plan.cells]
        columns = [*self.index.columns(), *(cell.column() for cell in member.cells)]
        table = pa.table(columns, names=names)
        mask = member.mask()
        return table if mask is None else table.filter(pa.array(mask))

    def select_sql(
        self,
        name: str,
        source: str,
        narrow: Callable[[str], bool] = lambda _: False,
        more: Sequence[str] = (),
    ) -> str:
        """The digest's columns over its ``table`` as ``source``, as ``DensePlan.select_sql``."""
        plan = self._members[name].plan
        same = {
            at: moment_sql(us, plan.keys[at].type.name)
            for at, us in self.index.only().items()
            if plan.keys[at].type.name.startswith("TIMESTAMP")
            and DATETIME_US_MIN <= us <= DATETIME_US_MAX
        }
        return plan.select_sql(source, narrow, same, more)

    def is_whole(self, name: str) -> bool:
        """Whether a member has all groups of the index: then they stay where they are in
        ``table``, and new ones come behind them."""
        return self._members[name].mask() is None

    def groups(self, name: str) -> int:
        mask = self._members[name].mask()
        return self.index.groups if mask is None else int(mask.sum())

    def nbytes(self) -> int:
        """Of all cells and the index."""
        return self.index.nbytes + sum(member.nbytes for member in self._members.values())

    def growth(self, rows: int) -> int:
        """The bytes that rows may take at most, if each is a new group of the usual size."""
        groups = self.index.groups
        each = self.nbytes() // groups if groups >= GROUPS_KNOWN else GROUP_BYTES
        return rows * each + self.index.growth(rows)


def _given(
    cell: CellPlan,
    arguments: Mapping[str, pa.Array],
    size: int,
    known: dict[tuple[str | None, bool], Numbers],
) -> Numbers:
    """The numbers that a cell absorbs; cells with the same argument get the same object."""
    is_count = cell.function == "count"
    key = cell.argument, is_count
    if key not in known:
        array = None if cell.argument is None else arguments[cell.argument]
        if is_count:
            valid = None if array is None else valid_of(array)
            known[key] = Numbers(np.ones(size, np.int64), valid)
        else:
            known[key] = numbers_of(array)
    return known[key]
