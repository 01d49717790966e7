"""A workflow: states, what may run at each of them and where that leads, and where one may stop."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from tightbudget import notebook
from tightbudget.errors import FileError, ParameterError, PrecisionError, TightBudgetError
from tightbudget.mechanisms.composition import Composable, Composition, compose, from_steps
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.validate import (
    non_negative,
    open_probability,
    positive,
    positive_count,
    refuse,
)
from tightbudget.output_dp.guarantee import Cell, OutputDP, cell_from_lists
from tightbudget.output_dp.stopping import blocks_between, stops_of
from tightbudget.workflows.choices import split
from tightbudget.workflows.graph_losses import Graph, GraphLosses, Node
from tightbudget.workflows.induction import WorkflowInduction
from tightbudget.workflows.one_price import least_price

_VERSION = 1
_MOST_STATES = 20_000  # a minute and a gigabyte
# The first lattice: of the gap that is asked for, in variance, but no finer than for this gap.
_SHARE, _COARSE = 0.7, 1e-5
_PASSES = 6  # lattices, each finer than the one before; the gap falls with the square of the step
_NOTHING = 1e-13  # a delta that the rounding of prices and losses may account for
_FLOOR = 1e-280  # a delta below which no gap is asked for


@dataclass(frozen=True)
class Move:
    """A move says what may run at a state, and the state after it.

    Attributes:
        runs: the composition that runs; of no mechanism, if the move only says what comes next.
        to: the next state.
    """

    runs: Composition
    to: Cell


@dataclass(frozen=True, init=False, eq=False)
class Workflow:
    """A finite plan with choices: states, moves between them, and prices where one may stop.

    The analyst begins at ``start``. At a state they choose one of its moves, by all that was seen,
    run its mechanisms, and go on at its next state; or they stop there. The next state belongs to
    the move: what is decided after its output was seen is a choice among the next state's moves.
    :meth:`delta` says which one delta covers all that an analyst may do, at a price for each state
    where one may stop.

    Frozen; compared and hashed by content, whatever the order of states and moves.

    Args:
        moves: for each state (a text, an integer, or a tuple of these) its moves: a mechanism or a
            composition, and the next state. A state without moves is an end.
        start: the first state; the first one of ``moves`` if absent.

    Raises:
        ParameterError: there is no state; a state is no such name; a move leads to a state that is
            not in ``moves``; states lead back to themselves; a state is never reached; there are
            more than 20,000 states.
        RelationError: mechanisms were declared for different neighbouring relations.
    """

    moves: Mapping[Cell, tuple[Move, ...]]
    start: Cell

    def __init__(
        self,
        moves: Mapping[Cell, Sequence[tuple[Composable, Cell]]],
        start: Cell | None = None,
    ) -> None:
        if not isinstance(moves, Mapping):
            raise refuse("moves", "map each state to a list of its moves", moves)
        if not moves:
            raise ParameterError("moves must name at least one state, got none")
        if len(moves) > _MOST_STATES:
            raise refuse("moves", f"have at most {_MOST_STATES:,} states", len(moves))
        kept = {_state(state): _moves(state, given, moves) for state, given in moves.items()}
        first = next(iter(kept)) if start is None else start
        if first not in kept:
            raise refuse("start", "be one of the states", first)
        object.__setattr__(self, "moves", MappingProxyType(kept))
        object.__setattr__(self, "start", first)
        lost = set(kept) - set(self.order)
        if lost:
            state = next(state for state in kept if state in lost)
            raise ParameterError(f"state {state!r} is never reached from {first!r}")
        compose(dict.fromkeys(self._blocks))  # refuses relations that do not go together

    @functools.cached_property
    def order(self) -> tuple[Cell, ...]:
        """The states that can be reached, each after all states that its moves lead to.

        Raises:
            ParameterError: states lead back to themselves.
        """
        order: dict[Cell, None] = {}
        path: dict[Cell, None] = {}
        ahead = [(self.start, iter(self.moves[self.start]))]
        path[self.start] = None
        while ahead:
            state, moves = ahead[-1]
            move = next(moves, None)
            if move is None:
                ahead.pop()
                del path[state]
                order[state] = None
            elif move.to in path:
                circle = [*list(path)[list(path).index(move.to) :], move.to]
                shown = " to ".join(map(repr, circle[:6])) + " ..." * (len(circle) > 6)
                raise ParameterError(f"a workflow must come to an end, but {shown} is a circle")
            elif move.to not in order:
                path[move.to] = None
                ahead.append((move.to, iter(self.moves[move.to])))
        return tuple(order)

    @functools.cached_property
    def ends(self) -> tuple[Cell, ...]:
        """The states without a move."""
        return tuple(state for state, moves in self.moves.items() if not moves)

    @functools.cached_property
    def _blocks(self) -> tuple[Composition, ...]:
        """Lists the compositions that the moves run, each once."""
        runs = (move.runs for moves in self.moves.values() for move in moves)
        return tuple(dict.fromkeys(runs))

    @staticmethod
    def chain(step: Composable | Sequence[Composable], stops: Sequence[int]) -> Workflow:
        """Steps in a fixed order, with states 0 and the numbers of steps after which one may stop.

        Args:
            step: a mechanism or composition; or a list of them, of which the k-th is step k.
            stops: ascending numbers of steps, each >= 1; the last ends the run.
        """
        stops = stops_of(stops)
        blocks = blocks_between(step, stops)
        states = [0, *stops]
        moves: dict[Cell, list[tuple[Composable, Cell]]] = {
            state: [(block, after)]
            for (state, after), block in zip(itertools.pairwise(states), blocks, strict=True)
        }
        return Workflow({**moves, stops[-1]: []})

    @staticmethod
    def menu(items: Mapping[str, Any], rounds: int | None = None) -> Workflow:
        """Any of the items next, each at most so often; a state says how often each one has run.

        States are tuples of these numbers, in the order of ``items``: orders of the same runs are
        one state.

        Args:
            items: for each name a mechanism or composition, and the largest number of its runs.
            rounds: the largest number of runs of all items together; no limit if absent.

        Raises:
            ParameterError: there is no item, a number is no integer >= 1, or there are too many
                states.
        """
        if not isinstance(items, Mapping):
            raise refuse("items", "map names to (mechanism, most runs)", items)
        if not items:
            raise ParameterError("a menu must have at least one item, got none")
        runs, most = [], []
        for name, given in items.items():
            pair = list(given) if isinstance(given, (list, tuple)) else []
            if len(pair) != 2:
                raise refuse(f"items[{name!r}]", "be (mechanism, most runs)", given)
            runs.append(_composition(f"items[{name!r}][0]", pair[0]))
            most.append(positive_count(**{f"items[{name!r}][1]": pair[1]}))
        limit = sum(most) if rounds is None else positive_count(rounds=rounds)
        if math.prod(k + 1 for k in most) > 100 * _MOST_STATES:
            raise refuse("items", f"have at most {_MOST_STATES:,} states", math.prod(most))
        moves: dict[Cell, list[tuple[Composable, Cell]]] = {}
        for used in itertools.product(*(range(k + 1) for k in most)):
            if sum(used) <= limit:
                moves[used] = [
                    (runs[i], (*used[:i], used[i] + 1, *used[i + 1 :]))
                    for i in range(len(most))
                    if used[i] < most[i] and sum(used) < limit
                ]
        return Workflow(moves)

    @staticmethod
    def alternatives(options: Mapping[str, Composable], rounds: int) -> Workflow:
        """One of the options in each round, whichever one likes; an epoch with noise from a list.

        States are tuples of how often each option has run, as in :meth:`menu`.

        Args:
            options: for each name a mechanism or composition.
            rounds: the largest number of rounds.

        Raises:
            ParameterError: there is no option, ``rounds`` is no integer >= 1, or there are too many
                states.
        """
        if not isinstance(options, Mapping):
            raise refuse("options", "map names to mechanisms", options)
        if not options:
            raise ParameterError("options must have at least one mechanism, got none")
        n = positive_count(rounds=rounds)
        return Workflow.menu({name: (option, n) for name, option in options.items()}, n)

    @staticmethod
    def ab_test(
        looks: Sequence[Composable], follow_ups: Mapping[str, Composable], most: int | None = None
    ) -> Workflow:
        """Looks at a test in a fixed order, and follow-ups after any of them, which end the looks.

        States are 0, 1, ... for the number of looks, and tuples: the number of looks, and the names
        of the follow-ups that have run, in the order of ``follow_ups``.

        Args:
            looks: for each look a mechanism or composition.
            follow_ups: for each name a mechanism or composition, which runs at most once.
            most: the largest number of follow-ups; all of them if absent.

        Raises:
            ParameterError: there is no look or no follow-up, ``most`` is no integer >= 1, or there
                are too many states.
        """
        if isinstance(looks, (str, Mapping, Composable)) or not isinstance(looks, Sequence):
            raise refuse("looks", "be a list of mechanisms, such as [mechanism]", looks)
        if not looks:
            raise ParameterError("looks must have at least one mechanism, got none")
        if not isinstance(follow_ups, Mapping):
            raise refuse("follow_ups", "map names to mechanisms", follow_ups)
        if not follow_ups:
            raise ParameterError("follow_ups must have at least one mechanism, got none")
        after = [_composition(f"looks[{i}]", look) for i, look in enumerate(looks)]
        then = {n: _composition(f"follow_ups[{n!r}]", f) for n, f in follow_ups.items()}
        limit = len(then) if most is None else min(len(then), positive_count(most=most))
        sets = sum(math.comb(len(then), k) for k in range(limit + 1))
        if len(after) * sets > _MOST_STATES:
            raise refuse("follow_ups", f"make at most {_MOST_STATES:,} states", len(after) * sets)
        moves: dict[Cell, list[tuple[Composable, Cell]]] = {0: [(after[0], 1)]}
        for k in range(1, len(after) + 1):
            moves[k] = [(after[k], k + 1)] if k < len(after) else []
            for number in range(limit + 1):
                for ran in itertools.combinations(then, number):
                    further = [name for name in then if name not in ran and number < limit]
                    moves.setdefault((k, *ran) if ran else k, []).extend(
                        (then[name], (k, *(n for n in then if n in ran or n == name)))
                        for name in further
                    )
        return Workflow(moves)

    # Proof: proofs/choices.v, theorems prices, attained, prices_attained
    def delta(self, prices: Mapping[Cell, float] | float, rtol: float = 1e-3) -> Bounds:
        """Bounds the smallest delta that covers every way of choosing and stopping.

        Guarantee: at these prices and ``delta.upper``, all that the analyst sees is output-DP, with
        one cell for each state where they may stop (:class:`OutputDP`). No smaller delta than
        ``delta.lower`` is covered, if the mechanisms are the worst that their pairs allow.
        (upper - lower) <= rtol * upper, unless the bounds are ``apart``.
        Source: backward induction with an analyst who chooses; Hartmann et al. 2022, Theorem 15,
        for a chain.

        Args:
            prices: for each state where one may stop its price, >= 0, nats. Each end needs one. A
                number is the price of each end, and then one stops nowhere else.
            rtol: wanted relative gap, in (0, 1).

        Raises:
            ParameterError: a state is unknown, a price is refused, or an end has no price.
            PrecisionError: the gap cannot be reached; says which one was.
        """
        rtol = positive(rtol=rtol)
        if not rtol < 1:
            raise refuse("rtol", "be in (0, 1)", rtol)
        kept = self._prices(prices)
        graph = self.graph(kept)
        found = delta_of(graph, rtol)
        attained = self._attained(kept)
        if attained is not None:
            lower = delta_of(attained, rtol).lower  # guard: workflow-lower-bound-attained
            return Bounds(min(lower, found.upper), found.upper, apart=self._apart)
        # no price below the largest loss: delta is 0 or certain, up to rounding
        sure = found.upper - found.lower <= 4 * _NOTHING and _without_finite(graph)
        if found.relative_gap > rtol and found.upper > _FLOOR and not sure:
            raise PrecisionError(
                f"delta is in {found} (relative gap {found.relative_gap:.2g}): "
                f"relative gap {rtol:g} was not reached",
                found.lower,
                found.upper,
            )
        return found

    def epsilon(self, delta: float, rtol: float = 1e-3) -> Bounds:
        """Bounds the smallest one price of all ends that ``delta`` covers, nats.

        Guarantee: whatever the analyst chooses, all that they have seen when they come to an end is
        (epsilon, delta)-DP for ``epsilon.upper``. (upper - lower) <= rtol * upper, unless the
        bounds are ``apart``.

        Args:
            delta: in (0, 1).
            rtol: wanted relative gap, in (0, 1).

        Raises:
            ParameterError: an argument is refused.
            CalibrationError: an infinite loss is likelier than delta.
            PrecisionError: the gap cannot be reached; says which one was.
        """
        delta, rtol = open_probability(delta=delta), open_probability(rtol=rtol)

        def at(price: float) -> Graph:
            return self.graph(dict.fromkeys(self.ends, price))

        if self._attained({}) is None:
            return least_price(at, at, delta, rtol)

        def attained_at(price: float) -> Graph:
            graph = self._attained(dict.fromkeys(self.ends, price))
            assert graph is not None
            return graph

        return replace(least_price(at, attained_at, delta, rtol), apart=self._apart)

    def _attained(self, prices: Mapping[Cell, float]) -> Graph | None:
        """Returns the graph of moves that are attained; None if all moves are."""
        halves = [split(block) for block in self._blocks]
        below = [rest.attained_early for rest, _ in halves]
        if all(block is None for block in below):
            return None
        blocks = (
            compose([attained or rest, chosen])
            for attained, (rest, chosen) in zip(below, halves, strict=True)
        )
        return Graph(self.graph(prices).nodes, tuple(blocks))

    @property
    def _apart(self) -> str:
        return compose(self._blocks).apart or "moves whose pairs are not attained"

    def _prices(self, prices: Mapping[Cell, float] | float) -> dict[Cell, float]:
        if not isinstance(prices, Mapping):
            if isinstance(prices, bool) or not isinstance(prices, (int, float)):
                raise refuse("prices", "map states to prices, or be one for all ends", prices)
            prices = dict.fromkeys(self.ends, float(prices))
        for state in prices:
            if state not in self.moves:
                raise refuse("prices", "name states of the workflow", state)
        for state in self.ends:
            if state not in prices:
                raise ParameterError(f"prices must have one for the end {state!r}")
        return {state: non_negative(**{f"prices[{state!r}]": e}) for state, e in prices.items()}

    def graph(self, prices: Mapping[Cell, float]) -> Graph:
        """The workflow as nodes and blocks, for an induction."""
        index = {state: i for i, state in enumerate(self.order)}
        block = {runs: i for i, runs in enumerate(self._blocks)}
        nodes = tuple(
            Node(
                tuple((block[move.runs], index[move.to]) for move in self.moves[state]),
                prices.get(state),
            )
            for state in self.order
        )
        return Graph(nodes, self._blocks)

    def guarantee(self, prices: Mapping[Cell, float] | float, delta: float | Bounds) -> OutputDP:
        """Returns the workflow as output differential privacy: one cell for each priced state.

        Args:
            prices: as for :meth:`delta`.
            delta: one that :meth:`delta` has certified for these prices; its upper bound counts.
        """
        # the binary values for which delta is certified, and not the decimals that they print
        kept = {state: Fraction(e) for state, e in self._prices(prices).items()}
        return OutputDP(kept, delta)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, with a version, from which :meth:`from_dict` builds the same value."""
        return {
            "tightbudget": _VERSION,
            "workflow": [
                {
                    "state": listed(state),
                    "moves": [
                        {"steps": move.runs.to_dict()["steps"], "to": listed(move.to)}
                        for move in moves
                    ],
                }
                for state, moves in sorted(
                    self.moves.items(), key=lambda item: item[0] != self.start
                )
            ],
        }

    @staticmethod
    def from_dict(content: Any) -> Workflow:
        """The workflow that :meth:`to_dict`, or a person, wrote.

        A state without moves may leave them out, and a move of one mechanism may have the keys of
        that step beside ``to``, in place of ``steps``.

        Raises:
            FileError: another version, or no workflow: what is not understood is refused, never
                skipped.
            ParameterError: a parameter, a state or a move is refused.
        """
        if not isinstance(content, dict) or content.get("tightbudget") != _VERSION:
            raise FileError(
                f'no workflow: expected {{"tightbudget": {_VERSION}, "workflow": [...]}}'
            )
        rows = content.get("workflow")
        if {*content} != {"tightbudget", "workflow"} or not isinstance(rows, list):
            raise FileError(
                f"no workflow: expected the keys tightbudget and workflow, a list, got {content!r}"
            )
        moves: dict[Cell, list[tuple[Composable, Cell]]] = {}
        for i, row in enumerate(rows):
            if not isinstance(row, dict) or "state" not in row or {*row} - {"state", "moves"}:
                raise FileError(f"workflow[{i}] must be a table with state and moves, got {row!r}")
            state = cell_from_lists(row["state"])
            if state in moves:
                raise FileError(f"workflow[{i}] must be a new state, got {state!r} again")
            given = row.get("moves", [])
            if not isinstance(given, list):
                raise FileError(f"the moves of state {state!r} must be a list, got {given!r}")
            moves[state] = [_read(f"state {state!r}: moves[{k}]", m) for k, m in enumerate(given)]
        return Workflow(moves)

    def __reduce__(self) -> tuple[Any, ...]:
        return Workflow, (dict(self.moves), self.start)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workflow) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def _content(self) -> tuple[object, ...]:
        moves = frozenset((state, frozenset(moves)) for state, moves in self.moves.items())
        return self.start, moves

    def __repr__(self) -> str:
        return f"<Workflow: {in_short(self)}>"

    def _repr_html_(self) -> str:
        """Writes a table of the states and their moves, for a notebook."""
        rows = [
            (repr(state), "; ".join(f"{move.runs} to {move.to!r}" for move in moves) or "end")
            for state, moves in itertools.islice(self.moves.items(), notebook.MOST_ROWS)
        ]
        return notebook.shown(
            notebook.table(rows, head=("state", "moves")), notebook.muted(repr(self))
        )


