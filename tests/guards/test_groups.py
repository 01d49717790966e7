"""Guards of groups, public mixtures and truncated batches: without them a bound is wrong."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from tests.guards.mutants import Without, each, lose_a_truth
from tests.mechanisms.test_truncated_poisson import direct

import tightbudget as tb
from tightbudget.mechanisms.group import merged


def larger_sizes() -> bool:
    """Shares that are merged for an upper bound are of larger sizes than the exact ones."""
    size, rate = 60, Fraction(1, 4)
    merged.cache_clear()
    sizes, shares = merged(size, rate, 12, up=True)
    merged.cache_clear()
    for least in (10, 15, 20):
        exact = sum(
            (
                math.comb(size, i) * rate**i * (1 - rate) ** (size - i)
                for i in range(least, size + 1)
            ),
            Fraction(0),
        )
        found = sum((Fraction(s) for i, s in zip(sizes, shares, strict=True) if i >= least), 0)
        if not found >= exact * (1 - Fraction(1, 10**25)):
            return False
    return True


def opposite_records() -> bool:
    """Others of the opposite sign, of which the record takes the place of one."""
    found = tb.Gaussian(1.0).truncated_poisson(0.9, 1, 4).delta(0.5)
    return max(direct(0.9, 1, [1.0, -1.0, -1.0, -1.0], 0.5)) <= found.upper * (1 + 1e-5)


def opposite_records_where_a_place_may_be_free() -> bool:
    """The same where a batch has two places, and the others may leave one of them free."""
    found = tb.Gaussian(1.0).truncated_poisson(0.5, 2, 6).delta(0.5)
    return max(direct(0.5, 2, [1.0] + [-1.0] * 5, 0.5)) <= found.upper * (1 + 1e-5)


COUNTED = (
    "tests/mechanisms/test_truncated_poisson.py"
    "::test_batches_of_all_samples_are_as_the_theorem_says"
)


def relation_comes_back() -> bool:
    """A group that was declared for a relation has it in its table, too."""
    group = tb.Gaussian(1.0).group(2).under("replace-one")
    return tb.Mechanism.from_dict(group.to_dict()).relation is tb.Neighbouring.REPLACE_ONE


MUTATIONS = [
    Without(
        "merging upwards",
        {"shares-merged-upwards": "sizes.append(start)"},
        larger_sizes,
    ),
    Without(
        "a replaced record moves the sum twice",
        {
            "cut-batch-replaces": (
                "replaced = self.base.subsampled(self._in_when_full[1]).pair(direction)"
            )
        },
        opposite_records,
    ),
    Without(
        "the relation of a group is its base's",
        {"group-relation-stored": "self._set(base=self.base)"},
        relation_comes_back,
    ),
    Without(
        "a record displaces another one where others leave a place or none",
        {"nearly-full-batch": "pair = plain"},
        opposite_records_where_a_place_may_be_free,
    ),
    Without(
        "the chance of a free place is rounded down",
        {"free-place-rounded-down": "free = float(fits) / above[1] * (1.0 + 1e-9)"},
        fails=f"{COUNTED}[0.25-3-6]",
    ),
    Without(
        "a displaced record is twice as far away",
        {"displaced-moves-twice": "moves = self.base"},
        fails=f"{COUNTED}[0.5-2-4]",
    ),
]


@pytest.mark.one_in(3)
@each(MUTATIONS)
def test_without_it_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation, request.session)
