"""One Spark for all tests of a process that do not care whose it is.

Starting one takes ten seconds of a processor. A process has one Spark at most, and a warehouse that
finds one running uses it and leaves it running, so tests share one by starting it before. Tests in
which Spark itself starts, ends or dies want none to be there: they stop this one first.
"""

from __future__ import annotations

from tidemill.pipeline.spark import SparkRuntime

# Tests are short: compiling well and collecting garbage in parallel would cost more than they give.
CONF = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


class SharedSpark:
    def __init__(self) -> None:
        self._runtime: SparkRuntime | None = None

    def started(self) -> SparkRuntime:
        if self._runtime is None:
            runtime = SparkRuntime("local[2]", conf=CONF)
            try:
                runtime.session()
            except BaseException:
                runtime.stop()
                raise
            self._runtime = runtime
        return self._runtime

    def stop(self) -> None:
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.stop()
