"""Training that may stop early and goes on in another process, after a crash."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.guards.mutants import Without, each, lose_a_truth
from tests.release.test_stopping import ANSWER, STOPS, Bits, delta_of, price, schedule

import tightbudget as tb
from tightbudget.release.stopping import StoppingCallback

Run = StoppingCallback[bool]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[tb.Ledger]:
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as found:
        found.open_budget("ada", epsilon=8, delta=0.5)
        yield found


def of(ledger: Any, key: str = "run", **given: Any) -> Run:
    """A resumable run of ada's, whose rule does what it is told."""
    meter: Any = ledger.budget("ada").keyed(key)
    return StoppingCallback(schedule(), meter, bool, resumable=True, **given)


def gone(ledger: Any, deeds: str = "", key: str = "run", **given: Any) -> dict[str, Any]:
    """The state of a run whose process has died after some deeds."""
    run = of(ledger, key, **given).__enter__()
    state = json.loads(json.dumps(run.state_dict()))
    do(run, deeds)
    return dict(state)


def again(ledger: Any, state: dict[str, Any], key: str = "run", **given: Any) -> Run:
    """The run in another process, which is not entered yet."""
    run = of(ledger, key, **given)
    run.load_state_dict(state)
    return run


def do(run: Run, deeds: str) -> None:
    """Takes steps (s), goes on after the next stop (n) or stops there (y)."""
    for deed in deeds:
        if deed == "s":
            run.step(ANSWER)
        else:
            assert run.should_stop(run.next_stop, deed == "y") is (deed == "y")


def spent(ledger: Any) -> tuple[float, float]:
    """What ada's budget has spent and what it holds, in epsilon."""
    budget = ledger.budget("ada")
    return budget.spent.epsilon, budget.held.epsilon


def paid(stop: int) -> Any:
    """What is spent, and that nothing is held, after a run that was charged one stop."""
    return pytest.approx((float(price(stop)), 0.0), rel=1e-9)


def held() -> Any:
    return pytest.approx((0.0, float(price(STOPS[-1]))), rel=1e-9)


# --------------------------------------------------------------------------------- laws


def attacked(
    ledger: tb.Ledger, name: str, decide: Callable[[Bits], str], bits: Bits
) -> tuple[Bits, Fraction]:
    """What is seen of a run that somebody kills who sees everything, and what it is charged.

    Args:
        ledger: the ledger that pays.
        name: of the budget, and the key.
        decide: from all bits so far, also those of dead processes, to one of: kill the process and
            go on in another one, kill it and end the run, stop at the next stop, go on.
        bits: what the steps give, in the order in which they run, whoever runs them.
    """
    budget = ledger.open_budget(name, epsilon=4, delta=0.5)

    def fresh() -> StoppingCallback[bool]:
        meter: Any = budget.keyed(name)
        return StoppingCallback(schedule(), meter, bool, resumable=True)

    seen: Bits = ()
    run = fresh().__enter__()
    state = run.state_dict()
    steps = 0
    while not run.over:
        run.step(ANSWER)
        steps, seen = steps + 1, (*seen, bits[len(seen)])
        deed = decide(seen)
        if deed.startswith("kill"):
            run = fresh()
            run.load_state_dict(state)
            if deed == "kill and end":
                run.end()
                break
            run.__enter__()
            continue
        if not any(run._left.values()):
            run.should_stop(run.next_stop, deed == "stop")
    else:
        run.__exit__(None, None, None)
    hold = ledger.hold(name)
    assert hold.state.value == "settled"
    assert budget.held.epsilon == 0
    assert isinstance(hold.cell, int)
    return seen, price(hold.cell)


def excess(ledger: tb.Ledger, seed: int) -> Fraction:
    """The smallest delta for what is charged to somebody who decides at random, but once for all.

    He decides by everything that was seen. At every third he kills, so that most runs die twice.
    """
    deeds: dict[Bits, str] = {}
    coins = random.Random(seed)
    for n in range(1, STOPS[-1] + 1):
        for seen in itertools.product((0, 1), repeat=n):
            deeds[seen] = coins.choice(("kill", "kill and end", "stop", "go on", "go on", "go on"))
    charged: dict[Bits, Fraction] = {}
    for i, bits in enumerate(itertools.product((0, 1), repeat=STOPS[-1])):
        seen, epsilon = attacked(ledger, f"{seed} {i}", deeds.__getitem__, bits)
        assert charged.setdefault(seen, epsilon) == epsilon
    return delta_of(charged)


