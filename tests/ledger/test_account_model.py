"""The model that the proofs are about and a real ledger: the same acts, the same balances.

proofs/account.v proves that the acts of its model lose nothing and keep a budget private. Here
random acts, also wrong ones, are done to both, and after each the balances are compared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tests.ledger import account_model as proved
from tests.ledger.account_model import Amount, HoldState, Phase
from tests.ledger.servers import Server

import tightbudget as tb
from tightbudget.ledger.hold import LedgerHold
from tightbudget.ledger.rows import budget_rows

# which budget is a part of which; data and other pay for the same runs
PARENT = {"data": None, "ada": "data", "bob": "ada", "other": None}
UNITS = Amount(Fraction(10**12), Fraction(10**18))
CELLS = ("yes", "no", "perhaps")
ABOUT_A_HOLD = (proved.Start, proved.RunIt, proved.Settle, proved.Forfeit, proved.Void)
F = Fraction

epsilons = st.sampled_from((F(0), F("1e-12"), F("0.1"), F("0.3"), F("0.7"), F("0.5000000004")))
deltas = st.sampled_from((F(0), F(0), F("1e-7"), F("6e-7"), F("1e-18")))
amounts = st.builds(Amount, epsilons, deltas)
caps = st.builds(
    Amount, st.sampled_from((F("0.5"), F(1), F("1.3"))), st.sampled_from((F(0), F("1e-6")))
)
budgets = st.sampled_from(tuple(PARENT))
some = st.integers(0, 5)
guarantees = st.builds(
    lambda yes, no, more, delta: proved.Guarantee(
        {"yes": yes, "no": no}, max(yes, no) + more, delta
    ),
    epsilons,
    epsilons,
    st.sampled_from((F(0), F(0), F("0.2"))),
    deltas,
)
# a budget and one that it is a part of do not pay for one run: the ledger refuses it
payers = st.sampled_from([{b} for b in PARENT] + [{"data", "other"}, {"ada", "other"}]).map(
    frozenset
)
moves = st.one_of(
    st.builds(proved.OpenBudget, budgets, caps),
    st.builds(proved.Reserve, guarantees, payers),
    st.builds(proved.Reserve, guarantees, payers),
    st.builds(proved.Start, some),
    st.builds(proved.RunIt, some, st.sampled_from(CELLS)),
    st.builds(proved.Settle, some, st.sampled_from(CELLS)),
    st.builds(proved.Settle, some, st.sampled_from(CELLS)),
    st.builds(proved.Forfeit, some),
    st.builds(proved.Void, some),
    # the proof has closings that give delta back as well; the ledger has none
    st.builds(proved.Close, budgets, delta_stays=st.just(True)),
    st.builds(proved.ChangeCap, budgets, caps),
    st.builds(proved.Correct, budgets, amounts),
)


class RealLedger:
    """Does the acts of the model to a ledger; its reservations are numbered as the model's."""

    def __init__(self, url: str) -> None:
        self.ledger = tb.Ledger(url)
        self.holds: list[LedgerHold] = []
        self.asked = 0

    def do(self, move: proved.Move) -> None:
        match move:
            case proved.OpenBudget(b, cap):
                self.ledger.open_budget(b, parent=PARENT[b], epsilon=cap.epsilon, delta=cap.delta)
            case proved.Reserve(g, names):
                self.asked += 1
                hold = self.ledger.reserve(f"K{self.asked}", _guarantee(g), sorted(names))
                self.holds.append(hold)
            case proved.Start(i):
                self.holds[i].start()
            case proved.RunIt():
                pass  # the ledger does not know what came out
            case proved.Settle(i, cell):
                self.holds[i].settle(cell)
            case proved.Forfeit(i):
                self.holds[i].forfeit()
            case proved.Void(i):
                self.holds[i].void()
            case proved.Close(b):
                self.ledger.budget(b).close()
            case proved.ChangeCap(b, cap):
                self.ledger.budget(b).raise_cap(
                    by="ada", reason="more", epsilon=cap.epsilon, delta=cap.delta
                )
            case proved.Correct(b, more):
                self.ledger.budget(b).correct(
                    epsilon=more.epsilon, delta=more.delta, by="ada", reason="elsewhere"
                )

    def balances(self) -> dict[str, budget_rows.Balance]:
        with self.ledger.session.read() as connection:
            return {b.name: b for b in budget_rows.balances(connection)}


def _guarantee(g: proved.Guarantee) -> tb.OutputDP:
    return tb.OutputDP(dict(g.listed), delta=g.delta, sup=g.supremum)


def _amount(units: tuple[int, int]) -> Amount:
    return Amount(units[0] / UNITS.epsilon, units[1] / UNITS.delta)


def further_refused(s: proved.State, move: proved.Move) -> bool:
    """What the ledger refuses beyond the model: to settle what was not started."""
    return isinstance(move, proved.Settle) and s.holds[move.hold].status is HoldState.RESERVED


