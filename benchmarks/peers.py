"""Peers that are no dependency of the project: installed by the benchmark, beside the project.

``uv pip install --no-deps --target .benchmarks/peers``: the packages lie in a folder of their own
that only the worker of that peer puts on its path. ``.venv`` and ``uv.lock`` stay as they are, and
removing the folder removes the peers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.harness import KEEP, ROOT, console

FOLDER = KEEP / "peers"
REQUIREMENTS = Path(__file__).with_name("requirements-peers.txt")
_STAMP = FOLDER / ".installed"
_TOOLS_UV = ROOT / ".venv-tools" / "bin" / "uv"


def install_peers() -> str | None:
    """Install what is pinned, once; answers what went wrong, or None."""
    wanted = REQUIREMENTS.read_text()
    if _STAMP.exists() and _STAMP.read_text() == wanted:
        return None
    uv = shutil.which("uv") or (str(_TOOLS_UV) if _TOOLS_UV.exists() else None)
    if uv is None:
        return "uv was not found, so the peers could not be installed"
    console.print("installing peers (chdb) into .benchmarks/peers; .venv and uv.lock stay as is …")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    command = [uv, "pip", "install", "--quiet", "--no-deps", "--python", sys.executable]
    command += ["--target", str(FOLDER), "--requirement", str(REQUIREMENTS)]
    environment = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "UV_PROJECT")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    if done.returncode:
        shutil.rmtree(FOLDER, ignore_errors=True)
        last = (done.stderr.strip().splitlines() or ["uv failed"])[-1]
        return f"could not be installed: {last[:200]}"
    _STAMP.write_text(wanted)
    return None
