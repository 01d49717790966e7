"""OpenDP's measurements: each kind of map against its own closed form, and what is refused."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import pytest

import tightbudget as tb
from tightbudget.mechanisms import Neighbouring
from tightbudget.theorems.concentrated import Line

pytest.importorskip("opendp", reason="pip install 'tightbudget[release]'")

from opendp import combinators, domains, measurements, measures, metrics, mod, transformations

from tightbudget.adapters import opendp as adapter
from tightbudget.adapters.opendp import from_opendp, to_privacy_profile


@pytest.fixture(autouse=True)
def features() -> Any:
    """OpenDP's features, for these tests alone."""
    kept = set(mod.GLOBAL_FEATURES)
    mod.enable_features("contrib", "honest-but-curious")
    yield
    mod.GLOBAL_FEATURES.clear()
    mod.GLOBAL_FEATURES.update(kept)


def space() -> tuple[Any, Any]:
    return domains.atom_domain(T="f64", nan=False), metrics.absolute_distance(T="f64")


def laplace(scale: float) -> Any:
    return measurements.make_laplace(*space(), scale=scale)


def gaussian(scale: float) -> Any:
    return measurements.make_gaussian(*space(), scale=scale)


def said(measure: Any, answer: Any) -> Any:
    """A measurement whose map says ``answer``."""
    return measurements.make_user_measurement(
        *space(), measure, function=lambda x: x, privacy_map=lambda d_in: answer
    )


# --------------------------------------------------------------------------------- laws


def test_pure_maps_are_the_worst_mechanisms_of_their_epsilon() -> None:
    draws = random.Random(3)
    for _ in range(20):
        scale, d_in = draws.uniform(0.1, 30.0), draws.uniform(0.1, 3.0)
        measurement = laplace(scale)
        (mechanism, runs), *more = from_opendp(measurement, d_in).parts
        assert (mechanism, runs, more) == (tb.ApproximateDP(measurement.map(d_in)), 1, [])
        assert measurement.map(d_in) >= d_in / scale


def test_all_kinds_are_at_most_what_opendp_says_of_their_composition() -> None:
    draws = random.Random(4)
    for _ in range(3):
        delta, d_in = 10.0 ** draws.uniform(-10, -3), draws.uniform(0.5, 2.0)
        noises = [gaussian(draws.uniform(1.0, 9.0)) for _ in range(draws.randint(1, 5))]
        whole = combinators.make_zCDP_to_approxDP(combinators.make_composition(noises))
        theirs = whole.map(d_in).epsilon(delta)
        ours = from_opendp(noises, d_in).epsilon(delta)
        # a curve of points, of which chords are taken: more by their distance
        assert ours.lower <= theirs * 1.002
        # and it dominates what they are, Gaussian noise
        real = tb.compose([tb.Gaussian(d_in / math.sqrt(2 * m.map(d_in)), d_in) for m in noises])
        assert real.epsilon(delta).lower <= ours.upper


def test_rho_is_added_up_before_it_is_a_curve() -> None:
    ten = from_opendp([gaussian(2.0)] * 10, 1.0)
    assert ten.runs == 1
    assert ten == from_opendp(said(measures.zero_concentrated_divergence(), 1.25), 1.0)
    assert from_opendp(said(measures.zero_concentrated_divergence(), 0.0), 1.0).runs == 0


