"""``tightbudget epsilon`` and ``tightbudget delta``: one number, certified."""

from __future__ import annotations

from typing import Annotated

import typer

from tightbudget import Bounds
from tightbudget.cli.output import AsJson, Rtol, Stopwatch, print_json, print_rows, working
from tightbudget.cli.source import Source, described

__all__ = ["delta", "epsilon"]


def epsilon(
    source: Source,
    delta: Annotated[float, typer.Option(help="In [0, 1].")],
    rtol: Rtol = 1e-4,
    json: AsJson = False,
) -> None:
    """Bounds of epsilon (nats) at a delta.

    For example: tightbudget epsilon gaussian --sigma 1 --rate 0.01 --steps 1000 --delta 1e-5
    """
    watch = Stopwatch()
    composition = source.composition()
    with working("composing"):
        bounds = composition.epsilon(delta, rtol)
    report("epsilon", bounds, "delta", delta, described(composition), watch, json=json)


def delta(
    source: Source,
    epsilon: Annotated[float, typer.Option(help="At least 0, in nats.")],
    rtol: Rtol = 1e-4,
    json: AsJson = False,
) -> None:
    """Bounds of delta at an epsilon (nats).

    For example: tightbudget delta laplace --scale 20 --steps 100 --epsilon 1
    """
    watch = Stopwatch()
    composition = source.composition()
    with working("composing"):
        bounds = composition.delta(epsilon, rtol)
    report("delta", bounds, "epsilon", epsilon, described(composition), watch, json=json)


def report(
    answered: str,
    bounds: Bounds,
    given: str,
    at: float,
    what: str,
    watch: Stopwatch,
    *,
    json: bool,
) -> None:
    """Prints one answer, either way."""
    if json:
        print_json({answered: bounds.to_dict(), given: at, "seconds": watch.seconds})
        return
    gap = f"  (relative gap {bounds.relative_gap:.1e})" if 0 < bounds.upper < float("inf") else ""
    print_rows(
        {
            "what": what,
            answered: f"{bounds}{gap}",
            f"at {given}": repr(at),
            "seconds": f"{watch.seconds:.2f}",
        }
    )
