"""What the tests of the hot tier share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tidemill.hot import published


@pytest.fixture(scope="module")
def small_blocks() -> Iterator[None]:
    """Blocks of a few rows, so that small histories have many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published, "BLOCK_ROWS", 16)
        patch.setattr(published, "BLOCK_ROWS_MAX", 32)
        yield