def test_rhos_that_are_no_double_together_are_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Line] = []

    def above(whole: Line, *_: Any) -> Any:
        asked.append(whole)
        return tb.FromCurve([0.0], [0.5])

    monkeypatch.setattr(adapter, "above_divergences", above)
    draws = random.Random(5)
    for _ in range(10):
        rhos = [draws.uniform(0, 1) ** 3 for _ in range(draws.randint(1, 6))]
        from_opendp([said(measures.zero_concentrated_divergence(), rho) for rho in rhos], 1.0)
        truth = sum(map(Fraction, rhos), Fraction(0))
        assert asked[-1].xi == 0.0
        assert truth <= Fraction(asked[-1].rho) <= truth * (1 + Fraction(1, 10**12))


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5, 1.0, 2.0, 4.0])
def test_a_profile_is_between_the_noise_and_what_opendp_says(epsilon: float) -> None:
    profile = combinators.make_zCDP_to_approxDP(gaussian(2.0)).map(1.0)
    found = from_opendp(combinators.make_zCDP_to_approxDP(gaussian(2.0)), 1.0).delta(epsilon)
    assert found.upper >= tb.Gaussian(2.0).delta(epsilon).lower
    # it may be below: that the order of two neighbours does not matter is used, too
    assert found.upper <= profile.delta(epsilon) * 1.01


def test_a_profile_that_never_reaches_zero_keeps_its_delta() -> None:
    profile = measures.new_privacy_profile(lambda e: 1e-3 if e >= 1.0 else 0.25)
    run = adapter._of_profile(profile, "it")
    assert run.delta(math.inf).upper >= 1e-3 * (1 - 1e-12)
    assert run.delta(1.0).upper >= 1e-3 * (1 - 1e-12)
    assert run.delta(0.5).upper >= 1e-3 * (1 - 1e-12)


def test_a_profile_of_pure_privacy_is_that() -> None:
    lossy = tb.ApproximateDP(0.7, 1e-4) * 1
    run = adapter._of_profile(to_privacy_profile(lossy), "it")
    for epsilon in (0.0, 0.3, 0.7, 2.0):
        assert run.delta(epsilon).upper >= lossy.delta(epsilon).lower
        assert run.delta(epsilon).upper == pytest.approx(lossy.delta(epsilon).upper, rel=1e-2)


def test_a_fixed_delta_is_approximate_privacy() -> None:
    fixed = combinators.make_fix_delta(combinators.make_zCDP_to_approxDP(gaussian(2.0)), 1e-5)
    epsilon, delta = fixed.map(1.0)
    assert from_opendp(fixed, 1.0) == tb.ApproximateDP(epsilon, delta) * 1


def test_approximate_concentrated_privacy_adds_its_delta() -> None:
    measure = measures.approximate(measures.zero_concentrated_divergence())
    run = from_opendp(said(measure, (0.125, 1e-3)), 1.0)
    pure = from_opendp(gaussian(2.0), 1.0)
    for epsilon in (0.0, 1.0, 3.0):
        expected = 1e-3 + (1 - 1e-3) * pure.delta(epsilon).upper
        assert run.delta(epsilon).upper == pytest.approx(expected, rel=1e-3)


def test_a_chain_is_asked_at_the_distance_of_its_own_input() -> None:
    records = domains.vector_domain(domains.atom_domain(T="i32")), metrics.symmetric_distance()
    count = transformations.make_count(*records)
    noise = measurements.make_laplace(
        domains.atom_domain(T="i32"), metrics.absolute_distance(T="i32"), scale=4.0
    )
    run = from_opendp(count >> noise, 2, relation="add-or-remove")
    assert run == tb.ApproximateDP(0.5, relation=Neighbouring.ADD_OR_REMOVE) * 1


# ------------------------------------------------------------------------------ refusals


def test_what_is_no_measurement_is_refused() -> None:
    with pytest.raises(tb.ParameterError, match="measurements must be an OpenDP Measurement, got"):
        from_opendp(measures.max_divergence(), 1.0)
    with pytest.raises(tb.ParameterError, match=r"measurements\[1\] must be an OpenDP Measurement"):
        from_opendp([laplace(1.0), 3], 1.0)
    with pytest.raises(tb.ParameterError, match="have at least one measurement"):
        from_opendp([], 1.0)


