"""Workflows in files that a person can write and review: TOML, or the same content as JSON.

``tightbudget = 1`` is the version of the format; TOML may leave it out. Then, for each state, a
table ``[[workflow]]`` with its name ``state``, and its ``moves``; the first state is where a run
begins. A move has ``to``, the next state, and the keys of a step of a plan file, or ``steps``, a
list of these. A state may have a ``weight`` or a ``price``; see :class:`WorkflowFile`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tightbudget.accounting.plan_file import parse_tables, toml_value
from tightbudget.errors import FileError, ParameterError, TightBudgetError
from tightbudget.numerics.validate import non_negative, positive, refuse
from tightbudget.output_dp.guarantee import Cell, cell_from_lists
from tightbudget.text_file import read_text, write_text
from tightbudget.workflows.prices import PricedWorkflow, priced
from tightbudget.workflows.workflow import Workflow

_VERSION = 1
_LEAST = 1e-300  # a delta for which ways to states are compared where no delta is needed


@dataclass(frozen=True)
class WorkflowFile:
    """Holds what a file says of a workflow.

    Attributes:
        workflow: the states and moves.
        weights: > 0, for each state that has one its share of delta, as
            :func:`tightbudget.workflows.priced` takes them; None if no state has one.
        prices: for each state that has one its price, nats, as :meth:`Workflow.delta` takes them;
            None if no state has one.
    """

    workflow: Workflow
    weights: Mapping[Cell, float] | None = None
    prices: Mapping[Cell, float] | None = None

    @staticmethod
    def from_dict(content: Any) -> WorkflowFile:
        """Reads a workflow with its weights and prices from plain values, as a JSON file has them.

        Raises:
            FileError: the content is no workflow.
            ParameterError: a parameter, a state, a move, a weight or a price is refused.
        """
        weights, prices, rows = {}, {}, []
        given = content.get("workflow") if isinstance(content, dict) else None
        if not isinstance(given, list) or not given:
            raise FileError(
                "a workflow needs [[workflow]], a table for each state, and there is none"
            )
        for row in given:
            rest = dict(row) if isinstance(row, dict) else row
            if isinstance(rest, dict) and "state" in rest:
                state = cell_from_lists(rest["state"])
                if "weight" in rest:
                    weights[state] = positive(
                        **{f"the weight of state {state!r}": rest.pop("weight")}
                    )
                if "price" in rest:
                    prices[state] = non_negative(
                        **{f"the price of state {state!r}": rest.pop("price")}
                    )
            rows.append(rest)
        workflow = Workflow.from_dict({**content, "workflow": rows})
        if weights and prices:
            raise FileError(
                "states have weights, for which prices are found, or prices, and not both"
            )
        for name, numbers in (("weight", weights), ("price", prices)):
            _check_ends(workflow, name, numbers)
        _check_rising(workflow, prices)
        return WorkflowFile(workflow, weights or None, prices or None)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values, from which :meth:`from_dict` builds the same content.

        Raises:
            ParameterError: a weight or a price is refused, or its state is unknown.
        """
        content = self.workflow.to_dict()
        rows = {cell_from_lists(row["state"]): row for row in content["workflow"]}
        for name, given, checked in (
            ("weight", self.weights, positive),
            ("price", self.prices, non_negative),
        ):
            for state, number in (given or {}).items():
                if state not in rows:
                    raise refuse(f"{name}s", "name states of the workflow", state)
                rows[state][name] = checked(**{f"{name}s[{state!r}]": number})
        return content

    def priced(self, delta: float | None = None, rtol: float = 1e-3) -> PricedWorkflow:
        """Prices the states, or bounds the delta that covers the prices of the file.

        Guarantee: that of :class:`PricedWorkflow`.

        Args:
            delta: for all states together, in (0, 1); None if the file has prices.
            rtol: the wanted relative gap of delta's bounds, in (0, 1).

        Raises:
            ParameterError: an argument is refused, or there is not exactly one of delta and prices.
            PrecisionError: the gap cannot be reached.
        """
        if (delta is None) == (self.prices is None):
            there = "no prices" if self.prices is None else "prices"
            raise ParameterError(
                "delta must be given, or a price for each end, and not both: the workflow has "
                f"{there}, got delta = {delta!r}"
            )
        if self.prices is None:
            assert delta is not None
            return priced(self.workflow, delta, self.weights, rtol)
        bounds = self.workflow.delta(self.prices, rtol)
        return PricedWorkflow(self.workflow, self.prices, bounds, max(bounds.upper, _LEAST))


