"""Exact audits: every cell, every neighbour, no sampling."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.release.audit import (
    Values,
    Variant,
    all_vectors,
    at,
    at_least,
    excess,
    neighbours,
    two_halves,
)

import tightbudget as tb

Answers = Callable[[int, int], dict[object, Fraction]]


def one_look(nu: int) -> Answers:
    """Above iff value + noise >= rho."""

    def answers(rho: int, value: int) -> dict[object, Fraction]:
        above = at_least(nu, rho - value)
        return {"above": above, "below": 1 - above}

    return answers


def two_looks(margin: int, first: int, second: int) -> Answers:
    """First with a margin."""

    def answers(rho: int, value: int) -> dict[object, Fraction]:
        top = at_least(first, rho + margin - value)
        middle = (1 - top) * at_least(second, rho - value)
        return {"top": top, "middle": middle, "below": 1 - top - middle}

    return answers


def no_noise(rho: int, value: int) -> dict[object, Fraction]:
    return {"above": Fraction(value >= rho), "below": Fraction(value < rho)}


def noisy_values(nu: int, shown: range) -> Answers:
    """Instead of "above", the noisy value that was compared (those in a range, as answers)."""

    def answers(rho: int, value: int) -> dict[object, Fraction]:
        found: dict[object, Fraction] = {
            a: at(nu, a - value) if a >= rho else Fraction(0) for a in shown
        }
        return found | {"below": 1 - at_least(nu, rho - value)}

    return answers


# --------------------------------------------------------- the mechanisms of this package


def plain(aboves: int, monotone: bool = False) -> Variant:
    return Variant("plain", 3, 1, one_look(1), {"above": 1 if monotone else 2}, 3,
                   aboves * (1 if monotone else 2))  # fmt: skip


def adaptive(aboves: int, monotone: bool = False, margin: int = 2) -> Variant:
    moves = 1 if monotone else 2
    return Variant(
        "adaptive", 3, 1, two_looks(margin, 1, 2), {"top": moves, "middle": 2 * moves}, 3,
        2 * moves * aboves, far=margin + 2, degree=3,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("variant", [plain, adaptive])
def test_every_transcript_keeps_its_price(
    variant: Callable[[int, bool], Variant], monotone: bool
) -> None:
    """Prices in units: 3 for the threshold, 1 or 2 sensitivities over each answer's scale."""
    for aboves in (1, 2):
        model = variant(aboves, monotone)
        pairs = neighbours(all_vectors(3), monotone) + neighbours(two_halves(4, 1), monotone)
        failed, closest = excess(model, ["below", *model.cost], pairs)
        assert not failed
        assert closest > Fraction(4, 5)  # and no price is much too high


@pytest.mark.one_in(4)
@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("variant", [plain, adaptive])
def test_one_unit_less_for_any_part_of_the_price_is_caught(
    variant: Callable[[int, bool], Variant], monotone: bool
) -> None:
    model = variant(1, monotone)
    pairs = neighbours(two_halves(5 if variant is plain else 4, 1), monotone)
    answers = ["below", *model.cost]
    assert excess(model, answers, pairs, lambda t: model.price(t) - 1)[0]
    for cheaper in model.cost:
        less = replace(model, cost=model.cost | {cheaper: model.cost[cheaper] - 1})
        assert excess(model, answers, pairs, less.price)[0]


def test_the_monotone_prices_do_not_hold_for_other_queries() -> None:
    for variant in (plain(1, True), adaptive(1, True)):
        failed, _ = excess(variant, ["below", *variant.cost], neighbours(two_halves(5, 1)))
        assert failed


SVTS = [
    tb.release.SparseVector(epsilon, aboves, sensitivity, monotone, looks, step)
    for epsilon, aboves, sensitivity, step in [
        (1, 1, 1, None), (0.3, 7, 2, None), (2, 3, 0.7, 0.25)
    ]
    for monotone in (False, True)
    for looks in (False, True)
]  # fmt: skip


@pytest.mark.parametrize("svt", SVTS, ids=str)
def test_scales_and_prices_are_those_of_the_audit(svt: tb.release.SparseVector) -> None:
    """All that the audit asks for: each price is the moves over the scale."""
    points = 1 if svt.sensitivity == 1 else 2 if svt.step is None else 4
    moves = 1 if svt.monotone else 2
    price = svt.guarantee.price
    assert price(0) == points / svt.threshold_scale
    second = 2 if svt.adaptive else 1
    assert price(second) - price(0) == moves * points / svt.scale
    if svt.adaptive:
        assert price(1) - price(0) == moves * points / (2 * svt.scale)
    assert svt.guarantee.sup == price(svt.aboves * second) == Fraction(str(svt.epsilon))


@pytest.mark.filterwarnings("ignore:FixedNoise")
@pytest.mark.parametrize("looks", [False, True])
def test_the_code_decides_as_the_audit_does(looks: bool) -> None:
    svt = tb.release.SparseVector(10, 1, adaptive=looks)
    margin = svt.margin
    for rho, *noise in itertools.product(range(-2, 3), range(-2, 3), (-margin, margin)):
        for value, threshold in itertools.product(range(-2, 3), range(-1, 2)):
            draws = noise[::-1] if looks else noise
            top = looks and value + draws[0] >= threshold + rho + margin
            middle = value + draws[1 if looks else 0] >= threshold + rho
            meter = tb.OutputDPFilter(10)
            with svt.open(value, meter=meter, noise=tb.release.FixedNoise([rho, *draws])) as run:
                assert run.ask(lambda data: data, threshold) == (top or middle)
            second = 2 if looks else 1
            assert run.release().cell == (1 if top else second if middle else 0)


