"""A filter for mechanisms that are declared: all that may still be chosen stays below one delta."""

from __future__ import annotations

from collections.abc import Mapping

from tightbudget.errors import CalibrationError, ParameterError, PrecisionError
from tightbudget.mechanisms.composition import Composable, Composition, compose
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.validate import non_negative, open_probability, refuse
from tightbudget.output_dp.guarantee import Cell
from tightbudget.workflows.prices import PricedWorkflow
from tightbudget.workflows.workflow import Workflow

# Some three seconds for the deltas of so many states, and a minute for six inductions over them.
_MOST_STATES = 1_000
_PASSES = 6
# How closely a state's own delta is asked for. Affects which states there are, never truth.
_RTOL = 0.01

Counts = tuple[int, ...]


def residue_filter(
    items: Mapping[str, Composable], *, epsilon: float, delta: float
) -> PricedWorkflow:
    """Declares as many runs of some mechanisms, freely chosen, as one epsilon and delta cover.

    States are tuples of how often each item has run, in the order of ``items``; any item may come
    next where the state after it is one of them. A :class:`~tightbudget.release.WorkflowRun` of it
    is the filter: it admits a mechanism as long as whatever may follow is covered. The states are
    those whose own composition has a delta below a threshold, which is lowered until the choice
    among all of them is covered.

    Guarantee: whatever the analyst chooses, and whenever they stop, all that they have seen is
    (epsilon, delta)-DP. ``result.delta`` bounds the smallest delta of which that is true.
    Source: ours, by :meth:`Workflow.delta`; filters that look ahead are due to arXiv 2602.15815.

    Args:
        items: for each name a mechanism or composition.
        epsilon: of all together, >= 0, nats.
        delta: of all together, in (0, 1).

    Raises:
        ParameterError: an argument is refused, or there would be more than 1,000 states.
        CalibrationError: no item can run even once.
    """
    if not isinstance(items, Mapping):
        raise refuse("items", "map names to mechanisms", items)
    if not items:
        raise ParameterError("items must have at least one mechanism, got none")
    for name, item in items.items():
        if not isinstance(item, Composable):
            raise refuse(f"items[{name!r}]", "be a mechanism or a composition", item)
    epsilon, delta = non_negative(epsilon=epsilon), open_probability(delta=delta)
    whole = [compose([item]) for item in items.values()]
    own = _own_deltas(whole, epsilon, delta)
    levels = sorted(set(own.values()))
    # of the levels, so many are covered, and not so many
    low, high = sum(level <= own[_none(whole)] for level in levels), len(levels) + 1
    most, passes, best = len(levels), 0, None
    while high - low > 1 and (best is None or passes < _PASSES):
        workflow = _up_to(whole, own, levels[most - 1])
        found = _covered(workflow, epsilon)
        passes += 1
        covered = found.upper <= delta  # guard: residue-covered
        if covered:
            best, low = (workflow, found), most
        else:
            high = most
        # the choice among states costs about as many times the threshold as it did here
        near = levels[most - 1] * delta / max(found.upper, levels[most - 1])
        most = min(max(sum(level <= near for level in levels), low + 1), high - 1)
    if best is None:
        raise CalibrationError(f"no item can run once at epsilon = {epsilon:g}, delta = {delta:g}")
    workflow, found = best
    prices: dict[Cell, float] = dict.fromkeys(workflow.ends, epsilon)
    return PricedWorkflow(workflow, prices, found, delta)


def _covered(workflow: Workflow, epsilon: float) -> Bounds:
    try:
        return workflow.delta(epsilon)
    except PrecisionError as error:  # wider bounds are true all the same
        return Bounds(*error.bounds)


def _none(whole: list[Composition]) -> Counts:
    """The state at which nothing has run."""
    return (0,) * len(whole)


def _own_deltas(whole: list[Composition], epsilon: float, delta: float) -> dict[Counts, float]:
    """Upper bounds of the deltas of all states that are covered by themselves.

    None is below that of a state before it.
    """
    own, tried, ahead = {_none(whole): 0.0}, set(), [_none(whole)]
    for used in ahead:
        for i in range(len(whole)):
            after = _more(used, i, 1)
            before = [_more(after, j, -1) for j, count in enumerate(after) if count]
            if after in tried or any(state not in own for state in before):
                continue
            tried.add(after)
            runs = compose(one * count for one, count in zip(whole, after, strict=True))
            bound = runs.answer(epsilon=epsilon, rtol=_RTOL).bounds.upper
            bound = max(bound, *(own[state] for state in before))
            if bound <= delta:
                own[after] = bound
                ahead.append(after)
            if len(own) > _MOST_STATES:
                raise refuse("items", f"have at most {_MOST_STATES:,} states", len(own))
    return own


def _more(used: Counts, i: int, runs: int) -> Counts:
    """The state after so many more runs of item ``i``."""
    return (*used[:i], used[i] + runs, *used[i + 1 :])


def _up_to(whole: list[Composition], own: Mapping[Counts, float], threshold: float) -> Workflow:
    """The workflow of all states whose own delta is at most the threshold."""
    states = [state for state, bound in own.items() if bound <= threshold]
    kept = set(states)
    moves: dict[Cell, list[tuple[Composable, Cell]]] = {
        state: [
            (one, _more(state, i, 1)) for i, one in enumerate(whole) if _more(state, i, 1) in kept
        ]
        for state in states
    }
    return Workflow(moves)