def read_workflow(path: str | Path) -> WorkflowFile:
    """Reads a workflow from a TOML file, or from a JSON file if the name ends in .json.

    Guarantee: every table and key of the file is in the answer; a table or key that is not
    understood is refused, never skipped.

    Args:
        path: the file; gzipped if its name ends in .gz.

    Raises:
        FileError: the file cannot be read, is not TOML or JSON, or is no workflow: states that lead
            back to themselves, a state that is never reached, a move to no state, a price above
            that of a state that comes later. Names the path, the state and the reason.
    """
    text = read_text(path)
    try:
        if str(path).removesuffix(".gz").endswith(".json"):
            content = _from_json(text)
        else:
            content = {"tightbudget": _VERSION, **parse_tables(text, path)}
    except FileError as error:
        raise _named(error, path) from error
    try:
        return WorkflowFile.from_dict(content)
    except TightBudgetError as error:
        raise FileError(f"{path}: {error}") from error


def write_workflow(
    workflow: Workflow,
    path: str | Path,
    *,
    weights: Mapping[Cell, float] | None = None,
    prices: Mapping[Cell, float] | None = None,
) -> None:
    """Writes a file from which :func:`read_workflow` reads the same workflow.

    Args:
        workflow: states and moves.
        path: the file; JSON if its name ends in .json, gzipped if it ends in .gz. An existing file
            is replaced.
        weights: for each state that has one its share of delta.
        prices: for each state that has one its price, nats.

    Raises:
        FileError: the file cannot be written.
        ParameterError: a weight or a price is refused, or its state is unknown; nothing was
            written.
    """
    if not isinstance(workflow, Workflow):
        raise refuse("workflow", "be a Workflow, before the path", workflow)
    content = WorkflowFile(workflow, weights, prices).to_dict()
    WorkflowFile.from_dict(content)
    is_json = str(path).removesuffix(".gz").endswith(".json")
    write_text(path, json.dumps(content) + "\n" if is_json else workflow_text(content))


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(f"not JSON: {error}") from error


def _named(error: FileError, path: str | Path) -> FileError:
    """Makes a refusal that names the file."""
    return error if str(error).startswith(str(path)) else FileError(f"{path}: {error}")


def _check_ends(workflow: Workflow, name: str, numbers: Mapping[Cell, float]) -> None:
    """Refuses an end without a number, where other states have one."""
    for state in workflow.ends:
        if numbers and state not in numbers:
            raise ParameterError(f"state {state!r} is an end, and must have a {name}")


def _check_rising(workflow: Workflow, prices: Mapping[Cell, float]) -> None:
    """Refuses a state whose price is above that of a state which comes later."""
    least: dict[Cell, tuple[float, Cell]] = {}
    for state in workflow.order:
        later = min(
            (least[move.to] for move in workflow.moves[state] if move.to in least),
            default=None,
            key=lambda found: found[0],
        )
        price = prices.get(state)
        if price is not None and later is not None and price > later[0]:
            raise ParameterError(
                f"the price of state {state!r} must be at most {later[0]!r}, that of state "
                f"{later[1]!r}, which can come after it: to stop there would cost more than to go "
                f"on; got {price!r}"
            )
        if price is not None:
            least[state] = price, state
        elif later is not None:
            least[state] = later


def workflow_text(content: Mapping[str, Any]) -> str:
    """Returns the text of a TOML file with what :meth:`WorkflowFile.to_dict` has returned."""
    return (
        "\n".join([f"tightbudget = {content['tightbudget']}", *_lines(content["workflow"])]) + "\n"
    )


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield from ("", "[[workflow]]")
        for key, value in row.items():
            if key != "moves":
                yield f"{key} = {toml_value(value)}"
        moves = [_move(move) for move in row["moves"]]
        if moves:
            yield from ("moves = [", *(f"    {toml_value(move)}," for move in moves), "]")


def _move(move: Mapping[str, Any]) -> dict[str, Any]:
    """A move's table, with the keys of its step if there is one."""
    (first, *more) = move["steps"] or [None]
    one = first is not None and not more and not {"steps", "to"} & {*first}
    return {"to": move["to"], **(first if one else {"steps": move["steps"]})}
