"""``tightbudget calibrate``: the least noise, or the most runs, that meet a target."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer

import tightbudget
from tightbudget import Composition, ParameterError
from tightbudget.cli.options import AsJson, number
from tightbudget.cli.output import Stopwatch, print_answer, print_rows, working
from tightbudget.cli.source import NamedComposition, forgotten_rate
from tightbudget.mechanisms import MECHANISMS
from tightbudget.notation.options import SAMPLERS, options_of_kind
from tightbudget.notation.parameters import kind_of, search_of
from tightbudget.notation.words import in_words, two_ends
from tightbudget.numerics.validate import float_of


def calibrate(
    source: NamedComposition,
    epsilon: Annotated[float | None, number("With delta, the target: at least 0, in nats.")] = None,
    delta: Annotated[float | None, number("With epsilon, the target: in (0, 1).")] = None,
    advantage: Annotated[
        float | None, number("The target: an attack's largest advantage, in (0, 1).")
    ] = None,
    tpr: Annotated[
        float | None, number("With fpr, the target: an attack's true-positive rate, in (0, 1).")
    ] = None,
    fpr: Annotated[float | None, number("The false-positive rate of that attack.")] = None,
    parameter: Annotated[
        str | None,
        typer.Option(
            help="What to find: a parameter of the mechanism, times, or an option that says "
            "how records get into a run, such as rate.",
            show_default="the needed parameter that is not given",
        ),
    ] = None,
    between: Annotated[
        str | None,
        typer.Option(help="Where to look: lowest:highest.", show_default="by doubling from 1"),
    ] = None,
    rtol: Annotated[float, number("How close to the best value.")] = 1e-5,
    json: AsJson = False,
) -> None:
    """Finds the parameter's best value whose certified upper bound meets the target.

    The target is --epsilon and --delta, or --advantage, or --tpr and --fpr. Of a parameter that
    lowers the cost (noise) the smallest value is best, of one that raises it (times, rate) the
    largest.

    For example: tightbudget calibrate gaussian --rate 0.01 --times 10000 --epsilon 1 --delta 1e-6
    """
    watch = Stopwatch()
    kind = kind_of(source.name)
    if kind is None:
        known = ", ".join(sorted(MECHANISMS))
        raise ParameterError(f"MECHANISM must be one of {known} to calibrate, got {source.name!r}")
    name = _sought(kind, source, parameter)
    search = search_of(kind, name)

    def function(value: float) -> Composition:
        return source.with_value(name, value).composition()

    with working(f"searching {name}"):
        found = tightbudget.calibrate(
            function,
            epsilon=epsilon,
            delta=delta,
            advantage=advantage,
            tpr=tpr,
            fpr=fpr,
            **(search if between is None else {**search, "between": _between(between)}),
            rtol=rtol,
        )
    asked = source.with_value(name, found.value).asked(
        parameter=name,
        epsilon=epsilon,
        delta=delta,
        advantage=advantage,
        tpr=tpr,
        fpr=fpr,
        between=between,
        rtol=rtol,
    )
    target = found.target
    ends = two_ends([found.met]) | forgotten_rate(found.composition, asked)
    if json:
        for given in (asked, asked["parameters"]):  # what is found was not asked with a value
            given.pop(name, None)
        print_answer({**found.to_dict(), **ends}, asked, watch)
        return
    if target.name == "delta":
        cost = {"epsilon": f"{found.epsilon}  (target {epsilon!r})", "at delta": repr(delta)}
    else:
        cost = {target.name: f"{found.met}  (target {target.most!r})"}
    if target.name == "tpr":
        cost |= {"at fpr": repr(target.at)}
    print_rows(
        {
            name: repr(found.value),
            "what": in_words(found.composition),
            **cost,
            **ends,
            "seconds": f"{watch.seconds:.2f}",
        }
    )


def _sought(kind: str, source: NamedComposition, asked: str | None) -> str:
    """Returns the name of the parameter to be found; all other needed ones were given."""
    parameters = options_of_kind(kind)
    if asked is not None:
        name = asked.replace("-", "_")
        marks = [sampler.mark for sampler in SAMPLERS.values()]
        known = [*(n for n in parameters if n != "relation"), *marks, "times"]
        if name not in known:
            options = ", ".join(dict.fromkeys(known))
            raise ParameterError(f"parameter must be one of {options}, got {asked!r}")
        if name in source.table:
            given = source.table[name]
            raise ParameterError(f"{name} must be left out to be calibrated, got {given!r}")
        return name
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty and name not in source.table
    ]
    if not missing:
        raise ParameterError(
            f"parameter must be named, or left out of the mechanism: {kind} has all it needs"
        )
    # if several are missing, the constructor refuses and names the others
    return missing[0]


def _between(text: str) -> tuple[float, float]:
    try:
        low, high = (float_of(part.strip()) for part in text.split(":"))
    except ValueError:
        raise ParameterError(f"between must be like 0.1:10, got {text!r}") from None
    return low, high
