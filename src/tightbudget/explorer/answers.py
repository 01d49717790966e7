"""The library's answers to each question as plain values, with the code that repeats them.

Each answer depends on its question alone, so that another process can compute it.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tightbudget
from tightbudget import Bounds, Composition, ParameterError
from tightbudget.accounting.compare.compare import growing
from tightbudget.explorer import questions
from tightbudget.explorer.snippets import (
    Letter,
    calibration,
    command,
    python,
    run_expression,
    steps_expression,
)
from tightbudget.mechanisms.curve import DELTAS
from tightbudget.notation.parameters import search_of
from tightbudget.notation.words import in_words, two_ends
from tightbudget.workflows.workflow import in_short
from tightbudget.workflows.workflow_file import workflow_text

_LEAST = 1e-280  # curves end here: close to the smallest double, relative gaps cannot be certified


def curve(question: questions.Curve) -> dict[str, Any]:
    """Bounds the answer at one point, and the curve around it."""
    asked = _AtOnePoint.of(question)
    bounds, deltas, points = _curve(asked, question)
    listed = [] if deltas == [*DELTAS] else ["--deltas", ",".join(map(repr, deltas))]
    return {
        **asked.about([bounds]),
        asked.answered: bounds.to_dict(),
        "curve": points.to_dict(),
        "python": python(
            f"run = {run_expression(asked.run)}",
            f"answer = run.{asked.answered}({asked.arguments})",
            f"curve = run.curve(deltas={deltas!r}{asked.gap})",
        ),
        "command": command(asked.answered, asked.run, *asked.options)
        + "\n"
        + command("curve", asked.run, *listed, *asked.options[2:]).rpartition("\n")[2],
    }


def compare(question: questions.Compare) -> dict[str, Any]:
    """Compares our bounds with those of other people's theorems."""
    asked = _AtOnePoint.of(question)
    found = tightbudget.compare(asked.run, **{asked.given: asked.at}, rtol=question.rtol)
    return {
        **asked.about(_ours(found)),
        **found.to_dict(),
        "python": python(
            f"run = {run_expression(asked.run)}", f"answer = tb.compare(run, {asked.arguments})"
        ),
        "command": command("compare", asked.run, *asked.options),
    }


def compare_begun(question: questions.Compare) -> dict[str, Any]:
    """Returns the comparison with its first row alone, which is there at once.

    The other rows wait for searches among points and orders of each theorem.
    """
    asked = _AtOnePoint.of(question)
    first = next(growing(asked.run, **{asked.given: asked.at}, rtol=question.rtol))
    return {**asked.about(_ours(first)), **first.to_dict(), "more": True}


def one_more(question: questions.OneMore) -> dict[str, Any]:
    """Bounds the answer after one more run of each mechanism, and its increase."""
    asked = _AtOnePoint.of(question)
    run, ask = asked.run, f"{asked.answered}({asked.arguments})"
    now, rows = asked.bounds(run), []
    for mechanism, _ in run.parts:
        then = asked.bounds(run + mechanism)
        more = then - now if math.isfinite(then.upper) else Bounds(0.0, math.inf)
        rows.append(
            {
                "mechanism": in_words(Composition(((mechanism, 1),))).rpartition(", ")[0],
                asked.answered: then.to_dict(),
                # one more run never costs less, whatever the two gaps say
                "more": {"lower": max(0.0, more.lower), "upper": max(0.0, more.upper)},
            }
        )
    runs = [run, *(run + mechanism for mechanism, _ in run.parts)]
    return {
        **asked.about([now]),
        asked.answered: now.to_dict(),
        "one_more": rows,
        "python": python(
            f"run = {run_expression(run)}",
            f"now = run.{ask}",
            f"then = [(run + one).{ask} for one, _ in run.parts]",
        ),
        "command": "\n".join(command(asked.answered, each, *asked.options) for each in runs),
    }


def stopping(question: questions.Stopping) -> dict[str, Any]:
    """Prices early stopping at each stop, by three accounts."""
    run = question.composition()
    step = _step(run)
    found = schedule_of(question)
    weights = [] if question.weights is None else [f"weights={question.weights!r}"]
    asked = ", ".join([f"stops={question.stops!r}", f"delta={question.delta!r}", *weights])
    options = ["--stops", ",".join(map(str, question.stops)), "--delta", repr(question.delta)]
    if question.weights is not None:
        options += ["--weights", ",".join(map(repr, question.weights))]
    return {
        **_about(run, [found.delta], questions.GAP),
        **found.to_dict(),
        "python": python(
            f"step = {run_expression(step)}", f"answer = tb.early_stopping(step, {asked})"
        ),
        "command": command("stopping", step, *options, times=question.stops[-1]),
    }


def prices(question: questions.Prices) -> dict[str, Any]:
    """Prices the states of a workflow, or bounds the delta that covers their prices."""
    read = question.read()
    given = [] if question.delta is None else [f"delta={question.delta!r}"]
    asked = ", ".join([*given, f"rtol={question.rtol!r}"])
    options = [] if question.delta is None else ["--delta", repr(question.delta)]
    content = read.to_dict()
    line = ["tightbudget", "workflow", "plan.toml", *options, "--rtol", repr(question.rtol)]
    return {
        "what": in_short(read.workflow),
        **read.priced(question.delta, question.rtol).to_dict(),
        "python": python(
            f"plan = tb.workflows.WorkflowFile.from_dict({content!r})",
            f"answer = plan.priced({asked})",
        ),
        "command": f"cat > plan.toml <<'END'\n{workflow_text(content)}END\n" + shlex.join(line),
    }


