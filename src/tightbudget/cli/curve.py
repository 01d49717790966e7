"""``tightbudget curve``: many points, as a table, a picture, CSV or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from tightbudget import Curve, ParameterError
from tightbudget.accounting.plot import save_plot
from tightbudget.cli.options import AsJson, Rtol
from tightbudget.cli.output import (
    Stopwatch,
    print_answer,
    print_rows,
    print_table,
    tracked,
)
from tightbudget.cli.source import NamedComposition, forgotten_rate
from tightbudget.drawing import picture_path
from tightbudget.mechanisms.curve import DELTAS
from tightbudget.notation.words import in_words, two_ends
from tightbudget.numerics.validate import float_of
from tightbudget.text_file import write_text

_MOST_POINTS = 10_000


def curve(
    source: NamedComposition,
    out: Annotated[
        Path | None, typer.Option(help="Draw it, to a .png, .svg or .pdf (extra: plot).")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write it as CSV; .gz is gzipped.")] = None,
    epsilons: Annotated[
        str | None, typer.Option(help="delta at these: first:last:number, evenly, or a,b,c.")
    ] = None,
    deltas: Annotated[
        str | None,
        typer.Option(
            help="epsilon at these: first:last:number, evenly on a log scale, or a,b,c.",
            show_default="21 points from 1e-2 to 1e-12",
        ),
    ] = None,
    rtol: Rtol = 1e-4,
    json: AsJson = False,
) -> None:
    """Bounds epsilon at many deltas, or delta at many epsilons.

    For example: tightbudget curve plan.toml --out curve.png --csv curve.csv
    """
    watch = Stopwatch()
    if epsilons is not None and deltas is not None:
        raise ParameterError("give one of --epsilons and --deltas, got both")
    # a bad path is refused before the long work
    if out is not None:
        picture_path(out)
    points = (
        _points("epsilons", epsilons)
        if epsilons is not None
        else [*DELTAS]
        if deltas is None
        else _points("deltas", deltas)
    )
    composition = source.composition()
    asked = {"deltas" if epsilons is None else "epsilons": points}
    found = composition.curve(**asked, rtol=rtol, progress=lambda x: tracked(x, "composing"))
    said = source.asked(**asked, rtol=rtol)
    ends = two_ends(found) | forgotten_rate(composition, said)
    if csv is not None:
        write_text(csv, _csv(found))
    if out is not None:
        save_plot({"": found}, out, title=source.title(composition))
    if json:
        print_answer({**found.to_dict(), **ends}, said, watch)
        return
    if out is None and csv is None:
        rows = [(f"{x!r}", str(found[i])) for i, x in enumerate(found.x.tolist())]
        print_table((found.given, found.answered), rows)
    wrote = "\n".join(str(path) for path in (csv, out) if path is not None)
    print_rows(
        {"what": in_words(composition)}
        | ({"wrote": wrote} if wrote else {})
        | ends
        | {"points": str(len(found)), "seconds": f"{watch.seconds:.2f}"}
    )


def _points(name: str, text: str) -> list[float]:
    try:
        if ":" not in text:
            return [float_of(part.strip()) for part in text.split(",")]
        first, last, number = text.split(":")
        a, b = float_of(first.strip()), float_of(last.strip())
        n = int(number) if number.isascii() and number.isdigit() else 0
        if not (2 <= n <= _MOST_POINTS and np.isfinite([a, b]).all()):
            raise ValueError
        if name == "epsilons":
            inner = np.linspace(a, b, n)[1:-1]
        elif min(a, b) > 0 and max(a, b) <= 1:
            inner = np.geomspace(a, b, n)[1:-1]
        else:
            raise ValueError
    except ValueError:
        example = "0:5:11 or 0.5,1,2" if name == "epsilons" else "1e-2:1e-12:21 or 1e-5,1e-6"
        raise ParameterError(f"{name} must be like {example}, got {text!r}") from None
    # any points will do, and short numbers are easier to quote
    return [a, *(float(f"{x:.6g}") for x in inner), b]


def _csv(curve: Curve) -> str:
    lines = [f"{curve.given},{curve.answered}_lower,{curve.answered}_upper"]
    for x, low, high in zip(
        curve.x.tolist(), curve.lower.tolist(), curve.upper.tolist(), strict=True
    ):
        lines.append(f"{x!r},{low!r},{high!r}")
    return "\n".join(lines) + "\n"
