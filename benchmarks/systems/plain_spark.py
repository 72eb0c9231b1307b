"""Plain Spark, the peer: a PySpark session as one would start it on this machine, and no more.

All cores, 4 GB for its JVM, UTC, and shuffles of two partitions a core instead of 200: on one
machine that makes it faster. Everything else is Spark's default, adaptive execution included.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.pipeline.java import STDERR_VARIABLE, find_java, wrap_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = {
    "spark.driver.memory": "4g",
    "spark.sql.shuffle.partitions": str(2 * len(os.sched_getaffinity(0))),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
SHOWN = ("spark.driver.memory", "spark.sql.shuffle.partitions")


def start(folder: Path) -> SparkSession:
    """A session whose own files lie in ``folder``; what its JVM complains about, too."""
    from pyspark.sql import SparkSession

    folder.mkdir(parents=True, exist_ok=True)
    os.environ["JAVA_HOME"] = str(wrap_java(find_java(), folder / "java", niceness=0))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ[STDERR_VARIABLE] = str(folder / "spark.log")
    builder = SparkSession.builder.master("local[*]").appName("benchmark")
    own = {
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": (folder / "tables").as_uri(),
    }
    for name, value in {**CONF, **own}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def settings(session: SparkSession) -> dict[str, str]:
    told = {name: session.conf.get(name) or "" for name in SHOWN}
    return {"version": session.version, "master": session.sparkContext.master, **told}


def stop(session: SparkSession) -> None:
    """End the session; its JVM ends with this process."""
    session.stop()
