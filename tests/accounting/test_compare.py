"""Every bound side by side: whatever is called proved lies above what we certify."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import CASES, Case
from tests.guards.mutants import Without, lose_a_truth

import tightbudget as tb
from tightbudget.theorems import kov, renyi
from tightbudget.theorems.concentrated import Line

# short to ask, and one for each way in which a theorem may not be applicable
QUICK = {
    "gaussian-1", "gaussian-wide", "laplace-1", "truncated-gaussian-1", "truncated-laplace-wide",
    "discrete-laplace-1", "clipped-laplace", "staircase-1", "response-0.75", "worst-case",
    "worst-case-no-epsilon", "histogram-empty-bins", "loss-table", "loss-tables",
    "loss-table-certain", "loss-table-sampled", "curve", "curve-one-way", "sampled-gaussian-0.25",
    "sampled-gaussian-never", "sampled-response",
}  # fmt: skip


def questions() -> list[Any]:
    both = [pytest.param(case, {"epsilon": 0.3}, id=case.name) for case in CASES if quick(case)]
    for case in CASES:
        if case.name == "group-large":  # theorems ask for many masses of 31 Gaussians: minutes
            continue
        marks = () if quick(case) else (pytest.mark.slow,)
        both.append(pytest.param(case, {"delta": 1e-5}, id=f"{case.name}-delta", marks=marks))
    return both


def quick(case: Case) -> bool:
    return case.name in QUICK


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("case", "question"), questions())
def test_no_theorem_is_below_what_is_certified(case: Case, question: dict[str, float]) -> None:
    found = tb.compare(case.mechanism * 3, **question, rtol=1e-2)
    ours = found["tightbudget"].answer
    assert isinstance(ours, tb.Bounds)
    for row in found.rows:
        assert (row.answer is None) == (row.reason is not None)
        if row.proved:
            assert isinstance(row.answer, tb.Bounds)
            assert row.answer.upper >= ours.lower, row.name
        if isinstance(row.answer, tb.Estimate):
            assert math.isfinite(row.answer.value), row.name


# in none of these is each direction's pair the other's with P and Q exchanged
CERTAIN = (1, (1.0,), 0.0)  # one loss, and it is above 0
RISING, LEAKING = (-1, (0.2, 0.2, 0.6), 0.0), (-2, (0.1, 0.2, 0.2, 0.3, 0.1999), 1e-4)
TABLES = {
    "certain": tb.LossTable(1.0, CERTAIN) * 1,
    "certain-often": tb.LossTable(0.01, CERTAIN) * 1000,
    "certain-twice": tb.LossTable(1.0, CERTAIN) * 1 + tb.LossTable(0.5, CERTAIN) * 1,
    "certain-and-even": tb.LossTable(0.5, CERTAIN, (0, (1.0,), 0.0)) * 3,
    "rising": tb.LossTable(0.5, RISING) * 10,
    "rising-and-certain": tb.LossTable(0.3, RISING, CERTAIN) * 4,
    "leaking": tb.LossTable(0.5, LEAKING) * 2,
    "sampled": tb.LossTable(1.0, CERTAIN).subsampled(0.3) * 5,
    "beside-a-staircase": tb.Staircase(2.0).subsampled(0.1) * 2 + tb.LossTable(0.1, CERTAIN) * 1,
    "beside-a-histogram": tb.LossTable(0.2, RISING) * 2
    + tb.HistogramPair((3, 2, 1), (1, 2, 3)) * 1,
    "beside-a-curve": tb.LossTable(0.2, RISING) + tb.FromCurve((0.0, 1.0), (0.2, 0.01)),
}


@pytest.mark.one_in(8)
@pytest.mark.parametrize("question", [{"epsilon": 0.0}, {"epsilon": 0.4}, {"delta": 1e-3}], ids=str)
@pytest.mark.parametrize("name", TABLES)
def test_no_theorem_is_below_where_the_directions_are_apart(
    name: str, question: dict[str, float]
) -> None:
    found = tb.compare(TABLES[name], **question, rtol=1e-3)
    ours = found["tightbudget"].answer
    assert isinstance(ours, tb.Bounds)
    for row in found.rows:
        if row.proved:
            assert isinstance(row.answer, tb.Bounds)
            assert row.answer.upper >= ours.lower, row.name
            assert row.answer.lower <= ours.upper, row.name
    assert found["KOV"].proved


def sampled_laplace(**how: Any) -> tb.Composition:
    plds = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    from tightbudget.adapters.dp_accounting import from_pld

    return from_pld(plds.from_laplace_mechanism(1.0, value_discretization_interval=0.05, **how))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", [{}, {"sampling_prob": 0.1}], ids=str)
@pytest.mark.parametrize("question", [{"epsilon": 0.2}, {"delta": 1e-3}], ids=str)
def test_no_theorem_is_below_an_imported_distribution(
    how: dict[str, float], question: dict[str, float]
) -> None:
    found = tb.compare(sampled_laplace(**how) * 3, **question, rtol=1e-3)
    ours = found["tightbudget"].answer
    assert isinstance(ours, tb.Bounds)
    assert found["KOV"].proved
    for row in found.rows:
        if row.proved:
            assert isinstance(row.answer, tb.Bounds)
            assert row.answer.upper >= ours.lower, row.name


def test_what_one_certain_loss_costs_is_below_every_bound() -> None:
    """With the loss l for certain, delta(eps) = 1 - e^(eps - l)."""
    for composition, question, truth in (
        (TABLES["certain"], {"epsilon": 0.0}, -math.expm1(-1.0)),
        (TABLES["certain"], {"delta": 0.5}, 1 + math.log(0.5)),
        (TABLES["certain-often"], {"delta": 1e-5}, 10 + math.log1p(-1e-5)),
        (TABLES["certain-twice"], {"epsilon": 0.0}, -math.expm1(-1.5)),
    ):
        found = tb.compare(composition, **question)
        for name in ROWS[1:10]:
            if found[name].answer is not None:
                assert upper(found, name) >= truth * (1 - 1e-12), name
    # no pair that tells that much is (eps, delta)-DP in both orders for a delta that small
    often = tb.compare(TABLES["certain-often"], delta=1e-5)
    assert upper(often, "KOV") == upper(often, "advanced") == math.inf


class OneWay(tb.Mechanism):
    """A mechanism of somebody's own, with nothing said about its reverse."""

    def pair(self, direction: tb.mechanisms.Direction) -> Any:
        return tb.Gaussian(3.0).pair(direction)


