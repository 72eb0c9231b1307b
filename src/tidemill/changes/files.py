"""Files: which changes the rows of a file need, by what is known of it without reading it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tidemill.changes.model import DELETE, Change
from tidemill.changes.pending import Pending


class HasRows(Protocol):
    """A file of rows: their numbers, their times, and up to which change it has all."""

    @property
    def seq_min(self) -> int: ...

    @property
    def seq_max(self) -> int: ...

    @property
    def time_min_us(self) -> int: ...

    @property
    def time_max_us(self) -> int: ...

    @property
    def changed(self) -> int: ...


File = TypeVar("File", bound=HasRows)


def may_touch(change: Change, file: HasRows) -> bool:
    """Whether a change may concern rows of a file that does not have it."""
    return (
        change.number > file.changed
        and change.upto_seq >= file.seq_min
        and change.low_us <= file.time_max_us
        and change.high_us >= file.time_min_us
        and not any(first <= file.seq_min and file.seq_max <= last for first, last in change.spared)
    )


def takes_all(change: Change, file: HasRows) -> bool:
    """Whether a change surely deletes all rows of a file."""
    return (
        change.form.kind == DELETE
        and change.form.is_span
        and change.count == 1
        and change.number > file.changed
        and change.upto_seq >= file.seq_max
        and not change.spared
        and change.low_us <= file.time_min_us
        and change.high_us >= file.time_max_us
    )


def touching(changes: Pending, file: HasRows) -> npt.NDArray[np.bool_]:
    """Which changes may concern rows of a file."""
    mask = changes.numbers > file.changed
    mask &= changes.uptos >= file.seq_min
    mask &= changes.lows <= file.time_max_us
    mask &= changes.highs >= file.time_min_us
    for at in np.flatnonzero(mask) if changes.has_spared else ():
        if changes[int(at)].spared and not may_touch(changes[int(at)], file):
            mask[at] = False
    return mask


def changed_files(
    files: Iterable[File], changes: Sequence[Change]
) -> list[tuple[list[File], tuple[Change, ...]]]:
    """Files together with the changes that they need, those of a kind together; files of which
    nothing is left are not among them."""
    pending = changes if isinstance(changes, Pending) else Pending.of(changes)
    spans = [each for each in pending if each.form.kind == DELETE and each.form.is_span]
    groups: dict[int | None, tuple[list[File], npt.NDArray[np.bool_]]] = {}
    for file in files:
        if any(takes_all(change, file) for change in spans):
            continue
        mask = touching(pending, file)
        key = file.changed if mask.any() else None
        group = groups.setdefault(key, ([], np.zeros(len(pending), dtype=bool)))
        group[0].append(file)
        group[1][mask] = True
    return [
        (held, tuple([pending[int(at)] for at in np.flatnonzero(mask)]))
        for held, mask in groups.values()
    ]
