"""Linear Road's tests import the benchmarks as ``python -m benchmarks`` would find them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
