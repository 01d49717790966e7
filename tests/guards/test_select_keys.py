"""Each guard of the mechanisms for secret keys is taken away, and something true is lost."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.guards.mutants import Without, company, each, lose_a_truth, mutate
from tests.release.test_select_keys import delta, profile

import tightbudget as tb
from tightbudget.release.mechanisms import select_keys
from tightbudget.tables import SelectedCounts, SelectedKeys, Table

pytestmark = pytest.mark.filterwarnings("ignore:FixedNoise")


def laplace_holds() -> bool:
    counts = tb.release.KeyedCounts(epsilon=10, delta=0.1, keys_per_unit=10)
    a = Fraction(36787944117144233, 10**17)  # e^-1, rounded up by less than 1e-17
    appears = a ** (counts.threshold - 1) / (1 + a)
    return 1 - (1 - appears) ** 10 <= Fraction(1, 10)


def gaussian_holds() -> bool:
    counts = tb.release.KeyedCounts(epsilon=2, delta=1e-2, keys_per_unit=2, noise="gaussian")
    return profile(counts.scale, counts.threshold, 2, 2) <= 1e-2 * (1 + 1e-9)


def released(data: Any, draws: list[int]) -> list[Any]:
    counts = tb.release.KeyedCounts(epsilon=1, delta=0.1)
    noise = tb.release.FixedNoise([counts.threshold + z for z in draws])
    return list(counts.release(data, meter=tb.OutputDPOdometer(), noise=noise).value)


def rule_holds() -> bool:
    factor, given = Fraction(3), Fraction(1, 10)
    laws: list[dict[object, Fraction]] = [
        {True: p, False: 1 - p} for p in select_keys.optimal_rule(factor, given)
    ]
    return all(
        max(delta(p, q, factor), delta(q, p, factor)) <= given for p, q in itertools.pairwise(laws)
    )


def pays_for_all_groups(question: Any) -> bool:
    table = Table(
        {"u": np.array([1]), "k": np.array(["a"])}, unit="u", rows_per_unit=9, groups_per_unit=3
    )
    return bool(question.plan(table).mechanism.keys_per_unit == 3)


MUTATIONS = [
    Without(
        "the delta of one key pays for ten",
        {"every-key-may-appear": "return appears <= self._delta"},
        laplace_holds,
    ),
    Without(
        "the noise alone is priced",
        {
            "own-keys-alone": "if not appears < 0.5:\n    return False",
            "worst-of-all-splits": "if noisy <= self._delta:\n    continue",
        },
        gaussian_holds,
    ),
    Without(
        "a noisy count just below the threshold is published",
        {
            "threshold-is-reached": (
                'return {key: n for key, n in noisy.items() if n >= self.threshold - 1}, "value"'
            )
        },
        lambda: released({"a": 1, "b": 1}, [-1, -2]) == ["a"],
    ),
    Without(
        "a key may be certain too soon",
        {"both-sides-of-the-rule": "most = min(factor * p + delta, Fraction(1))"},
        rule_holds,
    ),
    Without(
        "keys that nobody has get noise",
        {"absent-keys-stay-absent": "if True:\n    found[key] = min(n, _LARGEST_COUNT)"},
        lambda: released({"a": 0, "b": 1}, [9, 9]) == ["b"],
    ),
    Without(
        "the order is that of the data",
        {"order-of-the-keys": "ordered = found"},
        lambda: released({"b": 1, "a": 1}, [9, 9]) == ["a", "b"],
    ),
    Without(
        "a key without a text takes all keys with it",
        {"odd-keys-alone": "return {}"},
        lambda: released({"a": 1, 10**5000: 1}, [9]) == ["a"],
    ),
    Without(
        "a unit in three groups is counted as in one, with counts",
        {"selected-groups-move": "return Plan(scan=scan, mechanism=self._for(1))"},
        lambda: pays_for_all_groups(SelectedCounts(by="k", epsilon=1, delta=0.1)),
    ),
    Without(
        "a unit in three groups is counted as in one, without counts",
        {"selected-groups-move": "return Plan(scan=scan, mechanism=self._for(1))"},
        lambda: pays_for_all_groups(SelectedKeys(by="k", epsilon=1, delta=0.1)),
    ),
]


@each(MUTATIONS)
def test_each_guard_guards(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)


@pytest.mark.parametrize("name", ["own-keys-alone", "worst-of-all-splits"])
def test_two_locks_hold_without_one_of_them(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """They are listed as such; a truth that one of them alone holds takes it off the list."""
    assert name in company()
    (group,) = (one for one in MUTATIONS if name in one.changes)
    mutate(monkeypatch, replace(group, changes={name: group.changes[name]}))
    assert group.true is not None
    assert group.true()