def test_whoever_kills_by_what_was_seen_breaks_nothing(ledger: tb.Ledger) -> None:
    assert 0 < excess(ledger, seed=1) <= Fraction(schedule().delta.upper)


def test_were_lost_steps_free_they_would_break_it() -> None:
    # who kills the process twice, and sees the first step three times
    three = dict.fromkeys(itertools.product((0, 1), repeat=3), price(1))
    assert delta_of(three) > Fraction(schedule().delta.upper)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 40))
def test_many_who_kill_break_nothing(seed: int, ledger: tb.Ledger) -> None:
    assert excess(ledger, seed) <= Fraction(schedule().delta.upper)


@pytest.mark.parametrize(
    ("deeds", "stop"),
    [("", 1), ("s", 1), ("sn", 2), ("sns", 2), ("snsn", 4), ("snsns", 4), ("sy", 1), ("snsy", 2)],
)
def test_a_run_that_died_is_ended_at_the_stop_that_its_steps_lead_to(
    deeds: str, stop: int, ledger: tb.Ledger
) -> None:
    state = gone(ledger, deeds)
    assert spent(ledger) == held()
    receipt = again(ledger, state).end()
    assert receipt.charged.epsilon == pytest.approx(float(price(stop)))
    assert receipt.returned.delta == 0
    assert spent(ledger) == paid(stop)


@pytest.mark.parametrize(
    ("deeds", "more", "stop"),
    [
        ("", "sy", 2),  # the steps up to stop 1 had begun: they count
        ("s", "sy", 2),
        ("s", "snssy", 4),
        ("sn", "ssy", 4),
        ("sns", "ssy", 4),
        ("snsn", "", 4),  # nothing is left to run
        ("sy", "", 1),  # it had stopped, and was not settled
    ],
)
def test_a_run_goes_on_behind_the_steps_that_had_begun(
    deeds: str, more: str, stop: int, ledger: tb.Ledger
) -> None:
    run = again(ledger, gone(ledger, deeds))
    with run:
        assert run.over is (more == "")
        do(run, more)
        assert run.over
    assert run.receipt.charged.epsilon == pytest.approx(float(price(stop)))
    assert spent(ledger) == paid(stop)


def test_each_death_costs_one_stop_whatever_the_age_of_the_checkpoint(ledger: tb.Ledger) -> None:
    state = gone(ledger, "sn")  # the state is the same in all checkpoints
    for _ in range(2):
        run = again(ledger, state)
        run.__enter__()
    assert run.over
    run.__exit__(None, None, None)
    assert spent(ledger) == paid(4)


def test_the_rule_s_stop_is_settled_as_without_a_crash(ledger: tb.Ledger) -> None:
    with of(ledger) as run:
        do(run, "snsy")
    assert spent(ledger) == paid(2)
    assert run.receipt.held.epsilon >= max(schedule().epsilons)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_leaves_the_run_to_be_gone_on_with(
    error: type[BaseException], ledger: tb.Ledger
) -> None:
    run = of(ledger)

    def fails() -> None:
        with run:
            do(run, "sn")
            raise error

    with pytest.raises(error):
        fails()
    assert spent(ledger) == held()
    again(ledger, run.state_dict()).end()
    assert spent(ledger) == paid(2)


def test_a_loop_that_ends_between_stops_says_what_can_be_done(ledger: tb.Ledger) -> None:
    run = of(ledger)
    with (
        pytest.raises(tb.ReleaseError, match="stays held until a process goes on with the run, e"),
        run,
    ):
        do(run, "sn")
    assert spent(ledger) == held()
    assert run.over
    assert ledger.hold("run").forfeit().epsilon >= max(schedule().epsilons)


# ------------------------------------------------------------------------ two processes


def test_a_process_that_is_overtaken_settles_nothing(ledger: tb.Ledger) -> None:
    slow = of(ledger).__enter__()
    do(slow, "s")
    quick = again(ledger, slow.state_dict()).__enter__()
    with pytest.raises(
        tb.errors.FencingError, match="another process goes on with this run after stop 1: nothing"
    ):
        slow.should_stop(1, True)
    with pytest.raises(tb.errors.SettlementError, match="no run is open"):
        slow.step(ANSWER)
    assert spent(ledger) == held()
    do(quick, "sy")
    quick.__exit__(None, None, None)
    assert spent(ledger) == paid(2)


