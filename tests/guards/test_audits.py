"""Every guard of the audits is taken away once, and a true inequality becomes false."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.guards.mutants import Without, each, lose_a_truth

from tightbudget.audit import one_run, release, search
from tightbudget.audit.betting import Bets
from tightbudget.audit.claims import ClaimLine, ClaimLines
from tightbudget.audit.guessing import Guessed, most_right
from tightbudget.audit.rates import Rates
from tightbudget.errors import ParameterError
from tightbudget.numerics.binomial import binomial_tails, most_chance
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.release.release import Release

SCORES = np.arange(500.0)
LABELS = (np.arange(500) * 7919 % 1000 < 2 * np.arange(500)).astype(int)  # more of the high ones


def publishing_all_is_within_the_bound() -> bool:
    # with a chance of 0.1 all ten are published, and each is guessed by a coin otherwise
    return most_right(Guessed(10, 10, 10), ClaimLine(0.0, 0.1)) >= 0.1 + 0.9 / 2**10


def tries_are_paid_for() -> bool:
    shares = [(1 / 6, 1 / 6), (1 / 6, 1 / 6)]  # the same twice is no better than once
    twice = one_run(SCORES, LABELS, delta=0.0, shares=shares).epsilon_at_least
    return twice < one_run(SCORES, LABELS, delta=0.0).epsilon_at_least


def outputs_do_not_decide_how_many_are_guessed() -> bool:
    try:
        one_run(SCORES, LABELS, delta=0.0, shares=[(0.1, 0.1), (0.4, 0.4)], held_out=True)
    except ParameterError:
        return True
    return False


def capital_falls_as_epsilon_grows() -> bool:
    seen = Bets((150,), (0,), (2000,))
    found = [seen.p_value(ClaimLines((ClaimLine(e, 0.05),))) for e in (0.0, 0.25, 0.5, 1.0)]
    return found == sorted(found)


def equals_are_not_in_order() -> bool:
    labels = np.repeat([1, 0], 250)
    return one_run(np.zeros(500), labels, delta=0.0).epsilon_at_least == 0.0


def two_rates_share_a_level() -> bool:
    # bounds at half the level, by hand: no errors among n runs have a rate above 1 - level^(1 / n)
    seen, rate = Rates(0, 50, 0, 50), 1 - 0.025 ** (1 / 50)
    epsilon = math.log((1 - rate) / rate) + 1e-6
    return not seen.refutes(ClaimLines((ClaimLine(epsilon, 0.0),)), 0.05)


def bets_pay_for_delta() -> bool:
    # who publishes the coin in one run of ten, and else guesses it, is right in 11 of 20
    seen, lines = Bets((1100,), (900,), (0,)), ClaimLines((ClaimLine(0.0, 0.1),))
    return not seen.refutes(lines, 0.05)


def a_chosen_event_is_tested_anew() -> bool:
    # 300 outputs of a function that looks at no input, one after the other, as mixed by a hash
    outputs = itertools.cycle((np.arange(300) * 7919 % 10007 % 300).astype(str).tolist())
    found = search(
        lambda data: next(outputs), lambda i: (0, 1), claim=(0.0, 0.0), delta=0.0, runs=400, pairs=1
    )
    return found.audit.verdict == "consistent"


class Told:
    """A function from a text to a release in the cell of that name."""

    def __init__(self, texts: dict[int, list[str]]) -> None:
        self.texts = {data: itertools.cycle(found) for data, found in texts.items()}

    def __call__(self, data: int) -> Release[str]:
        receipt: Any = None
        value = next(self.texts[data])
        return Release(value, value[:3], receipt)


def a_chosen_event_of_a_release_is_tested_anew() -> bool:
    # 300 answers that look at no data, one after the other, as mixed by a hash
    mixed = (np.arange(300) * 7919 % 10007 % 300).astype(str).tolist()
    told = Told({0: mixed})
    told.texts[1] = told.texts[0]
    found = release(told, 0, 1, claim=(0.0, 0.0), runs=400)
    return found.audit.verdict == "consistent"


def other_cells_keep_their_own_price() -> bool:
    # "few" has the chances 0.9 and 0.95, and the others ln 2 as their price
    told = Told({0: ["few"] * 18 + ["all"] * 2, 1: ["few"] * 19 + ["all"]})
    claim = OutputDP({"few": math.log(0.95 / 0.9), "all": math.log(2)})
    return release(told, 1, 0, claim=claim, runs=40_000).audit.verdict == "consistent"


def chances_are_certified() -> bool:
    for n in (1, 7, 50, 1000, 10**6):
        for k in {0, n // 3, n - 1}:
            for level in (0.05, 0.025, 1e-3, 1e-9):
                chance = most_chance(k, n, level)
                if not binomial_tails(n, Fraction(chance), k + 1)[0][1] <= level:
                    return False
    return True


MUTATIONS = [
    Without(
        "a delta is free", {"audit-delta-paid": "more = 0.0"}, publishing_all_is_within_the_bound
    ),
    Without(
        "the best of several attacks counts as one",
        {"audit-shares-paid": "level = self.level"},
        tries_are_paid_for,
    ),
    Without(
        "outputs decide how many canaries are guessed",
        {"audit-as-many-guesses": "if False:"},
        outputs_do_not_decide_how_many_are_guessed,
    ),
    Without(
        "a lower bound over many claims at the level of one",
        {"audit-bets-fall-with-epsilon": "paid = np.log1p(-stakes * spent)"},
        capital_falls_as_epsilon_grows,
    ),
    Without(
        "equal scores are in the order of the labels",
        {"audit-ties-by-a-coin": "order = np.argsort(-values, kind='stable')"},
        equals_are_not_in_order,
    ),
    Without(
        "two rates cost as one",
        {"audit-both-rates-paid": "half = level"},
        two_rates_share_a_level,
    ),
    Without(
        "a bet does not pay for delta",
        {"audit-bets-pay-delta": "spent = 0.0 * lines.deltas"},
        bets_pay_for_delta,
    ),
    Without(
        "the runs that chose an event test it",
        {"audit-tested-on-new-runs": "p, q = (outcomes.counted(side) for side in outputs)"},
        a_chosen_event_is_tested_anew,
    ),
    Without(
        "the runs that chose an event of a release test it",
        {"audit-release-tested-on-new-runs": "p, q = (outcomes.counted(x) for x in first[::way])"},
        a_chosen_event_of_a_release_is_tested_anew,
    ),
    Without(
        "the price of a cell is that of all others",
        {
            "audit-cells-one-way": "asked = AuditQuestion("
            "self._delta, (price, claim.delta), self._level)"
        },
        other_cells_keep_their_own_price,
    ),
    Without(
        "a chance is that of scipy",
        {"clopper-pearson-certified": "while False:\n    pass"},
        chances_are_certified,
    ),
]


@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)
