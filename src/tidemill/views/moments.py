"""Moments: for how long an answer that depends on now() holds by itself.

``date_trunc('week', now())`` is the same all week. Where now() stands only in functions that grow
in steps, their values are asked for a few moments ahead: a function that never goes back and is the
same now and in an hour is the same all the time between. Anything else that mentions now() makes an
answer that holds for this very moment only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC

import sqlglot
from sqlglot import exp

from tidemill.clock import from_us
from tidemill.federation.duck import Duck
from tidemill.federation.planner import NOW
from tidemill.sql.maintain import ViewParts
from tidemill.sql.params import placeholder_key

SECOND_US = 1_000_000
AHEAD_US = (SECOND_US, 10 * SECOND_US, 60 * SECOND_US, 600 * SECOND_US, 3_600 * SECOND_US)
_STEPS = (exp.TimestampTrunc, exp.DateTrunc, exp.DateBin)
_STEP_NAMES = ("date_trunc", "datetrunc", "time_bucket")


@dataclass(frozen=True)
class Moments:
    """``steps`` are the expressions over now; None means that one of them does not go in steps."""

    steps: tuple[str, ...] | None = ()

    @classmethod
    def of(cls, parts: ViewParts) -> Moments:
        if not parts.digests:  # answered by its query, which may say now anywhere
            return cls(None if parts.uses_now or parts.bounds else ())
        if not parts.uses_now:
            return cls()
        texts = [parts.final]
        for digest in parts.digests:
            texts += [text for text in (digest.condition, digest.rows_window) if text]
            if digest.pane is not None:
                texts += [end for end in (digest.pane.low, digest.pane.high) if end]
        steps: list[str] = []
        for text in texts:
            for found in _now_in(text):
                step = _step_of(found)
                if step is None:
                    return cls(None)
                steps.append(step)
        return cls(tuple(dict.fromkeys(steps)))

    def until(self, duck: Duck, now_us: int, slides: bool) -> int | None:
        """The last moment at which an answer of now holds; None: at any."""
        if self.steps is None or slides:
            return now_us - 1
        if not self.steps:
            return None
        moments = [now_us, *(now_us + ahead for ahead in AHEAD_US)]
        values = {
            f"{NOW}_{at}": from_us(moment).replace(tzinfo=UTC) for at, moment in enumerate(moments)
        }
        rows = [
            f"SELECT {', '.join(step.replace(f'${NOW}', f'${NOW}_{at}') for step in self.steps)}"
            for at in range(len(moments))
        ]
        texts = [f"SELECT {at} AS tm_at, * FROM ({row})" for at, row in enumerate(rows)]
        found, _ = duck.query(" UNION ALL ".join(texts) + " ORDER BY tm_at", values, {})
        same = [tuple(row.values())[1:] for row in found.to_pylist()]
        held = now_us - 1
        for moment, value in zip(moments, same, strict=True):
            if value == same[0]:
                held = moment
        return held


def _now_in(text: str) -> Iterator[exp.Expression]:
    for node in sqlglot.parse_one(text, dialect="duckdb").find_all(exp.Placeholder, exp.Parameter):
        if placeholder_key(node) == NOW:
            yield node


def _step_of(node: exp.Expression) -> str | None:
    """The function in steps around now, as SQL; None if there is none."""
    inner: exp.Expr = node
    while inner.parent is not None:
        outer = inner.parent
        if isinstance(outer, exp.Cast):
            if outer.to.is_type("date"):
                return str(outer.sql(dialect="duckdb"))
        elif isinstance(outer, _STEPS) or (
            isinstance(outer, exp.Anonymous) and outer.name.lower() in _STEP_NAMES
        ):
            return None if outer.find(exp.Column) else str(outer.sql(dialect="duckdb"))
        elif not isinstance(outer, exp.Paren):
            return None
        inner = outer
    return None
