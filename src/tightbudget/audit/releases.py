"""Audits of mechanisms on data: many unpaid runs on two inputs, against the prices of the cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from tightbudget.audit.asked import AuditQuestion
from tightbudget.audit.inputs import FEWEST, level_of
from tightbudget.audit.many_runs import Counts, best_event, of_event
from tightbudget.audit.rates import runs_needed
from tightbudget.audit.search import Outcome, OutputKinds, SearchedAudit, outcome_of
from tightbudget.errors import ParameterError
from tightbudget.numerics.rounding import double_up
from tightbudget.numerics.validate import count, positive_count, refuse
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.noise.noise import Noise, noise_or_default
from tightbudget.release.release import Release


def release(
    mechanism: MechanismOnData[Any, Any] | Callable[[Any], Release[Any]],
    data: Any,
    neighbour: Any,
    *,
    claim: Any = None,
    delta: float | None = None,
    look: Callable[[Any], Any] | None = None,
    runs: int = 8_000,
    confidence: float = 0.95,
    noise: Noise | None = None,
    seed: int = 0,
) -> SearchedAudit:
    """Audits a mechanism on data, or a question to a table, by unpaid runs on two neighbours.

    NEVER on private data: nothing is charged, and the result tells of the runs.

    Half of the runs choose outputs that the one input gives more often than the other, and the
    others test them, as :func:`search` does. The price of each output cell is tested: outputs of
    some cells must keep the highest of their prices, in favour of either input.

    Guarantee: as :func:`search`. The runs are as independent as the noise is.

    Args:
        mechanism: a mechanism of :mod:`tightbudget.release`, a question of
            :mod:`tightbudget.tables`, or a function from data to a :class:`Release`, such as a
            conversation that pays from a budget of its own; it needs a claim.
        data: made-up data, or a table of them.
        neighbour: the same but for one record, or for one unit of a table.
        claim: what is tested: an OutputDP, a mechanism or composition of the accountant, or an
            (epsilon, delta); the guarantee of ``mechanism`` if None.
        delta: the delta of the lower bound of epsilon, in [0, 1]; that of the claim if None, or 0
            if the claim is a mechanism of the accountant.
        look: from a released value to a number or anything hashable; None looks at the value. In a
            vector of numbers no two outputs are alike: look at the number that differs most.
        runs: how often ``mechanism`` runs in all, >= 40.
        confidence: in (0, 1).
        noise: the source of noise; OpenDP's samplers if None.
        seed: decides between outcomes that look alike.

    Raises:
        ParameterError: an argument is refused, or what is looked at is not hashable.
        ExtraError: no noise is given, and OpenDP is not installed.
    """
    calls, level = positive_count(runs=runs), level_of(confidence)
    if calls < 4 * FEWEST:
        raise refuse("runs", f"be {4 * FEWEST} or more", runs)
    coin, each = count(seed=seed), calls // 4
    if claim is None:
        if not isinstance(mechanism, MechanismOnData):
            raise ParameterError("claim must be given for a function, which has no guarantee")
        claim = mechanism.guarantee
    asked = _Claimed(claim, delta, level)
    run = _runs_of(mechanism, look, noise)
    pair = data, neighbour
    first = [[run(side) for _ in range(each)] for side in pair]
    outcomes = OutputKinds.of([*first[0], *first[1]])
    p, q = (outcomes.counted(side) for side in first)
    tried = [
        (*best_event(question, *sides, coin, among), way, question, among)
        for question, among in asked.of(outcomes)
        # all outcomes: the others accuse the other input
        for way, sides in [(1, (p, q)), (-1, (q, p))][: 1 if among is None else 2]
    ]
    event, _, way, question, among = max(tried, key=lambda one: one[1])
    pair = pair[::way]
    # guard: audit-release-tested-on-new-runs
    p, q = (outcomes.counted(run(side) for _ in range(each)) for side in pair)
    audit = question.audit("search", [of_event(event, p, q, question.level)], runs_needed)
    names = tuple(outcomes.names[i] for i in sorted(event.tolist()))
    within = {outcomes.cells[i]: None for i in ([] if among is None else among.tolist())}
    return SearchedAudit(audit, pair, names, None if among is None else tuple(within))


class _Claimed:
    """A claim as questions, each of all outputs or of those in cells up to a price."""

    def __init__(self, claim: Any, delta: Any, level: float) -> None:
        self._claim, self._level = claim, level
        if delta is None:
            of_claim = claim.delta if isinstance(claim, OutputDP) else 0.0
            delta = claim[1] if isinstance(claim, (tuple, list)) and len(claim) == 2 else of_claim
        self._delta = max(0.0, double_up(delta)) if isinstance(delta, Fraction) else delta
        # a claim that is none is refused before the first run
        whole = (claim.sup, claim.delta) if isinstance(claim, OutputDP) else claim
        self._whole = AuditQuestion(self._delta, whole, level)

    def of(self, outcomes: OutputKinds) -> Iterator[tuple[AuditQuestion, Counts | None]]:
        """Lists the questions, each with the outcomes that it is of; None for all."""
        yield self._whole, None
        claim = self._claim
        if not isinstance(claim, OutputDP):
            return
        prices = np.array([claim.price(cell) for cell in outcomes.cells], dtype=object)
        for price in sorted(set(prices.tolist()) - {claim.sup}):
            # guard: audit-cells-one-way
            asked = AuditQuestion(self._delta, (price, claim.delta), self._level, one_way=True)
            yield asked, np.flatnonzero(prices <= price)


def _runs_of(mechanism: Any, look: Any, noise: Noise | None) -> Callable[[Any], Outcome]:
    """Returns a function that runs the mechanism once, unpaid, and looks at its output."""
    if look is not None and not callable(look):
        raise refuse("look", "be a function", look)
    looked = look or (lambda value: value)
    if isinstance(mechanism, MechanismOnData):
        source = noise_or_default(noise)

        def unpaid(data: Any) -> Outcome:
            value, cell = mechanism.unpaid_answer(data, source)
            return outcome_of(looked(value), cell)

        return unpaid
    if not callable(mechanism):
        raise refuse("mechanism", "be a mechanism on data, or a function", mechanism)
    if noise is not None:
        raise ParameterError("noise must be None for a function, which draws its own")

    def called(data: Any) -> Outcome:
        answer = mechanism(data)
        if not isinstance(answer, Release):
            raise refuse("mechanism(data)", "be a Release", type(answer).__name__)
        return outcome_of(looked(answer.value), answer.cell)

    return called
