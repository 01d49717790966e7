"""``tightbudget stopping``: the cost of stopping early, one delta for all stops."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tightbudget import ParameterError, early_stopping
from tightbudget.accounting.plot import save_schedule
from tightbudget.cli.options import AsJson, number
from tightbudget.cli.output import Stopwatch, print_answer, print_rows, working
from tightbudget.cli.source import NamedComposition
from tightbudget.drawing import picture_path
from tightbudget.notation.values import value_of
from tightbudget.notation.words import in_words
from tightbudget.numerics.validate import positive_count

_SHOWN = 10  # stops that the table shows


def stopping(
    source: NamedComposition,
    delta: Annotated[float, number("For all stops together, in (0, 1).")],
    every: Annotated[
        int | None, number("It may stop after each so many runs, and after the last.")
    ] = None,
    stops: Annotated[
        str | None,
        typer.Option(help="It may stop after these numbers of runs: a,b,c.", metavar="RUNS"),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="A share of delta for each stop, a,b,c: the larger, the cheaper it is there.",
            show_default="0.2 for all but the last, which has 1",
            metavar="NUMBERS",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the prices, to a .png, .svg or .pdf (extra: plot).")
    ] = None,
    json: AsJson = False,
) -> None:
    """Prices (epsilon, nats) of stopping early, covered by one delta.

    For example: tightbudget stopping gaussian --sigma 1 --times 100 --every 20 --delta 1e-5
    """
    watch = Stopwatch()
    if plot is not None:
        picture_path(plot)
    whole = source.composition()
    after = _stops(positive_count(times=source.times), every, stops)
    shares = None if weights is None else [value_of(part.strip()) for part in weights.split(",")]
    step = source.with_value("times", 1).composition()
    with working("choosing prices"):
        schedule = early_stopping(step, after, delta, shares)
    if plot is not None:
        save_schedule(schedule, plot, title=source.title(whole))
    if json:
        asked = source.asked(delta=delta, stops=after, weights=weights)
        print_answer(schedule.to_dict(), asked, watch)
        return
    print_rows(
        {
            "what": in_words(whole),
            "prices": schedule.table(_SHOWN, unit=False),
            "delta": str(schedule.delta),
        }
        | ({"wrote": str(plot)} if plot is not None else {})
        | {"seconds": f"{watch.seconds:.2f}"}
    )


def _stops(times: int, every: int | None, listed: str | None) -> list[int]:
    """Lists the runs after which it may stop, the last run among them.

    Args:
        times: the number of all runs.
        every: it may stop after each so many runs.
        listed: the runs after which it may stop, as typed.
    """
    if (every is None) == (listed is None):
        raise ParameterError("give exactly one of --every and --stops")
    if listed is None:
        apart = positive_count(every=every)
        if apart > times:
            raise ParameterError(f"every must be at most times = {times}, got {apart}")
        return [*range(apart, times, apart), times]
    stops = [value_of(part.strip()) for part in listed.split(",")]
    if stops[-1] != times:
        raise ParameterError(f"stops must end with times = {times}, got {listed!r}")
    return stops
