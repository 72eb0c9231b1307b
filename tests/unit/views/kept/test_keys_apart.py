"""Whether an EVERY ROW query keeps the keys of its window apart."""

from __future__ import annotations

import pytest
from kept_kit import SNAPSHOT, body

from tidemill.errors import UnsupportedError
from tidemill.views.kept.keys_apart import check_keys_apart

W = "RECENT(s, rows => 3, partition_by => k)"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM s",
        "SELECT count(*) FROM RECENT(s, rows => 3)",
        f"SELECT * FROM {W}",
        f"SELECT k, count(*) FROM {W} GROUP BY k",
        f"SELECT k, count(*) FROM {W} GROUP BY 1",
        f"SELECT k, count(*) FROM {W} GROUP BY ALL",
        f"SELECT k AS key, count(*) FROM {W} GROUP BY key",
        f"SELECT s.k, count(*) FROM {W} AS s GROUP BY s.k",
        f"SELECT lag(v) OVER (PARTITION BY k ORDER BY ts) FROM {W}",
        f"SELECT lag(v) OVER w FROM {W} WINDOW w AS (PARTITION BY k ORDER BY ts)",
        f"SELECT DISTINCT ON (k) k, v FROM {W} ORDER BY v",
        f"SELECT key, max(n) FROM (SELECT k AS key, v AS n FROM {W}) GROUP BY key",
        f"WITH q AS (SELECT k, v FROM {W}) SELECT k, sum(v) FROM q GROUP BY k",
        f"SELECT k FROM {W} UNION ALL SELECT k FROM cars",
    ],
)
def test_keys_stay_apart(text: str) -> None:
    check_keys_apart(body(text), SNAPSHOT)


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT count(*) FROM {W}",
        f"SELECT v, count(*) FROM {W} GROUP BY v",
        f"SELECT k FROM {W} LIMIT 1",
        f"SELECT lag(v) OVER (ORDER BY ts) FROM {W}",
        f"SELECT lag(v) OVER w FROM {W} WINDOW w AS (ORDER BY ts)",
        f"SELECT DISTINCT ON (v) k, v FROM {W}",
        f"SELECT max(n) FROM (SELECT k, v AS n FROM {W})",
        f"SELECT n, max(k) FROM (SELECT k, v AS n FROM {W}) GROUP BY n",
        f"SELECT k, count(*) FROM {W} GROUP BY ROLLUP (k)",
        f"SELECT 1 WHERE 3 IN (SELECT k FROM {W})",
        f"WITH q AS (SELECT k FROM {W}) SELECT a.k FROM q a, q b",
    ],
)
def test_queries_that_put_keys_together_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedError, match="puts keys together"):
        check_keys_apart(body(text), SNAPSHOT)


def test_the_hint_names_the_keys() -> None:
    with pytest.raises(UnsupportedError) as raised:
        check_keys_apart(body(f"SELECT count(*) FROM {W}"), SNAPSHOT)
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("GROUP BY k")
