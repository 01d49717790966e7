"""Audits of many independent runs: scores of each, or counts of measured outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tightbudget.audit.asked import Attack, AuditQuestion
from tightbudget.audit.coins import halved, ranked, shuffled
from tightbudget.audit.inputs import Labels, counts_of, labels_of, level_of, scores_of
from tightbudget.audit.rates import Rates, attack_of, runs_needed
from tightbudget.audit.result import Audit
from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import count, listed, probability

# The false-positive rates at which a threshold is tried; the first says most of a large epsilon.
RATES = (0.0, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7)
Counts = NDArray[np.int64]

_EVENTS = 48  # sets of outcomes that are tried


def many_runs(
    scores: Any,
    included: Any,
    *,
    delta: float,
    claim: Any = None,
    confidence: float = 0.95,
    rates: Sequence[float] = RATES,
    held_out: bool = True,
    seed: int = 0,
) -> Audit:
    """Audits a program by many independent runs, with a record or without it, and a score of each.

    A threshold on the scores calls runs with the record. It is the score of a run without the
    record that has so many others above it that a wanted false-positive rate is met; so the upper
    bound of this rate by Clopper and Pearson holds for it, and the false negatives are counted
    beside it.

    Guarantee: a program that keeps ``claim`` is refuted with a probability of at most 1 -
    confidence, and each of the two lower bounds is wrong with at most this probability; rounding is
    included. That holds if the runs are independent, if ``claim`` is for the two data sets, and if
    ``included`` was not decided by the runs.
    Source: Clopper, Pearson 1934; Jagielski, Ullman, Oprea 2020.

    Args:
        scores: (n,) numbers, one a run, higher for runs that look as if the record was there.
        included: (n,) 1 for a run with the record, and 0 for one without it.
        delta: the delta of the lower bound of epsilon, in [0, 1].
        claim: what is tested: a mechanism or composition, against its whole trade-off curve, or an
            (epsilon, delta); None tests nothing and gives the lower bounds alone.
        confidence: in (0, 1).
        rates: (k,) false-positive rates in [0, 1) that are tried.
        held_out: True chooses one of the rates with half of the runs, and tests it with the others.
            False tests each at a level of (1 - confidence) / k, with all runs.
        seed: decides the coins, between equal scores and which half of the runs chooses.

    Raises:
        ParameterError: an argument is refused.
    """
    values = scores_of(scores)
    labels = labels_of(included, values.size)
    tried = _rates(rates)
    asked = AuditQuestion(delta, claim, level_of(confidence))
    order = ranked(values, seed)
    if held_out and len(tried) > 1:
        first = halved(values.size, seed)
        for half, what in ((first, "chooses"), (~first, "tests")):
            if labels[half].all() or not labels[half].any():
                raise ParameterError(
                    f"included must have 0 and 1 in the half that {what}, too: give more runs, "
                    "or held_out=False"
                )
        chosen = [_at_rate(order[first[order]], labels, rate, asked.level) for rate in tried]
        tried, order = [tried[asked.best(chosen)]], order[~first[order]]
    attacks = [_at_rate(order, labels, rate, asked.level) for rate in tried]
    return asked.audit("many runs", attacks, runs_needed)


def histograms(
    p_counts: Any,
    q_counts: Any,
    *,
    delta: float,
    claim: Any = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Audit:
    """Audits a process by how often each outcome was measured, from each of two inputs.

    Half of the measurements, which coins choose, rank the outcomes by how much more often the first
    input gives them, and choose how many of the first ones are called outcomes of it; the others
    count the errors. So it says something of the process itself, beside what
    :class:`~tightbudget.HistogramPair` certifies of the two histograms. There are lower bounds
    alone: outcomes that were never seen may tell the inputs apart.

    Guarantee: as :func:`many_runs`, if the measurements are independent.

    Args:
        p_counts: (k,) integers >= 0, how often each outcome was measured from the one input.
        q_counts: (k,) integers >= 0, the same from the other input.
        delta: the delta of the lower bound of epsilon, in [0, 1].
        claim: a mechanism or composition, an (epsilon, delta), or None.
        confidence: in (0, 1).
        seed: decides which half chooses.

    Raises:
        ParameterError: an argument is refused.
    """
    p, q = counts_of(p_counts=p_counts), counts_of(q_counts=q_counts)
    if p.size != q.size:
        raise ParameterError(
            f"p_counts and q_counts must have the same outcomes, got {p.size} and {q.size}"
        )
    asked, seed = AuditQuestion(delta, claim, level_of(confidence)), count(seed=seed)
    (p_first, p_last), (q_first, q_last) = _split(p, 2 * seed), _split(q, 2 * seed + 1)
    event, _ = best_event(asked, p_first, q_first, seed)
    return asked.audit("histograms", [of_event(event, p_last, q_last, asked.level)], runs_needed)


def best_event(
    asked: AuditQuestion, p: Counts, q: Counts, seed: int, among: Counts | None = None
) -> tuple[Counts, float]:
    """Chooses the outcomes that tell two inputs apart, by how often each was measured.

    Args:
        asked: says what counts.
        p: (k,) counts from the one input.
        q: (k,) counts from the other input.
        seed: decides between outcomes that look alike.
        among: (n,) the outcomes that may be called so; None for all, of which some are left out.

    Returns:
        The outcomes to call those of the first input, and the merit that they have here.
    """
    # half a count more: an outcome that was never seen is no proof
    places = np.arange(p.size) if among is None else among
    ratio = (p[places] + 0.5) / (q[places] + 0.5)
    order = places[np.lexsort((shuffled(places.size, seed), -ratio))]
    ends = _ends(p[order] + q[order])
    if among is not None:
        ends.append(among.size)
    chosen = [of_event(order[:end], p, q, asked.level) for end in ends]
    best = asked.best(chosen)
    return order[: ends[best]], asked.merit(chosen[best].seen)


def _at_rate(order: Any, labels: Labels, rate: float, level: float) -> Attack:
    """The attack by the threshold that has a false-positive rate of at most ``rate`` in a half."""
    called = labels[order]
    negatives, positives = int((~called).sum()), int(called.sum())
    k = min(int(rate * negatives), negatives - 1)
    # the place of the (k + 1)-th run without the record: those before it are called with it
    place = int(np.flatnonzero(~called)[k])
    return attack_of(Rates(k, negatives, int(called[place:].sum()), positives), level)


def _rates(rates: Any) -> list[float]:
    """The false-positive rates, checked."""
    listed(rates=rates)
    found = [probability(**{f"rates[{i}]": rate}) for i, rate in enumerate(rates)]
    if not found:
        raise ParameterError("rates must have a false-positive rate, got none")
    return found


def _split(counts: Counts, seed: int) -> tuple[Counts, Counts]:
    """Splits counted outcomes into two halves, as coins decide for each of them."""
    outcomes = np.repeat(np.arange(counts.size), counts)
    first = np.bincount(outcomes[halved(outcomes.size, seed)], minlength=counts.size)
    return first, counts - first


def _ends(counts: Counts) -> list[int]:
    """Lists numbers of first outcomes that are tried: few, all but few, and evenly between."""
    held = np.cumsum(counts)
    total = int(held[-1])
    few, part = np.geomspace(1.0, total / 2, _EVENTS // 3), _EVENTS // 3
    shares = np.concatenate([few, total - few, total * np.arange(1, part) / part])
    ends = {int(i) + 1 for i in np.searchsorted(held, shares)}
    return sorted(end for end in ends if end < counts.size) or [1]


def of_event(event: Any, p: Counts, q: Counts, level: float) -> Attack:
    """The attack that calls these outcomes those of the first input."""
    found, accused = int(p[event].sum()), int(q[event].sum())
    n, m = int(p.sum()), int(q.sum())
    return attack_of(Rates(accused, m, n - found, n), level)