def in_short(workflow: Workflow) -> str:
    """Returns the size of a workflow, its start and its number of ends, in words."""
    moves, ends = sum(map(len, workflow.moves.values())), len(workflow.ends)
    return (
        f"{len(workflow.moves):,} states, {moves:,} moves, from {workflow.start!r} to "
        f"{ends:,} end{'s' * (ends != 1)}"
    )


def _without_finite(graph: Graph) -> bool:
    """Whether no finite loss counts, but for the rounding of losses and prices."""
    directions = compose(graph.blocks).directions
    return all(GraphLosses(graph, direction).gain <= _NOTHING for direction in directions)


def delta_of(graph: Graph, rtol: float) -> Bounds:
    """Bounds the delta of a graph's dominating pairs; no closer than several lattices make them."""
    worst = Bounds(0.0, 0.0)
    for direction in compose(graph.blocks).directions:
        losses = GraphLosses(graph, direction)
        worst = Bounds.worst([worst, _of_direction(losses, rtol, worst.lower)])
    return worst


def _of_direction(losses: GraphLosses, rtol: float, least: float) -> Bounds:
    """Bounds of one direction's delta; no closer than to be below ``least``, if they are."""
    if losses.gain <= _NOTHING:  # no price is below the largest loss
        sure = losses.infinity
        return Bounds(sure.lower, min(1.0, sure.upper + 2 * losses.gain))
    found, at_most, extended, expected = Bounds(0.0, 1.0), math.inf, False, math.inf
    share = max(_SHARE, _COARSE / rtol)
    for _ in range(_PASSES):
        lattice = losses.lattice(rtol, share, at_most=at_most, extended=extended, least=least)
        try:
            induction = WorkflowInduction(losses, lattice)
        except PrecisionError:
            break  # a finer lattice would be too long
        upper = induction.upper()
        if upper <= least:
            return Bounds(0.0, upper)  # another direction is worse
        found = found.meet(Bounds(induction.lower(), upper))
        gap = found.relative_gap
        if gap <= rtol or found.upper <= max(least, _FLOOR):
            break
        if gap > 1.5 * expected:
            if extended:
                break  # what does not shrink is rounding
            extended = True
        finer = min(0.25, max(1e-2, 0.5 * rtol / gap))
        at_most, expected = lattice.step * math.sqrt(finer), gap * math.sqrt(finer)
    return found


