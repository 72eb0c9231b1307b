"""``python -m examples.linear_road`` shows the application live; ``make run`` calls it."""

from __future__ import annotations

import sys

from examples.linear_road.live import main

if __name__ == "__main__":
    sys.exit(main())