def test_two_processes_that_go_on_at_once_have_different_steps(ledger: tb.Ledger) -> None:
    state = gone(ledger)
    first, second = (again(ledger, state).__enter__() for _ in range(2))
    assert (first.next_stop, second.next_stop) == (2, 4)
    do(first, "s")
    with pytest.raises(tb.errors.FencingError):
        first.should_stop(2, False)
    do(second, "ssy")
    second.__exit__(None, None, None)
    assert spent(ledger) == paid(4)


def test_a_process_that_an_image_of_it_brings_back_goes_no_further(ledger: tb.Ledger) -> None:
    run = of(ledger).__enter__()
    before = dict(vars(run))
    do(run, "s")
    do(run, "n")
    vars(run).update(before)
    with pytest.raises(tb.errors.FencingError):
        run.should_stop(1, False)
    assert spent(ledger) == held()


def test_a_process_that_wakes_after_the_end_goes_no_further(ledger: tb.Ledger) -> None:
    slow = of(ledger).__enter__()
    do(slow, "s")
    again(ledger, slow.state_dict()).end()
    with pytest.raises(tb.errors.FencingError):
        slow.should_stop(1, False)
    assert spent(ledger) == paid(1)


def test_a_forfeited_run_stays_charged(ledger: tb.Ledger) -> None:
    run = of(ledger).__enter__()
    do(run, "s")
    ledger.hold("run").forfeit()
    do(run, "y")
    with pytest.raises(tb.errors.FencingError, match="overruled"):
        run.__exit__(None, None, None)
    assert spent(ledger)[0] >= max(schedule().epsilons)


# ------------------------------------------------------------------- processes that die


def killed(url: str, state: Path, deeds: str, where: str) -> None:
    """Lets a fork begin a run and be killed after some deeds, or in the midst of a claim."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of other tests may live
        pid = os.fork()
    if not pid:
        try:
            with tb.Ledger(url) as ledger:
                run = of(ledger).__enter__()
                state.write_text(json.dumps(run.state_dict()))
                do(run, deeds)
                if where == "in a claim":

                    def void(_: object) -> None:
                        os.kill(os.getpid(), signal.SIGKILL)

                    tb.ledger.LedgerHold.void = void  # type: ignore[assignment, method-assign]
                    do(run, "sn")
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(3)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), status


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("deeds", "where", "stop"),
    [
        ("", "in steps", 1),
        ("sns", "in steps", 2),
        ("", "in a claim", 2),
        ("sy", "before it was settled", 1),
    ],
)
def test_a_fork_that_is_killed_leaves_a_run_that_ends(
    deeds: str, where: str, stop: int, tmp_path: Path, ledger: tb.Ledger
) -> None:
    killed(ledger.url, tmp_path / "state", deeds, where)
    assert spent(ledger) == held()
    again(ledger, json.loads((tmp_path / "state").read_text())).end()
    assert spent(ledger) == paid(stop)
    assert ledger.holds() == ()  # of claims, too
    ledger.verify()


TRAINING = """
import json, os, signal, sys
from pathlib import Path
import tightbudget as tb
from tightbudget.release.stopping import StoppingCallback

url, folder, dies_in = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
schedule = tb.early_stopping(tb.Gaussian(5.0), [1, 2, 3, 4, 5, 6], 1e-5)
checkpoint, meter = folder / "checkpoint", tb.Ledger(url).budget("ada").keyed("run2")
stopping, trained = StoppingCallback(schedule, meter, lambda n: n >= 4, resumable=True), 0
if checkpoint.exists():
    saved = json.loads(checkpoint.read_text())
    trained = saved["trained"]
    stopping.load_state_dict(saved["stopping"])


def save():
    text = json.dumps({"trained": trained, "stopping": stopping.state_dict()})
    (folder / "new").write_text(text)
    (folder / "new").replace(checkpoint)


with stopping:
    save()
    while not stopping.over:
        if trained + 1 == dies_in:
            os.kill(os.getpid(), signal.SIGKILL)
        trained += 1
        save()
        stopping.should_stop(stopping.next_stop, trained)
