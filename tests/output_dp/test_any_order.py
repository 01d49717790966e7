"""Whatever is done in whatever order: the sums are those of a plain model, and within the cap."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

import tightbudget as tb

PRICES = st.sampled_from([0, 0.1, 0.2, 0.3, Fraction(1, 3), 0.5, 1])
DELTAS = st.sampled_from([0, 0, 0.01, 0.1, Fraction(1, 7)])
GUARANTEES = st.builds(
    tb.OutputDP, st.dictionaries(st.sampled_from("abc"), PRICES, min_size=1), DELTAS
)
OVER = {"settled", "forfeited", "void"}
# a deed, the state that it leads to, and those from which it may be done
DEEDS = {
    "start": ("started", {"reserved"}),
    "settle": ("settled", {"reserved", "started"}),
    "forfeit": ("forfeited", {"reserved", "started"}),
    "void": ("void", {"reserved"}),
}


@dataclass
class Run:
    """What the model knows of a hold: no filter's arithmetic, just the rules."""

    hold: tb.Hold
    guarantee: tb.OutputDP
    talks: bool
    state: str = "reserved"
    cell: list[str] = field(default_factory=list)

    @property
    def charge(self) -> tuple[Fraction, Fraction]:
        if self.state == "void":
            return Fraction(0), Fraction(0)
        price = self.guarantee.sup
        if self.state == "settled":
            price = self.guarantee.cells.get(self.cell[0], self.guarantee.sup)
        return price, self.guarantee.delta


@dataclass
class Place:
    """An account and what was put into it."""

    account: tb.OutputDPFilter
    cap: tuple[Fraction, Fraction]
    runs: list[Run] = field(default_factory=list)
    parts: list[Place] = field(default_factory=list)
    closed: bool = False

    def sums(self) -> tuple[list[Fraction], list[Fraction]]:
        """(spent, held), each (epsilon, delta)."""
        spent, held = [Fraction(0)] * 2, [Fraction(0)] * 2
        for run in self.runs:
            into = spent if run.state in OVER else held
            into[:] = [x + y for x, y in zip(into, run.charge, strict=True)]
        for part in self.parts:
            into, amount = (spent, part.sums()[0]) if part.closed else (held, list(part.cap))
            into[:] = [x + y for x, y in zip(into, amount, strict=True)]
        return spent, held

    @property
    def busy(self) -> bool:
        return any(r.state not in OVER for r in self.runs) or any(not p.closed for p in self.parts)


class Accounts(RuleBasedStateMachine):
    places = Bundle("places")
    runs = Bundle("runs")

    @initialize(target=places, epsilon=st.sampled_from([0, 1, 2.5]), delta=DELTAS)
    def root(self, epsilon: Any, delta: Any) -> Place:
        self.every: list[Place] = []
        return self.opened(tb.OutputDPFilter(epsilon, delta), epsilon, delta)

    def opened(self, account: Any, epsilon: Any, delta: Any) -> Place:
        cap = Fraction(str(epsilon)), Fraction(str(delta))
        self.every.append(Place(account, cap))
        return self.every[-1]

    def fits(self, place: Place, epsilon: Fraction, delta: Fraction) -> bool:
        spent, held = place.sums()
        return all(
            s + h + x <= c
            for s, h, x, c in zip(spent, held, (epsilon, delta), place.cap, strict=True)
        )

    @rule(target=places, place=places, epsilon=PRICES, delta=DELTAS)
    def part(self, place: Place, epsilon: Any, delta: Any) -> Any:
        cap = Fraction(str(epsilon)), Fraction(str(delta))
        try:
            account = place.account.sub(epsilon, delta)
        except (tb.errors.BudgetError, tb.errors.SettlementError):
            assert place.closed or not self.fits(place, *cap)
            return place
        assert not place.closed
        assert self.fits(place, *cap)
        place.parts.append(self.opened(account, epsilon, delta))
        return place.parts[-1]

    @rule(target=runs, place=places, guarantee=GUARANTEES, talks=st.booleans())
    def reserve(self, place: Place, guarantee: tb.OutputDP, talks: bool) -> Run | None:
        open_ = [r for p in self.every for r in p.runs if r.talks and r.state not in OVER]
        deltas = [guarantee.delta, *(r.guarantee.delta for r in open_)]
        alone = not talks or not open_ or not any(deltas)
        allowed = not place.closed and alone and self.fits(place, *guarantee.worst_case())
        try:
            hold = place.account.reserve(guarantee, interactive=talks)
        except (tb.errors.BudgetError, tb.errors.SettlementError):
            assert not allowed
            return None
        assert allowed
        place.runs.append(Run(hold, guarantee, talks))
        return place.runs[-1]

    @rule(run=runs, verb=st.sampled_from(list(DEEDS)), cell=st.sampled_from("abcx"))
    def deed(self, run: Run | None, verb: str, cell: str) -> None:
        if run is None:
            return
        after, before = DEEDS[verb]
        named = [cell] if verb == "settle" else []
        repeated = after in OVER and [after, *named] == [run.state, *run.cell]
        allowed = run.state in before or repeated
        try:
            getattr(run.hold, verb)(*named)
        except tb.errors.SettlementError:
            assert not allowed
        else:
            assert allowed
            run.state, run.cell = after, named

    @rule(place=places)
    def close(self, place: Place) -> None:
        try:
            place.account.close()
        except tb.errors.SettlementError:
            assert place.busy
        else:
            assert not place.busy
            place.closed = True

    @invariant()
    @precondition(lambda self: hasattr(self, "every"))
    def the_sums_are_the_models_and_within_the_cap(self) -> None:
        for place in self.every:
            spent, held = place.sums()
            assert list(place.account._spent) == spent
            assert list(place.account._held) == held
            assert all(s + h <= c for s, h, c in zip(spent, held, place.cap, strict=True))


TestAccounts = pytest.mark.slow(Accounts.TestCase)
TestAccounts.settings = settings(max_examples=150, stateful_step_count=40)
