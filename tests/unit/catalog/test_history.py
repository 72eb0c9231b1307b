"""Random histories of a catalog: every snapshot stays readable, exactly as it was published."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from once import once

from tidemill.catalog.model import NewTable
from tidemill.catalog.store import Catalog
from tidemill.catalog.urls import sqlite_url
from tidemill.clock import FakeClock
from tidemill.errors import DuplicateNameError, UnknownNameError
from tidemill.types import Column, SqlType

NAMES = st.sampled_from(["a", "A", "b", "ü", "Ü"])
COLUMNS = st.lists(st.sampled_from(["x", "y", "z"]), min_size=1, unique=True).map(tuple)
SETTINGS = st.dictionaries(
    st.sampled_from(["hot", "retention"]), st.sampled_from(["1 s", "2 s", None]), min_size=1
)
STEPS = st.one_of(
    st.tuples(st.just("create"), NAMES, COLUMNS),
    st.tuples(st.just("replace"), NAMES, COLUMNS),
    st.tuples(st.just("drop"), NAMES),
    st.tuples(st.just("index"), NAMES, COLUMNS, st.sampled_from([None, "i", "I", "j"])),
    st.tuples(st.just("unindex"), NAMES),
    st.tuples(st.just("alter"), NAMES, SETTINGS),
    st.tuples(st.just("rename"), NAMES, NAMES),
    st.tuples(st.just("restart")),
)


def new(name: str, columns: tuple[str, ...]) -> NewTable:
    made = tuple(Column(each, SqlType("INTEGER")) for each in columns)
    return NewTable(name, "reference", made, primary_key=columns[:1])


def apply(catalog: Catalog, verb: str, name: str, *rest: object) -> None:
    if verb == "create":
        once(catalog).create_table(new(name, *rest))
    elif verb == "replace":
        once(catalog).replace_table(new(name, *rest))
    elif verb == "index":
        once(catalog).create_index(catalog.snapshot().get(name).table_id, rest[0], name=rest[1])
    elif verb == "unindex":
        for index in catalog.snapshot().get(name).indexes[:1]:
            once(catalog).drop_index(index.index_id)
    elif verb == "alter":
        once(catalog).alter_settings(catalog.snapshot().get(name).table_id, rest[0])
    elif verb == "rename":
        once(catalog).rename_table(catalog.snapshot().get(name).table_id, rest[0])
    else:
        once(catalog).drop_table(catalog.snapshot().get(name).table_id)


@settings(max_examples=30, deadline=None)
@given(st.lists(STEPS, max_size=15))
def test_every_snapshot_stays_as_it_was(steps: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url, clock = sqlite_url(Path(folder) / "c.db"), FakeClock(0)
        catalog = Catalog.open(url, clock)
        published = {0: catalog.snapshot()}
        for step in steps:
            clock.advance(1)
            if step[0] == "restart":
                catalog.close()
                catalog = Catalog.open(url, clock)
                continue
            before = catalog.snapshot()
            try:
                apply(catalog, *step)
            except (DuplicateNameError, UnknownNameError):
                assert catalog.snapshot() is before
            published[catalog.snapshot().snapshot_id] = catalog.snapshot()
        catalog.close()
        catalog = Catalog.open(url, clock)
        assert list(published) == list(range(catalog.snapshot().snapshot_id + 1))
        for number, snapshot in published.items():
            assert catalog.snapshot(number) == snapshot
            assert catalog.snapshot_at(snapshot.committed_at_us) == snapshot
        catalog.close()