def calibrate(question: questions.Calibrate) -> dict[str, Any]:
    """Finds the best value of a parameter, and the cost that is reached with it."""
    name, search = question.parameter, _search(question)

    def steps_with(value: float | Letter) -> list[dict[str, Any]]:
        changed = {**question.steps[question.of], name: value}
        return [changed if i == question.of else step for i, step in enumerate(question.steps)]

    target = {
        key: value
        for key in ("epsilon", "delta", "advantage", "tpr", "fpr")
        if (value := getattr(question, key)) is not None
    }
    found = tightbudget.calibrate(
        lambda value: questions.composition_of(steps_with(value)), **target, **search
    )
    asked = [f"{key}={value!r}" for key, value in {**target, **search}.items() if value]
    return {
        **_about(found.composition, [found.met], questions.GAP),
        "parameter": name,
        **found.to_dict(),
        "python": python(
            "answer = tb.calibrate(",
            f"    lambda {name}: {steps_expression(steps_with(Letter(name)))},",
            *(f"    {line}," for line in asked),
            ")",
        ),
        "command": _calibration_command(question, target),
    }


# ------------------------------------------------------------------------- what they share


@dataclass(frozen=True)
class _AtOnePoint:
    """A question about a composition at one delta or epsilon.

    Attributes:
        run: the composition.
        given: "delta" or "epsilon".
        at: the value of the given quantity.
        rtol: the wanted relative gap of the bounds.
    """

    run: Composition
    given: str
    at: float
    rtol: float

    @staticmethod
    def of(question: questions.Curve | questions.Compare | questions.OneMore) -> _AtOnePoint:
        return _AtOnePoint(question.composition(), *question.target(), question.rtol)

    @property
    def answered(self) -> str:
        return "epsilon" if self.given == "delta" else "delta"

    def bounds(self, run: Composition) -> Bounds:
        ask = run.epsilon if self.given == "delta" else run.delta
        return ask(self.at, self.rtol)

    def about(self, answers: Iterable[Bounds]) -> dict[str, Any]:
        return {**_about(self.run, answers, self.rtol), self.given: self.at}

    @property
    def gap(self) -> str:
        return "" if self.rtol == questions.GAP else f", rtol={self.rtol!r}"

    @property
    def arguments(self) -> str:
        return f"{self.given}={self.at!r}{self.gap}"

    @property
    def options(self) -> list[str]:
        gap = [] if self.rtol == questions.GAP else ["--rtol", repr(self.rtol)]
        return [f"--{self.given}", repr(self.at), *gap]


def _curve(
    asked: _AtOnePoint, question: questions.Curve
) -> tuple[Bounds, list[float], tightbudget.Curve]:
    """Bounds the answer and the curve; the middle entry lists the curve's deltas."""
    bounds = asked.bounds(asked.run)
    deltas = _deltas(question, bounds)
    return bounds, deltas, asked.run.curve(deltas=deltas, rtol=asked.rtol)


def curve_of(question: questions.Curve) -> tightbudget.Curve:
    """Computes the curve alone, for a picture."""
    return _curve(_AtOnePoint.of(question), question)[2]


def schedule_of(question: questions.Stopping) -> tightbudget.StoppingSchedule:
    """Computes the schedule of stopping alone, for a picture."""
    step = _step(question.composition())
    return tightbudget.early_stopping(step, question.stops, question.delta, question.weights)


def _ours(found: tightbudget.Comparison) -> list[Bounds]:
    """Lists our own bounds of a comparison, which are its first row."""
    answer = found.rows[0].answer
    return [answer] if isinstance(answer, Bounds) else []


def _about(run: Composition, answers: Iterable[Bounds], rtol: float) -> dict[str, Any]:
    """Describes a composition in words and as steps of a plan file, and what its bounds are.

    Args:
        run: the composition.
        answers: the bounds that the answer has.
        rtol: the wanted relative gap of each of them.
    """
    steps = [{**mechanism.to_dict(), "times": times} for mechanism, times in run.parts]
    return {"what": in_words(run), "steps": steps, **two_ends(answers)}


def _deltas(question: questions.Curve, bounds: Bounds) -> list[float]:
    """Chooses the deltas of a curve: the usual ones, or as many that reach past the answer."""
    if question.deltas is not None:
        return question.deltas
    at = bounds.upper if question.delta is None else question.delta
    first, last = max(DELTAS[0], at), max(_LEAST, min(DELTAS[-1], at / 100))
    if (first, last) == (DELTAS[0], DELTAS[-1]) or at == 0.0:
        return [*DELTAS]
    return [float(f"{x:.2g}") for x in np.geomspace(first, last, len(DELTAS))]


def _step(run: Composition) -> Composition:
    """Returns the composition of one step: one run of a single mechanism, or all mechanisms."""
    return Composition(((run.parts[0][0], 1),)) if len(run.parts) == 1 else run


def _search(question: questions.Calibrate) -> dict[str, Any]:
    """Returns the arguments of the search for a parameter."""
    if question.of >= len(question.steps):
        raise ParameterError(f"of must be below {len(question.steps)}, got {question.of}")
    kind = question.steps[question.of].get("mechanism")
    if not isinstance(kind, str) or kind not in tightbudget.mechanisms.MECHANISMS:
        questions.composition_of(question.steps)  # refuses the unknown mechanism by its name
    search = search_of(str(kind), question.parameter)
    return search if question.between is None else {**search, "between": (*question.between,)}


def _calibration_command(question: questions.Calibrate, target: dict[str, float]) -> str | None:
    """Writes the command line of a calibration; None for several mechanisms."""
    options = [word for key, value in target.items() for word in (f"--{key}", repr(value))]
    if question.between is not None:
        options += ["--between", ":".join(map(repr, question.between))]
    return (
        calibration(question.steps[0], question.parameter, *options)
        if len(question.steps) == 1
        else None
    )
