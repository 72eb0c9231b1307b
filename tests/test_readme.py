"""The README's first session is run as it stands, and prints what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_first_session_prints_what_the_readme_says(tmp_path: Path) -> None:
    text = README.read_text()
    found = re.search(r"```python\n(.*?)```\n\nprints\n\n```text\n(.*?)```", text, re.DOTALL)
    assert found is not None
    code, expected = found[1], found[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == expected