# ------------------------------------------------- six variants that have been published


EPSILON = 8  # units, half of them for the threshold; at most two answers "above"
PUBLISHED = {  # numbered as in Lyu, Su, Li 2017, Figure 1
    1: Variant("1", 4, 1, one_look(1), {"above": 1}, 0, 2),
    2: Variant("2", 2, 1, one_look(1), {"above": 1}, 0, 2, refresh=2),
    3: Variant("3", 4, 2, noisy_values(2, range(-1, 2)), dict.fromkeys(range(-1, 2), 1), 0, 2),
    4: Variant("4", 2, 6, one_look(6), {"above": 1}, 0, 2),
    5: Variant("5", 4, 1, no_noise, {"above": 1}, 0, None),
    6: Variant("6", 4, 4, one_look(4), {"above": 1}, 0, None),
}  # fmt: skip


def claims_that_fail(number: int, vectors: list[Values]) -> int:
    """Of the claim that all of it is EPSILON-DP."""
    variant = PUBLISHED[number]
    failed, _ = excess(variant, ["below", *variant.cost], neighbours(vectors), lambda _: EPSILON)
    return failed


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
def test_the_sound_variants_pass(number: int) -> None:
    assert not claims_that_fail(number, all_vectors(3))
    for last in (1, 3):
        assert not claims_that_fail(number, two_halves(6, last))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "vectors"),
    [(3, two_halves(6, 1)), (4, all_vectors(3)), (5, all_vectors(2)), (6, two_halves(6, 3))],
)
def test_the_broken_variants_are_caught(number: int, vectors: list[Values]) -> None:
    assert claims_that_fail(number, vectors)


def test_variant_4_keeps_a_weaker_promise() -> None:
    """(1 + 6 c) / 4 epsilon with c = 2: 26 units."""
    failed, closest = excess(
        PUBLISHED[4], ["below", "above"], neighbours(two_halves(4, 2)), lambda _: 26
    )
    assert not failed
    assert closest > Fraction(1, 10)


# ------------------------------------------------------------------------------- top-k


class _Counter:
    """The code itself, on every noise in a box, by weight: z^(sum of all |noise|)."""

    def __init__(self, mechanism: tb.release.TopK, reach: int) -> None:
        self.mechanism, self.reach = mechanism, reach
        self.noises = [
            np.array(noise)
            for noise in itertools.product(range(-reach, reach + 1), repeat=mechanism.size + 1)
        ]
        self._known: dict[Values, dict[tuple[int, ...], list[int]]] = {}

    def weights(self, entries: Values) -> dict[tuple[int, ...], list[int]]:
        """For each answer: how much, within reach - 2 and within reach, times 2^(3 reach)."""
        if entries not in self._known:
            totals: dict[tuple[int, ...], list[int]] = {}
            for noise in self.noises:
                answer = self.mechanism._named(np.array(entries), noise)
                # z = 1/2, so the weight is an integer
                size = np.abs(noise)
                weight = 2 ** int(self.reach * len(noise) - size.sum())
                total = totals.setdefault(answer, [0, 0])
                total[0] += weight if size.max() <= self.reach - 2 else 0
                total[1] += weight
            self._known[entries] = totals
        return self._known[entries]


def top_k_claims_that_fail(
    monotone_prices: bool, monotone_data: bool, k: int, less: int = 0, spread: int = 0
) -> tuple[int, float]:
    """Pr(answer, noise within 5) <= 2^price Pr'(answer, noise within 7), as the proof moves
    no noise by more than 2; prices in units of ln 2 (an entry: 2, or 1 if monotone)."""
    moves = 1 if monotone_prices else 2
    mechanism = tb.release.TopK(list, 2, k, moves * k, 0, monotone=monotone_prices)
    assert mechanism.scale == 1  # so each price is a number of moves
    counter, failed, closest = _Counter(mechanism, 7), 0, 0.0
    vectors = [(a - spread, b + spread) for a, b in all_vectors(2)]
    for x, y in neighbours(vectors, monotone_data):
        for answer, (inner, _) in counter.weights(x).items():
            price = mechanism.guarantee.price(len(answer)) - less
            assert price.denominator == 1
            outer = counter.weights(y).get(answer, [0, 0])[1]
            failed += inner > Fraction(2) ** price * outer
            closest = max(closest, inner / float(Fraction(2) ** price * outer))
    return failed, closest


@pytest.mark.one_in(4)
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("monotone", [False, True])
def test_every_answer_of_top_k_keeps_its_price(monotone: bool, k: int) -> None:
    failed, closest = top_k_claims_that_fail(monotone, monotone, k)
    assert not failed
    assert closest > 0.5


@pytest.mark.slow
def test_top_k_at_less_than_its_price_is_caught() -> None:
    assert top_k_claims_that_fail(False, False, 2, less=1)[0]
    assert top_k_claims_that_fail(True, True, 2, less=1)[0]
    assert top_k_claims_that_fail(True, False, 1, spread=2)[0]
