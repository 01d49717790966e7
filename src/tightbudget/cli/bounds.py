"""``tightbudget epsilon``, ``delta``, ``risk`` and ``compare``: bounds for one composition."""

from __future__ import annotations

import math
from typing import Annotated, Any

from tightbudget import Bounds, Composition
from tightbudget.accounting.compare.compare import growing
from tightbudget.cli.options import AsJson, Rtol, number
from tightbudget.cli.output import (
    Stopwatch,
    growing_text,
    print_answer,
    print_rows,
    print_text,
    working,
)
from tightbudget.cli.source import NamedComposition, forgotten_rate
from tightbudget.notation.words import in_words, two_ends


def epsilon(
    source: NamedComposition,
    delta: Annotated[float, number("In [0, 1].")],
    rtol: Rtol = 1e-4,
    json: AsJson = False,
) -> None:
    """Bounds epsilon (nats) at a delta.

    For example: tightbudget epsilon gaussian --sigma 1 --rate 0.01 --times 1000 --delta 1e-5
    """
    _answer_of(source, "delta", delta, rtol, json)


def delta(
    source: NamedComposition,
    epsilon: Annotated[float, number("At least 0, in nats.")],
    rtol: Rtol = 1e-4,
    json: AsJson = False,
) -> None:
    """Bounds delta at an epsilon (nats).

    For example: tightbudget delta laplace --scale 20 --times 100 --epsilon 1
    """
    _answer_of(source, "epsilon", epsilon, rtol, json)


def risk(
    source: NamedComposition,
    epsilon: Annotated[float, number("The loss to look at, at least 0, in nats.")],
    fpr: Annotated[float, number("An attack's false-positive rate, in [0, 1].")] = 0.01,
    prior: Annotated[float, number("The attacker's belief beforehand, in (0, 1).")] = 0.5,
    slack: Annotated[float, number("The delta up to which mu bounds the curve.")] = 1e-10,
    rtol: Rtol = 1e-4,
    json: AsJson = False,
) -> None:
    """Bounds an attacker's power: advantage, detection, wrong guesses, an equivalent Gaussian.

    For example: tightbudget risk gaussian --sigma 1 --rate 0.01 --times 1000 --epsilon 2
    """
    watch = Stopwatch()
    composition = source.composition()
    with working("composing"):
        found = composition.risk(epsilon, fpr=fpr, prior=prior, slack=slack, rtol=rtol)
    asked = source.asked(epsilon=epsilon, fpr=fpr, prior=prior, slack=slack, rtol=rtol)
    ends = two_ends([found.advantage, found.tpr, found.delta])
    ends |= forgotten_rate(composition, asked)
    if json:
        print_answer({**found.to_dict(), **ends}, asked, watch)
        return
    rows = {"what": in_words(composition), **found.rows(), **ends}
    print_rows({**rows, "seconds": f"{watch.seconds:.2f}"})


def compare(
    source: NamedComposition,
    delta: Annotated[float | None, number("In (0, 1): compare epsilons.")] = None,
    epsilon: Annotated[float | None, number("At least 0, in nats: compare deltas.")] = None,
    rtol: Rtol = 1e-4,
    json: AsJson = False,
) -> None:
    """Compares our bounds with other people's theorems, at a delta or at an epsilon.

    For example: tightbudget compare laplace --scale 20 --times 100 --delta 1e-5
    """
    watch = Stopwatch()
    composition = source.composition()
    comparisons = growing(composition, delta=delta, epsilon=epsilon, rtol=rtol)
    with growing_text("computing the other rows") as show:
        for found in comparisons:
            show(str(found))
    ours = found.rows[0].answer
    asked = source.asked(delta=delta, epsilon=epsilon, rtol=rtol)
    ends = two_ends([ours] if isinstance(ours, Bounds) else [])
    ends |= forgotten_rate(composition, asked)
    if json:
        print_answer({**found.to_dict(), **ends}, asked, watch)
        return
    print_rows({"what": in_words(composition), **ends})
    print_text(str(found))
    print_rows({"seconds": f"{watch.seconds:.2f}"})


def _answer_of(source: NamedComposition, given: str, at: float, rtol: float, json: bool) -> None:
    """Bounds epsilon or delta of a named composition; for the arguments see :func:`answer`."""
    watch = Stopwatch()
    composition = source.composition()
    answer(
        composition,
        in_words(composition),
        asked=source.asked(**{given: at, "rtol": rtol}),
        given=given,
        at=at,
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
    note = ends | forgotten_rate(composition, asked, bounds if given == "delta" else None)
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
