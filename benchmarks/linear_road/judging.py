"""The verdict on a run, when it is over: one process for each expressway says what was called for.

Expressways do not touch each other, and the numbers of cars and queries tell theirs; so each is
judged alone, from its own generator, and the verdicts are added up. Input from elsewhere is judged
as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow.compute as pc

from benchmarks.harness import workers
from benchmarks.linear_road import generator
from benchmarks.linear_road.comparison import EXAMPLES_MAX, Kind, Verdict, compare
from benchmarks.linear_road.deliveries import numbered, read_answers
from benchmarks.linear_road.staging import Stage
from benchmarks.linear_road.traffic import VIDS_PER_XWAY
from benchmarks.linear_road.validator import expect


def judge(stage: Stage, answers: Path, processes: int) -> Iterator[Verdict]:
    """Verdicts on parts of a run, as they are found: one for each expressway, if they are known.

    The last one is on answers to cars of no expressway, if there are any: all of them are too much.
    """
    if stage.plan is None:
        with workers(1) as pool:
            yield pool.submit(_judge_whole, stage, answers).result()
        return
    first = stage.plan.first_xway
    xways = range(first, first + stage.plan.xways)
    with workers(min(processes, len(xways))) as pool:
        yield from pool.map(partial(_judge_xway, stage, answers), xways)
    strays = _strays(answers, xways)
    if not all(kind.ok for kind in strays.kinds):
        yield strays


def added(verdicts: list[Verdict]) -> Verdict:
    """One verdict on everything."""
    return Verdict(tuple(_add(kinds) for kinds in zip(*(v.kinds for v in verdicts), strict=True)))


def _add(kinds: tuple[Kind, ...]) -> Kind:
    def total(name: str) -> int:
        return sum(getattr(kind, name) for kind in kinds)

    # The means are of answers that belong to something.
    weights = [kind.delivered - kind.extra for kind in kinds]
    means = [kind.mean_seconds for kind in kinds]
    weighted = sum(mean * weight for mean, weight in zip(means, weights, strict=True))
    examples = [example for kind in kinds for example in kind.examples]
    return Kind(
        name=kinds[0].name,
        expected=total("expected"),
        delivered=total("delivered"),
        right=total("right"),
        missing=total("missing"),
        extra=total("extra"),
        wrong=total("wrong"),
        late=total("late"),
        mean_seconds=weighted / max(1, sum(weights)),
        max_seconds=max(kind.max_seconds for kind in kinds),
        examples=tuple(examples[: 4 * EXAMPLES_MAX]),
    )


def _judge_xway(stage: Stage, answers: Path, xway: int) -> Verdict:
    assert stage.plan is not None
    plan = replace(stage.plan, xways=1, first_xway=xway)
    tolls = stage.daily_tolls()
    mine = tolls.filter(pc.equal(tolls.column("xway"), xway))
    expected = expect(generator.batches(plan), mine.to_batches())
    return compare(expected, numbered(read_answers(answers), _numbers(range(xway, xway + 1))))


def _judge_whole(stage: Stage, answers: Path) -> Verdict:
    expected = expect(stage.seconds(), stage.daily_tolls().to_batches())
    return compare(expected, read_answers(answers))


def _strays(answers: Path, xways: range) -> Verdict:
    """On the answers to cars of none of the expressways."""
    return compare(expect((), ()), numbered(read_answers(answers), _numbers(xways), outside=True))


def _numbers(xways: range) -> range:
    """Of the cars, and of the queries, of some expressways."""
    return range(xways.start * VIDS_PER_XWAY, xways.stop * VIDS_PER_XWAY)
