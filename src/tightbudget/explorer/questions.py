"""The questions that the explorer takes, as JSON: mechanisms, and the wanted answer.

A question names its mechanisms as a plan file does, in ``steps`` or as the text of such a file.
This module checks the shape and the length of a question. The mechanisms refuse bad parameters
later, when the question is answered.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from tightbudget import Composition, ParameterError
from tightbudget.accounting.plan_file import parse_plan
from tightbudget.mechanisms.composition import from_steps
from tightbudget.workflows.workflow_file import WorkflowFile

GAP = 1e-4
MOST_STEPS = 50  # different mechanisms
MOST_VALUES = 10_000  # bins of a histogram, points of a curve: of all mechanisms together
MOST_RUNS = 10**12
MOST_POINTS = 200
MOST_STOPS = 100
MOST_STATES = 200
MOST_TEXT = 200_000  # characters of a plan
MOST_TEXT_OF_PAGE = 12_000  # characters of a plan that is a part of an address

_STEPS: list[JsonValue] = [{"mechanism": "gaussian", "sigma": 5.0, "times": 10}]


def _example(**more: JsonValue) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [{"steps": _STEPS, **more}]})


Gap = Annotated[float, Field(gt=0, lt=1, description="Wanted (upper - lower) / upper.")]
Delta = Annotated[float, Field(description="In [0, 1].")]
Epsilon = Annotated[float, Field(description="At least 0, in nats.")]


class ExplorerQuestion(BaseModel):
    """A question about mechanisms: exactly one of ``steps`` and ``plan`` names them."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    steps: Annotated[
        list[dict[str, Any]] | None,
        Field(
            max_length=MOST_STEPS,
            description="As [[steps]] in a plan file: mechanism, its parameters, rate (or another "
            "key that says how records get into a run), relation, times.",
        ),
    ] = None
    plan: Annotated[
        str | None,
        Field(max_length=MOST_TEXT, description="A plan file's text, TOML or JSON."),
    ] = None

    def composition(self) -> Composition:
        """Returns the mechanisms as a composition.

        Raises:
            TightBudgetError: a step or the plan is refused, or the plan is longer than the limits.
        """
        if (self.steps is None) == (self.plan is None):
            raise ParameterError("give exactly one of steps and plan")
        if self.steps is not None:
            return composition_of(self.steps)
        text = self.plan or ""
        as_json = text.lstrip().startswith("{")
        return _within_limits(Composition.from_json(text) if as_json else parse_plan(text, "plan"))


class PointQuestion(ExplorerQuestion):
    """A question at one point: exactly one of delta and epsilon is given."""

    delta: Delta | None = None
    epsilon: Epsilon | None = None

    def target(self) -> tuple[str, float]:
        """Returns the name of the given quantity, and its value."""
        if (self.delta is None) == (self.epsilon is None):
            raise ParameterError("give exactly one of delta and epsilon")
        if self.delta is not None:
            return "delta", self.delta
        return "epsilon", self.epsilon  # type: ignore[return-value]  # one of both is there


class Curve(PointQuestion):
    """The certified epsilon at a delta (or delta at an epsilon), and the curve around it."""

    model_config = _example(delta=1e-5)

    deltas: Annotated[
        list[Delta] | None,
        Field(
            min_length=1,
            max_length=MOST_POINTS,
            description="Where the curve is asked for: by default from 1e-2 down, past the answer.",
        ),
    ] = None
    rtol: Gap = GAP


class Compare(PointQuestion):
    """The bounds of other people's theorems beside the certified ones."""

    model_config = _example(delta=1e-5)

    rtol: Gap = GAP


class OneMore(PointQuestion):
    """The price of one more run of each mechanism."""

    model_config = _example(epsilon=1.0)

    rtol: Gap = GAP


