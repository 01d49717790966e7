"""``tightbudget mechanisms``: the mechanisms and their parameters."""

from __future__ import annotations

import dataclasses

from tightbudget import MECHANISMS, __version__
from tightbudget.accounting.describe import parameters_of, summary_of
from tightbudget.cli.options import AsJson
from tightbudget.cli.output import print_json, print_table, print_text

__all__ = ["mechanisms"]


def mechanisms(json: AsJson = False) -> None:
    """Lists the mechanisms; with --json also their parameters.

    For example: tightbudget mechanisms
    """
    # a sampled mechanism is asked about with --rate
    kinds = sorted(kind for kind in MECHANISMS if kind != "subsampled")
    if json:
        found = [
            {
                "mechanism": kind,
                "summary": summary_of(kind),
                "parameters": [dataclasses.asdict(p) for p in parameters_of(kind).values()],
            }
            for kind in kinds
        ]
        print_json({"mechanisms": found, "version": __version__})
        return
    print_table(("mechanism", ""), [(kind, summary_of(kind)) for kind in kinds])
    print_text("\nThe parameters of one: tightbudget epsilon gaussian --help")
