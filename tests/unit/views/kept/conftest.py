"""Makes ``kept_kit`` importable for the tests of kept queries."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
