"""What holds for every mechanism on data, whoever wrote it."""

from __future__ import annotations

import gc
import re
import traceback
import weakref
from dataclasses import fields, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.release.cases import CASES, Case

import tightbudget as tb
from tightbudget import release
from tightbudget.output_dp.account import Account
from tightbudget.release import Meter, Reserved

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


class Journal:
    """A meter that writes down what it is asked."""

    def __init__(self, meter: tb.OutputDPFilter) -> None:
        self.meter, self.asked = meter, list[str]()

    @property
    def left(self) -> tb.Amount:
        return self.meter.left

    def reserve(self, guarantee: tb.OutputDP, *, interactive: bool = False) -> Reserved:
        self.asked.append("reserve")
        hold = self.meter.reserve(guarantee, interactive=interactive)
        for name in ("start", "settle", "forfeit", "void"):
            setattr(hold, name, self._written(name, getattr(hold, name)))
        return hold

    def _written(self, name: str, method: Any) -> Any:
        def write(*given: Any) -> Any:
            self.asked.append(name)
            return method(*given)

        return write


class Untouchable:
    """Data that must not be looked at."""

    def __getattribute__(self, name: str) -> Any:
        pytest.fail(f"the data was touched: {name}")

    __len__ = __iter__ = __array__ = __getitem__ = lambda self, *_: pytest.fail("touched")


class Broken:
    """A source of randomness that fails, as a mechanism may that has started."""

    batch = 1

    def laplace(self, *_: Any) -> Any:
        raise ZeroDivisionError("secret 42")

    gaussian = coin = laplace


class Interrupted(Broken):
    """A source of randomness that somebody interrupts."""

    def laplace(self, *_: Any) -> Any:
        raise KeyboardInterrupt

    gaussian = coin = laplace


def budget(case: Case) -> tb.OutputDPFilter:
    """Just enough for one run."""
    return tb.OutputDPFilter(*case.mechanism.guarantee.worst_case())


@every
def test_reserve_start_settle(case: Case) -> None:
    journal = Journal(budget(case))
    case.run(case.mechanism, case.data, journal, None)
    assert journal.asked == ["reserve", "start", "settle"]


@every
def test_a_release_costs_the_price_of_its_cell(case: Case) -> None:
    meter = budget(case)
    answer = case.run(case.mechanism, case.data, meter, None)
    guarantee = case.mechanism.guarantee
    assert answer.cell in guarantee.cells
    assert meter.spent == answer.receipt.charged
    assert meter._spent == (guarantee.price(answer.cell), guarantee.delta)
    assert meter.held == tb.Amount(0.0, 0.0, "epsilon")


@every
def test_the_receipt_adds_up(case: Case) -> None:
    receipt = case.run(case.mechanism, case.data, budget(case), None).receipt
    for part in ("amount", "delta"):
        held, charged, returned = (
            Fraction(repr(getattr(b, part)))
            for b in (receipt.held, receipt.charged, receipt.returned)
        )
        assert held - charged - held / 10**15 <= returned <= held - charged
    assert receipt.returned.delta == 0
    assert "returned epsilon" in str(receipt)


@every
def test_what_does_not_fit_is_refused_before_the_data_is_touched(case: Case) -> None:
    epsilon, delta = case.mechanism.guarantee.worst_case()
    meter = tb.OutputDPFilter(epsilon * Fraction(999, 1000), delta)
    with pytest.raises(tb.errors.BudgetError):
        case.run(case.mechanism, Untouchable(), meter, None)
    assert meter.spent == meter.held == tb.Amount(0.0, 0.0, "epsilon")


@every
def test_a_failure_after_the_start_costs_the_dearest_price(case: Case) -> None:
    meter = budget(case)
    with pytest.raises(tb.ReleaseError) as caught:
        case.run(case.mechanism, case.data, meter, Broken())
    assert meter._spent == case.mechanism.guarantee.worst_case()
    # and what the analyst sees is always the same
    advice = "; try it with .rehearse(public data): that raises the error and charges nothing"
    assert str(caught.value) == (
        "the mechanism failed after it had started: nothing is released, "
        "and its worst-case price is charged" + advice * hasattr(case.mechanism, "release")
    )
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


class Kept(list[Any]):
    """Data that can be referred to weakly."""