@pytest.mark.slow
def test_a_mechanism_without_a_reverse_has_no_row_that_needs_one() -> None:
    found = tb.compare(OneWay() * 4 + tb.Laplace(8.0), epsilon=0.3)
    for name in ("advanced", "KOV", "optimal"):
        assert found[name].answer is None
        assert found[name].reason == (
            "it needs delta(eps) of P against Q and of Q against P, and one is not known"
        )
    for name in ("naive", "adaptive", "Renyi"):
        assert found[name].proved


@pytest.mark.slow
def test_both_orders_are_asked_for() -> None:
    table = tb.LossTable(1.0, CERTAIN)
    guard = Without(
        "a pair is taken for its own reverse",
        {"pair-taken-reverse": "if True:"},
        lambda: upper(tb.compare(table, epsilon=0.0), "KOV") >= 0.632,
    )
    with pytest.MonkeyPatch.context() as patch:
        lose_a_truth(patch, guard)


ROWS = [
    "tightbudget",
    "naive",
    "adaptive",
    "advanced",
    "KOV",
    "optimal",
    "moments accountant",
    "Renyi",
    "zero-concentrated",
    "concentrated",
    "Gaussian DP",
    "central limit",
]


def upper(found: tb.Comparison, name: str) -> float:
    answer = found[name].answer
    assert isinstance(answer, tb.Bounds)
    return answer.upper


@pytest.fixture(scope="module")
def sampled() -> tb.Comparison:
    return tb.compare(tb.Gaussian(2.0).subsampled(0.01) * 1000, delta=1e-5)


@pytest.mark.slow
def test_ours_comes_first_and_every_row_names_its_source(sampled: tb.Comparison) -> None:
    assert [row.name for row in sampled.rows] == ROWS
    assert all(row.source for row in sampled.rows)
    assert sampled.rows[0].answer == sampled.composition.epsilon(1e-5)
    assert not sampled["Gaussian DP"].proved
    assert not sampled["central limit"].proved
    assert sampled["KOV"].proved
    with pytest.raises(KeyError):
        sampled["nobody"]


