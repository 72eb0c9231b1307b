"""Closing: the newest first, and all of them."""

from __future__ import annotations

import logging

import pytest

from tidemill.closing import Closing


def test_the_newest_is_closed_first_whatever_one_says(caplog: pytest.LogCaptureFixture) -> None:
    closed: list[str] = []

    def fail() -> None:
        closed.append("b")
        raise OSError("the disk is gone")

    closing = Closing()
    closing.add(lambda: closed.append("a"), fail)
    closing.add(lambda: closed.append("c"))
    with caplog.at_level(logging.WARNING):
        closing.run()
        closing.run()
    assert closed == ["c", "b", "a"]
    assert "the disk is gone" in caplog.text
