"""Rules: what is due, from a situation made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from digest_kit import HOUR_US, START_US, Row, Stream, opened

from tidemill.catalog.frozen import FrozenMap
from tidemill.catalog.model import Table
from tidemill.changes.model import DELETE, ChangeForm
from tidemill.pipeline import due
from tidemill.pipeline.changing import CarryOutJob
from tidemill.pipeline.compact import FAN, CompactJob, ExpireJob
from tidemill.pipeline.digest_compact import DigestCompactJob
from tidemill.pipeline.due import DueForgetting, DueJob, DuePublishing, DueTelling, Situation

MINUTE_S = 60.0


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Stream]:
    with opened(tmp_path, settings={"retention": "10 hours", "hot": "1 hour"}) as stream:
        yield stream


def situation_of(stream: Stream, **changes: object) -> Situation:
    now = Situation(
        stream.catalog.snapshot(),
        {stream.table.table_id: stream.hot},
        stream.catalog,
        stream.storage,
        stream.clock.now_us(),
        lambda table_id, kind: False,
        allows_background=True,
        allows_tidying=True,
        time_travel_us=HOUR_US,
        since_forgetting_s=0.0,
    )
    return replace(now, **changes)  # type: ignore[arg-type]


def jobs(found: Iterator[DueJob]) -> list[object]:
    return [each.job for each in found]


def moved(stream: Stream, hour: float, times: int = 1) -> None:
    """Rows of an hour, moved so many times."""
    for number in range(times):
        row: Row = (START_US + int(hour * HOUR_US) + number, 1, "a", 0.5)
        stream.append([row])
        stream.move()


# -- expire


def test_nothing_expires_within_the_retention(stream: Stream) -> None:
    moved(stream, 0)
    stream.clock.advance(10 * 3600)
    assert jobs(due.expire(situation_of(stream))) == []


def test_partitions_expire_as_wholes(stream: Stream) -> None:
    moved(stream, 0)
    stream.clock.advance(11 * 3600)
    horizon_us = START_US + HOUR_US
    wanted = ExpireJob(stream.table, stream.catalog, horizon_us, horizon_us)
    assert list(due.expire(situation_of(stream))) == [DueJob(wanted, due.EXPIRE_PRIORITY)]


def test_one_expiry_at_a_time(stream: Stream) -> None:
    moved(stream, 0)
    stream.clock.advance(11 * 3600)
    waiting = situation_of(stream, is_pending=lambda table_id, kind: kind == "expire")
    assert jobs(due.expire(waiting)) == []
    others = situation_of(stream, is_pending=lambda table_id, kind: kind != "expire")
    assert len(jobs(due.expire(others))) == 1


def test_expiry_does_not_need_spark(stream: Stream) -> None:
    moved(stream, 0)
    stream.clock.advance(11 * 3600)
    assert len(jobs(due.expire(situation_of(stream, allows_background=False)))) == 1


def test_a_table_that_is_not_in_memory_is_left_alone(stream: Stream) -> None:
    moved(stream, 0, FAN)
    stream.clock.advance(11 * 3600)
    dropped = situation_of(stream, tables={})
    assert [*due.expire(dropped), *due.compact(dropped), *due.compact_digests(dropped)] == []


# -- compact


def test_many_files_are_compacted(stream: Stream) -> None:
    moved(stream, 0, FAN - 1)
    assert jobs(due.compact(situation_of(stream))) == []
    moved(stream, 0)
    cold_us = START_US - HOUR_US
    wanted = CompactJob(stream.table, stream.catalog, stream.storage, cold_us, stream.hot)
    assert jobs(due.compact(situation_of(stream))) == [wanted]


def test_cold_partitions_are_compacted_sooner(stream: Stream) -> None:
    moved(stream, 0, 2)
    assert jobs(due.compact(situation_of(stream))) == []
    stream.clock.advance(3 * 3600)
    assert len(jobs(due.compact(situation_of(stream)))) == 1


@pytest.mark.parametrize(
    "changes",
    [{"allows_tidying": False}, {"is_pending": lambda table_id, kind: kind == "compact"}],
)
def test_compaction_waits(stream: Stream, changes: dict[str, object]) -> None:
    digest = many_partials(stream)
    assert digest.is_digest
    moved(stream, 0, FAN)
    now = situation_of(stream, **changes)
    assert [*due.compact(now), *due.compact_digests(now)] == []


# -- digests


def many_partials(stream: Stream) -> Table:
    digest = stream.digest()
    moved(stream, 0, 9)
    return digest


def test_partials_are_merged(stream: Stream) -> None:
    digest = many_partials(stream)
    wanted = DigestCompactJob(digest, stream.table, stream.catalog, stream.storage)
    assert jobs(due.compact_digests(situation_of(stream))) == [wanted]


def test_few_partials_are_not(stream: Stream) -> None:
    stream.digest()
    moved(stream, 0, 8)
    assert jobs(due.compact_digests(situation_of(stream))) == []


def test_of_two_digests_one_is_merged_at_a_time(stream: Stream) -> None:
    stream.digest()
    many_partials(stream)
    submitted: list[object] = []
    now = situation_of(stream, is_pending=lambda table_id, kind: bool(submitted))
    for each in due.compact_digests(now):
        submitted.append(each)
    assert len(submitted) == 1


# -- the others


def test_others_are_told_every_time(stream: Stream) -> None:
    assert list(due.tell(situation_of(stream))) == [DueTelling(True)]
    assert list(due.tell(situation_of(stream, allows_background=False))) == [DueTelling(False)]


def test_tables_that_publish_are_published(stream: Stream) -> None:
    now = situation_of(stream)
    assert list(due.publish(now)) == []
    table = replace(stream.table, given_settings=FrozenMap({"publish": "delta"}))
    snapshot = replace(now.snapshot, tables=FrozenMap({"t": table}))
    assert list(due.publish(replace(now, snapshot=snapshot))) == [DuePublishing(table)]


def test_snapshots_are_forgotten_now_and_then(stream: Stream) -> None:
    assert list(due.forget(situation_of(stream, since_forgetting_s=MINUTE_S - 1))) == []
    wanted = DueForgetting(START_US - HOUR_US)
    assert list(due.forget(situation_of(stream, since_forgetting_s=MINUTE_S))) == [wanted]
    for_ever = situation_of(stream, since_forgetting_s=MINUTE_S, time_travel_us=None)
    assert list(due.forget(for_ever)) == []


# -- changes

ALL = ChangeForm(DELETE, ("INTEGER",), (), ("r.k = ", 0), (), frozenset({"k"}))


def test_changes_that_files_lack_are_carried_out_when_they_are_old(stream: Stream) -> None:
    moved(stream, 0)
    stream.hot.changing.change(ALL, ((7,),))
    stream.hot.view()
    assert jobs(due.carry_out(situation_of(stream))) == []
    stream.clock.advance(61)
    (job,) = jobs(due.carry_out(situation_of(stream)))
    assert isinstance(job, CarryOutJob)
    assert jobs(due.carry_out(situation_of(stream, allows_tidying=False))) == []


def test_many_changes_are_carried_out_at_once(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due, "CHANGES_WAIT_MAX", 2)
    moved(stream, 0)
    for number in range(2):
        assert jobs(due.carry_out(situation_of(stream))) == []
        stream.hot.changing.change(ALL, ((number,),))
        stream.hot.view()
    assert len(jobs(due.carry_out(situation_of(stream)))) == 1


def test_changes_that_no_file_needs_wait(stream: Stream) -> None:
    stream.hot.changing.change(ALL, ((7,),))
    stream.hot.view()
    moved(stream, 0)  # its rows came later
    stream.clock.advance(61)
    assert jobs(due.carry_out(situation_of(stream))) == []


def test_rules_are_in_order() -> None:
    names = [rule.__name__ for rule in due.RULES]
    wanted = ["expire", "compact", "look", "carry_out"]
    wanted += ["compact_digests", "tell", "publish", "forget"]
    assert names == wanted