def test_what_is_known_of_gaussian_samples(sampled: tb.Comparison) -> None:
    """The moments accountant is the closest of the old bounds; concentration gains nothing."""
    ours = upper(sampled, "tightbudget")
    assert ours < upper(sampled, "Renyi") < upper(sampled, "moments accountant") < 1.5 * ours
    assert upper(sampled, "moments accountant") < upper(sampled, "KOV") / 5
    assert upper(sampled, "KOV") < upper(sampled, "adaptive") < upper(sampled, "naive") * (1 + 1e-9)
    assert upper(sampled, "zero-concentrated") == pytest.approx(
        (Line.gaussian(2.0) * 1000).epsilon(1e-5).upper
    )
    estimate = sampled["Gaussian DP"].answer
    assert isinstance(estimate, tb.Estimate)
    assert ours * 0.8 < estimate.value < ours  # an estimate below the truth


def test_randomised_response_is_the_case_that_kov_is_tight_for() -> None:
    found = tb.compare(tb.RandomizedResponse(0.55) * 200, delta=1e-6)
    assert upper(found, "KOV") == pytest.approx(upper(found, "tightbudget"), rel=1e-4)
    assert upper(found, "naive") == pytest.approx(200 * math.log(0.55 / 0.45))


def test_for_each_theorem_the_answer_is_the_theorems_own() -> None:
    k, delta = 40, 1e-5
    step = tb.Laplace(8.0)
    found = tb.compare(step * k, delta=delta)
    table = renyi.RenyiTable.of(lambda a: renyi.laplace(a, 8.0), renyi.orders(1 / 8))
    sharp = renyi.epsilon(lambda a: renyi.laplace(a, 8.0), delta, k).upper
    assert upper(found, "Renyi") == pytest.approx(sharp, rel=2e-3)
    mironov = renyi.epsilon(table, delta, k, renyi.Conversion.MIRONOV).upper
    assert upper(found, "moments accountant") == pytest.approx(mironov, rel=1e-2)
    at_top = kov.epsilon(1 / 8, 0.0, k, delta).upper
    assert upper(found, "KOV") <= at_top * (1 + 1e-9)
    other_way = tb.compare(step * k, epsilon=2.0)
    assert upper(other_way, "KOV") <= kov.delta(1 / 8, 0.0, k, 2.0).upper * (1 + 1e-9)
    assert upper(other_way, "naive") >= 1 - 1e-9  # half of 1/20 each: hopeless


def test_different_steps_are_bounded_together() -> None:
    mixed = tb.Gaussian(40.0) * 60 + tb.Laplace(50.0) * 30
    for question in ({"delta": 1e-6}, {"epsilon": 1.5}):
        found = tb.compare(mixed, **question)
        ours = found["tightbudget"].answer
        assert isinstance(ours, tb.Bounds)
        for name in ROWS[1:10]:
            assert ours.lower <= upper(found, name)
        # each with its own epsilon: better than one epsilon for all
        assert upper(found, "optimal") < upper(found, "KOV")
    # of one mechanism alone the best point is looked for; nothing is left to compose
    assert found["optimal"].reason is None
    alone = tb.compare(tb.Laplace(50.0) * 3, delta=1e-3)
    assert alone["optimal"].reason == "all steps are the same: see KOV"


def test_what_tells_all_has_no_divergence() -> None:
    found = tb.compare(tb.TruncatedLaplace(200.0, bound=2500.0) * 10, epsilon=0.06)
    for name in ("moments accountant", "Renyi", "zero-concentrated", "concentrated"):
        reason = found[name].reason
        assert reason is not None
        assert "all divergences are infinite" in reason
    assert found["central limit"].reason == "an infinite loss has no mean"
    assert found["Gaussian DP"].reason == "the formula is for Gaussian noise on Poisson samples"
    assert upper(found, "KOV") < 1e-3


def test_a_loss_without_end_has_no_known_line() -> None:
    found = tb.compare(tb.ClippedNoise(30.0, 5.0, noise="gaussian", reading="clipped"), delta=1e-3)
    assert found["zero-concentrated"].answer is None


def test_the_line_of_a_discrete_gaussian_is_known() -> None:
    found = tb.compare(tb.DiscreteGaussian(5.0, sensitivity=2) * 4, delta=1e-5)
    line = (Line.gaussian(5.0, 2.0) * 4).epsilon(1e-5).upper
    if found["zero-concentrated"].answer is not None:
        assert upper(found, "zero-concentrated") == pytest.approx(line)


def test_what_no_double_holds_is_not_estimated() -> None:
    found = tb.compare(tb.Gaussian(0.02).subsampled(0.01) * 3, epsilon=1.0)
    assert found["Gaussian DP"].reason == "its mu is too large for a double"


def test_nothing_costs_nothing() -> None:
    found = tb.compare(tb.compose([]), epsilon=1.0)
    assert [row.name for row in found.rows] == ["tightbudget"]
    assert found.rows[0].answer == tb.Bounds(0.0, 0.0)


