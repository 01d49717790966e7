"""``tightbudget mechanisms``: the mechanisms and their parameters."""

from __future__ import annotations

import dataclasses
import inspect

from tightbudget import __version__
from tightbudget.cli.options import AsJson
from tightbudget.cli.output import print_json, print_table, print_text
from tightbudget.mechanisms import MECHANISMS
from tightbudget.mechanisms.derived import Derived
from tightbudget.notation.options import OPTIONS, options_of_kind, written
from tightbudget.notation.parameters import parameters_of, summary_of


def mechanisms(json: AsJson = False) -> None:
    """Lists the mechanisms, and the ways to sample records; with --json also parameters.

    For example: tightbudget mechanisms
    """
    derived = sorted(kind for kind, cls in MECHANISMS.items() if issubclass(cls, Derived))
    kinds = sorted({*MECHANISMS}.difference(derived))
    if json:
        found = [
            {
                "mechanism": kind,
                "summary": summary_of(kind),
                "parameters": [dataclasses.asdict(p) for p in parameters_of(kind).values()],
            }
            for kind in kinds
        ]
        samplers = [
            {"mechanism": kind, "options": _needed(kind), "summary": summary_of(kind)}
            for kind in derived
        ]
        print_json({"mechanisms": found, "samplers": samplers, "version": __version__})
        return
    print_table(("mechanism", ""), [(kind, summary_of(kind)) for kind in kinds])
    print_text("")
    print_table(("sampled by", ""), [(_needed(kind), summary_of(kind)) for kind in derived])
    print_text("\nThe parameters of one: tightbudget epsilon gaussian --help")


def _needed(kind: str) -> str:
    """Writes the options that make any mechanism one of a kind, without those that may be absent.

    Args:
        kind: the name of a mechanism that is made of another one.
    """
    needed = [
        written(option)
        for option, parameter in options_of_kind(kind).items()
        if option in OPTIONS and parameter.default is inspect.Parameter.empty
    ]
    return " ".join(needed)
