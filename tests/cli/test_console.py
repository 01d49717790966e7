"""The console script as a process of its own."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tightbudget as tb

SCRIPT = Path(sys.executable).with_name("tightbudget")
ASK = ["epsilon", "gaussian", "--sigma", "1", "--delta", "1e-5"]
# far more points than there is patience
LONG = ["curve", "truncated-laplace", "--scale", "20", "--bound", "400", "--times", "1000",
        "--deltas", "1e-1:1e-3:3000"]  # fmt: skip


def process(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(args, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize("command", [[str(SCRIPT)], [sys.executable, "-m", "tightbudget"]])
def test_the_script_answers(command: list[str]) -> None:
    done = process(*command, *ASK, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        json.loads(done.stdout)["epsilon"] == tb.compose([tb.Gaussian(1.0)]).epsilon(1e-5).to_dict()
    )


@pytest.mark.slow
def test_the_script_refuses_without_a_traceback() -> None:
    done = process(str(SCRIPT), "epsilon", "gaussian", "--sigma", "0", "--delta", "1e-5")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: sigma must be a finite number > 0, got 0\n"


@pytest.mark.slow
def test_the_reader_of_a_pipe_may_leave() -> None:
    done = process("sh", "-c", f"{SCRIPT} curve gaussian --sigma 9 --epsilons 0:1:300 | head -n 1")
    assert done.stdout.split() == ["epsilon", "delta"]
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "progress"),
    [(LONG, b"%"), (["reproduce", "hartmann-2022", "--processes", "2"], b"table_1")],
)
def test_long_work_shows_progress_on_a_terminal_and_ends_quietly_on_ctrl_c(
    command: list[str], progress: bytes, tmp_path: Path
) -> None:
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [SCRIPT, *command],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
        cwd=tmp_path,
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""
    try:
        while progress not in seen:
            assert select.select([ours], [], [], 60)[0], seen
            seen += os.read(ours, 4096)
        time.sleep(0.6)  # about when workers import, and a Ctrl-C would be a traceback each
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: its workers hear it, too
        out, _ = running.communicate(timeout=60)
        while select.select([ours], [], [], 0)[0]:
            seen += os.read(ours, 4096)
    except OSError:  # how a terminal ends
        pass
    finally:
        running.kill()
        os.close(ours)
    assert (b"figure_filter" if "reproduce" in command else b"composing") in seen
    assert b"Traceback" not in seen
    assert out == b""
    assert running.returncode == 130


@pytest.mark.slow  # a fresh Python starts
def test_the_program_starts_without_what_few_commands_need() -> None:
    code = "import sys, tightbudget.cli; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    heavy = {"alembic", "fastapi", "httpx", "jinja2", "matplotlib", "polars", "psycopg", "pydantic"}
    heavy |= {"scipy.optimize", "scipy.signal", "scipy.stats", "sqlalchemy", "starlette", "uvicorn"}
    assert "tightbudget.cli" in found.stdout.split()
    assert not heavy & set(found.stdout.split())
