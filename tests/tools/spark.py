"""A real cluster of Spark on this machine: a master, two workers, and the process of each."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

__all__ = ["IGNORED", "Cluster", "session"]

# what PySpark calls in pandas, and sockets that it leaves to the garbage collector
IGNORED = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

# Spark 4 runs on Java 17 and 21
JAVA = "java"
# Each query is new code that runs a few times: Java's second compiler costs more than it saves, and
# so do several threads that search two small heaps for garbage.
QUICKLY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def session(folder: Path) -> Any:
    """Starts a cluster, and returns a session of PySpark that is its driver.

    Nothing listens beyond this machine, and no page is served. Of the gigabyte that each worker
    offers, the tests need half.
    """
    pyspark = pytest.importorskip("pyspark", reason="make tools: it needs PySpark")
    if shutil.which(JAVA) is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java runtime: Spark needs one, say Debian's openjdk-17-jre-headless")
    # the package has all that a worker starts an executor with, if Spark is told that it is there
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_WORKER_DIR"] = str(folder / "work")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": QUICKLY,
        "spark.executor.extraJavaOptions": QUICKLY,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "4",
        # more than a megabyte of answers fails: no test can collect the rows by accident
        "spark.driver.maxResultSize": "1m",
        # a worker that is killed is given up sooner than in production
        "spark.task.maxFailures": "2",
    }
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("tightbudget")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Cluster:
    """A running cluster of the tests, and what they do to it."""

    def __init__(self, folder: Path) -> None:
        import ibis

        self.spark = session(folder)
        self.connection = ibis.pyspark.connect(self.spark)
        self.driver: int = self.spark.sparkContext._gateway.proc.pid

    def view(self, name: str, frame: Any) -> Any:
        """Returns a frame of Spark as a table of Ibis."""
        frame.createOrReplaceTempView(name)
        return self.connection.table(name)

    def executors(self) -> list[int]:
        """Returns the processes in which tasks run: they are children of the driver's process."""
        listed = subprocess.run(
            ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="],
            capture_output=True,
            text=True,
            check=True,
        )
        rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
        # the driver is started by a shell, which may be another process than Java's
        inside = {self.driver}
        for _ in range(3):
            inside |= {int(row[0]) for row in rows if int(row[1]) in inside}
        return [
            int(row[0])
            for row in rows
            if int(row[0]) in inside and "CoarseGrainedExecutorBackend" in row[-1]
        ]

    def kill_executor(self) -> None:
        """Ends one executor's process at once, as a machine that loses its power does."""
        os.kill(self.executors()[0], signal.SIGKILL)

    def close(self) -> None:
        """Ends the session, the driver and the executors, and waits for all of their processes."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        processes = [self.driver, *self.executors()]
        context = self.spark.sparkContext
        with contextlib.suppress(Exception):  # the driver may have been killed
            self.spark.stop()
        with contextlib.suppress(Exception):
            context._gateway.shutdown()
        context._gateway.proc.stdin.close()
        context._gateway.proc.wait(60)
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None
        deadline = time.monotonic() + 60
        while any(_runs(process) for process in processes):
            assert time.monotonic() < deadline, f"processes of Spark are left over: {processes}"
            time.sleep(0.1)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
