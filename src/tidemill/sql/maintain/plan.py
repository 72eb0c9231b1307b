"""What a view is split into: digests of streams and a final query. All of it is text, as JSON.

Relations that the texts read, by name:

- ``tm_rows``: rows of the digest's stream, all its columns (and ``_seq`` where ``with_seq``);
- ``tm_partials``: partials of a digest, one below the other;
- ``tm_digest_0`` …: the digests as the final sees them, from ``reading.read_sql``;
- ``tm_ref_<id>``: a reference table by its id.

Open parameters are ``$tidemill_now`` (a TIMESTAMPTZ) and those of ``ViewParts.bounds``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from tidemill.sql.calls import StreamTable
from tidemill.sql.windows import Bound

ROWS, DIGEST, REFERENCE = "tm_rows", "tm_digest_", "tm_ref_"


class ViewTable(StreamTable, Protocol):
    """What a split needs to know of a table; ``catalog.model.Table`` is one."""

    @property
    def table_id(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def is_streaming(self) -> bool: ...
    @property
    def is_reference(self) -> bool: ...
    @property
    def settings(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Pane:
    """A window that slides over the stream's time column, cut into panes.

    ``key`` is the key column of the digest that holds a pane's start, a multiple of ``size_us``
    since 1970. ``low`` and ``high`` are the SQL of the window's ends, of the time column's type;
    None is no end. An end belongs to the window unless it is open.
    """

    key: str
    size_us: int
    low: str | None
    high: str | None
    low_open: bool = False
    high_open: bool = False


@dataclass(frozen=True)
class DigestParts:
    """The digest of one place where a view reads a stream.

    - ``partial``: rows to partials, columns ``keys`` then ``states``;
    - ``merge``: partials to one row for each combination of ``keys``, in any nesting; kind ``top``
      has several rows for each;
    - ``collapse``: the same for ``visible`` and ``states``, when hidden keys have been dropped;
    - ``edge``: rows to ``visible`` and ``states`` with the view's own conditions on now() in it:
      for rows of panes that are partly in the window, and for all rows when ``rows_window`` does
      not hold;
    - ``condition``: over keys and now: which groups are read, besides the pane's; None is all;
    - ``is_single``: what the condition leaves has each visible key once: no merge is needed;
    - ``rows_window``: SQL of the time up to which the window shows rows; the digest leaves this
      condition out, and is exact only while no row of the stream is newer.

    ``kind`` is one of aggregate, distinct, top, top of keys, session. ``types`` are the DuckDB
    types of the columns, keys first. ``growing`` names states whose size grows with the rows.
    ``references`` is empty but in catalogs of earlier versions, whose partials joined these
    reference tables: such digests go when the warehouse is opened (``views.defining``).
    """

    table: str
    partial: str
    merge: str
    keys: tuple[str, ...]
    states: tuple[str, ...]
    pane: Pane | None
    condition: str | None
    is_single: bool
    visible: tuple[str, ...]
    growing: tuple[str, ...]
    with_seq: bool
    rows_window: str | None
    edge: str
    collapse: str = ""
    kind: str = "aggregate"
    types: tuple[str, ...] = ()
    references: tuple[int, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.keys, *self.states)

    @property
    def shown(self) -> tuple[str, ...]:
        """The columns of ``tm_digest_…``."""
        return (*self.visible, *self.states)


@dataclass(frozen=True)
class ViewParts:
    """A view as digests and a final query over them.

    ``above`` are the reference tables that the final reads, ``streams`` the streams of the digests,
    ``columns`` and ``types`` those of the answer. Without digests the view is answered by its
    query, for a ``reason``.
    """

    digests: tuple[DigestParts, ...]
    final: str
    above: tuple[int, ...]
    bounds: tuple[Bound, ...]
    uses_now: bool
    streams: tuple[str, ...]
    columns: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    reason: str = ""

    def explain(self) -> list[str]:
        """The split as EXPLAIN shows it."""
        if not self.digests:
            return [f"answered by its query: {self.reason}"]
        lines = []
        for at, digest in enumerate(self.digests):
            lines.append(f"digest {at} of {digest.table} ({digest.kind}): {digest.partial}")
            lines.append(f"  merged by: {digest.merge}")
            if digest.condition is not None:
                lines.append(f"  read where: {digest.condition}")
            if digest.pane is not None:
                ends = [end or "…" for end in (digest.pane.low, digest.pane.high)]
                lines.append(f"  panes of {digest.pane.size_us} us from {ends[0]} to {ends[1]}")
            if digest.rows_window is not None:
                lines.append(f"  while no row is newer than: {digest.rows_window}")
            lines += [f"  grows: {state}" for state in digest.growing]
        return [*lines, f"final: {self.final}"]


def digest_to_json(digest: DigestParts) -> dict[str, Any]:
    """A digest as plain data for JSON."""
    return asdict(digest)


def digest_from_json(data: Mapping[str, Any]) -> DigestParts:
    values = _with_tuples(data)
    pane = values.pop("pane")
    return DigestParts(**values, pane=Pane(**pane) if pane is not None else None)


def to_json(parts: ViewParts) -> str:
    """A split view as JSON text."""
    return json.dumps(asdict(parts), ensure_ascii=False)


def from_json(text: str) -> ViewParts:
    """What ``to_json`` wrote."""
    values = _with_tuples(json.loads(text))
    values["digests"] = tuple(map(digest_from_json, values["digests"]))
    values["bounds"] = tuple(Bound(**bound) for bound in values["bounds"])
    return ViewParts(**values)


def _with_tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
    }