class KeptKeys(dict[Any, Any]):
    """A dictionary that can be referred to weakly."""


@pytest.mark.parametrize(
    "case", [case for case in CASES if hasattr(case.mechanism, "release")],
    ids=lambda case: case.name,
)  # fmt: skip
@pytest.mark.parametrize("interrupted", [False, True])
def test_an_error_that_is_kept_keeps_no_data(case: Case, interrupted: bool) -> None:
    """A traceback keeps the variables of all its frames, and may be kept itself."""
    given: list[Any] = [(KeptKeys if isinstance(case.data, dict) else Kept)(case.data)]
    gone = weakref.ref(given[0])
    noise = Interrupted() if interrupted else Broken()
    with pytest.raises((tb.ReleaseError, KeyboardInterrupt)) as caught:
        case.mechanism.release(given.pop(), meter=budget(case), noise=noise)
    gc.collect(1)
    assert gone() is None
    assert caught.value.__traceback__ is not None  # it is kept, and shows where it was called


def test_a_conversation_that_has_ended_keeps_no_data() -> None:
    given = [Kept(range(9))]
    gone, svt = weakref.ref(given[0]), tb.release.SparseVector(1, 2)
    with svt.open(given.pop(), meter=tb.OutputDPFilter(1)) as run:
        run.ask(len, 0)
    gc.collect(1)
    assert gone() is None
    assert run.release().cell in (0, 1, 2)


