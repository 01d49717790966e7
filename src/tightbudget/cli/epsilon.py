"""``tightbudget epsilon`` and ``tightbudget delta``: one number, certified."""

from __future__ import annotations

import math
from typing import Annotated, Any

from tightbudget import Bounds, Composition
from tightbudget.accounting.describe import in_words, two_ends
from tightbudget.accounting.sampling import OPTIONS
from tightbudget.cli.options import AsJson, Rtol, number
from tightbudget.cli.output import Stopwatch, print_answer, print_rows, working
from tightbudget.cli.source import NamedComposition

_NOTHING_PRIVATE = 50.0  # nats: a posterior of 1 - 2e-22 from a prior of one half


def epsilon(
    source: NamedComposition,
    delta: Annotated[float, number("In [0, 1].")],
    rtol: Rtol = 1e-4,
    json: AsJson = False,
) -> None:
    """Bounds epsilon (nats) at a delta.

    For example: tightbudget epsilon gaussian --sigma 1 --rate 0.01 --steps 1000 --delta 1e-5
    """
    watch = Stopwatch()
    composition = source.composition()
    answer(
        composition,
        in_words(composition),
        asked=source.asked(delta=delta, rtol=rtol),
        given="delta",
        at=delta,
        rtol=rtol,
        watch=watch,
        json=json,
    )


def delta(
    source: NamedComposition,
    epsilon: Annotated[float, number("At least 0, in nats.")],
    rtol: Rtol = 1e-4,
    json: AsJson = False,
) -> None:
    """Bounds delta at an epsilon (nats).

    For example: tightbudget delta laplace --scale 20 --steps 100 --epsilon 1
    """
    watch = Stopwatch()
    composition = source.composition()
    answer(
        composition,
        in_words(composition),
        asked=source.asked(epsilon=epsilon, rtol=rtol),
        given="epsilon",
        at=epsilon,
        rtol=rtol,
        watch=watch,
        json=json,
    )


def answer(
    composition: Composition,
    what: str,
    *,
    asked: dict[str, Any],
    given: str,
    at: float,
    rtol: float,
    watch: Stopwatch,
    json: bool,
) -> None:
    """Bounds a composition's epsilon or delta, and prints them for a person or a program.

    Args:
        composition: the mechanisms that are asked about.
        what: names the composition to a person.
        asked: the question as plain JSON values, which tells a program.
        given: "delta", and the answer is an epsilon (nats); or "epsilon", and it is a delta.
        at: the given value.
        rtol: wanted relative gap of the bounds.
        watch: has run since the command began.
        json: whether a program reads the answer.
    """
    answered = "epsilon" if given == "delta" else "delta"
    ask = composition.epsilon if given == "delta" else composition.delta
    with working("composing"):
        bounds = ask(at, rtol)
    at = float(at)  # the library has accepted it
    ends = two_ends([bounds])
    note = ends | (_note(bounds, asked) if given == "delta" else {})
    if json:
        print_answer({answered: bounds.to_dict(), given: at, **note}, asked, watch)
        return
    # bounds of two kinds share no digits by which they could be cut
    rows = {
        "what": what,
        answered: f"{bounds:.6g}" if ends else str(bounds),
        f"at {given}": repr(at),
    }
    if bounds.upper == math.inf:
        rows["because"] = f"delta is in {composition.delta(math.inf)} however large epsilon is"
    elif bounds.upper > 0 and not ends:
        rows["gap"] = f"{bounds.relative_gap:.1e}, relative"
    print_rows({**rows, **note, "seconds": f"{watch.seconds:.2f}"})


def _note(epsilon: Bounds, asked: dict[str, Any]) -> dict[str, str]:
    """Notes that a sampling rate may have been forgotten.

    Above 50 nats nothing is private, and training without samples is what gets there. A rate that
    was given, also 1, is taken at its word.
    """
    sampled = asked.get("mechanism") != "gaussian" or any(name in asked for name in OPTIONS)
    if sampled or asked["steps"] < 2 or not epsilon.lower > _NOTHING_PRIVATE:
        return {}
    return {"note": "without --rate every run sees all records; did you forget --rate?"}
