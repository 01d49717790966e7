"""Public mixtures: values by their formula, parts of every kind, refusals."""

from __future__ import annotations

import pytest

import tightbudget as tb
from tightbudget.engine.engine import Engine
from tightbudget.engine.question import DeltaAt
from tightbudget.errors import ParameterError, RelationError
from tightbudget.mechanisms.either import EitherPair, either_within

PARTS = [
    (tb.Gaussian(1.0), tb.Gaussian(3.0).subsampled(0.1)),
    (tb.Laplace(2.0), tb.ApproximateDP(0.3, 1e-3)),
    (tb.MixtureOfGaussians(1.0, (0.0, 1.0, 2.0), (0.2, 0.6, 0.2)), tb.RandomizedResponse(0.75)),
    (tb.Gaussian(2.0), tb.Laplace(1.0).subsampled(0.3)),
]


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("one", "other"), PARTS)
@pytest.mark.parametrize("p", [1e-6, 0.3, 0.999])
def test_delta_is_the_mean_of_both(one: tb.Mechanism, other: tb.Mechanism, p: float) -> None:
    for direction in tb.mechanisms.Direction:
        for epsilon in (0.0, 0.2, 1.0):
            asked = DeltaAt(epsilon)

            def delta(mechanism: tb.Mechanism, asked=asked, direction=direction) -> tb.Bounds:
                pairs = {direction: ((mechanism.pair(direction), 1),)}
                return Engine.of(pairs).answer(asked, 1e-6).bounds

            a, b, both = delta(one), delta(other), delta(tb.either(p, one, other))
            assert both.lower <= (p * a.upper + (1 - p) * b.upper) * (1 + 1e-15)
            assert (p * a.lower + (1 - p) * b.lower) * (1 - 1e-15) <= both.upper


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("one", "other"), PARTS)
@pytest.mark.parametrize(("low", "high"), [(0.0, 0.0), (0.0, 0.2), (0.1, 0.3), (0.5, 0.5 + 1e-12)])
def test_a_chance_between_two_bounds(
    one: tb.Mechanism, other: tb.Mechanism, low: float, high: float
) -> None:
    """It is above the mixture of each chance, and no more than all of the gap above it."""
    epsilon, rtol = 0.2, 1e-4
    got = (either_within(tb.Bounds(low, high), one, other) * 1).delta(epsilon, rtol=rtol)
    for p in (low, high):
        truth = ((tb.either(p, one, other) if p else other) * 1).delta(epsilon, rtol=rtol)
        assert truth.lower <= got.upper
    assert got.lower <= truth.upper + (high - low) / (1 - low)


def test_either_of_the_same_is_the_same() -> None:
    step = tb.Gaussian(2.0).subsampled(0.1)
    for delta in (1e-3, 1e-12):
        one = (tb.either(0.25, step, step) * 200).answer(delta=delta, rtol=1e-9)
        assert one.reached
        assert one.method == "saddle-point"
        assert one.bounds.overlaps((step * 200).epsilon(delta, rtol=1e-9))


def test_sampling_an_either_samples_both() -> None:
    one, other = tb.Gaussian(1.0), tb.Gaussian(2.0)
    apart = tb.either(0.3, one.subsampled(0.1), other.subsampled(0.1)) * 50
    together = tb.either(0.3, one, other).subsampled(0.1) * 50
    assert together.epsilon(1e-6, rtol=1e-9).overlaps(apart.epsilon(1e-6, rtol=1e-9))


def test_both_engines_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    step = tb.either(0.2, tb.Gaussian(1.0), tb.Gaussian(4.0).subsampled(0.5))
    lines = (step * 20).answer(delta=1e-6)
    monkeypatch.setattr(EitherPair, "transform", lambda self: None)
    buckets = (step * 20).answer(delta=1e-6)
    assert (lines.method, buckets.method) == ("saddle-point", "buckets")
    assert lines.bounds.overlaps(buckets.bounds)


def test_a_published_value() -> None:
    # truncated Poisson batches as dp-accounting has them: 4 records, rate 0.5, at most 2; and 3
    def batch(p: float, c: float) -> tb.Mechanism:
        replaced = tb.MixtureOfGaussians(0.5, (0.0, 1.0), (1 - c, c), mirrored=True)
        return tb.either(p, replaced, tb.Gaussian(1.0).subsampled(0.5))

    # of 4: Pr[Bin(3, 1/2) >= 2] = 1/2, Pr[Bin(4, 1/2) > 2] * 2/4 / p = 5/16; of 3: 1/4, 1/3
    found = (batch(0.5, 0.3125) * 3 + batch(0.25, 1 / 3) * 2).epsilon(1e-6)
    assert found.lower * (1 - 1e-6) <= 17.904330 <= found.upper * (1 + 1e-6)


def test_an_instance_is_an_either_of_instances() -> None:
    loose = tb.Laplace(3.0).subsampled(0.1).group(2)
    mixed = tb.either(0.5, loose, tb.Gaussian(1.0))
    below = mixed.instance()
    assert isinstance(below, tb.Either)
    assert below.second == tb.Gaussian(1.0)
    assert tb.either(0.5, tb.Gaussian(1.0), tb.Laplace(1.0)).instance() is None


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: either_within(tb.Bounds(0.5, 1.0), tb.Gaussian(1.0), tb.Gaussian(2.0)),
            ParameterError,
            r"chance must have bounds in \[0, 1\)",
        ),
        (lambda: tb.either(0.0, *PARTS[0]), ParameterError, r"probability must be .*, got 0.0"),
        (lambda: tb.either(1.0, *PARTS[0]), ParameterError, r"probability must be .*, got 1.0"),
        (
            lambda: tb.either(0.5, tb.Gaussian(1.0) * 2, tb.Gaussian(1.0)),  # type: ignore[arg-type]
            ParameterError,
            "first must be one mechanism, not a composition",
        ),
        (
            lambda: tb.either(0.5, tb.Gaussian(1.0), 3),  # type: ignore[arg-type]
            ParameterError,
            "second must be a mechanism, got 3",
        ),
        (
            lambda: tb.either(
                0.5,
                tb.Gaussian(1.0).under("replace-one"),
                tb.Gaussian(1.0).under("add-or-remove"),
            ),
            RelationError,
            "are no either",
        ),
    ],
)
def test_refusals(make, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_it_is_read_back_from_its_table_and_shown_as_it_was_made() -> None:
    mixed = tb.either(0.5, tb.Gaussian(1.0), tb.Laplace(2.0).subsampled(0.1))
    assert repr(mixed) == "either(0.5, Gaussian(sigma=1.0), Laplace(scale=2.0).subsampled(0.1))"
    assert tb.Mechanism.from_dict(mixed.to_dict()) == mixed
    assert tb.Composition.from_json((mixed * 3).to_json()) == mixed * 3


def test_one_run_is_a_formula_beyond_the_largest_loss_of_one_of_both() -> None:
    sampled = tb.Gaussian(2.0).subsampled(0.1)  # without the record no loss is above -ln 0.9
    run = tb.Either(0.3, tb.Gaussian(1.0), sampled) * 1
    found = run.answer(epsilon=1.7, rtol=1e-12)
    assert found.reached
