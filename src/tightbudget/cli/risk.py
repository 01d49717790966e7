"""``tightbudget risk``: the power of an attacker."""

from __future__ import annotations

from typing import Annotated

from tightbudget.accounting.describe import in_words, two_ends
from tightbudget.cli.options import AsJson, Rtol, number
from tightbudget.cli.output import Stopwatch, print_answer, print_rows, working
from tightbudget.cli.source import NamedComposition


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

    For example: tightbudget risk gaussian --sigma 1 --rate 0.01 --steps 1000 --epsilon 2
    """
    watch = Stopwatch()
    composition = source.composition()
    with working("composing"):
        found = composition.risk(epsilon, fpr=fpr, prior=prior, slack=slack, rtol=rtol)
    ends = two_ends([found.advantage, found.tpr, found.delta])
    if json:
        asked = source.asked(epsilon=epsilon, fpr=fpr, prior=prior, slack=slack, rtol=rtol)
        print_answer({**found.to_dict(), **ends}, asked, watch)
        return
    rows = {"what": in_words(composition), **found.rows(), **ends}
    print_rows({**rows, "seconds": f"{watch.seconds:.2f}"})
