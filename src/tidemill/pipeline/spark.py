"""The Spark runtime: owns the one Spark session of a process, and starts it off the hot path.

Starting takes seconds, so it happens on a thread of its own: ``start_in_background()`` as soon as
a job is foreseen, ``session()`` when it is needed. Everything that Spark writes beside results
(its log, shuffle files, the wrapped Java) lives in one scratch folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.errors import ClosedError, TidemillError
from tidemill.permissions import make_file, make_folder
from tidemill.pipeline.java import STDERR_VARIABLE, Java, find_java, wrap_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 20.0
LOG_TAIL_LINES = 8
# Spark on this machine would give up at the first task that dies, a cluster at the fourth.
LOCAL_TASK_FAILURES_MAX = 4
# Listing a table's files is the catalog's work; Spark must not start jobs to find them itself.
DISCOVERY_PATHS_MAX = 100_000

# Without its second compiler a JVM starts with half the processor time, and Spark's own operators
# take twice as long: right for a driver whose executors are elsewhere, and for short tests.
QUICK_START = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}

_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""
_DEFAULTS = {
    "spark.app.name": "tidemill",
    "spark.ui.enabled": "false",
    "spark.scheduler.mode": "FAIR",  # a move does not wait for a load's last task
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": str(DISCOVERY_PATHS_MAX),
}
_LOCAL_DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
}


class SparkStartError(TidemillError):
    """Spark did not start."""

    code = "spark_start"


class SparkRuntime:
    """One Spark session, started at most once and by nobody but this object.

    ``scratch`` is a folder for Spark's own files; without one a temporary folder is used and
    removed by ``stop``. ``conf`` overrides any default. Thread-safe.
    """

    def __init__(
        self,
        master: str = "local[*]",
        *,
        scratch: Path | None = None,
        conf: Mapping[str, str] | None = None,
        java: Java | None = None,
    ) -> None:
        self.master = master
        self._given_scratch = scratch
        self._given_conf = dict(conf or {})
        self._java = java
        self._lock = threading.Lock()
        self._start: Future[SparkSession] | None = None
        self._scratch: Path | None = None
        self._owned = False
        self._stopped = False

    def start_in_background(self) -> None:
        """Begins the start and returns at once; a start that failed before is tried again."""
        self._starting()

    def session(self, timeout_s: float = START_TIMEOUT_S) -> SparkSession:
        """The session, as soon as it is there."""
        try:
            return self._starting().result(timeout_s)
        except TimeoutError as error:
            raise SparkStartError(
                f"Spark did not start within {timeout_s:g} seconds", detail=self._log_tail()
            ) from error

    @property
    def is_ready(self) -> bool:
        start = self._start
        return start is not None and start.done() and start.exception() is None

    def is_alive(self) -> bool:
        """Whether the session that was started still answers."""
        start = self._start
        if start is None or not start.done() or start.exception() is not None:
            return False
        try:
            return not start.result().sparkContext._jsc.sc().isStopped()
        except Exception:  # py4j's own, of several kinds, when the JVM is gone
            return False

    def forget(self) -> None:
        """Lets go of a session that has ended by itself; the next job starts another."""
        with self._lock:
            start = self._start
            if start is None or not start.done() or self.is_alive():
                return
            self._start = None
            if start.exception() is None and self._owned:
                with suppress(Exception):  # what it would tell the JVM, nobody hears
                    start.result().stop()
                _clear_session()
                _end_jvm()

    def stop(self) -> None:
        """Ends the session and its JVM and removes temporary files; harmless to repeat."""
        with self._lock:
            self._stopped = True
            start = self._start
        if start is not None:
            with suppress(Exception):  # a start that failed has nothing to stop
                session = start.result(START_TIMEOUT_S)
                if self._owned:
                    session.stop()
        if self._owned:
            _end_jvm()
            self._owned = False
        if self._scratch is not None and self._given_scratch is None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def __enter__(self) -> SparkRuntime:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _starting(self) -> Future[SparkSession]:
        with self._lock:
            if self._stopped:
                raise ClosedError("the Spark runtime was stopped")
            start = self._start
            if start is None or (start.done() and start.exception() is not None):
                start = self._start = Future()
                threading.Thread(
                    target=self._run_start, args=(start,), name="tidemill-spark", daemon=True
                ).start()
            return start

    def _run_start(self, start: Future[SparkSession]) -> None:
        try:
            start.set_result(self._build())
        except TidemillError as error:
            start.set_exception(error)
        except BaseException as error:
            failure = SparkStartError(
                f'Spark did not start on master "{self.master}"',
                detail=self._log_tail() or f"{type(error).__name__}: {error}",
                hint="the setting spark_master names the master; local[*] runs in this process",
            )
            failure.__cause__ = error
            start.set_exception(failure)

    def _build(self) -> SparkSession:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        scratch = self._open_scratch()
        java_home = wrap_java(self._java or find_java(), scratch / "java")
        self._owned = SparkContext._active_spark_context is None
        builder = SparkSession.builder.master(_with_retries(self.master))
        for name, value in self._conf(scratch).items():
            builder = builder.config(name, value)
        with _environment(
            JAVA_HOME=str(java_home),
            PYSPARK_PYTHON=sys.executable,
            PYSPARK_DRIVER_PYTHON=sys.executable,
            **{STDERR_VARIABLE: str(scratch / "spark.log")},
        ):
            return builder.getOrCreate()

    def _open_scratch(self) -> Path:
        if self._scratch is None:
            folder = self._given_scratch or Path(tempfile.mkdtemp(prefix="tidemill-spark-"))
            self._scratch = folder.absolute()
        folder = self._scratch
        make_folder(folder)
        for name, text in (("log4j2.properties", _LOGGING), ("spark.log", "")):
            make_file(folder / name)
            (folder / name).write_text(text)
        return folder

    def _conf(self, scratch: Path) -> dict[str, str]:
        logging = (scratch / "log4j2.properties").as_uri()
        places = {
            "spark.local.dir": str(scratch / "local"),
            "spark.sql.warehouse.dir": (scratch / "tables").as_uri(),
        }
        kind = _LOCAL_DEFAULTS if self.master.startswith("local") else QUICK_START
        conf = {**_DEFAULTS, **kind, **places, **self._given_conf}
        options = conf.get("spark.driver.extraJavaOptions", "")
        conf["spark.driver.extraJavaOptions"] = (
            f"{options} -Dlog4j2.configurationFile={logging}".strip()
        )
        return conf

    def _log_tail(self) -> str | None:
        if self._scratch is None:
            return None
        with suppress(OSError):
            lines = (self._scratch / "spark.log").read_text(errors="replace").splitlines()
            return "\n".join(lines[-LOG_TAIL_LINES:]) or None
        return None


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Sets variables for the JVM that is started inside, and puts the old ones back."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _with_retries(master: str) -> str:
    """The master, with failed tasks tried again where Spark would not.

    >>> _with_retries("local[*]"), _with_retries("local"), _with_retries("spark://host:7077")
    ('local[*,4]', 'local[1,4]', 'spark://host:7077')
    """
    found = re.fullmatch(r"local(?:\[([^,\]]+)\])?", master)
    return f"local[{found[1] or 1},{LOCAL_TASK_FAILURES_MAX}]" if found else master


def _clear_session() -> None:
    """Makes pyspark forget a session and a context whose JVM is gone."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


def _end_jvm() -> None:
    """Ends the JVM behind pyspark, which would otherwise live as long as this process."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    with suppress(Exception):  # the JVM may be gone already
        gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is None:
        return
    process.stdin.close()  # the JVM ends when its stdin does
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
