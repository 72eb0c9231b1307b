"""A real Spark standalone cluster for tests: a master and workers from the pyspark package.

Each is a Java process of its own on the loopback interface, with ports the system chooses. They
write to a temporary folder and end with ``stop``; ``kill_worker`` ends one as a crash would.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyspark

from tidemill.pipeline.java import find_java, wrap_java

START_TIMEOUT_S = 90.0
LOOK_EVERY_S = 0.1
_MASTER = re.compile(r"Starting Spark master at (spark://[\w.:-]+)")
_LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %m%n
"""


class SparkCluster:
    def __init__(self, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tm-cluster-"))
        self._java = wrap_java(find_java(), self.folder / "java") / "bin" / "java"
        (self.folder / "log4j2.properties").write_text(_LOGGING)
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            deploy = "org.apache.spark.deploy"
            listen = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self._master = self._start("master", f"{deploy}.master.Master", *listen)
            self.url = self._wait_for("master", _MASTER)
            self.workers = []
            for number in range(workers):
                name = f"worker{number}"
                work = ("--work-dir", str(self.folder / name), "--cores", str(cores))
                place = (*listen, *work, "--memory", memory, self.url)
                self.workers.append(self._start(name, f"{deploy}.worker.Worker", *place))
            for number in range(workers):
                self._wait_for(f"worker{number}", re.compile("(Successfully registered)"))
        except BaseException:
            self.stop()
            raise

    def kill_worker(self, number: int) -> None:
        """End a worker and its executors at once, as if its machine were gone."""
        process = self.workers[number]
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> SparkCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self, name: str, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        jars = Path(pyspark.__file__).parent / "jars" / "*"
        logging = (self.folder / "log4j2.properties").as_uri()
        command = [
            str(self._java),
            "-Xmx512m",
            f"-Dlog4j2.configurationFile={logging}",
            *_JAVA_OPENS,
            "-cp",
            str(jars),
            program,
            *arguments,
        ]
        environment = {
            **os.environ,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SCALA_VERSION": "2.13",
            "PYSPARK_PYTHON": sys.executable,
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _wait_for(self, name: str, pattern: re.Pattern[str]) -> str:
        """What the pattern finds in a process's log, as soon as it stands there."""
        path = self.folder / f"{name}.log"
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            found = pattern.search(path.read_text(errors="replace"))
            if found:
                return found[1]
            if any(process.poll() is not None for process in self._processes):
                break
            time.sleep(LOOK_EVERY_S)
        raise RuntimeError(f"{name} did not start:\n{path.read_text(errors='replace')[-3000:]}")


_JAVA_OPENS = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        "java.lang",
        "java.lang.invoke",
        "java.lang.reflect",
        "java.io",
        "java.net",
        "java.nio",
        "java.util",
        "java.util.concurrent",
        "java.util.concurrent.atomic",
        "sun.nio.ch",
        "sun.nio.cs",
        "sun.security.action",
        "sun.util.calendar",
    )
]
