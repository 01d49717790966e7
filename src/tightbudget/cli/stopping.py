"""``tightbudget stopping``: what it costs to stop early, one delta for all stops."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tightbudget import ParameterError, early_stopping
from tightbudget.accounting.plot import picture_path, save_schedule
from tightbudget.cli.options import AsJson, number
from tightbudget.cli.output import Stopwatch, print_json, print_rows, working
from tightbudget.cli.source import Source, described
from tightbudget.numerics.validate import positive_count

__all__ = ["stopping"]

_SHOWN = 10  # stops


def stopping(
    source: Source,
    delta: Annotated[float, number("For all stops together, in (0, 1).")],
    every: Annotated[int, number("It may stop after each so many steps, and after the last.")],
    plot: Annotated[
        Path | None, typer.Option(help="Draw the prices, to a .png, .svg or .pdf (extra: plot).")
    ] = None,
    json: AsJson = False,
) -> None:
    """Prices (epsilon, nats) of stopping early, covered by one delta.

    For example: tightbudget stopping gaussian --sigma 1 --steps 100 --every 20 --delta 1e-5
    """
    watch = Stopwatch()
    if plot is not None:
        picture_path(plot)
    whole = source.composition()
    steps, apart = positive_count(steps=source.steps), positive_count(every=every)
    if apart > steps:
        raise ParameterError(f"every must be at most steps = {steps}, got {apart}")
    stops = [*range(apart, steps, apart), steps]
    with working("choosing prices"):
        schedule = early_stopping(source.with_value("steps", 1).composition(), stops, delta)
    if plot is not None:
        save_schedule(schedule, plot, title=source.title(whole))
    if json:
        print_json(
            {
                "stops": list(schedule.stops),
                "epsilons": list(schedule.epsilons),
                "renyi_filter": list(schedule.renyi_filter()),
                "separate": list(schedule.separate),
                "delta": schedule.delta.to_dict(),
                "seconds": watch.seconds,
            }
        )
        return
    print_rows(
        {"what": described(whole), "prices": schedule.table(_SHOWN), "delta": str(schedule.delta)}
        | ({"wrote": str(plot)} if plot is not None else {})
        | {"seconds": f"{watch.seconds:.2f}"}
    )