print(trained, stopping.receipt.charged.epsilon)
"""


@pytest.mark.slow  # it starts Python five times
def test_a_training_that_is_killed_goes_on_and_settles_at_its_stop(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/budget.db"
    with tb.Ledger(url) as ledger:
        ada = ledger.open_budget("ada", epsilon=4, delta=1e-5)
        words = [sys.executable, "-c", TRAINING, url, str(tmp_path)]
        for died in (1, 3):  # the first epoch, and after it was done at last, the third one
            run = subprocess.run([*words, str(died)], timeout=300, check=False)
            assert run.returncode == -signal.SIGKILL
            assert ada.spent.epsilon == 0 < ada.held.epsilon
        done = subprocess.run(
            [*words, "0"], timeout=300, check=True, capture_output=True, text=True
        )
        trained, charged = done.stdout.split()
        used = tb.early_stopping(tb.Gaussian(5.0), [1, 2, 3, 4, 5, 6], 1e-5)
        # four epochs were trained, and two were lost
        assert trained == "4"
        assert float(charged) == ada.spent.epsilon == pytest.approx(used.epsilons[5])
        assert ada.held.epsilon == 0
        over = subprocess.run([*words, "0"], timeout=300, capture_output=True, text=True)
        assert over.returncode == 1
        assert "'run2' is settled with cell 6" in over.stderr
        ledger.verify()


def test_a_fork_settles_nothing(ledger: tb.Ledger) -> None:
    run = of(ledger).__enter__()
    do(run, "sy")
    run._process += 1  # as if this were a fork of the one that opened it
    with pytest.raises(tb.errors.SettlementError, match="settled by the process that has started"):
        run.__exit__(None, None, None)
    assert spent(ledger) == held()


# ---------------------------------------------------------------------- what can pay


def test_blocks_pay_for_a_run_that_goes_on(ledger: tb.Ledger) -> None:
    days = ledger.blocks("clicks", by=("day",), epsilon=4, delta=0.5).where(
        day="2026-01-01..2026-01-02"
    )

    def of_days() -> Run:
        return StoppingCallback(
            schedule(), days.keyed("run"), bool, interactive=False, resumable=True
        )

    run = of_days().__enter__()
    do(run, "sn")
    other = of_days()
    other.load_state_dict(run.state_dict())
    other.end()
    for name in days.names:
        assert ledger.budget(name).spent.epsilon == pytest.approx(float(price(2)))
        assert ledger.budget(name).held.epsilon == 0


def test_a_budget_that_is_used_up_pays_for_a_run_that_goes_on(ledger: tb.Ledger) -> None:
    delta = schedule().guarantee().delta
    ledger.open_budget("bob", epsilon=price(4), delta=delta)

    def of_bob() -> Run:
        meter: Any = ledger.budget("bob").keyed("run")
        return StoppingCallback(schedule(), meter, bool, resumable=True)

    run, other = of_bob().__enter__(), of_bob()
    assert ledger.budget("bob").left.epsilon == 0
    do(run, "sn")
    other.load_state_dict(run.state_dict())
    other.end()
    assert ledger.budget("bob").left.epsilon == pytest.approx(float(price(4) - price(2)))


def test_a_second_run_of_a_meter_has_its_own_state(ledger: tb.Ledger) -> None:
    meter: Any = ledger.budget("ada").keyed("run")
    first: Run = StoppingCallback(schedule(), meter, bool, resumable=True)
    with first:
        do(first, "sy")
    second: Run = StoppingCallback(schedule(), meter, bool, resumable=True)
    second.__enter__()
    assert second.state_dict()["key"] == "run#2"
    again(ledger, second.state_dict(), "run#2").end()
    assert spent(ledger)[1] == 0


# ----------------------------------------------------------------------------- refusals


def test_what_a_state_is(ledger: tb.Ledger) -> None:
    state = gone(ledger)
    assert [*state] == ["tightbudget", "key", "token", "schedule"]
    assert (state["tightbudget"], state["key"]) == (1, "run")
    assert state["token"] not in repr(of(ledger))


LONGER = tb.early_stopping(ANSWER, [1, 2], 0.2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": "another"}, "the state's key must be 'run', got 'another'"),
        ({"tightbudget": 2}, "the state's version must be 1, got 2"),
        ({"schedule": "0" * 64}, "schedule must have the stops and the steps of the run that the"),
        ({"token": None}, "the state's token must be a text"),
        ({"more": 1}, r"state must be what state_dict\(\) of a StoppingCallback returned"),
    ],
)
def test_a_state_that_was_changed_is_refused(
    change: dict[str, Any], message: str, ledger: tb.Ledger
) -> None:
    state = gone(ledger)
    for _ in range(2):  # and the same again
        with pytest.raises(tb.ParameterError, match=message):
            again(ledger, {**state, **change})
    with pytest.raises(tb.ParameterError, match="state must be what"):
        again(ledger, None)  # type: ignore[arg-type]
    assert spent(ledger) == held()
    again(ledger, state).end()
    assert spent(ledger) == paid(1)


def test_another_schedule_s_state_is_refused(ledger: tb.Ledger) -> None:
    state = gone(ledger)
    for used in (
        tb.early_stopping(ANSWER, [1, 2], 0.2),
        tb.early_stopping(tb.RandomizedResponse(0.7), STOPS, 0.2),
    ):
        meter: Any = ledger.budget("ada").keyed("run")
        other: Run = StoppingCallback(used, meter, bool, resumable=True)
        with pytest.raises(tb.ParameterError, match="schedule must have the stops and the steps"):
            other.load_state_dict(state)


def test_the_same_steps_at_other_prices_go_on_at_the_prices_of_the_ledger(
    ledger: tb.Ledger,
) -> None:
    # a search on another processor may find other last digits
    other = tb.early_stopping(ANSWER, STOPS, 0.2, weights=(0.5, 0.3, 0.9))
    assert other.epsilons != schedule().epsilons
    meter: Any = ledger.budget("ada").keyed("run")
    run: Run = StoppingCallback(other, meter, bool, resumable=True)
    run.load_state_dict(gone(ledger, "sn"))
    run.end()
    assert spent(ledger) == paid(2)


@pytest.mark.parametrize("enters", [True, False])
def test_a_wrong_token_is_refused_before_anything_runs(enters: bool, ledger: tb.Ledger) -> None:
    state = gone(ledger)
    run = again(ledger, {**state, "token": "f" * 32})
    with pytest.raises(tb.errors.FencingError, match="'run' goes on with the token of its start"):
        run.__enter__() if enters else run.end()
    assert spent(ledger) == held()
    assert not ledger.is_reserved("run after 1")
    again(ledger, state).end()


def test_a_run_that_is_over_is_refused(ledger: tb.Ledger) -> None:
    state = gone(ledger)
    again(ledger, state).end()
    for act in (lambda run: run.__enter__(), lambda run: run.end()):
        with pytest.raises(
            tb.errors.SettlementError, match=r"a run goes on .*, and 'run' is settled with cell 1"
        ):
            act(again(ledger, state))
    assert spent(ledger) == paid(1)


def test_a_state_of_another_ledger_is_refused(ledger: tb.Ledger, tmp_path: Path) -> None:
    state = gone(ledger)
    with tb.Ledger(f"sqlite:///{tmp_path}/other.db") as other:
        other.open_budget("ada", epsilon=4, delta=0.5)
        with pytest.raises(tb.errors.SettlementError, match="there is no reservation 'run'"):
            again(other, state).end()
        assert not other.is_reserved("run")
        gone(other)
        with pytest.raises(tb.errors.FencingError, match="goes on with the token of its start"):
            again(other, state).end()
        assert spent(other) == held()


def reserved(ledger: Any, **given: Any) -> dict[str, Any]:
    """The state of a run whose process has died before it could start it."""
    run = of(ledger, **given)
    run.reserve()
    run.reserve()  # asks for nothing more
    return dict(json.loads(json.dumps(run.state_dict())))


def test_a_run_that_was_reserved_is_started_by_whoever_has_its_state(ledger: tb.Ledger) -> None:
    state = reserved(ledger)
    assert spent(ledger) == held()
    run = again(ledger, state)
    run.reserve()  # it is reserved
    assert run.state_dict() == state
    with run:
        do(run, "s")
        assert not run.should_stop(1, False)
        do(run, "s")
        assert run.should_stop(2, True)
    assert spent(ledger) == paid(2)
    with pytest.raises(tb.errors.SettlementError, match="is settled with cell 2"):
        again(ledger, state).__enter__()
    ledger.verify()


def test_a_process_that_dies_as_it_starts_loses_no_run(ledger: tb.Ledger) -> None:
    run = of(ledger)
    run.reserve()
    state, hold = run.state_dict(), ledger.hold("run")
    hold.start(token=state["token"])  # the answer of which nobody has
    again(ledger, state).end()
    assert spent(ledger) == paid(1)


def test_a_run_is_started_once_whoever_has_its_state(ledger: tb.Ledger) -> None:
    first = of(ledger)
    first.reserve()
    quick = again(ledger, first.state_dict()).__enter__()
    with pytest.raises(tb.errors.SettlementError, match="a hold is started once"):
        first.__enter__()
    assert not first.over  # it has not begun
    with pytest.raises(tb.errors.SettlementError, match="no run is open"):
        first.should_stop(1, True)
    assert quick.next_stop == 1


def test_a_run_that_never_started_is_freed_and_not_ended(ledger: tb.Ledger) -> None:
    state = reserved(ledger)
    with pytest.raises(tb.errors.SettlementError, match=r"'run' is reserved: void\(\) frees it"):
        again(ledger, state).end()
    ledger.hold("run").void()
    assert spent(ledger) == (0, 0)
    with pytest.raises(tb.errors.SettlementError, match="'run' is void"):
        again(ledger, state).__enter__()


def test_a_state_starts_the_run_of_its_own_key_alone(ledger: tb.Ledger) -> None:
    state = reserved(ledger)
    meter: Any = ledger.budget("ada").keyed("run")
    run: Run = StoppingCallback(schedule(), meter, bool, resumable=True)
    run.load_state_dict(state)
    meter.reserve(schedule().guarantee(), interactive=True)
    with pytest.raises(tb.ParameterError, match="the state's key must be 'run#2', got 'run'"):
        run.__enter__()


def test_others_see_a_run_as_it_was_reserved(ledger: tb.Ledger) -> None:
    state = gone(ledger)
    with pytest.raises(
        tb.ParameterError, match="interactive must be True, as when 'run' was reserved, got False"
    ):
        again(ledger, state, interactive=False).end()


def test_a_second_start_says_what_can_be_done(ledger: tb.Ledger) -> None:
    gone(ledger)
    with pytest.raises(tb.errors.SettlementError) as refused:
        of(ledger).__enter__()
    assert str(refused.value) == (
        "a hold is started once, and 'run' is started: with the token of that start, "
        "ledger.hold('run', token=...) settles it; without the token, ledger.hold('run').forfeit() "
        "charges its worst case"
    )
    assert spent(ledger) == held()


@pytest.mark.parametrize(
    ("deed", "message"),
    [
        (lambda run, _: run.state_dict(), r"the run is not reserved: .* after reserve\(\), and in"),
        (lambda run, _: run.end(), "load_state_dict comes first: there is no run to end"),
        (
            lambda run, state: run.__enter__().load_state_dict(state),
            "a state is loaded before the run is reserved or entered",
        ),
        (
            lambda run, state: [run.reserve(), run.load_state_dict(state)],
            "a state is loaded before the run is reserved or entered",
        ),
        (
            lambda run, _: run.__enter__().reserve(),
            "a run is reserved before the callback is entered",
        ),
        (
            lambda run, _: run.__enter__().end(),
            "a run is ended without training before the callback is entered",
        ),
        (lambda run, _: run.next_stop, "no run is open"),
    ],
)
def test_the_order_of_calls(
    deed: Callable[[Run, dict[str, Any]], object], message: str, ledger: tb.Ledger
) -> None:
    with pytest.raises(tb.errors.SettlementError, match=message):
        deed(of(ledger), {})


@pytest.mark.parametrize(
    "deed",
    [Run.state_dict, Run.end, Run.reserve, lambda run: run.load_state_dict({})],
    ids=["state_dict", "end", "reserve", "load_state_dict"],
)
def test_a_run_that_is_not_resumable_has_no_state(deed: Callable[[Run], object]) -> None:
    run: Run = StoppingCallback(schedule(), tb.OutputDPFilter(4, 0.5), bool)
    with pytest.raises(tb.errors.SettlementError, match="if its callback was made with resumable="):
        deed(run)


def test_a_budget_in_memory_pays_for_no_resumable_run() -> None:
    with pytest.raises(
        tb.ParameterError, match=r"meter must be a budget of a ledger with a key.*OutputDPFilter"
    ):
        StoppingCallback(schedule(), tb.OutputDPFilter(4, 0.5), bool, resumable=True)


def test_a_key_that_leaves_no_room_is_refused_before_anything_is_held(ledger: tb.Ledger) -> None:
    with pytest.raises(tb.ParameterError, match="key must be a text of 1 to 200 printable"):
        of(ledger, "k" * 195).__enter__()
    assert spent(ledger) == (0, 0)
    assert not ledger.is_reserved("k" * 195)


# ---------------------------------------------------------------------------- mutations


def in_a_ledger(truth: Callable[[tb.Ledger], bool]) -> Callable[[], bool]:
    """Asks for a truth in a ledger of its own."""

    def asked() -> bool:
        with (
            tempfile.TemporaryDirectory() as folder,
            tb.Ledger(f"sqlite:///{folder}/budget.db") as ledger,
        ):
            ledger.open_budget("ada", epsilon=4, delta=0.5)
            return truth(ledger)

    return asked


def different_steps(ledger: tb.Ledger) -> bool:
    """Two processes that go on have different steps."""
    state = gone(ledger)
    first, second = (again(ledger, state).__enter__() for _ in range(2))
    return first.next_stop != second.next_stop


def overtaken(ledger: tb.Ledger) -> bool:
    """A process that was overtaken does not stop before the other one."""
    slow = of(ledger).__enter__()
    do(slow, "s")
    again(ledger, slow.state_dict()).__enter__()
    try:
        slow.should_stop(1, True)
    except tb.errors.FencingError:
        return True
    return False


def all_begun_costs_all(ledger: tb.Ledger) -> bool:
    """A run whose last steps had begun is charged the last stop."""
    again(ledger, gone(ledger, "snsn")).end()
    return ledger.hold("run").cell == STOPS[-1]


def ended_stays_ended(ledger: tb.Ledger) -> bool:
    """Nothing runs after a stop that a process has stopped at."""
    run = again(ledger, gone(ledger, "sy")).__enter__()
    return run.over


def kept_token_opens(ledger: tb.Ledger) -> bool:
    """The state that was kept before the start goes on with the run."""
    run = of(ledger)
    run.reserve()
    state = run.state_dict()
    run.__enter__()
    try:
        again(ledger, state).__enter__()
    except tb.errors.FencingError:
        return False
    return True


def a_run_of_another_is_not_reserved(ledger: tb.Ledger) -> bool:
    """No state is drawn for a run that somebody else has started."""
    gone(ledger)
    run = of(ledger)
    for deed in (run.reserve, run.state_dict):
        try:
            deed()
        except tb.errors.SettlementError:
            continue
        return False
    return True


def another_key_is_not_started(ledger: tb.Ledger) -> bool:
    """A state starts no run of another key."""
    try:
        again(ledger, reserved(ledger), key="other")
    except tb.ParameterError:
        return True
    return False


def another_token_goes_not_on(ledger: tb.Ledger) -> bool:
    state = gone(ledger)
    try:
        again(ledger, {**state, "token": "f" * 32}).__enter__()
    except tb.errors.FencingError:
        return True
    return False


MUTATIONS = [
    Without(
        "what runs after a stop runs in one process",
        {"one-goes-on": "cell = (_GOES_ON,) if goes_on else (_ENDS,)"},
        in_a_ledger(different_steps),
    ),
    Without(
        "a run is started with the token that was kept",
        {"started-with-the-kept-token": "hold.start()"},
        in_a_ledger(kept_token_opens),
    ),
    Without(
        "a state is of a run that has not started",
        {"state-of-a-run-to-start": "if False:"},
        in_a_ledger(a_run_of_another_is_not_reserved),
    ),
    Without(
        "a state is of one key",
        {"state-of-this-key": "if False:"},
        in_a_ledger(another_key_is_not_started),
    ),
    Without("a stop is claimed once", {"claimed-once": "return True"}, in_a_ledger(overtaken)),
    Without(
        "steps that had begun count",
        {"begun-steps-count": "run.cell = stops[0]"},
        in_a_ledger(all_begun_costs_all),
    ),
    Without(
        "a run that was ended stays ended",
        {"ended-run-stays-ended": "if claimed:"},
        in_a_ledger(ended_stays_ended),
    ),
    Without(
        "a run goes on with its own token",
        {"only-own-token-goes-on": "if False:"},
        in_a_ledger(another_token_goes_not_on),
    ),
]


@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)
