"""Prices for a workflow: chosen so that one delta covers every way of choosing and stopping."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tightbudget import notebook, tabular
from tightbudget.drawing import draw_graph
from tightbudget.errors import CalibrationError, ParameterError
from tightbudget.mechanisms.composition import compose
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.validate import open_probability, positive, refuse
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.workflows.graph_losses import GraphLosses
from tightbudget.workflows.induction import WorkflowInduction
from tightbudget.workflows.one_price import own_price
from tightbudget.workflows.workflow import Workflow, listed

_EARLY = 0.2  # weight of a state with moves; an end has 1
_ROUGH = 16.0  # how much coarser, in variance, the lattice is on which prices are searched
_GAP = 1e-3  # about the relative gap between the bounds of delta
_HALVINGS = 12  # of the range of scales: prices are then known to 1e-3 of a nat, about
_PASSES = 8  # scales that are certified; each is nearer to what delta allows


@dataclass(frozen=True, repr=False, eq=False)
class PricedWorkflow:
    """A price for each state of a workflow where one may stop, and one delta for all.

    Guarantee: whatever the analyst chooses, and whatever made them stop at a state, all that they
    have seen is output-DP with these prices by state and ``delta.upper``.

    Attributes:
        workflow: the states and moves.
        prices: for each state where one may stop its price, nats.
        delta: certified bounds of the smallest delta that covers these prices.
        target: the delta that was asked for, at least ``delta.upper``.
    """

    workflow: Workflow
    prices: Mapping[Cell, float]
    delta: Bounds
    target: float

    def guarantee(self) -> OutputDP:
        """The workflow as output differential privacy: one cell for each priced state."""
        return self.workflow.guarantee(self.prices, self.delta)

    def costliest_way(self, state: Cell) -> tuple[Cell, ...]:
        """The states on the way to ``state`` that costs most, about; the start first.

        Args:
            state: a state of the workflow.
        """
        if state not in self.workflow.moves:
            raise refuse("state", "be a state of the workflow", state)
        return self._way(state, self._before)

    def _way(self, state: Cell, before: Mapping[Cell, Cell]) -> tuple[Cell, ...]:
        """Follows a way back from a state to the first one."""
        way = [state]
        while way[-1] != self.workflow.start:
            way.append(before[way[-1]])
        return tuple(reversed(way))

    @property
    def _before(self) -> dict[Cell, Cell]:
        """For each state but the first the one before it on the costliest way."""
        graph = self.workflow.graph(self.prices)
        order = self.workflow.order
        found: dict[Cell, tuple[float, Cell]] = {}
        for direction in compose(graph.blocks).directions:
            losses = GraphLosses(graph, direction)
            rises = losses.rises(math.log(self.target) - 10.0)
            moments = losses.log_moments(rises)
            for i, state in reversed(list(enumerate(order))):
                for block, after in graph.nodes[i].moves:
                    cost = own_price(moments[i] + rises[block], math.log(self.target))
                    if cost > found.get(order[after], (-math.inf, state))[0]:
                        found[order[after]] = cost, state
        return {state: before for state, (_, before) in found.items()}

    def frame(self) -> Any:
        """A table of the priced states: its price, and the costliest way to it.

        Returns:
            A ``pandas.DataFrame`` with the columns state, epsilon and costliest_way.

        Raises:
            ExtraError: pandas is not installed.
        """
        states, prices, ways = zip(*self._rows(len(self.prices)), strict=True)
        return tabular.frame({"state": states, "epsilon": prices, "costliest_way": ways})

    def _rows(self, most: int) -> list[tuple[str, float, str]]:
        before = self._before
        rows = []
        for state in itertools.islice(self._by_price(), most):
            shown = [repr(one) for one in self._way(state, before)]
            if len(shown) > 5:
                shown = [*shown[:2], "...", *shown[-2:]]
            rows.append((repr(state), self.prices[state], " > ".join(shown)))
        return rows

    def _by_price(self) -> list[Cell]:
        return sorted(self.prices, key=lambda state: -self.prices[state])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: the priced states, the costliest first, delta's bounds and the target.

        A state has its name, its price and the costliest way to it.
        """
        before = self._before
        return {
            "states": [
                {
                    "state": listed(state),
                    "epsilon": self.prices[state],
                    "costliest_way": [listed(one) for one in self._way(state, before)],
                }
                for state in self._by_price()
            ],
            "delta": self.delta.to_dict(),
            "target": self.target,
        }

    def table(self, most: int = 20) -> str:
        """Lines of text with the ``most`` costliest states, and the costliest way to each."""
        lines = [f"{'epsilon':>9}  state: the costliest way to it"]
        lines += [f"{e:9.4f}  {state}: {way}" for state, e, way in self._rows(most)]
        if len(self.prices) > most:
            lines.append(f"{len(self.prices) - most:>9,} more states")
        return notebook.PrintedLines("\n".join(lines))

    def plot(self, ax: Any = None) -> Any:
        """Draws the states from left to right, each with its price, and the moves between them.

        Args:
            ax: matplotlib axes to draw on; new ones if absent.

        Raises:
            ExtraError: matplotlib is not installed.
        """
        depth: dict[Cell, int] = {self.workflow.start: 0}
        for state in reversed(self.workflow.order):
            for move in self.workflow.moves[state]:
                depth[move.to] = max(depth.get(move.to, 0), depth[state] + 1)
        return draw_graph(
            depth,
            [(state, move.to) for state, moves in self.workflow.moves.items() for move in moves],
            dict(self.prices),
            ax=ax,
        )

    def __repr__(self) -> str:
        least, most = min(self.prices.values()), max(self.prices.values())
        return (
            f"<PricedWorkflow: {len(self.workflow.moves):,} states, stops at "
            f"{len(self.prices):,} of them for {least:.4f} to {most:.4f}, delta {self.delta}>"
        )

    def _repr_html_(self) -> str:
        """Writes a table of the costliest states, for a notebook."""
        most = max(self.prices.values())
        rows = [
            (state, f"{e:.4f}", notebook.scale(e, most), way)
            for state, e, way in self._rows(notebook.MOST_ROWS)
        ]
        head = ("state", "epsilon", "", "costliest way")
        table = notebook.table(rows, head=head, title=f"delta {self.delta}")
        return notebook.shown(table, notebook.muted(repr(self)))


