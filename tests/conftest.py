from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

settings.register_profile(
    "house",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("house")


# Temporary files lie in memory where there is room for them: a ledger on a disk waits for the disk
# at each act. No test needs one: the replay of power cuts knows from a record what a disk had.
MEMORY = Path("/dev/shm")
ROOM = 4 * 2**30  # bytes, chosen: eight worktrees that tested at once left 118 MB there


def _keep_files_in_memory() -> None:
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    # a folder from which nothing may be loaded is none for a library that a test compiles
    may_run = not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
    if may_run and shutil.disk_usage(MEMORY).free >= ROOM:
        os.environ["TMPDIR"], tempfile.tempdir = str(MEMORY), None


_keep_files_in_memory()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder beside the repository with reference values that are not part of it."""
    path = ROOT.parent / "shared"
    if not path.is_dir():
        pytest.skip(
            "no folder 'shared' beside the repository: its reference values are not checked"
        )
    return path


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects without searching for garbage, of which there is none among all the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # libraries count at the end of the process what was not freed


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuses names that differ from process to process, which parallel runs could not share."""
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"the name of a test has an address of memory: {item.nodeid}")
    from tests.ledger import made_tables  # not in the process that only hands tests out

    made_tables.install()


# ------------------------------------------------------------- a test without `slow` is quick

# The rule is a second of CPU time. A test fails at three times that: the first test of a process
# pays for imports (0.7 s for scipy.stats, 0.5 s for Matplotlib), and on two busy cores the same
# test was measured at twice its time on idle ones. Between the two it is named at the end. A
# slower machine may set another limit.
QUICK = 1.0
LIMIT = float(os.environ.get("TEST_CPU_SECONDS", "3"))
_STARTED = pytest.StashKey[float]()


def cpu_seconds() -> float:
    """CPU seconds of this process, and of the child processes that it has waited for."""
    return sum(os.times()[:4])


def too_slow(seconds: float) -> str | None:
    """The message for a test that used more CPU seconds than its limit; None below it."""
    if seconds <= LIMIT:
        return None
    return (
        f"the test used {seconds:.1f} s of CPU, and without the mark `slow` it may use "
        f"{QUICK:g} s (it fails at {LIMIT:g} s): make it smaller, or mark it "
        "@pytest.mark.slow; on a slow machine, set TEST_CPU_SECONDS higher"
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_STARTED] = cpu_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    ended = yield
    if item.get_closest_marker("slow") is None:
        seconds = cpu_seconds() - item.stash[_STARTED]
        item.user_properties.append(("cpu_seconds", seconds))
        if message := too_slow(seconds):
            pytest.fail(message, pytrace=False)
    return ended


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    used = {
        report.nodeid: seconds
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "teardown"
        for name, seconds in report.user_properties
        if name == "cpu_seconds" and isinstance(seconds, float) and seconds > QUICK
    }
    if used:
        terminalreporter.section(f"tests without the mark `slow` that used more than {QUICK:g} s")
        for name, seconds in sorted(used.items(), key=lambda one: -one[1]):
            terminalreporter.write_line(f"{seconds:6.1f} s  {name}")