class Stopping(ExplorerQuestion):
    """Prices for stopping early, all covered by one delta.

    A step is one run of the mechanism, or of all mechanisms where there are several.
    """

    model_config = _example(delta=1e-5, stops=[2, 5, 10])

    delta: Delta
    stops: Annotated[
        list[int],
        Field(
            min_length=1,
            max_length=MOST_STOPS,
            description="Ascending numbers of steps after which it may stop; the last ends it.",
        ),
    ]
    weights: Annotated[
        list[float] | None,
        Field(
            description="A share of delta for each stop: the larger, the cheaper it is there. By "
            "default 0.2 for all but the last, which has 1."
        ),
    ] = None


class Prices(BaseModel):
    """Prices of the states of a plan with choices, all covered by one delta.

    Or the delta that covers prices, if the states have them.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        json_schema_extra={
            "examples": [
                {
                    "workflow": [
                        {
                            "state": "start",
                            "moves": [
                                {"to": "quiet", "mechanism": "gaussian", "sigma": 8.0},
                                {"to": "loud", "mechanism": "gaussian", "sigma": 4.0},
                            ],
                        },
                        {"state": "quiet", "weight": 0.5},
                        {"state": "loud", "weight": 1.0},
                    ],
                    "delta": 1e-5,
                }
            ]
        },
    )

    workflow: Annotated[
        list[dict[str, Any]],
        Field(
            min_length=1,
            max_length=MOST_STATES,
            description="As [[workflow]] in a workflow's file: for each state its name, its moves, "
            "and a weight or a price, if it has one. The first is where a run begins.",
        ),
    ]
    delta: Annotated[
        Delta | None, Field(description="For all states; to be left out if they have prices.")
    ] = None
    rtol: Gap = 1e-3

    def read(self) -> WorkflowFile:
        """Returns the workflow, with the weights or prices of its states.

        Raises:
            TightBudgetError: the workflow is refused, or it is longer than the limits.
        """
        _check_values("workflow", self.workflow)
        read = WorkflowFile.from_dict({"tightbudget": 1, "workflow": self.workflow})
        for moves in read.workflow.moves.values():
            for move in moves:
                _within_limits(move.runs)
        return read


class Calibrate(ExplorerQuestion):
    """The best value of one parameter of one mechanism for which the target is met.

    The target is epsilon and delta, or advantage, or tpr and fpr.
    """

    model_config = _example(parameter="sigma", epsilon=1.0, delta=1e-5)

    steps: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MOST_STEPS)]
    plan: None = None
    parameter: Annotated[
        str,
        Field(description="A parameter of the mechanism, rate (or allocated, shuffled) or times."),
    ]
    of: Annotated[int, Field(ge=0, description="Which of the steps: 0 is the first.")] = 0
    epsilon: Epsilon | None = None
    delta: Delta | None = None
    advantage: float | None = None
    tpr: float | None = None
    fpr: float | None = None
    between: Annotated[
        list[float] | None,
        Field(min_length=2, max_length=2, description="Lowest and highest value to consider."),
    ] = None


def composition_of(steps: list[dict[str, Any]]) -> Composition:
    """Makes a composition of steps; refuses what a plan file may not hold, and long ones."""
    _check_values("steps", steps)
    return _within_limits(from_steps(steps))


def _check_values(name: str, tables: list[dict[str, Any]]) -> None:
    values = sum(map(_values_in, tables))
    if values > MOST_VALUES:
        raise ParameterError(f"{name} must hold at most {MOST_VALUES:,} values, got {values:,}")


def _values_in(table: Any) -> int:
    """Counts the numbers and words of a table, in all its lists and tables."""
    waiting, found = [table], 0
    while waiting:
        entry = waiting.pop()
        if isinstance(entry, (dict, list, tuple)):
            waiting.extend(entry.values() if isinstance(entry, dict) else entry)
        else:
            found += 1
    return found


def _within_limits(run: Composition) -> Composition:
    if len(run.parts) > MOST_STEPS:
        raise ParameterError(
            f"steps must be at most {MOST_STEPS} different mechanisms, got {len(run.parts)}"
        )
    if run.runs > MOST_RUNS:
        raise ParameterError(f"times must be at most {MOST_RUNS:,} in all, got more")
    return run
