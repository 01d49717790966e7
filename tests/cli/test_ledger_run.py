"""``tightbudget ledger run``: nothing is seen before it is paid for, whoever kills what."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.terminal import refusal, run
from tests.guards.mutants import Without, each, lose_a_truth
from typer.testing import Result

import tightbudget as tb
from tightbudget.cli.ledger.program import HeldBack
from tightbudget.promises.chain import digest

SEARCH = tb.OutputDP({"found": 0.3, "not found": 0.1, 3: 0.2}, 1e-9)
SCRIPT = str(Path(sys.executable).with_name("tightbudget"))
RUN = ["ledger", "run", "--budget", "ada"]
GUARANTEE = ["--guarantee", "search.json"]
SECRET = "a noisy count: 1012"


@pytest.fixture(autouse=True)
def _ada(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIGHTBUDGET_LEDGER", "sqlite:///budget.db")
    # nobody waits for a database that is away on purpose
    monkeypatch.setattr("tightbudget.cli.ledger.run._PAUSES", (0.0, 0.0))
    with tb.Ledger("sqlite:///budget.db") as ledger:
        ledger.open_budget("ada", epsilon=1, delta=1e-6)
    Path("search.json").write_text(SEARCH.to_json())


def wrapped(*command: object, key: str = "A1", guarantee: list[str] = GUARANTEE) -> Result:
    return run(*RUN, "--key", key, *guarantee, "--", *command)


def ended(key: str = "A1") -> tuple[str, Any, float]:
    """How the ledger remembers a run: its state, its cell, its price."""
    with tb.Ledger("sqlite:///budget.db") as ledger:
        hold = ledger.hold(key)
        return hold.state.value, hold.cell, hold.charge.epsilon


FOUND = ("settled", "found", 0.3)
FORFEITED = ("forfeited", None, 0.3)


# ------------------------------------------------------------------------- what came out


@pytest.mark.parametrize(
    ("printed", "end"),
    [
        (b"17\nfound\n", FOUND),
        (b"17\nfound", FOUND),
        (b"17\r\nfound\r\n", FOUND),
        (b"found\n", FOUND),
        (b"found", FOUND),
        (b"17\nnot found\n", ("settled", "not found", 0.1)),
        (b'17\n"not found"\n', ("settled", "not found", 0.1)),
        (b"17\n3\n", ("settled", 3, 0.2)),
        (bytes(range(256)) + b"\nfound\n", FOUND),
        (b"x" * 5_000_000 + b"\nfound\n", FOUND),
        # what names no declared cell costs the dearest price
        (b"", FORFEITED),
        (b"\n", FORFEITED),
        (b"found\n\n", FORFEITED),
        (b"found \n", FORFEITED),
        (b"Found\n", FORFEITED),
        (b"found\n17\n", FORFEITED),
        (b"nan\n", FORFEITED),
        (b"3.0\n", FORFEITED),
        (b"-3\n", FORFEITED),
        (b"true\n", FORFEITED),
        (b"found\xff\n", FORFEITED),
        (bytes(range(256)), FORFEITED),
        (b"x" * 200_000, FORFEITED),
        (b"x" * 200_000 + b"found", FORFEITED),
        (b"\n" + b"[" * 60_000 + b"\n", FORFEITED),
    ],
    ids=lambda x: repr(x)[-30:],
)
def test_the_last_line_is_the_cell_and_the_output_is_shown_as_it_is(
    printed: bytes, end: tuple[str, Any, float]
) -> None:
    Path("output").write_bytes(printed)
    result = wrapped("cat", "output")
    assert result.exit_code == 0
    assert result.stdout_bytes == printed
    assert ended() == end
    receipt = "settled with cell" if end[0] == "settled" else "forfeited, since its last line names"
    assert result.stderr.startswith(receipt)
    assert result.stderr.endswith(f"epsilon {end[2]!r}, delta 1e-09 of ada\n")


def test_stderr_is_output_too_and_no_cell() -> None:
    result = wrapped("sh", "-c", f"echo '{SECRET}' >&2; echo not found; echo found >&2")
    assert result.stdout == "not found\n"
    assert result.stderr.startswith(f"{SECRET}\nfound\nsettled with cell 'not found': epsilon 0.1")


def test_programs_read_the_receipt_and_the_output_in_one_object() -> None:
    result = wrapped(
        "sh", "-c", "printf '\\377\\nfound\\n'; echo hm >&2", guarantee=[*GUARANTEE, "--json"]
    )
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert base64.b64decode(found.pop("stdout_base64")) == b"\xff\nfound\n"
    assert base64.b64decode(found.pop("stderr_base64")) == b"hm\n"
    shown = json.loads(run("ledger", "history", "--key", "A1", "--json").stdout)["events"][-1]
    assert shown["kind"] == "settled"
    started = json.loads(run("ledger", "history", "--key", "A1", "--json").stdout)["events"][-2]
    assert digest(found.pop("token")) == started["details"]["token_sha256"]
    assert found.pop("guarantee")["output_dp"]["sup"] == "3/10"
    assert found == {
        "key": "A1",
        "state": "settled",
        "charges": {"ada": {"amount": 0.3, "delta": 1e-9, "unit": "epsilon"}},
        "cell": "found",
        "told": None,
        "question": None,
        "interactive": False,
        "exit_status": 0,
    }


@pytest.mark.parametrize("guarantee", [["--epsilon", "0.25"], ["--epsilon", "0.25", "--delta", 0]])
def test_a_guarantee_without_cells_needs_no_last_line(guarantee: list[str]) -> None:
    assert wrapped("echo", SECRET, guarantee=guarantee).stdout == f"{SECRET}\n"
    assert ended() == ("settled", "ran", 0.25)


def test_a_budget_of_another_kind_takes_an_amount() -> None:
    with tb.Ledger("sqlite:///budget.db") as ledger:
        ledger.open_budget("rho", kind="zcdp", rho=1)
    asked = ["--budget", "rho", "--key", "A1", "--amount", "0.25", "--", "echo", SECRET]
    assert run("ledger", "run", *asked).stdout == f"{SECRET}\n"
    with tb.Ledger("sqlite:///budget.db") as ledger:
        assert ledger.budget("rho").spent.amount == 0.25


def test_who_is_granted_a_little_less_is_told_so() -> None:
    result = wrapped("echo", SECRET, guarantee=["--epsilon", "1.0000000001"])
    assert result.stderr.startswith("settled with cell 'ran': epsilon 1.0 of ada; granted epsilon")
    assert ended() == ("settled", "ran", 1.0)


@pytest.mark.slow
def test_the_program_reads_what_is_given_to_it() -> None:
    asked = [SCRIPT, *RUN, "--key", "A1", *GUARANTEE, "--", "cat"]
    done = subprocess.run(asked, input=b"17\nfound\n", capture_output=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, b"17\nfound\n")
    assert ended() == FOUND


# ------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("exit 3", 3),
        ("exit 1", 1),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
        ("kill -SEGV $$", 139),
    ],
)
def test_a_program_that_fails_costs_the_dearest_price_and_shows_nothing(
    end: str, status: int
) -> None:
    result = wrapped("sh", "-c", f"echo '{SECRET}'; echo '{SECRET}' >&2; echo found; {end}")
    assert result.exit_code == status
    assert result.stdout == ""
    assert result.stderr == (
        f"forfeited, since its exit status is {status}: epsilon 0.3, delta 1e-09 of ada; "
        "46 bytes of output are not shown\n"
    )
    assert ended() == FORFEITED


def test_a_program_that_fails_in_json() -> None:
    result = wrapped("sh", "-c", f"echo '{SECRET}'; exit 3", guarantee=[*GUARANTEE, "--json"])
    assert (result.exit_code, result.stderr) == (3, "")
    found = json.loads(result.stdout)
    assert (found["state"], found["exit_status"]) == ("forfeited", 3)
    assert (found["stdout_base64"], found["stderr_base64"]) == (None, None)


def test_what_the_system_cannot_run_has_the_status_that_shells_give_it() -> None:
    Path("broken").write_text("\x00")
    Path("broken").chmod(0o755)
    assert wrapped("./broken").exit_code == 126
    assert ended() == FORFEITED


def test_no_program_is_refused_before_anything_is_charged() -> None:
    message = refusal(*RUN, "--key", "A1", *GUARANTEE, "--", "no-such-program", "-x")
    assert message == "command must begin with a program, got 'no-such-program'"
    assert "Missing argument" in refusal(*RUN, "--key", "A1", *GUARANTEE)
    assert refusal("ledger", "start", "A1", code=5) == "there is no reservation 'A1'"


def test_what_does_not_fit_does_not_run() -> None:
    message = refusal(*RUN, "--key", "A1", "--epsilon", "1.5", "--", "touch", "ran", code=4)
    assert message.startswith("requested epsilon 1.5, delta 0.0 of 'ada'; left epsilon 1.0")
    assert not Path("ran").exists()


# -------------------------------------------------------------------- the same key again


def hold_of(key: str = "A1") -> tb.ledger.LedgerHold:
    return tb.Ledger("sqlite:///budget.db").hold(key)


def reserved() -> tb.ledger.LedgerHold:
    return tb.Ledger("sqlite:///budget.db").budget("ada").reserve("A1", SEARCH)


def started() -> tb.ledger.LedgerHold:
    hold = reserved()
    hold.start()
    return hold


@pytest.mark.parametrize(
    ("before", "message"),
    [
        (started, "'A1' was started before, and nobody knows what has been seen of it: forfeit it"),
        (lambda: started().settle("found"), "'A1' has run before and is paid for; its output is"),
        (lambda: started().forfeit(), "'A1' was forfeited; take another key for another run"),
        (lambda: reserved().void(), "'A1' was given up before it ran; take another key"),
    ],
)
def test_a_key_runs_once(before: Callable[[], object], message: str) -> None:
    before()
    end = ended()
    asked = [*RUN, "--key", "A1", *GUARANTEE, "--", "touch", "ran"]
    assert refusal(*asked, code=5).startswith(message)
    assert not Path("ran").exists()
    assert ended() == end


def test_a_reservation_that_has_not_started_goes_on() -> None:
    reserved()
    assert wrapped("echo", "found").exit_code == 0
    assert ended() == FOUND


def test_a_key_is_for_one_guarantee() -> None:
    reserved()
    asked = [*RUN, "--key", "A1", "--epsilon", "0.3", "--", "touch", "ran"]
    assert "was used before, for something else" in refusal(*asked, code=5)
    assert not Path("ran").exists()


# ----------------------------------------------------------------- the order of the steps


STATE = (
    "import sqlite3; c = sqlite3.connect('budget.db');"
    "print(c.execute('SELECT state FROM reservations').fetchone()[0])"
)


def test_the_start_is_durable_before_the_program_runs() -> None:
    result = wrapped(sys.executable, "-S", "-c", f"{STATE}; print('found')")
    assert result.stdout == "started\nfound\n"


def test_the_price_is_durable_before_anything_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    reveal, seen = HeldBack.reveal, []

    def watched(self: HeldBack) -> None:
        seen.append(ended())
        reveal(self)

    monkeypatch.setattr(HeldBack, "reveal", watched)
    assert wrapped("echo", "found").stdout == "found\n"
    assert seen == [FOUND]


def test_a_ledger_that_comes_back_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    settle, calls = tb.ledger.LedgerHold.settle, []

    def late(self: tb.ledger.LedgerHold, cell: Any) -> Any:
        calls.append(cell)
        if len(calls) < 3:
            raise tb.LedgerError("away", unknown=True)
        return settle(self, cell)

    monkeypatch.setattr(tb.ledger.LedgerHold, "settle", late)
    assert wrapped("echo", "found").stdout == "found\n"
    assert (calls, ended()) == (["found"] * 3, FOUND)


@pytest.mark.parametrize(
    ("error", "tries", "code"),
    [
        (tb.LedgerError("away"), 3, 6),
        (tb.errors.LedgerCorruptError("forged"), 1, 7),
        (tb.errors.FencingError("overruled"), 1, 5),
    ],
)
def test_what_cannot_be_paid_is_not_shown(
    error: tb.TightBudgetError, tries: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def refuses(self: tb.ledger.LedgerHold, cell: Any) -> Any:
        calls.append(cell)
        raise error

    monkeypatch.setattr(tb.ledger.LedgerHold, "settle", refuses)
    asked = [*RUN, "--key", "A1", *GUARANTEE, "--", "sh", "-c", f"echo '{SECRET}'; echo found"]
    message = refusal(*asked, code=code)
    assert message == str(error) + ("; the output is not shown, and lost" if code == 6 else "")
    assert (len(calls), ended()) == (tries, ("started", None, 0.3))


def test_a_start_that_may_have_happened_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    start = tb.ledger.LedgerHold.start

    def lost(self: tb.ledger.LedgerHold) -> None:
        start(self)
        raise tb.LedgerError("no answer", unknown=True)

    monkeypatch.setattr(tb.ledger.LedgerHold, "start", lost)
    assert refusal(*RUN, "--key", "A1", *GUARANTEE, "--", "touch", "ran", code=6) == "no answer"
    assert not Path("ran").exists()
    assert ended() == ("started", None, 0.3)


def test_killed_between_settle_and_reveal_it_is_paid_for_and_never_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(self: HeldBack) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(HeldBack, "reveal", killed)
    result = wrapped("sh", "-c", f"echo '{SECRET}'; echo found")
    assert (result.exit_code, result.stdout) == (130, "")
    assert ended() == FOUND
    asked = [*RUN, "--key", "A1", *GUARANTEE, "--", "echo", "found"]
    assert "has run before and is paid for" in refusal(*asked, code=5)


@pytest.mark.slow
def test_a_run_that_somebody_forfeits_meanwhile_shows_nothing() -> None:
    forfeit = f"{SCRIPT} ledger forfeit A1"
    asked = [*RUN, "--key", "A1", *GUARANTEE, "--", "sh", "-c", f"{forfeit}; echo found"]
    assert "it is forfeited, at the worst-case price" in refusal(*asked, code=5)
    assert ended() == FORFEITED


# --------------------------------------------------------------------------- being killed


def begun(code: str) -> subprocess.Popen[bytes]:
    """The wrapper as a process, whose program is running."""
    asked = [SCRIPT, *RUN, "--key", "A1", *GUARANTEE, "--", "sh", "-c", f"touch begun; {code}"]
    running = subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(Path("begun").exists)
    return running


def wait_for(true: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come")


WAITING = "while [ ! -e go ]; do sleep 0.05; done"


@pytest.mark.slow
def test_killing_the_wrapper_leaves_the_worst_case_held_and_nothing_seen() -> None:
    running = begun(f"echo '{SECRET}'; {WAITING}; echo found; touch done")
    running.kill()
    Path("go").touch()
    wait_for(Path("done").exists)
    assert running.communicate(timeout=60) == (b"", b"")
    assert ended() == ("started", None, 0.3)
    asked = [*RUN, "--key", "A1", *GUARANTEE, "--", "echo", "found"]
    assert "was started before" in refusal(*asked, code=5)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_program_which_is_charged_for(number: signal.Signals) -> None:
    running = begun(f"echo '{SECRET}'; exec sleep 100")
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 128 + number
    assert out == b""
    assert SECRET.encode() not in err
    assert ended() == FORFEITED


@pytest.mark.slow
def test_a_program_may_end_well_when_it_is_asked_to_end() -> None:
    running = begun(f"trap 'echo not found; exit 0' TERM; {WAITING}")
    running.terminate()
    out, _ = running.communicate(timeout=60)
    assert (running.returncode, out) == (0, b"not found\n")
    assert ended() == ("settled", "not found", 0.1)


def test_a_signal_before_the_program_is_there_reaches_it() -> None:
    with HeldBack.files() as held, held.signals():
        os.kill(os.getpid(), signal.SIGTERM)
        assert held.run(["sleep", "100"]) == 143
        os.kill(os.getpid(), signal.SIGTERM)  # and after its end there is nothing to be ended


def test_signals_are_as_they_were_and_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with HeldBack.files() as held:
            with held.signals():
                assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
                assert signal.getsignal(signal.SIGTERM) == held._pass_on
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_a_program_leaves_running_adds_nothing() -> None:
    assert not late_lines_are_shown()


def late_lines_are_shown() -> bool:
    with HeldBack.files() as held:
        late = "(while [ ! -e go ]; do sleep 0.02; done; echo late; touch done) & echo found"
        held.run(["sh", "-c", late])
        Path("go").touch()
        wait_for(Path("done").exists)
        for path in ("go", "done"):
            Path(path).unlink()
        return held.read() != (b"found\n", b"")


@pytest.mark.slow
def test_the_reader_of_the_output_may_leave() -> None:
    Path("output").write_bytes(b"x\n" * 2_000_000 + b"found\n")
    shell = f"{SCRIPT} {' '.join([*RUN, '--key', 'A1', *GUARANTEE])} -- cat output | head -n 1"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=120)
    assert done.stdout == "x\n"
    assert "Traceback" not in done.stderr
    assert ended() == FOUND


# ------------------------------------------------------------------------------ mutations


def with_a_key_of_its_own(*command: str) -> tuple[Result, tuple[str, Any, float]]:
    with_a_key_of_its_own.number += 1  # type: ignore[attr-defined]
    key = f"M{with_a_key_of_its_own.number}"  # type: ignore[attr-defined]
    return wrapped(*command, key=key), ended(key)


with_a_key_of_its_own.number = 0  # type: ignore[attr-defined]


def a_failure_shows_nothing() -> bool:
    result, _ = with_a_key_of_its_own("sh", "-c", f"echo '{SECRET}'; exit 3")
    return SECRET not in result.stdout + result.stderr


def a_failure_costs_the_sup() -> bool:
    _, end = with_a_key_of_its_own("sh", "-c", "echo not found; exit 3")
    return end == FORFEITED


def an_undeclared_cell_is_forfeited() -> bool:
    _, end = with_a_key_of_its_own("echo", "elsewhere")
    return end == FORFEITED


MUTATIONS = [
    Without(
        "a failure shows nothing", {"failed-output-hidden": "if True:"}, a_failure_shows_nothing
    ),
    Without(
        "a failure settles no cell",
        {"failure-settles-no-cell": "if False:"},
        a_failure_costs_the_sup,
    ),
    Without(
        "a cell is declared",
        {"cell-is-declared": "return isinstance(guarantee, OutputDP) and True"},
        an_undeclared_cell_is_forfeited,
    ),
    Without(
        "the output ends with the program",
        {"output-until-program-ends": "while (chunk := file.read(_CHUNK)):"},
        lambda: not late_lines_are_shown(),
    ),
]


@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)
