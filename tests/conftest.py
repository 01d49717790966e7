from __future__ import annotations

import atexit
import gc
import os
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Generator, Iterator, Sequence
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


# Libraries count at the end of the process what was not freed. Not earlier: pytest searches for
# garbage five times when it ends, which takes three seconds among all that was collected.
atexit.register(gc.unfreeze)


@pytest.hookimpl(tryfirst=True)  # before tests are deselected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuses names that differ from process to process, which parallel runs could not share."""
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"the name of a test has an address of memory: {item.nodeid}")
    leave_some_to_make_slow(items)
    from tests.ledger import made_tables  # not in the process that only hands tests out

    made_tables.install()


# ------------------------------------------------------- `make test` asks some cases of a law

# What `one_in` has marked: these are no slower than a test without `slow` may be.
_LEFT = pytest.StashKey[bool]()


def leave_some_to_make_slow(items: Sequence[pytest.Item]) -> None:
    """Marks ``slow`` all but one of each N quick cases of a test that has the mark ``one_in(N)``.

    Each law keeps a case at least, and different laws keep different ones, so that `make test` asks
    about every value of a list somewhere. `TEST_EVERY_CASE=1` leaves all the quick cases quick.
    """
    if os.environ.get("TEST_EVERY_CASE"):
        return
    laws: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("one_in") and not item.get_closest_marker("slow"):
            laws.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for law, cases in laws.items():
        mark = cases[0].get_closest_marker("one_in")
        assert mark is not None
        kept = set(places(law, len(cases), *mark.args))
        for place, item in enumerate(cases):
            if place not in kept:
                item.add_marker(pytest.mark.slow)
                item.stash[_LEFT] = True


def places(law: str, count: int, n: int) -> Iterator[int]:
    """One place in each n of ``count`` places; which one goes on by one from each n to the next.

    So a law over all pairs of two values meets all of both, also where n is how many values the
    second has.
    """
    first = zlib.crc32(law.encode())  # hash() of a text differs from process to process
    for block, start in enumerate(range(0, count, n)):
        yield start + (first + block) % min(n, count - start)


# A moment, in seconds since 1970: what has not begun by then is skipped, so that a run on a machine
# that is too slow for all tests ends in time and says how many it left out.
UNTIL = float(os.environ.get("TEST_UNTIL", "inf"))


@pytest.hookimpl(specname="pytest_runtest_setup", tryfirst=True)
def pytest_leave_out_late_tests() -> None:
    """Skips a test that begins too late."""
    if time.time() > UNTIL:
        pytest.skip("the time for tests is up (TEST_UNTIL)")


# Balls have one precision in a process, and many tests set a higher one for themselves: each test
# begins with this one, whatever ran before it in its process.
BITS = 400


@pytest.hookimpl(specname="pytest_runtest_setup", tryfirst=True)
def pytest_begin_with_one_precision() -> None:
    """Sets the precision of python-flint's balls, where it is loaded."""
    if flint := sys.modules.get("flint"):
        flint.ctx.prec = BITS


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
    if os.environ.get("CI"):
        from tests import seeded

        seeded.begin(item)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    # The last test of a process ends its servers, too, which have worked for other tests: a child
    # that is waited for from here on counts for nobody.
    before, own = cpu_seconds(), time.process_time()
    ended = yield
    if item.get_closest_marker("slow") is None or _LEFT in item.stash:
        seconds = before + (time.process_time() - own) - item.stash[_STARTED]
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
