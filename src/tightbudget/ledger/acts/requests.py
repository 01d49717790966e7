"""A request to reserve, and the refusal of it, as values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tightbudget.ledger.chosen_blocks import Chosen
from tightbudget.ledger.rows.budget_rows import Balance, StepOfPlan
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.promises.chain import canonical
from tightbudget.promises.pricing import Stored, content_of, guarantee_of
from tightbudget.promises.text import check_encodable
from tightbudget.promises.units import Units

Why = Mapping[str, str]  # who did it, and for what reason if one was given


_SHOWN = 10  # holders that a refusal names: enough to ask somebody, and a message of one screen
_UNDECLARED = StepOfPlan(times=0, used=0)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A reservation that a caller asks for.

    Attributes:
        guarantee: read back from the body, so that the stored guarantee is the charged one.
        budgets: the names of those that pay, in alphabetical order.
        interactive: says whether the mechanism answers more than once.
        body: the whole request as one text, equal for equal requests.
        chosen: the set of blocks that some of the budgets belong to, or None. Those of them that
            are not there yet are made by its rule.
    """

    guarantee: Any
    budgets: tuple[str, ...]
    interactive: bool
    body: str
    chosen: Chosen | None = None

    @property
    def without_rho(self) -> str:
        """The body as it was written before guarantees had a rho.

        A run that was reserved then is found by its key after an upgrade, at the price that it was
        reserved at.
        """
        body = json.loads(self.body)
        body["guarantee"].get("output_dp", {}).pop("rho", None)
        return canonical(body)

    @staticmethod
    def of(
        guarantee: Any, names: Sequence[str], interactive: bool, chosen: Chosen | None = None
    ) -> Request:
        """Brings a request into its one form.

        Raises:
            ParameterError: no budget, or one of them twice; the guarantee is none.
        """
        payers = () if isinstance(names, str) else tuple(sorted(names))
        if not payers or len(set(payers)) != len(payers):
            raise refuse("budgets", "be a list of one or more names, each once", names)
        for cell in guarantee.cells if isinstance(guarantee, OutputDP) else ():
            check_encodable(cell=cell)  # guard: declared-cells-whole
        content = content_of(guarantee)
        body = {"budgets": payers, "guarantee": content, "interactive": interactive}
        return Request(
            guarantee=guarantee_of(content),
            budgets=payers,
            interactive=interactive,
            body=canonical(body),
            chosen=chosen,
        )


@dataclass(frozen=True, kw_only=True)
class RefusedRequest:
    """A request that does not fit into a budget, as it was answered the first time.

    Attributes:
        message: the refusal in words.
        budget: the name of the first budget that it does not fit into.
        unit: the unit that this budget counts in.
        requested: the worst-case price of the request.
        left: the units that the budget had left.
        held: the units that the budget held for others.
        holds: the largest holders, by key or by name of a part.
    """

    message: str
    budget: str
    unit: str
    requested: Units
    left: Units
    held: Units
    holds: tuple[str, ...]


def refused_request(
    payer: Balance, asked: Units, message: str, *, holds: tuple[str, ...]
) -> RefusedRequest:
    """Writes the refusal of a budget, with its balance at this moment."""
    return RefusedRequest(
        message=message,
        budget=payer.name,
        unit=payer.rule.unit,
        requested=asked,
        left=payer.left,
        held=payer.held,
        holds=holds,
    )


def missing_runs(steps: Mapping[str, StepOfPlan], wanted: Stored, times: int = 1) -> str | None:
    """Says which step a plan has not enough of for so many runs; None if it has.

    Args:
        steps: of the plan, by their canonical descriptions.
        wanted: the composition that is to run.
        times: how often it is to run.
    """
    for name, runs in runs_of(wanted).items():
        step, asked = steps.get(name, _UNDECLARED), runs * times
        if asked > step.left:  # guard: steps-counted
            return f"requested {asked} runs of {name}; {step.left} left of {step.times} declared"
    return None


def runs_of(plan: Stored) -> dict[str, int]:
    """Counts how often each step of a plan runs, by the step's canonical description."""
    counted: dict[str, int] = {}
    for table in content_of(plan)["steps"]:
        runs = table.pop("times")
        step = canonical(table)
        counted[step] = counted.get(step, 0) + runs
    return counted


def named(holders: Sequence[str]) -> str:
    """Lists those who hold something: the first few by name, the others by their number."""
    more = len(holders) - _SHOWN
    return ", ".join(map(repr, holders[:_SHOWN])) + (f" and {more} more" if more > 0 else "")