def test_an_error_in_a_conversation_shows_no_frame_that_knows_an_answer() -> None:
    class Fails(tb.release.OpenDPNoise):
        def laplace(self, scale: Any, size: int) -> Any:
            if size > 1:  # the threshold has its noise
                raise ZeroDivisionError
            return super().laplace(scale, size)

    svt, meter = tb.release.SparseVector(1, 2), tb.OutputDPFilter(1)
    with pytest.raises(tb.ReleaseError) as caught, svt.open(0, meter=meter, noise=Fails()) as run:
        run.ask(lambda data: data, 0)
    frames = [frame.f_code.co_name for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert frames[-1] == "ask"


RULES = ("good_enough", "stopping_rule")  # see what is released, and nothing else


def _fails(*_: Any) -> Any:
    raise SystemExit("secret 42")


@pytest.mark.one_in(3)
@every
@pytest.mark.parametrize(
    "fails", [_fails, lambda *_: None, lambda *_: 2**64], ids=["raises", "none", "huge"]
)
def test_what_sees_the_data_may_fail_and_no_error_tells(case: Case, fails: Any) -> None:
    """Every callable of a mechanism that is handed data, one after the other."""
    seeing = [f.name for f in fields(case.mechanism) if callable(getattr(case.mechanism, f.name))]
    for name in {*seeing} - {*RULES, "admit", "loss"}:
        rules = {rule: lambda _: True for rule in RULES if rule in seeing}
        mechanism = replace(case.mechanism, **{name: fails}, **rules)
        answer = case.run(mechanism, case.data, budget(case), None)
        assert answer.cell in mechanism.guarantee.cells


REHEARSED = [case for case in CASES if hasattr(case.mechanism, "release")]
rehearsed = pytest.mark.parametrize("case", REHEARSED, ids=lambda case: case.name)


class Seeded:
    """NOT NOISE: the same draws again for the same seed."""

    batch = 1

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def laplace(self, scale: Any, size: int) -> Any:
        return np.rint(self.random.laplace(0, float(scale), size)).astype(np.int64)

    def gaussian(self, scale: Any, size: int) -> Any:
        return np.rint(self.random.normal(0, float(scale), size)).astype(np.int64)

    def coin(self) -> bool:
        return bool(self.random.integers(2))


def test_every_mechanism_can_be_rehearsed() -> None:
    assert all(hasattr(case.mechanism, "rehearse") for case in CASES)
    assert {c.name for c in CASES} - {c.name for c in REHEARSED} == {
        "svt", "svt-adaptive", "svt-monotone",
    }  # fmt: skip


@rehearsed
def test_a_rehearsal_costs_what_a_release_is_charged_and_charges_nothing(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(5):
        meter = budget(case)
        answer = case.mechanism.release(case.data, meter=meter, noise=Seeded(seed))
        with monkeypatch.context() as patch:
            patch.setattr(Account, "reserve", lambda *_, **__: pytest.fail("a meter was asked"))
            tried = case.mechanism.rehearse(case.data, noise=Seeded(seed))
        assert (tried.cell, tried.cost) == (answer.cell, answer.receipt.charged)
        assert tried.most == answer.receipt.held
        assert [field.name for field in fields(tried)] == ["cell", "cost", "most"]
        assert str(tried).endswith(f"costs {tried.cost}; at most {tried.most}; nothing was charged")


class _Mistake(BaseException):
    """An error that nobody has foreseen."""


def _mistaken(*_: Any) -> Any:
    raise _Mistake("of the query")


@rehearsed
def test_a_rehearsal_raises_the_error_that_a_release_hides(case: Case) -> None:
    seeing = [f.name for f in fields(case.mechanism) if callable(getattr(case.mechanism, f.name))]
    for name in {*seeing} - {"admit", "loss"}:
        mechanism = replace(case.mechanism, **{name: _mistaken})
        with pytest.raises(_Mistake, match=r"^of the query$") as caught:
            mechanism.rehearse(case.data)
        frames = [
            frame.f_code.co_name for frame, _ in traceback.walk_tb(caught.value.__traceback__)
        ]
        assert frames[-1] == "_mistaken"


NO_ANSWER = {"step", "train"}  # a mechanism of the caller may answer None


@pytest.mark.one_in(3)
@rehearsed
@pytest.mark.parametrize("wrong", [None, "7", [], [1] * 99, float("nan")], ids=repr)
def test_a_rehearsal_refuses_an_answer_that_a_release_replaces(case: Case, wrong: Any) -> None:
    seeing = [f.name for f in fields(case.mechanism) if callable(getattr(case.mechanism, f.name))]
    for name in {*seeing} - {"admit", "loss", *RULES, *NO_ANSWER}:
        mechanism = replace(case.mechanism, **{name: lambda *_: wrong})
        with pytest.raises((tb.ParameterError, TypeError), match=r"answer|iterable"):
            mechanism.rehearse(case.data)


@pytest.mark.parametrize(
    ("given", "answer", "said"),
    [
        ({}, 3.7, "be of integers, as there is no step (a paid run rounds others down), got 3.7"),
        ({}, [3, 4], "be one number (size= is for more), got [3, 4]"),
        ({"step": 0.5, "size": 3}, [3, 4], "be 3 numbers, got [3, 4]"),
        ({"step": 0.5, "size": 2}, [3, None], "have numbers alone, got [3, None]"),
        ({"integers": True, "size": 2}, [3, 0.5], "be of integers, as there is no step (a paid"),
    ],
)
def test_what_a_rehearsal_says_of_an_answer(given: Any, answer: Any, said: str) -> None:
    release = tb.release.LaplaceRelease(lambda _: answer, 1, 1, **given)
    with pytest.raises(tb.ParameterError, match=f"^the query's answer must {re.escape(said)}"):
        release.rehearse(None)
    assert release.release(None, meter=tb.OutputDPOdometer()).cell == "value"


@pytest.mark.parametrize("answer", [3, 3.0, np.float64(3), np.int8(3), Fraction(3), True, [3]])
def test_an_integer_of_any_type_passes_a_rehearsal(answer: Any) -> None:
    assert tb.release.LaplaceRelease(lambda _: answer, 1, 1).rehearse(None).cost.epsilon == 1


def _always(answer: Any, _: Any) -> Any:
    return answer


def test_a_rehearsal_refuses_proposals_that_a_release_replaces() -> None:
    for found in ([], [1], [tb.release.Proposal(1, 0, 1)] * 2):
        with pytest.raises(tb.ParameterError, match=r"^propose must answer 1 of Proposal, got \["):
            tb.release.ProposeTestRelease(partial(_always, found), 1, 0.1).rehearse(None)


def paid_inside_a_rehearsal(pay: Any) -> str:
    """What is seen of the error of a paid run that a rehearsed query makes."""
    try:
        tb.release.LaplaceRelease(lambda _: pay(), 1, 1).rehearse(None)
    except (_Mistake, tb.ReleaseError):
        return "an error"
    return "nothing"


def released_inside() -> int:
    answer = tb.release.LaplaceRelease(_mistaken, 1, 1).release(0, meter=tb.OutputDPFilter(1))
    return int(answer.value)


def asked_inside() -> int:
    with tb.release.SparseVector(1, 1).open(0, meter=tb.OutputDPFilter(1)) as run:
        return int(run.ask(_mistaken, 0))


@pytest.mark.parametrize("pay", [released_inside, asked_inside])
def test_a_paid_run_hides_errors_also_inside_a_rehearsal(pay: Any) -> None:
    assert paid_inside_a_rehearsal(pay) == "nothing"


@every
def test_a_function_that_is_none_is_refused_before_anything_runs(case: Case) -> None:
    seeing = [f.name for f in fields(case.mechanism) if callable(getattr(case.mechanism, f.name))]
    for name in {*seeing} - {"loss"}:
        for wrong in (3, "len", lambda a, b, c, d: 0, lambda: 0):
            said = rf"^{name} must be a function of \d arguments?, got "
            with pytest.raises(tb.ParameterError, match=said):
                replace(case.mechanism, **{name: wrong})


@every
def test_what_is_no_meter_is_refused_by_name_before_the_data_is_touched(case: Case) -> None:
    example = "be a budget that mechanisms charge, say OutputDPFilter(epsilon=1.0), got "
    for wrong, said in (
        (None, example + "None"),
        (3.0, example + "3.0"),
        ({"epsilon": 1}, example),
        (tb.OutputDPFilter, "be a budget and not a class, say OutputDPFilter(...), got <class"),
    ):
        meter: Any = wrong
        with pytest.raises(tb.ParameterError, match=f"^meter must {re.escape(said)}"):
            case.run(case.mechanism, Untouchable(), meter, None)
        with pytest.raises(tb.ParameterError, match=f"^meter must {re.escape(said)}"):
            case.mechanism.what_if(meter)


def test_a_budget_of_a_ledger_is_no_meter_without_a_key(tmp_path: Path) -> None:
    count = tb.release.LaplaceRelease(len, 1, 0.5)
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        ada: Any = ledger.open_budget("ada", epsilon=1)
        for ask in (count.what_if, lambda meter: count.release(Untouchable(), meter=meter)):
            with pytest.raises(tb.ParameterError) as caught:
                ask(ada)
            assert str(caught.value) == (
                'meter must have a key for its runs, say budget.keyed("A7"), got a LedgerBudget '
                "without one"
            )
        assert ledger.holds() == ()
        wrong: Any = ledger
        with pytest.raises(tb.ParameterError, match=r"^meter must be a budget that mechanisms"):
            count.release(Untouchable(), meter=wrong)
        assert count.release([0], meter=ada.keyed("A7")).receipt.charged.epsilon == 0.5


@every
def test_what_if_touches_nothing(case: Case) -> None:
    meter = budget(case)
    journal = Journal(meter)
    answer = case.mechanism.what_if(journal)
    assert answer.fits
    assert not journal.asked
    assert meter.left == answer.left
    assert (answer.most.amount, answer.most.delta) == (meter.left.amount, meter.left.delta)
    assert answer.least.amount <= answer.most.amount
    assert str(answer).endswith(": fits")


@every
def test_what_if_says_that_it_does_not_fit(case: Case) -> None:
    answer = case.mechanism.what_if(tb.OutputDPFilter(0.01))
    assert not answer.fits
    assert str(answer).endswith(": does not fit")


def test_what_if_refuses_what_does_not_count_epsilon() -> None:
    with pytest.raises(tb.ParameterError, match="meter must count epsilon, got 'rho'"):
        CASES[0].mechanism.what_if(tb.ZCDPFilter(1))


def test_the_package_names_what_the_room_names() -> None:
    assert tb.release is release
    assert not set(release.__all__) & set(tb.__all__)


def test_filters_are_meters() -> None:
    meters: list[Meter] = [
        tb.OutputDPFilter(1), tb.OutputDPOdometer(), tb.AdvancedFilter(5, 1e-6), tb.ZCDPFilter(1)
    ]  # fmt: skip
    for meter in meters:
        CASES[0].run(CASES[0].mechanism, CASES[0].data, meter, None)