def priced(
    workflow: Workflow,
    delta: float,
    weights: Mapping[Cell, float] | Iterable[Cell] | None = None,
    rtol: float = 1e-3,
) -> PricedWorkflow:
    """Prices for the states of a workflow, as low as the weights and one delta for all allow.

    Each price is about the eps at which the delta of the costliest way to the state is
    s weights[state] delta, or a later state's price if that is less: to stop, and to go on without
    looking, cost the same. s is the largest for which all that an analyst may do is covered.

    Guarantee: ``result.delta.upper`` <= delta, rounding included; see :meth:`Workflow.delta` and
    :class:`PricedWorkflow`.

    Args:
        workflow: states and moves.
        delta: in (0, 1).
        weights: > 0, for each state where one may stop a share of delta: the larger, the cheaper
            it is to stop there. Or the states alone, which are then weighed as by default: an end
            has 1, any other state .2. All states but the first, if absent.
        rtol: how much of delta may stay unused, relative, in (0, 1).

    Raises:
        ParameterError: an argument is refused, or an end has no weight.
        CalibrationError: no price is high enough: an infinite loss is likelier than delta.
        PrecisionError: the lattice that is needed is too long.
    """
    delta = open_probability(delta=delta)
    rtol = positive(rtol=rtol)
    if not rtol < 1:
        raise refuse("rtol", "be in (0, 1)", rtol)
    shares = _weights(workflow, weights)
    largest = max(shares.values())
    shares = {state: share / largest for state, share in shares.items()}
    prices_at = _prices_by_scale(workflow, shares, delta)
    # on rough lattices: about the scale of the prices
    first = prices_at(0.3)
    rough = _inductions(workflow, first, _ROUGH)
    low, high = math.log(1e-4), math.log(10.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _upper(workflow, rough, prices_at(math.exp(middle))) <= delta:
            low = middle
        else:
            high = middle
    scale = math.exp(low)
    best: tuple[dict[Cell, float], Bounds] | None = None
    for _ in range(_PASSES):
        prices = prices_at(scale)
        found = workflow.delta(prices, _GAP)
        if found.upper <= delta and (best is None or found.upper > best[1].upper):
            best = prices, found
        if best is not None and best[1].upper >= delta * (1 - rtol):
            break
        # delta is about in proportion to the scale
        scale *= delta * (1 - 0.5 * rtol) / found.upper
    if best is None:
        raise CalibrationError(f"no prices were found that delta = {delta:g} covers")
    return PricedWorkflow(workflow, best[0], best[1], delta)


def _weights(
    workflow: Workflow, weights: Mapping[Cell, float] | Iterable[Cell] | None
) -> dict[Cell, float]:
    ends = set(workflow.ends)
    if weights is None:
        weights = [state for state in workflow.moves if state != workflow.start or state in ends]
    if isinstance(weights, Mapping):
        found = {state: positive(**{f"weights[{state!r}]": w}) for state, w in weights.items()}
    else:
        if isinstance(weights, str):
            raise refuse("weights", "map states to numbers > 0, or list states", weights)
        found = {state: 1.0 if state in ends else _EARLY for state in weights}
    for state in found:
        if state not in workflow.moves:
            raise refuse("weights", "name states of the workflow", state)
    for state in ends - set(found):
        raise ParameterError(f"weights must have one for the end {state!r}")
    return found


def _prices_by_scale(
    workflow: Workflow, shares: Mapping[Cell, float], delta: float
) -> Callable[[float], dict[Cell, float]]:
    """A function from a scale s to prices, about the eps at which a state alone has s share delta.

    The prices need not be exact: whatever is chosen is certified afterwards.
    """
    graph = workflow.graph({})
    moments = []
    for direction in compose(graph.blocks).directions:
        losses = GraphLosses(graph, direction)
        if losses.infinity.upper >= 0.5 * delta:
            raise CalibrationError(
                f"delta = {delta:g} must be well above the chance of an infinite loss, "
                f"{losses.infinity.upper:g}"
            )
        moments.append(losses.log_moments(losses.rises(math.log(1e-3 * delta))))

    def prices_at(scale: float) -> dict[Cell, float]:
        prices: dict[Cell, float] = {}
        least: dict[Cell, float] = {}  # of a state and all that can be reached from it
        for i, state in enumerate(workflow.order):
            later = min((least[move.to] for move in workflow.moves[state]), default=math.inf)
            if state in shares:
                target = math.log(min(1.0, scale * shares[state] * delta))
                own = max(own_price(one[i], target) for one in moments)
                prices[state] = min(own, later)
            least[state] = min(later, prices.get(state, math.inf))
        return prices

    return prices_at


def _inductions(
    workflow: Workflow, prices: Mapping[Cell, float], share: float
) -> list[WorkflowInduction]:
    graph = workflow.graph(prices)
    every = [GraphLosses(graph, d) for d in compose(graph.blocks).directions]
    return [WorkflowInduction(losses, losses.lattice(_GAP, share)) for losses in every]


def _upper(
    workflow: Workflow, inductions: Iterable[WorkflowInduction], prices: Mapping[Cell, float]
) -> float:
    graph = workflow.graph(prices)
    return max(induction.priced(graph).upper() for induction in inductions)