def caller_keeps_to(s: proved.State, move: proved.Move) -> bool:
    """The lines CALLER of the proof, which the ledger cannot check.

    Nothing runs before its start, and what ran is settled with the cell of its output.
    """
    match move:
        case proved.RunIt(i):
            return s.holds[i].status is not HoldState.RESERVED
        case proved.Settle(i, cell):
            return s.holds[i].seen in (None, cell)
    return True


class SameAccount(RuleBasedStateMachine):
    """The model and a ledger, act by act."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.real, self.state = RealLedger(url), proved.nothing(PARENT)

    @initialize()
    def begin(self) -> None:
        for b, cap in (("data", Amount(F(1), F("1e-6"))), ("other", Amount(F("1.3"), F("1e-6")))):
            self.act(proved.OpenBudget(b, cap))

    @rule(move=moves)
    def act(self, move: proved.Move) -> None:
        known = len(self.state.holds)
        if isinstance(move, ABOUT_A_HOLD):
            if not known:
                return
            move = move._replace(hold=move.hold % known)
            if not caller_keeps_to(self.state, move):
                return
        after = None if further_refused(self.state, move) else proved.step(self.state, move)
        if after is None:
            # refused, or answered as before: the balances say that nothing changed
            with contextlib.suppress(tb.TightBudgetError):
                self.real.do(move)
        else:
            self.real.do(move)
            self.state = after
        self.compare()
        proved.check_theorems(self.state)

    @rule(guarantee=guarantees, names=payers, cell=st.sampled_from(CELLS))
    def whole_run(self, guarantee: proved.Guarantee, names: frozenset[str], cell: str) -> None:
        """A run as most are: reserved, started, run and settled with what came out."""
        before = len(self.state.holds)
        self.act(proved.Reserve(guarantee, names))
        if len(self.state.holds) > before:
            self.act(proved.Start(before))
            self.act(proved.RunIt(before, cell))
            self.act(proved.Settle(before, cell))

    def compare(self) -> None:
        there = self.real.balances()
        for name, phase in self.state.phase.items():
            if phase is Phase.UNOPENED:
                assert name not in there
                continue
            balance = there[name]
            assert balance.closed == (phase is Phase.CLOSED)
            assert _amount(balance.spent) == self.state.spent[name]
            assert _amount(balance.held) == self.state.held[name]
            if not balance.closed:
                assert _amount(balance.cap) == self.state.size[name]
        assert len(self.real.holds) == len(self.state.holds)

    def teardown(self) -> None:
        self.real.ledger.verify()
        self.real.ledger.close()


@contextlib.contextmanager
def _machine(urls: Iterator[str]) -> Iterator[type[SameAccount]]:
    class OnThis(SameAccount):
        def __init__(self) -> None:
            super().__init__(next(urls))

    yield OnThis


def _run(urls: Iterator[str], examples: int) -> None:
    with _machine(urls) as machine:
        scale = settings(max_examples=examples, stateful_step_count=30, deadline=None)
        run_state_machine_as_test(machine, settings=scale)


def test_the_model_of_the_proofs_and_a_ledger_agree(tmp_path: Path) -> None:
    _run((f"sqlite:///{tmp_path}/{i}.db" for i in range(10**6)), 6)


@pytest.mark.slow
def test_the_model_of_the_proofs_and_a_ledger_agree_on_many_histories(tmp_path: Path) -> None:
    _run((f"sqlite:///{tmp_path}/{i}.db" for i in range(10**6)), 150)


@pytest.mark.slow
def test_the_model_of_the_proofs_and_postgresql_agree(postgres: Server) -> None:
    _run((postgres.create_database() for _ in range(10**6)), 10)


def _story() -> proved.State:
    """A part that pays for one run, which is running."""
    moves: tuple[proved.Move, ...] = (
        proved.OpenBudget("data", Amount(F(1), F("1e-6"))),
        proved.OpenBudget("ada", Amount(F("0.5"), F("1e-7"))),
        proved.Reserve(
            proved.Guarantee({"yes": F("0.3"), "no": F(0)}, F("0.3"), F("1e-7")), frozenset({"ada"})
        ),
        proved.Start(0),
        proved.RunIt(0, "yes"),
    )
    state = proved.nothing(PARENT)
    for move in moves:
        after = proved.step(state, move)
        assert after is not None
        state = after
    return state


@pytest.mark.parametrize(
    "lost",
    [
        lambda s: replace(s, spent={**s.spent, "ada": Amount(F("0.6"), F(0))}),
        lambda s: replace(s, held={**s.held, "data": proved.ZERO}),
        lambda s: proved.end(s, 0, HoldState.FORFEITED, {"ada": Amount(F("0.2"), F("1e-7"))}),
        lambda s: proved.end(s, 0, HoldState.SETTLED, {"ada": Amount(F("0.3"), F(0))}),
        lambda s: proved.end(s, 0, HoldState.SETTLED, {"ada": Amount(F("0.2"), F("1e-7"))}),
    ],
    ids=["above the cap", "a part", "worst case", "delta", "what came out"],
)
def test_the_theorems_would_see_what_is_lost(
    lost: Callable[[proved.State], proved.State],
) -> None:
    state = _story()
    proved.check_theorems(state)
    with pytest.raises(AssertionError):
        proved.check_theorems(lost(state))
