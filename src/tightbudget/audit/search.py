"""A search for the inputs, and the outputs, that tell most of a function, and a test of them."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np

from tightbudget.audit.asked import AuditQuestion
from tightbudget.audit.inputs import FEWEST, level_of
from tightbudget.audit.many_runs import best_event, of_event
from tightbudget.audit.rates import runs_needed
from tightbudget.audit.result import Audit
from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import count, plain, positive_count, real_array, refuse

_BINS = 48  # of numbers that are all different
_OFTEN = 0.02  # a number that is so large a part of all is an outcome of its own


class SearchedAudit(NamedTuple):
    """The result of a search.

    Attributes:
        audit: what the runs say that were made after the search.
        pair: the two inputs that told most.
        event: the outcomes that are called those of the first input: outputs, or (low, high) for
            numbers above ``low`` and at most ``high``.
    """

    audit: Audit
    pair: tuple[Any, Any]
    event: tuple[Any, ...]


def search(
    function: Callable[[Any], Any],
    make_neighbours: Callable[[int], tuple[Any, Any]],
    *,
    claim: Any,
    delta: float,
    runs: int = 8_000,
    pairs: int = 8,
    confidence: float = 0.95,
    seed: int = 0,
) -> SearchedAudit:
    """Audits a function on neighbouring inputs that it chooses, by outcomes that it chooses.

    Half of the runs choose: they try each pair of inputs, and sets of outcomes by how much more
    often the first input gives them. The other half test the pair and the set that said most, with
    new outputs, as :func:`many_runs` does.

    Guarantee: a function that keeps ``claim`` for all pairs of inputs is refuted with a probability
    of at most 1 - confidence, and each of the two lower bounds is wrong with at most this
    probability. That holds if the calls of ``function`` are independent.

    Args:
        function: the mechanism; it is called with an input, and returns a number or anything
            hashable, such as a text or a tuple.
        make_neighbours: from 0, 1, ..., pairs - 1 to two inputs that the claim calls neighbours.
        claim: a mechanism or composition, an (epsilon, delta), or None.
        delta: the delta of the lower bound of epsilon, in [0, 1].
        runs: how often ``function`` is called in all, >= 40 times the number of pairs.
        pairs: how many pairs of inputs are tried, >= 1.
        confidence: in (0, 1).
        seed: decides between outcomes that look alike.

    Raises:
        ParameterError: an argument is refused, or an output is neither a number nor hashable.
    """
    tries, calls = positive_count(pairs=pairs), positive_count(runs=runs)
    if calls < 4 * FEWEST * tries:
        raise refuse("runs", f"be {4 * FEWEST * tries} or more for {tries} pairs", runs)
    asked, coin = AuditQuestion(delta, claim, level_of(confidence)), count(seed=seed)
    each, last = calls // (4 * tries), calls // 4
    tried = []
    for i in range(tries):
        pair = _pair(make_neighbours(i), i)
        outputs = [[_output(function(data)) for _ in range(each)] for data in pair]
        outcomes = _Outcomes.of([*outputs[0], *outputs[1]])
        p, q = (outcomes.counted(side) for side in outputs)
        event, merit = best_event(asked, p, q, coin)
        tried.append((merit, pair, outcomes, event))
    _, pair, outcomes, event = max(tried, key=lambda one: one[0])
    # guard: audit-tested-on-new-runs
    p, q = (outcomes.counted(_output(function(data)) for _ in range(last)) for data in pair)
    audit = asked.audit("search", [of_event(event, p, q, asked.level)], runs_needed)
    return SearchedAudit(audit, pair, tuple(outcomes.names()[i] for i in sorted(event.tolist())))


class _Outcomes(NamedTuple):
    """Kinds of outputs: some that are alone, bins of other numbers, and the rest."""

    alone: dict[Hashable, int]
    edges: tuple[float, ...]

    @staticmethod
    def of(outputs: list[Hashable]) -> _Outcomes:
        """Makes kinds of outputs so that each has some of those that were seen."""
        seen = Counter(outputs)
        numbers = sorted(x for x in outputs if isinstance(x, float))
        often = max(2.0, _OFTEN * len(outputs))
        alone = [x for x, n in seen.items() if n >= often or not isinstance(x, float)]
        edges: tuple[float, ...] = ()
        if numbers:
            places = np.linspace(0, len(numbers) - 1, _BINS + 1)[1:-1].astype(int)
            edges = tuple(sorted({numbers[i] for i in places}))
        return _Outcomes({x: i for i, x in enumerate(alone)}, edges)

    def names(self) -> list[Any]:
        """Lists what each kind holds; the last one holds all that was never seen."""
        ends = (-np.inf, *self.edges, np.inf)
        return [*self.alone, *itertools.pairwise(ends), "other"]

    def counted(self, outputs: Iterable[Hashable]) -> Any:
        """Counts the outputs of each kind."""
        first, last = len(self.alone), len(self.alone) + len(self.edges) + 1
        found = np.zeros(last + 1, dtype=np.int64)
        for x in outputs:
            place = self.alone.get(x)
            if place is None and isinstance(x, float):
                place = first + bisect.bisect_left(self.edges, x)
            found[last if place is None else place] += 1
        return found


def _output(output: Any) -> Hashable:
    """The output as a float, or as it is."""
    if isinstance(output, np.ndarray):
        output = output.item() if output.ndim == 0 else tuple(output.ravel().tolist())
    number = plain(output)
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        if real_array(number) is not None and abs(number) < 2**53:
            return float(number)
        return repr(number)
    try:
        hash(output)
    except TypeError:
        raise ParameterError(
            "function must return a number or something hashable, such as a text or a tuple, got "
            f"a {type(output).__name__}"
        ) from None
    kept: Hashable = output
    return kept


def _pair(pair: Any, i: int) -> tuple[Any, Any]:
    """Two inputs, checked to be two."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise refuse(f"make_neighbours({i})", "be two inputs", pair)
    return pair[0], pair[1]
