"""``tightbudget check``: a number that somebody printed, against what is certified."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tightbudget.cli.options import AsJson, Rtol
from tightbudget.cli.output import Stopwatch, print_answer, print_rows, working
from tightbudget.cli.refusals import REFUTED
from tightbudget.evidence import read_claim


def check(
    file: Annotated[
        Path,
        typer.Argument(
            help="JSON or TOML: epsilon and delta as printed, and the steps of a plan, training, "
            "or event."
        ),
    ],
    rtol: Rtol = 1e-4,
    json: AsJson = False,
) -> None:
    """Checks whether an epsilon that somebody printed can be true, and says why not.

    The file has epsilon and delta as they were printed, and what was run: the steps of a plan;
    training, with noise_multiplier, batch_size, dataset_size, sampler, and epochs or steps; or
    event, a tree of dp-accounting's events. The verdict is "too low" (refuted, with exit code 8),
    "too high" (it holds, and less does), "agrees", or "open" (between two bounds of which nobody
    knows more). Files may be .gz.

    For example: tightbudget check claim.json
    """
    watch = Stopwatch()
    claim = read_claim(file)
    with working("composing"):
        found = claim.check(rtol)
    if json:
        print_answer(found.to_dict(), {"claim": str(file), "rtol": rtol}, watch)
    else:
        print_rows({**found.rows(), "seconds": f"{watch.seconds:.2f}"})
    if found.verdict == "too low":
        raise typer.Exit(REFUTED)