# different parts, so that every theorem has something to compose
MIXED = {
    "gaussian-laplace": tb.Gaussian(40.0) * 60 + tb.Laplace(50.0) * 30,
    "responses": tb.RandomizedResponse(0.55) * 20 + tb.RandomizedResponse(0.6) * 3,
    "staircase-laplace": tb.Staircase(0.1) * 8 + tb.Laplace(12.0) * 5,
    "worst-cases": tb.ApproximateDP(0.2, 1e-8) * 10 + tb.ApproximateDP(0.5, 1e-7) * 2,
}


def no_proved_row_is_below(mixed: tb.Composition, question: dict[str, float]) -> bool:
    found = tb.compare(mixed, **question, rtol=1e-2)
    ours = found["tightbudget"].answer
    assert isinstance(ours, tb.Bounds)
    proved = [row.answer for row in found.rows if row.proved]
    assert found["optimal"].proved
    return all(isinstance(a, tb.Bounds) and a.upper >= ours.lower for a in proved)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("question", [{"epsilon": 0.3}, {"delta": 1e-5}], ids=str)
@pytest.mark.parametrize("name", MIXED)
def test_no_theorem_is_below_where_the_parts_differ(name: str, question: dict[str, float]) -> None:
    assert no_proved_row_is_below(MIXED[name], question)


def test_one_implementation_whoever_asks() -> None:
    step = tb.RandomizedResponse(0.6)
    assert tb.compare(step, delta=0.01) == tb.compare(step * 1, delta=0.01)


def test_it_prints_as_a_table_whose_numbers_are_rounded_up(sampled: tb.Comparison) -> None:
    lines = str(sampled).splitlines()
    assert lines[0].split() == ["at", "delta", "1e-05", "epsilon", "proved", "source"]
    assert len(lines) == 1 + len(ROWS)
    renyi_line = next(line for line in lines if line.startswith("Renyi"))
    shown = float(renyi_line.split("<= ")[1].split()[0])
    assert upper(sampled, "Renyi") <= shown <= upper(sampled, "Renyi") * (1 + 1e-5)
    assert "not applicable: all steps are the same" in str(sampled)
    assert "about" in str(sampled)
    assert not any(line != line.rstrip() for line in lines)


def test_json_has_every_number_and_no_infinity_that_is_not_one(sampled: tb.Comparison) -> None:
    content = json.loads(sampled.to_json())
    assert content == sampled.to_dict()
    assert content["delta"] == 1e-5
    assert content["answered"] == "epsilon"
    by_name = {row["name"]: row for row in content["rows"]}
    assert by_name["Renyi"]["answer"] == {"lower": 0.0, "upper": upper(sampled, "Renyi")}
    assert by_name["optimal"]["answer"] is None
    assert isinstance(by_name["central limit"]["answer"], float)
    hopeless = tb.compare(tb.ApproximateDP(0.1, 1e-3) * 10, delta=1e-5)
    assert "Infinity" not in hopeless.to_json()
    assert json.loads(hopeless.to_json())["rows"][1]["answer"]["upper"] == math.inf


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: tb.compare(tb.Laplace(1.0)), "give exactly one of delta and epsilon"),
        (lambda: tb.compare(tb.Laplace(1.0), delta=0.1, epsilon=1.0), "give exactly one of"),
        (lambda: tb.compare(tb.Laplace(1.0), delta=0.0), r"delta must be in \(0, 1\), got 0.0"),
        (lambda: tb.compare(tb.Laplace(1.0), epsilon=-1.0), "epsilon must be a finite number >= 0"),
        (lambda: tb.compare(tb.Laplace(1.0), delta=0.1, rtol=1.0), r"rtol must be in \(0, 1\)"),
        (lambda: tb.compare(3, delta=0.1), r"mechanisms\[0\] must be a mechanism"),  # type: ignore[arg-type]
    ],
)
def test_refusals(ask: Callable[[], Any], message: str) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        ask()


def test_a_comparison_is_a_sequence_of_its_rows() -> None:
    found = tb.compare(tb.Laplace(2.0), delta=1e-5)
    assert list(found) == list(found.rows)
    assert len(found) == len(found.rows)
    for k, row in enumerate(found):
        assert found[k] is row is found[row.name]
        assert row in found
        assert row.name in found
    assert found[-1] is found.rows[-1]
    assert "none of them" not in found
    with pytest.raises(KeyError, match="none of them"):
        found["none of them"]
    with pytest.raises(IndexError):
        found[len(found)]
