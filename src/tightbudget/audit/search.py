"""A search for the inputs, and the outputs, that tell most of a function, and a test of them."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tightbudget.audit.asked import AuditQuestion
from tightbudget.audit.inputs import FEWEST, level_of
from tightbudget.audit.many_runs import Counts, best_event, of_event
from tightbudget.audit.rates import runs_needed
from tightbudget.audit.result import Audit
from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import count, plain, positive_count, real_array, refuse
from tightbudget.output_dp.guarantee import Cell

_BINS = 48  # of numbers that are all different
_OFTEN = 0.02  # a number that is so large a part of all is an outcome of its own


class SearchedAudit(NamedTuple):
    """The result of a search.

    Attributes:
        audit: what the runs say that were made after the search.
        pair: the two inputs that told most.
        event: the outcomes that are called those of the first input: outputs, or (low, high) for
            numbers above ``low`` and at most ``high``.
        cells: the output cells whose price was tested; None where the claim is of all outputs.
    """

    audit: Audit
    pair: tuple[Any, Any]
    event: tuple[Any, ...]
    cells: tuple[Cell, ...] | None = None


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
    for name, given in {"function": function, "make_neighbours": make_neighbours}.items():
        if not callable(given):
            raise refuse(name, "be a function", given)
    tries, calls = positive_count(pairs=pairs), positive_count(runs=runs)
    if calls < 4 * FEWEST * tries:
        raise refuse("runs", f"be {4 * FEWEST * tries} or more for {tries} pairs", runs)
    asked, coin = AuditQuestion(delta, claim, level_of(confidence)), count(seed=seed)
    each, last = calls // (4 * tries), calls // 4
    tried = []
    for i in range(tries):
        pair = _pair(make_neighbours(i), i)
        outputs = [[outcome_of(function(data)) for _ in range(each)] for data in pair]
        outcomes = OutputKinds.of([*outputs[0], *outputs[1]])
        p, q = (outcomes.counted(side) for side in outputs)
        event, merit = best_event(asked, p, q, coin)
        tried.append((merit, pair, outcomes, event))
    _, pair, outcomes, event = max(tried, key=lambda one: one[0])
    # guard: audit-tested-on-new-runs
    p, q = (outcomes.counted(outcome_of(function(data)) for _ in range(last)) for data in pair)
    audit = asked.audit("search", [of_event(event, p, q, asked.level)], runs_needed)
    return SearchedAudit(audit, pair, tuple(outcomes.names[i] for i in sorted(event.tolist())))


class Outcome(NamedTuple):
    """An output as it is counted: its cell, and what is looked at."""

    cell: Cell
    seen: Hashable


class OutputKinds(NamedTuple):
    """Kinds of outputs: some that are alone, bins of the other numbers of each cell, and the rest.

    Attributes:
        alone: the place of each output that is a kind of its own.
        bins: of each cell that has numbers, the place of its first bin, and the edges.
        cells: (k - 1,) the cell of each kind but the last one.
        names: (k,) what each kind holds; the last one holds all that was never seen.
    """

    alone: dict[Outcome, int]
    bins: dict[Cell, tuple[int, list[float]]]
    cells: list[Cell]
    names: list[Any]

    @staticmethod
    def of(outputs: list[Outcome]) -> OutputKinds:
        """Makes kinds of outputs so that each has some of those that were seen."""
        often = max(2.0, _OFTEN * len(outputs))
        alone = [
            x for x, n in Counter(outputs).items() if n >= often or not isinstance(x.seen, float)
        ]
        cells, names = [x.cell for x in alone], [x.seen for x in alone]
        numbers: dict[Cell, list[float]] = {}
        for cell, x in outputs:
            if isinstance(x, float):
                numbers.setdefault(cell, []).append(x)
        bins = {}
        for cell, xs in numbers.items():
            xs.sort()
            places = np.linspace(0, len(xs) - 1, _BINS + 1)[1:-1].astype(int)
            edges = sorted({xs[i] for i in places})
            bins[cell] = (len(names), edges)
            names += itertools.pairwise((-np.inf, *edges, np.inf))
            cells += [cell] * (len(edges) + 1)
        return OutputKinds({x: i for i, x in enumerate(alone)}, bins, cells, [*names, "other"])

    def counted(self, outputs: Iterable[Outcome]) -> Counts:
        """Counts the outputs of each kind."""
        found = np.zeros(len(self.names), dtype=np.int64)
        for x in outputs:
            place = self.alone.get(x)
            if place is None and isinstance(x.seen, float) and x.cell in self.bins:
                first, edges = self.bins[x.cell]
                place = first + bisect.bisect_left(edges, x.seen)
            found[-1 if place is None else place] += 1
        return found


def outcome_of(output: Any, cell: Cell = "") -> Outcome:
    """Returns the output as it is counted: a float, or what it is."""
    kept = _hashable(output)
    kind: Any = type(kept)
    try:
        hash(kept)
        # two objects without a hash of their own are never the same output
        alike = kept is None or kind.__hash__ is not object.__hash__
    except TypeError:
        alike = False
    if not alike:
        raise ParameterError(
            "an output must be a number or something hashable, such as a text or a tuple, got "
            f"a {type(output).__name__}"
        )
    return Outcome(cell, kept)


def _hashable(output: Any) -> Any:
    """Numbers as floats, arrays and lists as tuples, mappings as tuples of pairs."""
    if isinstance(output, np.ndarray):
        output = output.tolist()
    if isinstance(output, Mapping):
        return tuple((key, _hashable(x)) for key, x in output.items())
    if isinstance(output, list):
        return tuple(map(_hashable, output))
    number = plain(output)
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        if real_array(number) is not None and abs(number) < 2**53:
            return float(number)
        return repr(number)
    return output


def _pair(pair: Any, i: int) -> tuple[Any, Any]:
    """Two inputs, checked to be two."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise refuse(f"make_neighbours({i})", "be two inputs", pair)
    return pair[0], pair[1]
