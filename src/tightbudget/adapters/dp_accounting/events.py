"""Compositions of dp-accounting's events, one converter for each type of event."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import attr
import dp_accounting
import numpy as np
from dp_accounting import dp_event

from tightbudget.errors import FileError, ParameterError
from tightbudget.mechanisms import (
    ApproximateDP,
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialMechanism,
    Gaussian,
    HistogramPair,
    Laplace,
    Mechanism,
    MixtureOfGaussians,
    Neighbouring,
    RandomizedResponse,
    Subsampled,
)
from tightbudget.mechanisms.composition import Composition
from tightbudget.mechanisms.derived import Derived
from tightbudget.mechanisms.dominating import above_composition, above_divergences
from tightbudget.mechanisms.either import Either, either, either_within
from tightbudget.numerics.binomial import binomial_tails
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import add_up, double_down, double_up, mul_up, root_up
from tightbudget.numerics.validate import (
    count,
    masses,
    non_negative,
    positive_count,
    probability,
    refuse,
)
from tightbudget.theorems import best_of_many
from tightbudget.theorems.best_of_many import BestOfMany, Repetitions
from tightbudget.theorems.concentrated import Line
from tightbudget.trials import NegativeBinomial, Poisson, Trials

Relation = dp_accounting.NeighboringRelation
# One of an event's releases, and how often it runs. Of lines and bests of many runs only upper
# bounds of Renyi divergences are known, which add up.
Step = tuple[Mechanism | Line | BestOfMany, int]

RELATIONS = {
    Relation.ADD_OR_REMOVE_ONE: Neighbouring.ADD_OR_REMOVE,
    Relation.REPLACE_ONE: Neighbouring.REPLACE_ONE,
    Relation.REPLACE_SPECIAL: Neighbouring.ZERO_OUT,
}
_SUMS = (Gaussian, Laplace, DiscreteLaplace, MixtureOfGaussians, Subsampled)


class EventError(ParameterError):
    """The refusal of an event.

    Attributes:
        event: the part of a tree of events that is refused.
        invalid: True if one of its parameters is out of range, False if there is no mechanism for
            it under the relation that was asked for.
    """

    def __init__(self, event: Any, reason: str, *, invalid: bool = False) -> None:
        super().__init__(f"{event!r:.200} is not supported: {reason}")
        self.event = event
        self.invalid = invalid


def from_dp_event(
    event: Any, neighboring_relation: Any = Relation.ADD_OR_REMOVE_ONE
) -> Composition:
    """Converts a ``dp_accounting.DpEvent`` to a composition, under a neighbouring relation.

    Guarantee: the composition dominates the event: its upper bounds are upper bounds for the event.
    It is the event itself, but that a parameter which no double holds (1/a for the scale of
    discrete Laplace noise, a sum of squares for several Gaussians on one sample) is rounded to the
    less private side, and that events of which only an inequality is known (zero-concentrated ones)
    are the worst that it allows.

    A norm of at most C bounds what one record adds, so that a replaced record (``REPLACE_ONE``)
    moves a sum by up to 2 C, and one that is replaced by the special, zero, record by C.
    All zero-concentrated parts are added up before they are turned into one privacy curve.

    Args:
        event: any tree of events.
        neighboring_relation: a ``dp_accounting.NeighboringRelation``.

    Raises:
        ParameterError: an event in the tree is not supported under this relation, or has a
            parameter that is refused; the message shows that event, and why.
    """
    if neighboring_relation not in RELATIONS:
        must = "be one of dp_accounting.NeighboringRelation"
        raise refuse("neighboring_relation", must, neighboring_relation)
    relation = RELATIONS[neighboring_relation]
    return _composition_of(steps_of(event, relation), relation)


def event_from_dict(table: Any) -> Any:
    """Makes a ``dp_accounting.DpEvent`` from plain JSON values.

    Args:
        table: ``class_name``, such as "GaussianDpEvent", and the fields of that class, as
            ``DpEvent.to_named_tuple`` names them; where an event has events inside, they are
            tables, too. Only classes of dp-accounting's own events are looked up.

    Raises:
        FileError: it is no table, or has an unknown class or an unknown or missing field.
    """
    if isinstance(table, list):
        return [event_from_dict(entry) if isinstance(entry, dict) else entry for entry in table]
    if not isinstance(table, dict) or not isinstance(table.get("class_name"), str):
        raise FileError(f"event must be a table with class_name, got {table!r:.80}")
    given = {name: value for name, value in table.items() if name != "module_name"}
    name = given.pop("class_name")
    kind = getattr(dp_event, name, None)
    if not (isinstance(kind, type) and issubclass(kind, dp_event.DpEvent)):
        raise FileError(f"event: dp-accounting has no {name!r}")
    fields = {field.name for field in attr.fields(kind)}
    for field in given:
        if field not in fields:
            known = ", ".join(sorted(fields)) or "no fields"
            raise FileError(f"event: {name} has no {field!r} (it has {known})")
    for field, value in given.items():
        if isinstance(value, (dict, list)):
            given[field] = event_from_dict(value)
    try:
        return kind(**given)
    except (TypeError, ValueError) as error:  # a field is missing, or refused by dp-accounting
        raise FileError(f"event: {name}: {error}") from error


# -------------------------------------------------------------------- events, one by one


def steps_of(event: Any, relation: Neighbouring) -> list[Step]:
    """Lists the releases of an event; a refusal names the innermost event that is refused."""
    try:
        return _steps(event, relation)
    except EventError:
        raise
    except (ParameterError, OverflowError) as cause:
        raise EventError(event, str(cause), invalid=True) from cause


def _composition_of(steps: list[Step], relation: Neighbouring) -> Composition:
    mechanisms = [(step, runs) for step, runs in steps if isinstance(step, Mechanism)]
    lines = [(step, runs) for step, runs in steps if isinstance(step, Line)]
    bests: dict[BestOfMany, int] = {}
    for step, runs in steps:
        if isinstance(step, BestOfMany):
            bests[step] = bests.get(step, 0) + runs
    if lines or bests:
        xi = sum((runs * Fraction(line.xi) for line, runs in lines), Fraction(0))
        rho = sum((runs * Fraction(line.rho) for line, runs in lines), Fraction(0))
        whole = Line(double_up(xi), double_up(rho))
        mechanisms.append((above_divergences(whole, tuple(bests.items()), relation), 1))
    return Composition(tuple(mechanisms))


@functools.singledispatch
def _steps(event: Any, relation: Neighbouring) -> list[Step]:
    raise EventError(event, "there is no mechanism for this type of event")


@_steps.register(dp_event.NoOpDpEvent)
def _no_op(event: Any, relation: Neighbouring) -> list[Step]:
    return []


@_steps.register(dp_event.NonPrivateDpEvent)
def _non_private(event: Any, relation: Neighbouring) -> list[Step]:
    return _revealed(1.0, relation)


@_steps.register(dp_event.ComposedDpEvent)
def _composed(event: Any, relation: Neighbouring) -> list[Step]:
    return [step for part in event.events for step in steps_of(part, relation)]


@_steps.register(dp_event.SelfComposedDpEvent)
def _self_composed(event: Any, relation: Neighbouring) -> list[Step]:
    times = count(count=event.count)
    # guard: self-composition-count
    return [(step, times * runs) for step, runs in steps_of(event.event, relation)]


@_steps.register(dp_event.GaussianDpEvent)
def _gaussian(event: Any, relation: Neighbouring) -> list[Step]:
    noise = non_negative(noise_multiplier=event.noise_multiplier)
    if noise == 0:
        return _revealed(1.0, relation)
    return [(Gaussian(noise, _distance(relation), relation=relation), 1)]


@_steps.register(dp_event.LaplaceDpEvent)
def _laplace(event: Any, relation: Neighbouring) -> list[Step]:
    noise = non_negative(noise_multiplier=event.noise_multiplier)
    if noise == 0:
        return _revealed(1.0, relation)
    return [(Laplace(noise, _distance(relation), relation=relation), 1)]


@_steps.register(dp_event.DiscreteLaplaceDpEvent)
def _discrete_laplace(event: Any, relation: Neighbouring) -> list[Step]:
    moved = positive_count(sensitivity=event.sensitivity) * int(_distance(relation))
    noise = non_negative(noise_parameter=event.noise_parameter)
    if noise == 0:  # dp-accounting reads it as no noise
        return _revealed(1.0, relation)
    # less noise dominates: noise of a larger scale is that of a smaller one and more of its kind
    scale = double_down(1 / Fraction(noise))
    return [(DiscreteLaplace(scale, moved, relation=relation), 1)]


@_steps.register(dp_event.RandomizedResponseDpEvent)
def _randomized_response(event: Any, relation: Neighbouring) -> list[Step]:
    if relation is Neighbouring.ADD_OR_REMOVE:
        raise EventError(
            event,
            "neighboring_relation must be `REPLACE_ONE` or `REPLACE_SPECIAL`: a response that is "
            "there or not tells neighbours apart",
        )
    p = Fraction(probability(noise_parameter=event.noise_parameter))
    k = positive_count(num_buckets=event.num_buckets)
    if k == 1 or p == 1:
        return []
    # a more likely true answer dominates: mixed with a uniform one it is the less likely one
    if relation is Neighbouring.REPLACE_ONE:
        true = double_up(1 - p + p / k)
        if true == 1.0:
            return _revealed(1.0, relation)
        return [(RandomizedResponse(true, k, relation=relation), 1)]
    # the special record has a uniform answer
    weights = double_up(k * (1 - p) + p), double_down((k - 1) * p)
    # guard: special-record-answers-randomly
    return [(HistogramPair(weights, (1, k - 1), relation=relation), 1)]


@_steps.register(dp_event.MixtureOfGaussiansDpEvent)
def _mixture_of_gaussians(event: Any, relation: Neighbouring) -> list[Step]:
    if relation is Neighbouring.REPLACE_ONE:
        raise EventError(
            event,
            "neighboring_relation must be `ADD_OR_REMOVE_ONE` or `REPLACE_SPECIAL`: its pair is "
            "that of a record which is there or not",
        )
    noise = non_negative(standard_deviation=event.standard_deviation)
    weights = masses(sampling_probs=event.sampling_probs)
    sizes = [c for c, w in zip(event.sensitivities, weights, strict=True) if w]
    if not any(sizes):
        return []
    if noise == 0:
        return _revealed(1.0, relation)
    return [(MixtureOfGaussians(noise, event.sensitivities, weights, relation=relation), 1)]


@_steps.register(dp_event.ZCDpEvent)
def _zero_concentrated(event: Any, relation: Neighbouring) -> list[Step]:
    xi, rho = non_negative(xi=event.xi), non_negative(rho=event.rho)
    if rho == 0.0:  # the largest loss is a Renyi divergence, too
        return [(ApproximateDP(xi, relation=relation), 1)]
    return [(Line(xi, rho), 1)]


@_steps.register(dp_event.SingleEpochTreeAggregationDpEvent)
def _tree_aggregation(event: Any, relation: Neighbouring) -> list[Step]:
    if relation is Neighbouring.ADD_OR_REMOVE:
        raise EventError(
            event,
            "neighboring_relation must be `REPLACE_SPECIAL` or `REPLACE_ONE`, under which other "
            "records keep their leaves of the tree of sums",
        )
    given = event.step_counts
    counts = given if isinstance(given, Sequence) else [given]
    if not counts:
        raise refuse("step_counts", "have at least one tree", given)
    most = max(positive_count(**{f"step_counts[{i}]": n}) for i, n in enumerate(counts))
    # a record is in one node of each level, of which n leaves need as many as n has digits
    gaussian = dp_event.GaussianDpEvent(event.noise_multiplier)
    # guard: every-level-of-tree
    return [(step, most.bit_length()) for step, _ in _gaussian(gaussian, relation)]


@_steps.register(dp_event.PoissonSampledDpEvent)
def _poisson_sampled(event: Any, relation: Neighbouring) -> list[Step]:
    q = probability(sampling_probability=event.sampling_probability)
    inner = _one_release([s for s in steps_of(event.event, relation) if s[1]])
    if q == 1.0 or not inner:
        return inner
    if q == 0.0:
        return []
    (step, runs), *more = inner
    if step == ApproximateDP(0.0, 1.0, relation=relation):
        return _revealed(q, relation)
    alone = runs == 1 and not more
    if relation is not Neighbouring.ADD_OR_REMOVE and not all(
        isinstance(s, _SUMS) for s, _ in inner
    ):
        # the record may be in the sample in both data sets, and then the releases differ; that it
        # is there may show. H(p A + (1 - p) B || p A' + (1 - p) B) <= p H(A || A'), jointly convex
        return [(either(q, _single(inner, relation), _NOTHING.under(relation)), 1)]
    if relation is Neighbouring.REPLACE_ONE:
        if alone and isinstance(step, Gaussian):
            # the record adds up to half of that, before and after, in opposite directions at worst
            # guard: half-sampled-contribution
            sizes, chances = [0.0, step.sensitivity / 2], [Fraction(0), Fraction(1)]
        elif alone and isinstance(step, MixtureOfGaussians) and step.mirrored:
            sizes = np.array(step.sensitivities).tolist()
            given = [Fraction(weight) for weight in np.array(step.weights).tolist()]
            chances = [weight / sum(given) for weight in given]
            if sizes[0] > 0:
                sizes, chances = [0.0, *sizes], [Fraction(0), *chances]
        else:
            # To a sum a record that is not in the sample is one that adds zero, so that what holds
            # for replaced records holds for that, too: Balle, Barthe, Gaboardi 2018, Theorem 2.
            return [(_curve_of(tuple(inner), relation, q), 1)]
        # more weight on a contribution dominates
        rare = [double_up(Fraction(q) * chance) for chance in chances[1:]]
        weights = (double_down(1 - sum(map(Fraction, rare), Fraction(0))), *rare)
        # guard: replaced-record-mirrored
        mixed = MixtureOfGaussians(step.sigma, sizes, weights, mirrored=True, relation=relation)
        return [(mixed, 1)]
    return [(_single(inner, relation).subsampled(q), 1)]  # guard: sampling-rate


@_steps.register(dp_event.SampledWithoutReplacementDpEvent)
def _sampled_without_replacement(event: Any, relation: Neighbouring) -> list[Step]:
    n = positive_count(source_dataset_size=event.source_dataset_size)
    b = count(sample_size=event.sample_size)
    rate = probability(**{"sample_size / source_dataset_size": double_up(Fraction(b, n))})
    if b == n:
        if relation is Neighbouring.ADD_OR_REMOVE:
            raise EventError(event, "a batch of all records cannot be drawn once one is removed")
        return steps_of(event.event, relation)
    inner = _replaced(event, relation)
    if rate == 0.0 or not inner:
        return []
    if relation is Neighbouring.ADD_OR_REMOVE:
        # A batch with the record is one of the others', with one of them replaced by the record.
        # A larger data set has a smaller share.
        return [(_single(inner, relation).subsampled(rate), 1)]
    (step, _), *_ = inner
    if relation is Neighbouring.REPLACE_ONE and _is_one_gaussian(inner):
        return [(_of_clip(step).batches(b, n), 1)]
    return [(_curve_of(tuple(inner), relation, rate), 1)]


@_steps.register(dp_event.SampledWithReplacementDpEvent)
def _sampled_with_replacement(event: Any, relation: Neighbouring) -> list[Step]:
    n = positive_count(source_dataset_size=event.source_dataset_size)
    b = count(sample_size=event.sample_size)
    inner = _replaced(event, relation)
    if b == 0 or not inner:
        return []
    if not _is_one_gaussian(inner):
        raise EventError(event, "a sample with replacement needs Gaussian noise")
    (step, _), *_ = inner
    if relation is Neighbouring.ADD_OR_REMOVE:
        if n == 1:
            raise EventError(event, "no sample can be drawn once the only record is removed")
        # Each place of the batch has the record with probability 1 / n, in place of another one.
        # As seen from a batch of the others, the sum moves by at most 2 C for each such place.
        return [(_single(inner, relation).subsampled(double_up(Fraction(1, n))).group(b), 1)]
    if b > n:
        raise EventError(event, "a sample of more records than there are needs ADD_OR_REMOVE_ONE")
    batches: list[Step] = [(_of_clip(step).batches(b, n, replacement=True), 1)]
    return batches if relation is Neighbouring.REPLACE_ONE else _under(relation, batches)


@_steps.register(dp_event.TruncatedSubsampledGaussianDpEvent)
def _truncated(event: Any, relation: Neighbouring) -> list[Step]:
    n, most = (
        count(dataset_size=event.dataset_size),
        count(truncated_batch_size=event.truncated_batch_size),
    )
    q = probability(sampling_probability=event.sampling_probability)
    noise = dp_event.GaussianDpEvent(event.noise_multiplier)
    if n == 0 or most == 0 or q == 0.0:
        return []
    poisson = steps_of(dp_event.PoissonSampledDpEvent(q, noise), relation)
    if most >= n or event.noise_multiplier == 0:
        # without noise, a record that is not in the sample before it is cut changes nothing
        return poisson
    if q == 1.0:
        return steps_of(dp_event.SampledWithoutReplacementDpEvent(n, most, noise), relation)
    if relation is Neighbouring.ADD_OR_REMOVE:
        return [(Gaussian(event.noise_multiplier).truncated_poisson(q, most, n), 1)]
    # Where the others alone fill the batch, it is a batch of theirs in which the record, whatever
    # it is, has the place of one with a certain chance: see TruncatedPoisson. That they fill it is
    # shown to the observer.
    fits, full = binomial_tails(n - 1, Fraction(q), most)
    _, (_, over) = binomial_tails(n, Fraction(q), most + 1)
    rate = min(q, double_up(Fraction(over) * most / (n * Fraction(full[0])))) if full[0] else q
    cut = _curve_of(tuple(_gaussian(noise, Neighbouring.REPLACE_ONE)), relation, rate)
    uncut = _single(poisson, relation)
    if full[1] <= 0.5:
        return [(either_within(Bounds(*full), cut, uncut), 1)]
    return [(either_within(Bounds(*fits), uncut, cut), 1)]


@_steps.register(dp_event.RepeatAndSelectDpEvent)
def _repeat_and_select(event: Any, relation: Neighbouring) -> list[Step]:
    repetitions = Repetitions(mean=event.mean, shape=event.shape)
    inner = [step for step in steps_of(event.event, relation) if step[1]]
    if not inner or repetitions.once:
        return inner
    law = _law_of(repetitions)
    if law is not None and all(isinstance(step, Mechanism) for step, _ in inner):
        whole = _composition_of(inner, relation)
        if whole.answer(epsilon=math.inf).bounds.upper < 1:
            return [(whole.best_of(law), 1)]
    best = _selected(tuple(inner), relation, repetitions)
    if best is None:
        raise EventError(event, "of what is repeated, no Renyi divergence is known to be finite")
    return [(best, 1)]


# ------------------------------------------------- events that dp-accounting 0.6 does not have


def _epsilon_delta(event: Any, relation: Neighbouring) -> list[Step]:
    return [(ApproximateDP(event.epsilon, event.delta, relation=relation), 1)]


def _pure(event: Any, relation: Neighbouring) -> list[Step]:
    """Makes a release of which nothing is known but that it is epsilon-DP."""
    return [(ApproximateDP(event.epsilon, relation=relation), 1)]


def _choice(event: Any, relation: Neighbouring) -> list[Step]:
    """Makes an exponential mechanism, which dp-accounting calls epsilon-bounded range."""
    try:
        return [(ExponentialMechanism(event.epsilon, relation=relation), 1)]
    except ParameterError:  # beyond the epsilons that it is composed for
        return _pure(event, relation)


def _discrete_gaussian(event: Any, relation: Neighbouring) -> list[Step]:
    moved = non_negative(sensitivity=event.sensitivity) * _distance(relation)
    sigma = non_negative(sigma=event.sigma)
    if moved == 0:
        return []
    if sigma == 0:
        return _revealed(1.0, relation)
    if event.dimension is not None and positive_count(dimension=event.dimension) == 1:
        # an integer moves by an integer
        whole = math.floor(moved)
        return [(DiscreteGaussian(sigma, whole, relation=relation), 1)] if whole else []
    # concentrated as Gaussian noise: Canonne, Kamath, Steinke 2020, Theorem 4, for each coordinate
    return [(Line(0.0, double_up((Fraction(moved) / Fraction(sigma)) ** 2 / 2)), 1)]


# by name: an older dp-accounting does not have them
_LATER = {
    "EpsilonDeltaDpEvent": _epsilon_delta,
    "ExponentialMechanismDpEvent": _choice,
    "PermuteAndFlipDpEvent": _pure,
    "DiscreteGaussianDpEvent": _discrete_gaussian,
}
for _name, _converter in _LATER.items():
    if hasattr(dp_event, _name):
        _steps.register(getattr(dp_event, _name), _converter)


def _one_release(steps: list[Step]) -> list[Step]:
    """Merges several Gaussian releases into one; returns any other list unchanged."""
    if sum(runs for _, runs in steps) < 2:
        return steps
    gaussians = [(step, runs) for step, runs in steps if isinstance(step, Gaussian)]
    if len(gaussians) < len(steps):
        return steps
    square = sum(
        (runs * (Fraction(g.sensitivity) / Fraction(g.sigma)) ** 2 for g, runs in gaussians),
        Fraction(0),
    )  # guard: count-on-one-sample
    return [(Gaussian(1.0, root_up(square), relation=gaussians[0][0].relation), 1)]


# ------------------------------------------------------------------------------- parts


_NOTHING = ApproximateDP(0.0)


def _mentions(event: Any, kind: type) -> bool:
    """Says whether an event of the type ``kind`` is anywhere in the tree of ``event``."""
    parts = [getattr(event, "event", None), *(getattr(event, "events", None) or ())]
    return isinstance(event, kind) or any(part and _mentions(part, kind) for part in parts)


def _replaced(event: Any, relation: Neighbouring) -> list[Step]:
    """Lists the releases on a sample of known size, for one record in it that is replaced.

    Under every relation one record of such a sample has the place of another one. So the releases
    are asked for ``REPLACE_ONE``, which has special records, too. Of zero-concentrated ones nothing
    is known for another relation than the accountant's.
    """
    if relation is not Neighbouring.REPLACE_ONE and _mentions(event.event, dp_event.ZCDpEvent):
        raise EventError(
            event,
            "in a sample of known size one record is replaced by another, and a ZCDpEvent says "
            "nothing of that under this relation: use REPLACE_ONE",
        )
    inner = steps_of(event.event, Neighbouring.REPLACE_ONE)
    return _one_release([step for step in inner if step[1]])


def _is_one_gaussian(steps: list[Step]) -> bool:
    return len(steps) == 1 and isinstance(steps[0][0], Gaussian) and steps[0][1] == 1


def _of_clip(step: Any) -> Gaussian:
    """Makes the Gaussian whose sensitivity is the norm of a record, of that for a replaced one."""
    return Gaussian(step.sigma, step.sensitivity / 2)


def _single(steps: list[Step], relation: Neighbouring) -> Mechanism:
    """Makes one mechanism, declared for a relation, that dominates the releases ``steps``."""
    (step, runs), *more = steps
    if runs == 1 and not more and isinstance(step, Mechanism):
        if step.relation is relation:
            return step
        if not isinstance(step, (Derived, Either)):  # those have parts, declared for a relation
            return dataclasses.replace(step, relation=relation)
    return _curve_of(tuple(steps), relation)


def _under(relation: Neighbouring, steps: list[Step]) -> list[Step]:
    """Declares each of the releases ``steps`` for another relation, as one mechanism."""
    return [(_single([(step, 1)], relation), runs) for step, runs in steps]


def _distance(relation: Neighbouring) -> float:
    """Returns how far one record moves a sum, in units of the largest norm of its summand."""
    # guard: replaced-record-moves-twice
    return 2.0 if relation is Neighbouring.REPLACE_ONE else 1.0


def _revealed(chance: float, relation: Neighbouring) -> list[Step]:
    """Makes a release that reveals the record with probability ``chance``, and nothing else."""
    return [(ApproximateDP(0.0, chance, relation=relation), 1)]


@functools.lru_cache(maxsize=64)
def _curve_of(steps: tuple[Step, ...], relation: Neighbouring, rate: float = 1.0) -> Mechanism:
    """Makes one mechanism that dominates several releases together.

    With a rate, they are made on a sample without replacement, which has this share of the records.
    """
    return above_composition(_composition_of(list(steps), relation), relation, rate)


def _law_of(repetitions: Repetitions) -> Trials | None:
    """Returns the law of a number of runs; None for a shape that laws do not have."""
    try:
        if math.isinf(repetitions.shape):
            return Poisson(repetitions.mean)
        return NegativeBinomial(repetitions.mean, repetitions.shape)
    except ParameterError:
        return None


@functools.lru_cache(maxsize=64)
def _selected(
    steps: tuple[Step, ...], relation: Neighbouring, repetitions: Repetitions
) -> BestOfMany | None:
    """Bounds the Renyi divergences of the best of a random number of runs of ``steps``.

    Returns:
        The divergences by order, or None if none of one run is known to be finite.
    """
    whole = _composition_of([s for s in steps if isinstance(s[0], Mechanism)], relation)
    known = [(step, runs) for step, runs in steps if not isinstance(step, Mechanism)]

    def of_one(order: float) -> Bounds:
        total = whole.answer(order=order, rtol=1e-3).bounds.upper if whole.runs else 0.0
        for step, runs in known:
            total = add_up(total, mul_up(runs, step(order).upper))
        return Bounds(0.0, total)

    def delta(epsilon: float) -> Bounds:
        return whole.answer(epsilon=epsilon).bounds

    if math.isinf(of_one(best_of_many.ORDERS[0]).upper):
        return None
    return BestOfMany(of_one, repetitions, None if known else delta)
