"""What algorithms for synthetic tables cost: known values, limits, and every refusal."""

from __future__ import annotations

import math
from typing import Any

import pytest

import tightbudget as tb
from tightbudget.marginals.measurements import measured, selected

# (epsilon, delta): zCDP's rho, and the exact one of Gaussian noise alone and of MST with 15
# attributes; computed in doubles, for the paper's plan (../shared/theory/15-marginals.md)
KNOWN = {
    (0.1, 1e-6): (3.2105e-4, 3.7935e-4, 3.8076e-4),
    (1.0, 1e-6): (0.024356, 0.028015, 0.028177),
    (1.0, 1e-9): (0.014973, 0.016557, 0.016743),
    (5.0, 1e-6): (0.46307, 0.52056, 0.52515),
    (10.0, 1e-6): (1.53928, 1.70780, 1.72799),
}


@pytest.mark.parametrize("target", KNOWN)
def test_rho_of_known_targets(target: tuple[float, float]) -> None:
    simple, gaussian, spanning = KNOWN[target]
    found = tb.marginals.rho(tb.marginals.fixed, *target)
    assert gaussian * (1 - 1e-3) <= found <= gaussian * (1 + 1e-4)
    found = tb.marginals.rho(lambda rho: tb.marginals.mst(15, rho), *target)
    assert spanning * (1 - 1e-3) <= found <= spanning * (1 + 1e-4)
    # and never less than what zCDP allows
    assert found > simple * 1.1


@pytest.mark.parametrize(("epsilon", "delta", "known"), [(1.0, 1e-6, 2.0e-7), (1.0, 1e-9, 1.4e-10)])
def test_delta_of_mst_at_the_rho_of_zcdp(epsilon: float, delta: float, known: float) -> None:
    simple = KNOWN[epsilon, delta][0]
    assert tb.marginals.mst(15, simple).delta(epsilon).upper == pytest.approx(known, rel=0.03)


def test_without_selections_all_is_gaussian() -> None:
    found = tb.marginals.mst(15, 0.1, shares=(0.5, 1e-5, 0.5 - 1e-5))
    exact = measured(0.1).epsilon(1e-6)
    assert found.epsilon(1e-6).upper == pytest.approx(exact.upper, rel=1e-3)
    assert found.epsilon(1e-6).upper >= exact.lower * (1 - 1e-4)


def test_a_fixed_workload_is_one_gaussian() -> None:
    found, exact = tb.marginals.fixed(0.02), tb.Gaussian(5.0)
    assert found.delta(1.0).lower <= exact.delta(1.0).upper
    assert exact.delta(1.0).lower <= found.delta(1.0).upper
    assert exact.epsilon(1e-6).lower <= found.epsilon(1e-6).upper
    assert found.epsilon(1e-6).lower <= exact.epsilon(1e-6).upper


def test_fifty_attributes_of_mst() -> None:
    few, many = (tb.marginals.mst(d, 0.024356).epsilon(1e-6) for d in (15, 50))
    # more and smaller selections are closer to Gaussian noise, which costs more
    assert few.upper < many.lower
    assert many.upper < tb.marginals.fixed(0.024356).epsilon(1e-6).upper


def never_annealed(attributes: int, rho: float) -> tb.Composition:
    """AIM's rounds with the first noise throughout."""
    units, first = 16 * attributes, 0.9 * attributes
    rounds = math.floor(units - first - 2) + 1
    left = units - first - rounds
    one = selected(0.1 * rho / units) * rounds + measured(0.9 * rho / units) * rounds
    last = selected(0.1 * rho / units * left) + measured(0.9 * rho / units * left)
    return measured(rho / units * first) + one + last


def test_aim_costs_at_least_what_it_costs_without_annealing_and_about_that() -> None:
    found = tb.marginals.aim(1, 0.02).delta(0.5)
    plain = never_annealed(1, 0.02).delta(0.5, rtol=0.2)
    assert plain.lower <= found.upper
    assert found.upper <= tb.marginals.fixed(0.02).delta(0.5).upper * 1.01


def test_aim_s_states_say_what_was_spent() -> None:
    found = tb.marginals.aim(2, 0.1, rounds=12, first=1.0)
    # 10 units: 1 each, or 4 each after annealing; the last round takes what is left of them
    assert set(found.workflow.moves) >= {
        "start",
        ("round", 1, 0),
        ("measure", 1, 0),
        ("round", 1, 8),
        ("measure last", 9),
        ("measure last", 3),
        "end",
    }
    # the noise may be halved after a measurement was seen, and not before
    after = {state: [move.to for move in moves] for state, moves in found.workflow.moves.items()}
    assert after["round", 1, 0] == [("measure", 1, 0)]
    assert after["measure", 1, 0] == [("round", 1, 1)]
    assert after["round", 1, 1] == [("measure", 1, 1), ("measure", 4, 1)]
    assert after["round", 1, 3] == [("measure", 1, 3), ("measure last", 3)]
    assert after["round", 1, 9] == [("measure last", 9)]
    ((last, _),) = found.workflow.moves["measure last", 9][0].runs.parts
    assert last.parameters()["sigma"] == pytest.approx(measured(0.9 * 0.1 / 12).sigma)
    ((third, _),) = found.workflow.moves["measure last", 3][0].runs.parts
    # a last round after 3 of 10 units has 7 of them
    assert third.parameters()["sigma"] == pytest.approx(measured(0.9 * 0.1 / 12 * 7).sigma)


