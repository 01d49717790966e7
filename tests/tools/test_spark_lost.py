"""Processes of a cluster that are killed during a release: an answer or a refusal, never free."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tests.tools.spark import IGNORED, Cluster

import tightbudget as tb
from tightbudget.errors import SourceError
from tightbudget.tables import Count, Table

pytestmark = [pytest.mark.needs, *IGNORED]


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of which the test may kill processes."""
    cluster = Cluster(tmp_path_factory.mktemp("spark"))
    yield cluster
    cluster.close()


def slow(cluster: Cluster, name: str, seconds: float) -> Table:
    """Returns a table of 8 rows in 4 partitions, each of which takes so many seconds to read."""
    sleep = f"java_method('java.lang.Thread', 'sleep', {int(seconds * 1000)}L)"
    frame = cluster.spark.range(0, 8, 1, 4).where(f"{sleep} IS NOT NULL")
    return Table(cluster.view(name, frame), unit="id", rows_per_unit=1)


class Run(threading.Thread):
    """A release in a thread of its own: its value or its error, and what its budget has spent."""

    def __init__(self, table: Table) -> None:
        super().__init__(daemon=True)
        self.table, self.meter = table, tb.OutputDPFilter(1)
        self.value: int | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.value = Count(epsilon=1).release(self.table, meter=self.meter).value
        except BaseException as error:
            self.error = error

    @property
    def spent(self) -> int:
        return int(self.meter._spent.counted)


def during(cluster: Cluster, table: Table, harm: Callable[[], None]) -> Run:
    """Starts a release, does harm once while tasks run, and waits for the end of the release."""
    run = Run(table)
    run.start()
    wait(lambda: works(cluster))
    harm()
    run.join(240)
    assert not run.is_alive(), "the release does not end"
    return run


def works(cluster: Cluster) -> bool:
    """Whether tasks run."""
    tracker = cluster.spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)


def wait(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not happens():
        assert time.monotonic() < deadline, "it did not happen in two minutes"
        time.sleep(0.05)


def test_a_release_outlives_a_worker_and_the_loss_of_its_driver_is_paid(cluster: Cluster) -> None:
    # one executor's process ends: its tasks run again elsewhere, and the answer is paid
    run = during(cluster, slow(cluster, "once", 0.5), cluster.kill_executor)
    assert (run.error, run.spent) == (None, 1)
    assert run.value is not None

    # executors are killed whenever tasks run: the cluster gives the scan up
    ended = threading.Event()

    def kill_all() -> None:
        while not ended.wait(1):
            if works(cluster):
                for process in cluster.executors():
                    os.kill(process, signal.SIGKILL)

    killer = threading.Thread(target=kill_all, daemon=True)
    try:
        run = during(cluster, slow(cluster, "never", 3), killer.start)
    finally:
        ended.set()
        killer.join(10)
    assert isinstance(run.error, tb.ReleaseError)
    assert run.error.__context__ is None
    assert (run.value, run.spent) == (None, 1)

    # the driver's process ends during the scan: the worst-case price is charged
    table = slow(cluster, "last", 0.5)
    run = during(cluster, table, lambda: os.kill(cluster.driver, signal.SIGKILL))
    assert isinstance(run.error, tb.ReleaseError)
    assert (run.value, run.spent) == (None, 1)

    # and before the scan: a refusal that costs nothing
    run = Run(table)
    run.run()
    assert isinstance(run.error, SourceError)
    assert str(run.error).startswith("the table's engine does not answer (")
    assert (run.value, run.spent) == (None, 0)
