"""A test without the mark `slow` that uses much CPU time fails, and says what to do.

`make test` asks some cases of a law that has the mark `one_in`, and `make slow` all the others.
"""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import conftest

ROOT = Path(conftest.__file__).resolve().parents[1]
PATHS = os.pathsep.join([str(ROOT), str(ROOT / "src")])  # the conftest imports from both

TESTS = """
import subprocess, sys, time
import pytest

BURN = "import time\\nwhile time.process_time() < 0.3: pass"

def test_here():
    end = time.process_time() + 0.3
    while time.process_time() < end: pass

def test_child():
    subprocess.run([sys.executable, "-c", BURN])

@pytest.fixture(scope="module")
def busy():
    exec(BURN.replace("< 0.3", f"< {time.process_time() + 0.3}"))

def test_first_with_fixture(busy): pass

def test_second_with_fixture(busy): pass

@pytest.mark.slow
def test_marked():
    test_here()

@pytest.fixture(scope="session")
def server():
    child = subprocess.Popen([sys.executable, "-c", BURN])
    yield
    child.wait()

def test_idle(server):  # the last one ends the server
    time.sleep(0.9)
"""

LAWS = """
import pytest

@pytest.mark.one_in(4)
@pytest.mark.parametrize("other", [True, False])
@pytest.mark.parametrize("k", [*range(8), pytest.param(8, marks=pytest.mark.slow)])
def test_law(k, other): pass

@pytest.mark.one_in(4)
def test_single(): pass
"""


@pytest.mark.slow  # it starts a pytest of its own
def test_a_test_that_uses_too_much_fails_and_a_slow_or_idle_one_does_not(tmp_path: Path) -> None:
    (tmp_path / "test_busy.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(Path(conftest.__file__).read_text(encoding="utf-8"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rEp", "-p", "no:cacheprovider", "-W", "ignore",
         "-p", "no:xdist", "-p", "no:cov", str(tmp_path)],
        cwd=tmp_path, env={"TEST_CPU_SECONDS": "0.2", "PATH": "", "PYTHONPATH": PATHS},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    failed = {line.split("::")[1].split(" ")[0] for line in done.stdout.splitlines()
              if line.startswith("ERROR ")}  # fmt: skip
    assert failed == {"test_here", "test_child", "test_first_with_fixture"}, done.stdout
    assert "6 passed, " in done.stdout
    assert "mark it @pytest.mark.slow" in done.stdout


@pytest.mark.slow  # it starts a pytest of its own
@pytest.mark.parametrize(("until", "said"), [(0.0, "6 skipped"), (math.inf, "6 passed")])
def test_what_begins_when_the_time_is_up_is_skipped(
    tmp_path: Path, until: float, said: str
) -> None:
    (tmp_path / "test_busy.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(Path(conftest.__file__).read_text(encoding="utf-8"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "-W", "ignore",
         "-p", "no:xdist", "-p", "no:cov", str(tmp_path)],
        cwd=tmp_path, env={"TEST_UNTIL": str(until), "PATH": "", "PYTHONPATH": PATHS},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert f" {said} in " in done.stdout
    assert ("the time for tests is up (TEST_UNTIL)" in done.stdout) == (until == 0.0)


def test_the_message_says_how_much_was_used_and_what_to_do() -> None:
    assert conftest.too_slow(conftest.LIMIT) is None
    message = conftest.too_slow(conftest.LIMIT + 1.25) or ""
    assert f"{conftest.LIMIT + 1.25:.1f} s of CPU" in message
    assert "make it smaller, or mark it @pytest.mark.slow" in message
    assert "TEST_CPU_SECONDS" in message


@pytest.mark.parametrize("seconds", [0.0, conftest.QUICK, conftest.LIMIT])
def test_what_is_within_the_limit_has_no_message(seconds: float) -> None:
    assert conftest.too_slow(seconds) is None


def collected(folder: Path, marks: str, **env: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider",
         "-W", "ignore", "-p", "no:xdist", "-p", "no:cov", "-m", marks, str(folder)],
        cwd=folder, env={"PATH": "", "PYTHONPATH": PATHS, **env},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return [line.split("::")[1] for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.slow  # it starts a pytest of its own
def test_each_case_of_a_law_is_quick_or_slow_and_the_law_is_always_asked(tmp_path: Path) -> None:
    (tmp_path / "test_laws.py").write_text(LAWS)
    (tmp_path / "conftest.py").write_text(Path(conftest.__file__).read_text(encoding="utf-8"))
    every, quick, slow = (collected(tmp_path, marks) for marks in ("", "not slow", "slow"))
    assert len(every) == 19
    assert sorted(quick + slow) == sorted(every)
    assert [name.startswith("test_law[") for name in quick] == [True] * 4 + [False]
    assert len(collected(tmp_path, "not slow", TEST_EVERY_CASE="1")) == 17


@pytest.mark.parametrize(("count", "n"), [(1, 4), (3, 4), (42, 4), (168, 4), (10, 3), (5, 1)])
def test_one_of_each_n_places_is_kept_and_another_one_of_the_next(count: int, n: int) -> None:
    for law in ("tests/a.py::test_law", "tests/b.py::test_another"):
        kept = list(conftest.places(law, count, n))
        assert [place // n for place in kept] == list(range(math.ceil(count / n)))
        assert kept[-1] < count
        whole = [place % n for place in kept[: count // n]]
        assert all(two == (one + 1) % n for one, two in itertools.pairwise(whole))


def test_laws_keep_different_places() -> None:
    assert {next(conftest.places(f"law {k}", 42, 4)) for k in range(40)} == {0, 1, 2, 3}