def _composition(name: str, given: object) -> Composition:
    if not isinstance(given, Composable):
        raise refuse(name, "be a mechanism or a composition", given)
    return compose([given])


def _state(state: object) -> Cell:
    names: Iterable[object] = state if isinstance(state, tuple) else [state]
    for name in names:
        if isinstance(name, tuple):
            _state(name)
        elif isinstance(name, bool) or not isinstance(name, (str, int)):
            raise refuse("a state", "be a text, an integer, or a tuple of these", state)
    return state  # type: ignore[return-value]


def _moves(state: Cell, given: object, states: Mapping[Cell, object]) -> tuple[Move, ...]:
    """The moves of a state, checked."""
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise refuse(f"moves[{state!r}]", "be a list of (mechanism, next state)", given)
    found = []
    for i, move in enumerate(given):
        name = f"moves[{state!r}][{i}]"
        if isinstance(move, Move):
            move = (move.runs, move.to)
        if not (isinstance(move, tuple) and len(move) == 2):
            raise refuse(name, "be (mechanism, next state)", move)
        runs = _composition(f"{name}[0]", move[0])
        try:
            known = move[1] in states
        except TypeError:
            known = False
        if not known:
            raise refuse(f"{name}[1]", "be a state of the workflow", move[1])
        found.append(Move(runs, move[1]))
    return tuple(dict.fromkeys(found))


def listed(state: Cell) -> Any:
    """Puts a list in the place of each tuple of a state: JSON has no tuples."""
    return [listed(one) for one in state] if isinstance(state, tuple) else state


def _read(where: str, move: Any) -> tuple[Composable, Cell]:
    """Reads a move from its table.

    Args:
        where: names it in refusals.
        move: the table, as it was read.
    """
    if not isinstance(move, dict) or "to" not in move:
        raise FileError(f"{where} must be a table with to and steps, got {move!r}")
    table = {key: value for key, value in move.items() if key != "to"}
    steps = table.pop("steps") if "steps" in table else [table]
    if "steps" in move and table:
        raise FileError(f"{where} must have steps or a mechanism's keys, got {next(iter(table))!r}")
    try:
        return from_steps(steps), cell_from_lists(move["to"])
    except TightBudgetError as error:
        raise type(error)(f"{where}: {error}") from error
