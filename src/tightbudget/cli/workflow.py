"""``tightbudget workflow``: the cost of a plan with choices, one delta for all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tightbudget import ParameterError
from tightbudget.cli.options import AsJson, Rtol, number
from tightbudget.cli.output import Stopwatch, print_answer, print_rows, working
from tightbudget.drawing import picture, picture_path
from tightbudget.numerics.validate import positive_count
from tightbudget.workflows import read_workflow
from tightbudget.workflows.workflow import in_short


def workflow(
    file: Annotated[
        Path,
        typer.Argument(
            help="States, moves, and weights or prices: TOML, or JSON as Python has it."
        ),
    ],
    delta: Annotated[
        float | None,
        number("For all choices together, in (0, 1); not if the file has prices."),
    ] = None,
    most: Annotated[int, number("The number of states that the table shows.")] = 20,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw states and prices, to a .png, .svg or .pdf (extra: plot)."),
    ] = None,
    rtol: Rtol = 1e-3,
    json: AsJson = False,
) -> None:
    """Prices (epsilon, nats) of the states of a plan with choices, covered by one delta.

    Shown are the costliest states and the way to each that costs most. If the file has prices, the
    answer is the smallest delta that covers them. Files may be .gz.

    For example: tightbudget workflow epochs.toml --delta 1e-5
    """
    watch = Stopwatch()
    most = positive_count(most=most)
    if plot is not None:
        picture_path(plot)
    read = read_workflow(file)
    with working("pricing the states"):
        if read.prices is None and delta is None:
            raise ParameterError("give --delta, or a price for each end in the file")
        if read.prices is not None and delta is not None:
            raise ParameterError(
                f"{file} has prices, for which delta is the answer: leave out --delta or the prices"
            )
        found = read.priced(delta, rtol)
    if plot is not None:
        with picture(plot, file.name) as ax:
            found.plot(ax=ax)
    if json:
        asked = {"workflow": str(file), "delta": delta, "rtol": rtol}
        content = {name: value for name, value in asked.items() if value is not None}
        print_answer(found.to_dict(), content, watch)
        return
    print_rows(
        {
            "what": in_short(read.workflow),
            "prices": found.table(most),
            "delta": str(found.delta),
        }
        | ({"wrote": str(plot)} if plot is not None else {})
        | {"seconds": f"{watch.seconds:.2f}"}
    )