@pytest.mark.parametrize("d_in", [-1.0, math.inf, math.nan, "1", None])
def test_a_distance_that_the_map_refuses_is_refused(d_in: Any) -> None:
    with pytest.raises(tb.ParameterError, match="measurements: its map refuses d_in = "):
        from_opendp(laplace(1.0), d_in)


@pytest.mark.parametrize("answer", [-1.0, math.nan, math.inf])
def test_a_map_that_says_no_number_is_refused(answer: float) -> None:
    for measure in (measures.max_divergence(), measures.zero_concentrated_divergence()):
        with pytest.raises(tb.ParameterError, match=r"measurements.map\(1.0\) must be"):
            from_opendp(said(measure, answer), 1.0)


def test_a_delta_that_is_none_is_refused() -> None:
    measure = measures.approximate(measures.max_divergence())
    with pytest.raises(tb.ParameterError, match=r"the delta of measurements\.map"):
        from_opendp(said(measure, (1.0, 2.0)), 1.0)


def test_a_measure_of_which_nothing_is_proved_is_refused() -> None:
    for measure in (measures.user_divergence("mine"), measures.renyi_divergence()):
        with pytest.raises(tb.ParameterError, match="of which nothing is proved here; known are"):
            from_opendp(said(measure, 0.1), 1.0)


def noisy_maximum(measure: Any) -> Any:
    scores = domains.vector_domain(domains.atom_domain(T="f64", nan=False))
    return measurements.make_noisy_max(scores, metrics.linf_distance(T="f64"), measure, scale=2.0)


def test_the_rho_of_a_noisy_maximum_is_refused_where_it_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choice = noisy_maximum(measures.zero_concentrated_divergence())
    monkeypatch.setattr(adapter, "_version", lambda: (0, 15))
    with pytest.raises(tb.ParameterError, match=r"chooses by scores .*its issue 2911"):
        from_opendp(choice, 1.0)
    assert from_opendp(noisy_maximum(measures.max_divergence()), 1.0).runs == 1
    assert from_opendp(gaussian(1.0), 1.0).runs == 1
    monkeypatch.setattr(adapter, "_version", lambda: (0, 16))
    assert from_opendp(choice, 1.0).runs == 1


def test_opendp_chooses_as_rho_says() -> None:
    """From 0.16 on: exponential weights, which are epsilon-bounded range; not permute-and-flip."""
    if adapter._version() < adapter._RIGHT_RHO:
        pytest.skip("its rho is refused")
    choice = noisy_maximum(measures.zero_concentrated_divergence())
    first = sum(choice([0.0, 2.0]) == 0 for _ in range(4000)) / 4000
    exponential, flipped = 1 / (1 + math.e), 0.5 / math.e
    assert abs(first - exponential) < 0.035 < exponential - flipped - 0.035


# ---------------------------------------------------------------------------------- back


def test_a_profile_has_the_upper_bounds() -> None:
    run = tb.Gaussian(1.0).subsampled(0.1) * 20 + tb.Laplace(3.0)
    profile = to_privacy_profile(run)
    for epsilon in (0.0, 0.3, 1.0, 2.5):
        assert profile.delta(epsilon) == run.delta(epsilon).upper
    assert run.delta(profile.epsilon(1e-4)).upper <= 1e-4


def test_a_profile_of_what_came_from_there_is_above_the_noise() -> None:
    back = to_privacy_profile(from_opendp(gaussian(3.0), 1.0))
    for epsilon in (0.0, 0.5, 1.5):
        assert back.delta(epsilon) >= tb.Gaussian(3.0).delta(epsilon).lower


def test_a_profile_needs_the_features() -> None:
    mod.GLOBAL_FEATURES.clear()
    with pytest.raises(tb.ParameterError, match="OpenDP's profiles need its features"):
        to_privacy_profile(tb.Gaussian(1.0))


def test_a_profile_of_something_else_is_refused() -> None:
    other: Any = 3
    with pytest.raises(tb.ParameterError, match="be a mechanism or a composition"):
        to_privacy_profile(other)
