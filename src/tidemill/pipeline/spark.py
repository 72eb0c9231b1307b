"""The Spark runtime: owns the one Spark session of a process, and starts it off the hot path.

Starting takes seconds, so it happens on a thread of its own: ``start_in_background()`` as soon as
a job is foreseen, ``session()`` when it is needed. How long it takes is up to the machine: whoever
needs the session waits while the start makes progress (``jvm``), a start that broke off is tried
again, and one that failed for good says what was missing (``diagnosis``). ``stop`` ends a start as
well as a session, and leaves no process behind.

Everything that Spark writes beside results (its log, shuffle files, the wrapped Java) lives in one
scratch folder. ``memory`` bounds what it takes in all: a half is Java's heap, the other half the
Python workers' (``tidemill.history.memory``).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.errors import ClosedError, TidemillError
from tidemill.errors import SparkStartError as SparkStartError
from tidemill.history.memory import TASK_MEMORY_VARIABLE, worker_environment
from tidemill.permissions import make_file, make_folder
from tidemill.pipeline.diagnosis import Diagnosis, diagnose
from tidemill.pipeline.java import STDERR_VARIABLE, Java, find_java, wrap_java
from tidemill.pipeline.jvm import STALLED_S, Jvm, JvmEndedError, submit_command, watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STARTS_MAX = 3  # of one attempt, if the failure may pass
RETRY_AFTER_S = 60.0  # before a start that failed is tried again in the background
WAIT_S = 0.2
STOP_WAIT_S = 10.0
LOG_BYTES_READ = 1 << 16
MEMORY_DEFAULT_BYTES = 2_000_000_000
HEAP_BYTES_MIN = 512 << 20  # Spark refuses to start with less than 450 MiB
# Spark on this machine would give up at the first task that dies, a cluster at the fourth.
LOCAL_TASK_FAILURES_MAX = 4
# Listing a table's files is the catalog's work; Spark must not start jobs to find them itself.
DISCOVERY_PATHS_MAX = 100_000

OFF, STARTING, READY, FAILED, STOPPED = "off", "starting", "ready", "failed", "stopped"

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
        memory_bytes: int = MEMORY_DEFAULT_BYTES,
        stalled_s: float = STALLED_S,
    ) -> None:
        self.master = master
        self.memory_bytes = memory_bytes
        self._given_scratch = scratch
        self._given_conf = dict(conf or {})
        self._java = java
        self._stalled_s = stalled_s
        self._lock = threading.Lock()
        self._start: Future[SparkSession] | None = None
        self._failed_at_s = -RETRY_AFTER_S
        self._jvm: Jvm | None = None
        self._scratch: Path | None = None
        self._owned = False
        self._stopped = False

    def start_in_background(self) -> None:
        """Begins the start and returns at once. A start that failed is tried again after a while;
        a runtime that was stopped stays so."""
        if self.state == FAILED and time.monotonic() - self._failed_at_s < RETRY_AFTER_S:
            return
        with suppress(ClosedError):
            self._starting()

    def session(self, check: Callable[[], None] = lambda: None) -> SparkSession:
        """The session, as soon as it is there. ``check`` is called while that is awaited, and may
        raise to end the waiting. A start that failed before is tried again."""
        start = self._starting()
        while True:
            check()
            try:
                return start.result(WAIT_S)
            except TimeoutError:
                continue

    @property
    def state(self) -> str:
        start = self._start
        if self._stopped:
            return STOPPED
        if start is None:
            return OFF
        if not start.done():
            return STARTING
        return READY if start.exception() is None else FAILED

    @property
    def pid(self) -> int | None:
        """The process of Java, while there is one of ours."""
        jvm = self._jvm
        return None if jvm is None else jvm.pid

    @property
    def is_local(self) -> bool:
        """Whether tasks run on this machine, within ``memory_bytes``."""
        return self.master.startswith("local")

    @property
    def workers_bytes(self) -> int:
        """What all Python workers may take together."""
        return self.memory_bytes // 2

    @property
    def is_ready(self) -> bool:
        return self.state == READY

    def failure(self) -> BaseException | None:
        """Why the last start failed."""
        start = self._start
        return start.exception() if start is not None and start.done() else None

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
            jvm, self._jvm = self._jvm, None
            if start.exception() is None and self._owned:
                with suppress(Exception):  # what it would tell the JVM, nobody hears
                    start.result().stop()
                _forget_session()
        if jvm is not None:
            jvm.kill()

    def stop(self) -> None:
        """Ends the session or its start, and their process, and removes temporary files; harmless
        to repeat."""
        with self._lock:
            is_first = not self._stopped
            self._stopped = True
            start, jvm = self._start, self._jvm
        if start is not None and is_first:
            self._end(start, jvm)
        if self._scratch is not None:
            shutil.rmtree(self._scratch / "local", ignore_errors=True)
            if self._given_scratch is None:
                shutil.rmtree(self._scratch, ignore_errors=True)

    def _end(self, start: Future[SparkSession], jvm: Jvm | None) -> None:
        if not start.done():
            if jvm is not None:
                jvm.kill()  # the thread that starts it gets an error, and ends
            with suppress(Exception):
                start.result(STOP_WAIT_S)
        with suppress(Exception):
            if self._owned and start.done() and start.exception() is None:
                start.result().stop()
        if jvm is not None:
            _forget_session()
            jvm.end()

    def __enter__(self) -> SparkRuntime:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- the start

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
        except BaseException as error:
            self._failed_at_s = time.monotonic()
            start.set_exception(error if isinstance(error, TidemillError) else _failure(error))

    def _build(self) -> SparkSession:
        """The session that this process has already, else one in a new Java process."""
        from pyspark import SparkContext

        scratch = self._open_scratch()
        self._owned = SparkContext._active_spark_context is None
        if not self._owned or SparkContext._gateway is not None:
            return self._connect(scratch)
        java_home = wrap_java(self._java or find_java(), scratch / "java")
        for number in range(1, STARTS_MAX + 1):
            try:
                return self._start_once(scratch, java_home)
            except _BrokenOffError as broken:
                if self._stopped:
                    raise ClosedError("the Spark runtime was stopped") from broken
                found = broken.found
                if number == STARTS_MAX or not found.may_retry:
                    tries = f" in {number} attempts" if number > 1 else ""
                    raise SparkStartError(
                        f'Spark did not start on master "{self.master}"{tries}',
                        detail=found.detail,
                        hint=found.hint or f"its log is {scratch / 'spark.log'}",
                    ) from broken.__cause__
        raise AssertionError("the loop returns or raises")

    def _start_once(self, scratch: Path, java_home: Path) -> SparkSession:
        """Start a process and a session in it; what it logged tells what went wrong."""
        from pyspark.find_spark_home import _find_spark_home

        log = scratch / "spark.log"
        log.write_text("")
        environ = {**os.environ, "JAVA_HOME": str(java_home), STDERR_VARIABLE: str(log)}
        conf = {"spark.master": _with_retries(self.master), **self._conf(scratch)}
        command = submit_command(_find_spark_home(), conf, os.environ)
        with self._lock:
            if self._stopped:
                raise ClosedError("the Spark runtime was stopped")
            jvm = self._jvm = Jvm(command, environ, log)
        over = threading.Event()
        stalled: list[bool] = []
        watcher = threading.Thread(
            target=lambda: stalled.append(watch(jvm, over.is_set, self._stalled_s)),
            name="tidemill-spark-watch",
            daemon=True,
        )
        watcher.start()
        try:
            gateway = jvm.wait_for_gateway()
            with _environment(
                PYSPARK_GATEWAY_PORT=str(gateway.port), PYSPARK_GATEWAY_SECRET=gateway.secret
            ):
                _connect_gateway()
            return self._connect(scratch)
        except BaseException as error:
            over.set()
            watcher.join()
            exit_code = jvm.exit_code
            jvm.kill()
            _forget_session()
            said = "" if isinstance(error, JvmEndedError) else f"{type(error).__name__}: {error}"
            text = _tail(log) or said
            found = diagnose(f"{text}\n{said}" if text else said, exit_code, any(stalled))
            raise _BrokenOffError(found) from error
        finally:
            over.set()

    def _connect(self, scratch: Path) -> SparkSession:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(_with_retries(self.master))
        for name, value in self._conf(scratch).items():
            builder = builder.config(name, value)
        with _environment(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable):
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
        conf = {**_DEFAULTS, **kind, **places, **self._memory(), **self._given_conf}
        options = conf.get("spark.driver.extraJavaOptions", "")
        conf["spark.driver.extraJavaOptions"] = (
            f"{options} -Dlog4j2.configurationFile={logging}".strip()
        )
        return conf

    def _memory(self) -> dict[str, str]:
        """Java's heap, and what the tasks that run at once may take each."""
        heap = max(self.memory_bytes // 2, HEAP_BYTES_MIN)
        each = self.workers_bytes // _slots(self.master)
        environment = worker_environment()
        if self.is_local:
            environment[TASK_MEMORY_VARIABLE] = str(each)
        conf = {f"spark.executorEnv.{name}": value for name, value in environment.items()}
        return {"spark.driver.memory": f"{heap >> 20}m", **conf}


class _BrokenOffError(Exception):
    """One process did not become a session."""

    def __init__(self, found: Diagnosis) -> None:
        super().__init__(found.detail)
        self.found = found


def _failure(error: BaseException) -> SparkStartError:
    failure = SparkStartError("Spark did not start", detail=f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _tail(log: Path) -> str:
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(log.stat().st_size - LOG_BYTES_READ, 0))
        return file.read(LOG_BYTES_READ).decode(errors="replace")
    return ""


def _slots(master: str) -> int:
    """How many tasks run at once on this machine.

    >>> _slots("local[3]"), _slots("local"), _slots("spark://host:7077") == (os.cpu_count() or 1)
    (3, 1, True)
    """
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,.*)?\])?", master)
    if found and (found[1] or "1") != "*":
        return max(int(found[1] or 1), 1)
    return os.cpu_count() or 1


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


def _connect_gateway() -> None:
    """Let PySpark find the process that was started for it."""
    from pyspark import SparkContext

    SparkContext._ensure_initialized()


def _forget_session() -> None:
    """Makes PySpark forget a session whose process is gone or about to go."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    SparkContext._gateway = SparkContext._jvm = None
    if gateway is not None:
        with suppress(Exception):  # the process may be gone already
            gateway.shutdown()
