"""``tightbudget histogram``: bounds for two columns of measurements."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
import typer

from tightbudget import HistogramPair, ParameterError, compose
from tightbudget.cli.bounds import answer
from tightbudget.cli.options import AsJson, Rtol, number
from tightbudget.cli.output import Stopwatch
from tightbudget.errors import FileError
from tightbudget.notation.words import number_of_times
from tightbudget.numerics.validate import count, float_of
from tightbudget.text_file import read_text


def histogram(
    active: Annotated[str, typer.Argument(help="Measurements of one kind, CSV of one column.")],
    passive: Annotated[str, typer.Argument(help="Measurements of the other kind.")],
    bin_width: Annotated[float, number("Length of a bin, in the measurements' unit.")] = 1.0,
    keep_below: Annotated[
        float | None, number("Drop measurements that are not below this.")
    ] = None,
    add_noise: Annotated[
        str | None,
        typer.Option(help="Independent noise: uniform:200 is on [0, 200), gaussian:5 has sd 5."),
    ] = None,
    smoothing: Annotated[float, number("Pseudo-count added to every bin.")] = 0.0,
    times: Annotated[int, number("How many measurements are seen.")] = 1,
    delta: Annotated[float | None, number("Ask for epsilon at this.")] = None,
    epsilon: Annotated[float | None, number("Ask for delta at this (nats).")] = None,
    rtol: Rtol = 1e-4,
    json: AsJson = False,
) -> None:
    """Bounds what two files of measurements tell apart, as histograms. Files may be .gz.

    The bounds are certified for these histograms. Nothing certifies that the histograms are the
    true distributions.

    For example: tightbudget histogram active.csv passive.csv --keep-below 300
    --add-noise uniform:200 --times 512 --delta 1e-4
    """
    watch = Stopwatch()
    if (delta is None) == (epsilon is None):
        got = "neither" if delta is None else "both"
        raise ParameterError(f"give one of --delta and --epsilon, got {got}")
    pair = HistogramPair.from_samples(
        read_numbers(active),
        read_numbers(passive),
        bin_width=bin_width,
        keep_below=keep_below,
        noise=add_noise,
        smoothing=smoothing,
    )
    composition = compose([pair]) * count(times=times)
    runs = number_of_times(composition.runs)
    what = f"{active} against {passive}, {np.size(pair.p)} bins of {bin_width:g}, {runs}"
    given = "delta" if epsilon is None else "epsilon"
    at = delta if epsilon is None else epsilon
    assert at is not None, "one of both is given"
    asked = {
        "active": active,
        "passive": passive,
        "bin_width": bin_width,
        **({} if keep_below is None else {"keep_below": keep_below}),
        **({} if add_noise is None else {"add_noise": add_noise}),
        "smoothing": smoothing,
        "times": times,
        given: at,
        "rtol": rtol,
    }
    answer(composition, what, asked=asked, given=given, at=at, rtol=rtol, watch=watch, json=json)


def read_numbers(path: str) -> list[float]:
    """Reads the numbers of a file with one column; a first line of letters is a header.

    Raises:
        FileError: the file cannot be read, has no numbers, or has a line that is no finite number.
    """
    values = []
    for n, line in enumerate(read_text(path).splitlines(), start=1):
        text = line.strip()
        try:
            value = float_of(text)
        except ValueError:
            if not text or (n == 1 and text.strip('"').replace("_", "").isalpha()):
                continue
            value = math.nan
        if not math.isfinite(value):
            shown = text if len(text) <= 40 else text[:37] + "..."
            raise FileError(f"{path}: line {n} must be one finite number, got {shown!r}")
        values.append(value)
    if not values:
        raise FileError(f"{path}: no numbers in it")
    return values
