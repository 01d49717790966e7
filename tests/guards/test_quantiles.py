"""Every guard of the quantiles is taken away once, and something true becomes false."""

from __future__ import annotations

from fractions import Fraction

import pytest
from tests.exact import exp_ends
from tests.guards.mutants import Without, each, lose_a_truth
from tests.release import test_quantiles as kept

from tightbudget.errors import ParameterError
from tightbudget.release.mechanisms.quantiles import QuantileRelease, Weighted


def price_is_kept() -> bool:
    return all(
        kept.worst_ratio(q, rows, 1) <= exp_ends(Fraction(1))[0] for q, rows in [(0, 1), (0.5, 2)]
    )


def quantile_is_likeliest() -> bool:
    found = kept.masses(kept.quantile(0.25, 4), [0, 2, 2, 2, 2, 2, 2, 2])
    return [t for t in found if found[t] == max(found.values())] == [2]


def draw_is_exact() -> bool:
    cells = [Weighted(first=0, size=2, weight=1), Weighted(first=2, size=1, weight=2)]
    found, left = kept.of_all_tosses(cells, 3)
    return left == 0 and found == {0: Fraction(1, 4), 1: Fraction(1, 4), 2: Fraction(1, 2)}


def rank_error_holds() -> bool:
    mechanism = QuantileRelease(probabilities=(0, 0.9), bounds=(0, 2**20), epsilon=1, step=1.0)
    most = mechanism.rank_error()
    x = kept.worst_column(0.9, most, 2**20)
    return kept.missed(mechanism, 0.9, x, most) <= Fraction(1, 40)


def far_points_are_rare_or_refused() -> bool:
    many = QuantileRelease(
        probabilities=[Fraction(i, 99) for i in range(100)], bounds=(0, 9), epsilon=1, step=1.0
    )
    try:
        many.rank_error(1 - 2**-53)
    except ParameterError:
        return True
    return False


def rank_error_is_of_all_columns() -> bool:
    """With three columns each has a third of the chance to miss."""
    mechanism = kept.quantile(0.5, 2**20)
    return mechanism.rank_error(0.7, columns=3) == mechanism.rank_error(0.9)


MUTATIONS = [
    Without(
        "the rank error of several columns is that of one",
        {"rank-error-of-all-columns": "quantiles = len(self.probabilities)"},
        rank_error_is_of_all_columns,
    ),
    Without(
        "the rank error is that of the probability with the least rate",
        {"rank-error-of-the-worst": "rate = Fraction(self._rate(parts[0])) * parts[0].denominator"},
        rank_error_holds,
    ),
    Without(
        "weights beyond the cut prove no rank error",
        {"rank-error-before-the-cut": "if False:\n    pass"},
        far_points_are_rare_or_refused,
    ),
    Without(
        "weights pay for the moves of the rank error",
        {"noise-for-moves": "rate = 2 * epsilon / (self.rows_per_unit * moves)"},
        price_is_kept,
    ),
    Without(
        "weights pay for all records of a unit",
        {"noise-for-moves": "rate = _PAID * epsilon / moves"},
        price_is_kept,
    ),
    Without(
        "records at a point count on the better side",
        {"score": "score = abs(c * lower - a * n)"},
        quantile_is_likeliest,
    ),
    Without(
        "a point above the quantile misses it, too",
        {"score": "score = c * upper - (c - a) * n"},
        quantile_is_likeliest,
    ),
    Without(
        "a bit of the uniform integer is a fair coin",
        {"uniform-integer": "low += (noise.coin() or noise.coin()) << left"},
        draw_is_exact,
    ),
]


@each(MUTATIONS)
def test_the_guard_is_needed(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)
