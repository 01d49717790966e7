"""Audits of mechanisms on data: what is honest is consistent, and each fault is found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.release import cases as release_cases
from tests.tables import cases as table_cases

import tightbudget as tb
from tightbudget import tables
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release import Noise
from tightbudget.release.mechanism import MechanismOnData

SURE = 1 - 1e-6  # an honest mechanism is refuted in one of a million tests


class Seeded:
    """Noise of NumPy, of the law that is asked for: quick, and the same at each run."""

    batch = 1

    def __init__(self, seed: int = 7, scale: float = 1.0) -> None:
        self.draws, self.scale = np.random.default_rng(seed), scale

    def laplace(self, scale: Any, size: int) -> Any:
        rate = -math.expm1(-1 / (float(scale) * self.scale))
        first, second = self.draws.geometric(rate, (2, size))
        return first - second

    def gaussian(self, scale: Any, size: int) -> Any:
        return np.rint(self.draws.normal(0, float(scale) * self.scale, size)).astype(np.int64)

    def coin(self) -> bool:
        return bool(self.draws.random() < 0.5)


class Constant(Seeded):
    """The same draws at each call, as of a seed that is set again and again."""

    def laplace(self, scale: Any, size: int) -> Any:
        return Seeded(1).laplace(scale, size)


@dataclass(frozen=True)
class TwoCells(MechanismOnData[int, str]):
    """Answers "few" and "many" with given chances, at a price for each."""

    few: tuple[float, float]
    price_few: float
    price_many: float

    @property
    def guarantee(self) -> OutputDP:
        return OutputDP({"few": self.price_few, "many": self.price_many})

    def _run(self, data: int, noise: Noise) -> tuple[str, Cell]:
        draws: Any = noise
        cell = "few" if draws.draws.random() < self.few[data] else "many"
        return cell, cell


COUNT = tb.release.LaplaceRelease(len, 1, 1)
# between neighbours of 0 and 1 records, one answer keeps the price exactly
GRADUAL = tb.release.GradualRelease(len, 1, (0.5, 1.5), lambda answers: answers[-1] > 0)
TOY = tb.release.ToyRelease(len, 1, 1)
HONEST: dict[str, Any] = {
    "count": COUNT,
    "gradual": GRADUAL,
    "toy": TOY,
    "cells": TwoCells((0.9, 0.95), math.log(0.95 / 0.9), math.log(2)),
}
NEIGHBOURS: dict[str, tuple[Any, Any]] = {"cells": (0, 1)}


def neighbours(name: str) -> tuple[Any, Any]:
    return NEIGHBOURS.get(name, ([], [0]))


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_honest_mechanisms_are_refuted_at_most_as_often_as_said(name: str) -> None:
    # two cells take the least time: their prices are tight, and the choice has most to find
    audits, level = 2_000 if name == "cells" else 200, 0.05
    noise, refuted = Seeded(), 0
    for _ in range(audits):
        found = tb.audit.release(HONEST[name], *neighbours(name), runs=200, noise=noise)
        refuted += found.audit.verdict == "refuted"
    assert stats.binom.sf(refuted - 1, audits, level) > 1e-3


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_mechanism_is_consistent_and_found_close(name: str) -> None:
    found = tb.audit.release(
        HONEST[name], *neighbours(name), runs=2_000, noise=Seeded(), confidence=SURE
    )
    assert found.audit.verdict == "consistent"
    assert found.audit.delta == 0.0
    price = HONEST[name].guarantee.sup if found.cells is None else found.audit.claimed
    assert found.audit.claimed == pytest.approx(float(price or 0))
    assert found.audit.trials == 1_000


CASES = [
    c
    for c in [*release_cases.CASES, *table_cases.CASES]
    if isinstance(c.mechanism, MechanismOnData)
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_mechanism_may_be_audited(case: Any) -> None:
    fewer = case.data[:-1] if case.data is release_cases.AGES else case.data
    found = tb.audit.release(case.mechanism, case.data, fewer, runs=40, confidence=SURE)
    assert found.audit.verdict == "consistent"
    assert found.audit.delta >= float(case.mechanism.guarantee.delta)
    assert {id(side) for side in found.pair} == {id(case.data), id(fewer)}


# ------------------------------------------------------------------------------- faults


def of_list(data: Any) -> Any:
    return data


# one record moves a list of scores by one each: one of them up, the others down
MIXED = ([3, 3, 3, 2], [2, 2, 2, 3])
FAULTS: dict[str, tuple[Any, tuple[Any, Any], Any]] = {
    "half the noise": (COUNT, ([], [0]), Seeded(scale=0.5)),
    "the sensitivity is twice what is said": (
        tb.release.LaplaceRelease(lambda data: 2 * len(data), 1, 1),
        ([], [0]),
        Seeded(),
    ),
    "noise of a seed that is used twice": (COUNT, ([], [0]), Constant()),
    "scores that are not monotone": (
        tb.release.TopK(of_list, 4, 1, 1, 0, monotone=True),
        MIXED,
        Seeded(),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_refuted(name: str) -> None:
    mechanism, pair, noise = FAULTS[name]
    for way in (pair, pair[::-1]):
        found = tb.audit.release(mechanism, *way, runs=2_000, noise=noise, confidence=0.99)
        assert found.audit.verdict == "refuted"
        assert found.audit.epsilon_at_least > float(mechanism.guarantee.sup)


def test_monotone_scores_are_consistent_where_they_are_monotone() -> None:
    mechanism = FAULTS["scores that are not monotone"][0]
    found = tb.audit.release(
        mechanism, [3, 3, 3, 2], [2, 2, 2, 2], runs=4_000, noise=Seeded(), confidence=SURE
    )
    assert found.audit.verdict == "consistent"


@pytest.mark.parametrize("way", [1, -1])
def test_a_cell_that_costs_more_than_its_price_is_refuted(way: int) -> None:
    cheap = TwoCells((0.2, 0.1), 0.1, 1.0)  # "few" costs ln 2
    found = tb.audit.release(cheap, *(0, 1)[::way], runs=4_000, noise=Seeded())
    assert found.audit.verdict == "refuted"
    assert found.cells == ("few",) == found.event
    assert found.pair == (0, 1)
    assert found.audit.claimed == pytest.approx(0.1)
    assert 0.1 < found.audit.epsilon_at_least < math.log(2)
    # the highest price alone is kept
    whole = tb.audit.release(cheap, 0, 1, claim=(1.0, 0.0), runs=4_000, noise=Seeded())
    assert whole.audit.verdict == "consistent"
    assert whole.cells is None


def test_a_curve_tells_more_than_one_price() -> None:
    # epsilon at 1e-9 is far above what the noise shows at any other delta
    noisy = tb.release.GaussianRelease.of_epsilon(len, 1, 4, 1e-9)
    curve = tb.DiscreteGaussian(float(noisy.scale))

    def verdict(scale: float, claim: Any = None, confidence: float = 0.95) -> str:
        return tb.audit.release(
            noisy, [], [0], claim=claim, delta=1e-9, runs=2_000, confidence=confidence,
            noise=Seeded(scale=scale),
        ).audit.verdict  # fmt: skip

    assert verdict(0.5) == "consistent"
    assert verdict(0.5, curve) == "refuted"
    assert verdict(1.0, curve, SURE) == "consistent"


def test_a_vector_is_looked_at_in_one_of_its_numbers() -> None:
    vector = tb.release.LaplaceRelease(np.bincount, 1, 1, size=3, integers=True)
    pair = np.array([0, 1, 2]), np.array([0, 1, 2, 2])
    found = tb.audit.release(
        vector, *pair, look=lambda counts: counts[2], runs=4_000, noise=Seeded(scale=0.5)
    )
    assert found.audit.verdict == "refuted"
    assert all(isinstance(x, (float, tuple)) or x == "other" for x in found.event)


# ----------------------------------------------------------------- tables and conversations

ROWS = [(u, x, "p", 0, True, True) for u in ("a", "b") for x in (0.0, 5.0)]


@pytest.mark.parametrize(
    "made", [table_cases.table, pytest.param(table_cases.in_duckdb, marks=pytest.mark.slow)]
)
def test_a_question_to_a_table_is_audited_through_its_source(made: Any) -> None:
    def table(rows: Any) -> tables.Table:
        opened: tables.Table = made(columns=table_cases.small(rows), rows=2)
        return opened

    few = 40 if made is table_cases.in_duckdb else 400
    question = tables.Count(epsilon=1)
    found = tb.audit.release(question, table(ROWS), table(ROWS[:2]), runs=few, confidence=SURE)
    assert found.audit.verdict == "consistent"
    low = tb.audit.release(
        question,
        table(ROWS),
        table(ROWS[:2]),
        runs=few,
        claim=(0.0, 0.0),
        noise=Seeded(scale=1e-3),
    )
    assert low.audit.verdict == "refuted"


def test_a_conversation_is_audited_at_its_prices() -> None:
    search = tb.release.SparseVector(1, 1, adaptive=False)

    def conversation(ages: Any) -> tb.release.Release[Any]:
        with search.open(ages, meter=tb.OutputDPFilter(1), noise=noise) as run:
            for _ in range(2):
                if not run.done:
                    run.ask(len, 1)
        answer: tb.release.Release[Any] = run.release()
        return answer

    given: dict[str, Any] = {"claim": search.guarantee, "runs": 400}
    noise = Seeded()
    found = tb.audit.release(conversation, [], [0], confidence=SURE, **given)
    assert found.audit.verdict == "consistent"
    noise = Seeded(scale=0.1)
    found = tb.audit.release(conversation, [], [0], **given)
    assert found.audit.verdict == "refuted"


def test_nothing_is_charged_and_a_failing_query_answers_its_fallback() -> None:
    def query(data: list[int]) -> int:
        if data:
            raise ValueError(data)
        return 0

    failing = tb.release.LaplaceRelease(query, 1, 1, bounds=(0, 1))
    found = tb.audit.release(failing, [], [0], runs=2_000, noise=Seeded(), confidence=SURE)
    assert found.audit.verdict == "consistent"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"runs": 39}, "runs must be 40 or more, got 39"),
        ({"runs": 0.5}, "runs must be an integer >= 1, got 0.5"),
        ({"confidence": 1.0}, "confidence must be"),
        ({"delta": 2.0}, "delta must be"),
        ({"claim": "laplace"}, "claim must be a mechanism or a composition"),
        ({"claim": (-1.0, 0.0)}, "claim[0] must be"),
        ({"look": 3}, "look must be a function, got 3"),
        ({"look": lambda value: {value}}, "a text or a tuple, got a set"),
        ({"mechanism": 3, "claim": (1.0, 0.0)}, "mechanism must be a mechanism on data, or a func"),
        ({"mechanism": len}, "claim must be given for a function, which has no guarantee"),
        (
            {"mechanism": len, "claim": (1.0, 0.0)},
            "noise must be None for a function, which draws its own",
        ),
        (
            {"mechanism": len, "claim": (1.0, 0.0), "noise": None},
            "mechanism(data) must be a Release, got 'int'",
        ),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_bad_input_is_refused(given: dict[str, Any], message: str) -> None:
    good = {"mechanism": COUNT, "data": [], "neighbour": [0], "noise": Seeded(), "runs": 40}
    with pytest.raises(tb.ParameterError) as error:
        tb.audit.release(**{**good, **given})
    assert message in str(error.value)


def test_a_claim_of_exact_fractions_is_rounded_up() -> None:
    found = tb.audit.release(
        COUNT,
        [],
        [0],
        claim=OutputDP({"value": Fraction(1, 3)}, Fraction(1, 10)),
        runs=40,
        noise=Seeded(),
    )
    assert found.audit.claimed is not None
    assert Fraction(found.audit.claimed) >= Fraction(1, 3)
    assert Fraction(found.audit.delta) >= Fraction(1, 10)
