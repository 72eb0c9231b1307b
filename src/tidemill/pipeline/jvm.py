"""The Java process behind Spark: started, watched while it starts, and ended by us.

PySpark can start one itself, but then nobody holds the process until it answers: it can neither be
ended while it starts nor asked whether it gets on. So it is started here, as PySpark would, and
PySpark is told where it listens:

1. ``spark-submit`` is run with its settings; it writes port and secret of its gateway to a file;
2. ``wait_for_gateway`` waits for that file for as long as the process makes progress;
3. the process ends when its standard input does, so none outlives us, however we end.

Progress is time on a processor, of the process and its children, or a log that grows: a machine
under load is slow and not stuck.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.05
STALLED_S = 120.0  # without any progress
END_TIMEOUT_S = 10.0
CHILDREN_DEPTH_MAX = 8
_INT_BYTES = 4


@dataclass(frozen=True)
class Gateway:
    """Where PySpark finds the process."""

    port: int
    secret: str


class JvmEndedError(Exception):
    """The process ended before its gateway was there."""


class Jvm:
    """One process. Safe to end from any thread, at any moment."""

    def __init__(self, command: list[str], environ: Mapping[str, str], log: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tidemill-gateway-")
        self._place = Path(self._folder.name) / "gateway"
        self._log = log
        self._lock = threading.Lock()
        env = {
            **environ,
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._place),
        }
        with log.open("ab") as told:
            # a session of its own: Ctrl-C in the terminal is for us to handle
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=told,
                stderr=told,
                env=env,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        with self._lock:
            return self._process.poll()

    def progress(self) -> tuple[int | None, int]:
        """Something that changes while the process gets on: processor time, bytes of its log."""
        with suppress(OSError):
            return processor_ticks(self.pid), self._log.stat().st_size
        return processor_ticks(self.pid), 0

    def wait_for_gateway(self) -> Gateway:
        """Where it listens; ``watch`` or ``kill`` of another thread ends the waiting."""
        while not self._place.is_file():
            if self.exit_code is not None:
                raise JvmEndedError
            time.sleep(POLL_S)
        told = self._place.read_bytes()
        port = int.from_bytes(told[:_INT_BYTES], "big")
        length = int.from_bytes(told[_INT_BYTES : 2 * _INT_BYTES], "big")
        return Gateway(port, told[2 * _INT_BYTES :][:length].decode())

    def end(self) -> None:
        """Let it end by itself, which takes a moment; kill it if it does not."""
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        with self._lock:
            try:
                self._process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._kill()
        self._folder.cleanup()

    def kill(self) -> None:
        """End it at once, with all that it started."""
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        with self._lock:
            self._kill()
        self._folder.cleanup()

    def _kill(self) -> None:
        if self._process.poll() is None:
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            self._process.wait()


def submit_command(
    spark_home: str, conf: Mapping[str, str], environ: Mapping[str, str]
) -> list[str]:
    """What PySpark would run."""
    settings = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    program = os.path.join(spark_home, "bin", "spark-submit")
    return [program, *settings, *shlex.split(environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))]


def watch(jvm: Jvm, is_over: Callable[[], bool], stalled_s: float = STALLED_S) -> bool:
    """Wait until a start is over; kill a process that made no progress for so long. Answers
    whether that was necessary."""
    seen, since = jvm.progress(), time.monotonic()
    while not is_over():
        if jvm.exit_code is not None:
            return False
        now, found = time.monotonic(), jvm.progress()
        # where nobody can say how much it worked, that it lives must do
        if found != seen or found[0] is None:
            seen, since = found, now
        elif now - since > stalled_s:
            jvm.kill()
            return True
        time.sleep(POLL_S)
    return False


def processor_ticks(pid: int, depth: int = 0) -> int | None:
    """Processor time of a process and its children; None where that cannot be known."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    own = sum(int(stat[at]) for at in range(11, 15))  # user and system, also of ended children
    if depth >= CHILDREN_DEPTH_MAX:
        return own
    return own + sum(processor_ticks(int(child), depth + 1) or 0 for child in children)