def test_each_way_through_aim_costs_rho() -> None:
    found = tb.marginals.aim(3, 0.3, rounds=30)
    costs: dict[Any, set[float]] = {}
    for state in found.workflow.order:
        for move in found.workflow.moves[state]:
            ((mechanism, runs),) = move.runs.parts
            assert runs == 1
            if isinstance(mechanism, tb.Gaussian):
                cost = 0.5 / mechanism.sigma**2
            else:
                assert isinstance(mechanism, tb.ExponentialMechanism)
                cost = mechanism.parameters()["epsilon"] ** 2 / 8
            later = costs.get(move.to, {0.0})
            costs.setdefault(state, set()).update(round(cost + one, 9) for one in later)
    assert costs["start"] == {0.3}


@pytest.mark.slow
def test_aim_with_fifteen_attributes() -> None:
    # 1.150 times the rho of zCDP, and a delta of 2.16e-7 at that rho
    assert tb.marginals.aim(15, 0.024356 * 1.149).delta(1.0).upper <= 1e-6
    assert tb.marginals.aim(15, 0.024356 * 1.152).delta(1.0).lower > 1e-6


def test_both_bounds_and_their_gap() -> None:
    plan = tb.marginals.mst(4, 0.05)
    for found, rtol in ((plan.delta(1.0, rtol=1e-3), 1e-3), (plan.epsilon(1e-6, rtol=1e-4), 1e-4)):
        assert 0.0 < found.lower < found.upper
        assert found.relative_gap <= rtol
    # each is about the other
    at = plan.epsilon(1e-6)
    assert plan.delta(at.upper).lower <= 1e-6
    assert plan.delta(at.lower).upper >= 1e-6


def test_the_price_falls_to_nothing() -> None:
    assert tb.marginals.fixed(1e-9).epsilon(0.5) == tb.Bounds(0.0, 0.0)
    assert tb.marginals.fixed(0.5).delta(0.0).upper >= tb.Gaussian(1.0).delta(0.0).lower


def test_repr() -> None:
    assert repr(tb.marginals.mst(3, 0.1)) == "<Measurements: mst, rho 0.1, 4 states>"


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: tb.marginals.mst(1, 0.1), "attributes must be from 2 to 1,000, got 1"),
        (lambda: tb.marginals.mst(1001, 0.1), "attributes must be from 2 to 1,000, got 1001"),
        (lambda: tb.marginals.aim(0, 0.1), "attributes must be an integer >= 1, got 0"),
        (lambda: tb.marginals.mst(3, 0.0), "rho must be a finite number > 0, got 0.0"),
        (lambda: tb.marginals.mst(3, 0.1, shares=(0.5, 0.5)), "shares must be three numbers > 0"),
        (lambda: tb.marginals.mst(3, 0.1, (0.5, 0.5, 0.5)), "the sum of shares must be 1, got 1.5"),
        (lambda: tb.marginals.mst(3, 0.1, (1.0, 0.0, 0.0)), r"shares\[1\] must be"),
        (lambda: tb.marginals.mst(3, 1e-12), "rho = 1.66667e-13 for one selection is out of range"),
        (lambda: tb.marginals.aim(4, 0.1, rounds=3), "rounds must be more than first"),
        (lambda: tb.marginals.aim(4, 0.1, first=-1.0), "first must be"),
        (lambda: tb.marginals.aim(4, 0.1, select=1.0), "select must be"),
        (lambda: tb.marginals.fixed(0.1).delta(-1.0), "epsilon must be"),
        (lambda: tb.marginals.fixed(0.1).epsilon(0.0), "delta must be"),
        (lambda: tb.marginals.rho(3, 1.0, 1e-6), "plan must make measurements for a rho"),  # type: ignore[arg-type]
        (lambda: tb.marginals.rho(tb.marginals.fixed, 0.0, 1e-6), "epsilon must be"),
        (lambda: tb.marginals.rho(tb.marginals.fixed, 1.0, 1.0), "delta must be"),
    ],
)
def test_refusals(ask: Any, message: str) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        ask()


@pytest.mark.parametrize("epsilon", [1e-170, 5e-324])
def test_a_target_without_a_rho_is_refused_by_name(epsilon: float) -> None:
    with pytest.raises(tb.errors.CalibrationError, match="no rho was found for epsilon"):
        tb.marginals.rho(tb.marginals.fixed, epsilon, 1e-6)


@pytest.mark.parametrize(
    "plan",
    [tb.marginals.aim(3, 0.3), tb.marginals.aim(2, 0.1, rounds=40), tb.marginals.mst(5, 0.1)],
)
def test_what_is_decided_after_an_output_is_a_choice_of_what_runs_next(
    plan: tb.marginals.Measurements,
) -> None:
    # two moves with one mechanism would decide on the next state before its output is seen
    for moves in plan.workflow.moves.values():
        assert len({move.runs for move in moves}) == len(moves)
