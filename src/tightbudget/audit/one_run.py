"""Audits of one run: guesses about canaries that are in the data or not, by fair coins."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special as sp

from tightbudget.audit.asked import Attack, AuditQuestion
from tightbudget.audit.claims import ClaimLines, gaussian_like
from tightbudget.audit.coins import halved, ranked
from tightbudget.audit.guessing import Guessed
from tightbudget.audit.inputs import Labels, guesses_of, labels_of, level_of, scores_of
from tightbudget.audit.power import least_shown
from tightbudget.audit.result import AttackPoint, Audit
from tightbudget.errors import ParameterError
from tightbudget.numerics.bounds import Estimate
from tightbudget.numerics.validate import probability, refuse

Shares = Sequence[tuple[float, float]]

SHARES: Shares = ((1 / 6, 1 / 6),)  # where there is no claim to be refuted
_FEWEST = 10  # guesses on each side


def one_run(
    scores: Any,
    included: Any,
    *,
    delta: float,
    claim: Any = None,
    confidence: float = 0.95,
    shares: Shares | None = None,
    held_out: bool = False,
    seed: int = 0,
) -> Audit:
    """Audits one run by the scores of canaries, each of which a fair coin has put in or left out.

    The canaries with the highest scores are guessed to be in, those with the lowest scores to be
    out, and the others are left alone. How many are guessed must not depend on the outputs: by
    default it is what would show a run with half the noise of the claim best, at most a sixth of
    them on each side.

    Guarantee: a run that keeps ``claim`` is refuted with a probability of at most 1 - confidence,
    and each of the two lower bounds is wrong with at most this probability; rounding is included.
    That holds if each canary was included by its own fair coin, if ``claim`` is for data sets that
    differ in one canary, and if the scores were computed without the labels.
    Source: Steinke, Nasr, Jagielski 2023; Mahloujifar, Melis, Chaudhuri 2024; see
    ``tightbudget.audit.guessing`` for the proofs.

    Args:
        scores: (m,) numbers, higher for canaries that look included; equal ones are put in order
            by a coin, which ``seed`` decides.
        included: (m,) 1 for a canary that was in, and 0 for one that was out.
        delta: the delta of the lower bound of epsilon, in [0, 1].
        claim: what is tested: a mechanism or composition, against its whole trade-off curve, or an
            (epsilon, delta); None tests nothing and gives the lower bounds alone.
        confidence: in (0, 1).
        shares: pairs of numbers in [0, 1] whose sum is at most 1: which parts of the canaries are
            guessed to be in and to be out; None for one pair that follows from the claim and from
            how many canaries are tested. Of several pairs the best counts, and each is tested at
            a level of (1 - confidence) / len(shares).
        held_out: True chooses one of the pairs with half of the canaries, and tests it with the
            others, at the whole level. All pairs must guess equally many canaries, since the
            outputs may decide which pair is chosen.
        seed: decides the coins.

    Raises:
        ParameterError: an argument is refused.
    """
    values = scores_of(scores)
    labels = labels_of(included, values.size)
    asked = AuditQuestion(delta, claim, level_of(confidence))
    tested = values.size - values.size // 2 if held_out else values.size
    pairs = _shares(default_shares(asked.lines, tested) if shares is None else shares)
    order = ranked(values, seed)  # guard: audit-ties-by-a-coin
    if held_out:
        first = halved(values.size, seed)
        guesses = {sum(_counts(pair, tested)) for pair in pairs}
        # guard: audit-as-many-guesses
        if len(guesses) > 1:
            raise ParameterError(
                "shares must guess equally many canaries with held_out=True, since the outputs may "
                f"decide which pair is chosen, got {', '.join(map(str, sorted(guesses)))}"
            )
        chosen = [_by_shares(order[first[order]], labels, pair, asked.level) for pair in pairs]
        pairs, order = [pairs[asked.best(chosen)]], order[~first[order]]
    attacks = [_by_shares(order, labels, pair, asked.level) for pair in pairs]
    return asked.audit("one run", attacks, canaries_needed)


def one_run_of_guesses(
    guesses: Any,
    included: Any,
    *,
    delta: float,
    claim: Any = None,
    confidence: float = 0.95,
) -> Audit:
    """Audits one run by guesses about canaries, each of which a fair coin has put in or left out.

    Guarantee: as :func:`one_run`, if the number of guesses was fixed beforehand, and if they were
    made without the labels.

    Args:
        guesses: (m,) 1 for a canary that is guessed to be in, 0 for one that is guessed to be out,
            and None for one of which nothing is guessed.
        included: (m,) 1 for a canary that was in, and 0 for one that was out.
        delta: the delta of the lower bound of epsilon, in [0, 1].
        claim: a mechanism or composition, an (epsilon, delta), or None.
        confidence: in (0, 1).

    Raises:
        ParameterError: an argument is refused.
    """
    made = guesses_of(guesses)
    labels = labels_of(included, made.size)
    asked = AuditQuestion(delta, claim, level_of(confidence))
    attack = _attack(made == 1, made == 0, labels, asked.level)
    return asked.audit("one run", [attack], canaries_needed)


def _by_shares(order: Any, labels: Labels, pair: tuple[float, float], level: float) -> Attack:
    """The attack that guesses the first canaries in an order to be in, and the last to be out."""
    m, used = order.size, labels[order]
    ins, outs = _counts(pair, m)
    place = np.arange(m)
    return _attack(place < ins, place >= m - outs, used, level)


def _counts(pair: tuple[float, float], m: int) -> tuple[int, int]:
    """Counts those of m canaries that are guessed to be in, and to be out: one at least."""
    ins, outs = int(pair[0] * m), int(pair[1] * m)
    return (ins, outs) if ins + outs else (1, 0)


def _attack(guessed_in: Labels, guessed_out: Labels, labels: Labels, level: float) -> Attack:
    """The attack on canaries with these labels that guesses some of them to be in, or out."""
    right = int((guessed_in & labels).sum() + (guessed_out & ~labels).sum())
    guesses = int(guessed_in.sum() + guessed_out.sum())
    ins = int(labels.sum())
    points = tuple(
        AttackPoint.of(
            int((called & ~labels).sum()), labels.size - ins,
            int((~called & labels).sum()), ins, level,
        )
        for called in (guessed_in, ~guessed_out)
    )  # fmt: skip
    seen = Guessed(labels.size, guesses, right)
    return Attack(seen, labels.size, guesses, right, tuple(dict.fromkeys(points)))


def _shares(shares: Any) -> list[tuple[float, float]]:
    """The pairs of shares, checked."""
    must = "be a list of pairs, such as [(0.1, 0.1)]: the parts guessed to be in and out"
    try:
        pairs = [(first, second) for first, second in shares]
    except (TypeError, ValueError):
        raise refuse("shares", must, shares) from None
    if not pairs:
        raise refuse("shares", must, shares)
    found = []
    for i, (first, second) in enumerate(pairs):
        ins = probability(**{f"shares[{i}][0]": first})
        outs = probability(**{f"shares[{i}][1]": second})
        if ins + outs == 0 or ins + outs > 1:
            raise ParameterError(f"shares[{i}] must have a sum in (0, 1], got {ins!r} and {outs!r}")
        found.append((ins, outs))
    return found


@functools.lru_cache(maxsize=1024)
def canaries_needed(lines: ClaimLines, level: float) -> Estimate:
    """Estimates how many canaries show a run with half the noise, with a power of about a half.

    The run is a Gaussian mechanism on independent canaries whose mu is twice that of the claim.
    """
    mu = gaussian_like(lines)

    def shows(m: int) -> bool:
        return any(_expected(m, r, 2.0 * mu).refutes(lines, level) for r in _numbers(m))

    return least_shown(shows, 12, mu, "canaries")


@functools.lru_cache(maxsize=1024)
def default_shares(lines: ClaimLines | None, m: int) -> Shares:
    """Returns the parts of m canaries to guess: those that show half the noise of a claim best.

    No output is looked at, so that the number of guesses is fixed beforehand. All guesses of a run
    that keeps its claim may be right together, rarely: so many guesses of medium quality show no
    more than few, and of many canaries fewer and better ones are guessed. With a sixth on each
    side, 16,000 canaries of a training with half the noise showed less than 1,000.
    """
    if lines is None:
        return SHARES
    mu = 2.0 * gaussian_like(lines)
    best = min(_numbers(m), key=lambda r: _expected(m, r, mu, less=1.0).p_value(lines))
    share = (best + 0.5) / m  # rounded down to ``best`` guesses
    return ((share, share),)


def _numbers(m: int) -> list[int]:
    """Numbers of guesses on each side: a sixth of the canaries, and halves of halves of it."""
    found = [max(1, m // 6)]
    while found[-1] >= 2 * _FEWEST:
        found.append(found[-1] // 2)
    return found


def _expected(m: int, each: int, mu: float, less: float = 0.0) -> Guessed:
    """Counts of a run on independent canaries with Gaussian scores.

    Args:
        m: the number of canaries.
        each: the number of guesses on each side.
        mu: the distance of the two kinds of scores, in their standard deviation.
        less: how many standard deviations fewer guesses are right than the mean.
    """
    r, rate = 2 * each, _accuracy(mu, each / m)
    right = r * rate - less * math.sqrt(r * rate * (1.0 - rate))
    return Guessed(m, r, max(0, int(right)))


def _accuracy(mu: float, share: float) -> float:
    """The share of right guesses about the most extreme of Gaussian scores, on both sides."""
    # by symmetry: of scores above t, t so that they are that share of all
    low, high = -10.0, mu + 10.0
    for _ in range(60):
        t = 0.5 * (low + high)
        above = 0.5 * float(sp.ndtr(-t) + sp.ndtr(mu - t))
        low, high = (t, high) if above > share else (low, t)
    ins = float(sp.ndtr(mu - low))
    return ins / (ins + float(sp.ndtr(-low)))
