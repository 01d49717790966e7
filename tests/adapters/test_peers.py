"""The peers that are installed still answer what the table of the reference tests says of them."""

from __future__ import annotations

import importlib
import importlib.metadata
import warnings
from typing import Any

import numpy as np
import pytest
from tests.reference.peers import Row, rows

# the distribution of each tool, and where its words are found
TOOLS = {
    "dp-accounting": (
        "dp-accounting",
        "dp_accounting",
        "dp_accounting.dp_event",
        "dp_accounting.pld",
        "dp_accounting.rdp",
        "dp_accounting.pld.accountant",
        "dp_accounting.pld.common",
        "dp_accounting.pld.privacy_loss_mechanism",
        "dp_accounting.pld.privacy_loss_distribution",
    ),
    "Opacus": ("opacus", "opacus.accountants", "opacus.accountants.utils"),
    "JAX Privacy": (
        "jax-privacy",
        "dp_accounting",
        "dp_accounting.pld",
        "jax_privacy.experimental.accounting",
    ),
    "OpenDP": ("opendp", "opendp.mod"),
    "dpmm": (
        "dpmm",
        "dpmm.models.base.mechanisms.cdp2adp",
        "dpmm.models.mst",
        "dpmm.models.priv_bayes",
    ),
}


def installed(tool: str) -> str:
    """Its version, or nothing."""
    try:
        return importlib.metadata.version(TOOLS[tool][0])
    except importlib.metadata.PackageNotFoundError:
        return ""


def stepped(accountant: Any, *step: float) -> Any:
    """An accountant of Opacus after (noise multiplier, sample rate, number of steps)."""
    accountant.history = [step]
    return accountant


def answer(row: Row) -> float:
    """What the tool says now."""
    words: dict[str, Any] = {"np": np, "stepped": stepped}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tool's, about itself
        for module in TOOLS[row.tool][1:]:
            words |= vars(importlib.import_module(module))
        if row.tool == "OpenDP":
            words["dp"] = importlib.import_module("opendp.prelude")
            words["dp"].enable_features("contrib")
        return float(eval(row.asked, words))


ROWS = [
    pytest.param(row, id=row.asked, marks=[pytest.mark.slow] * row.slow)
    for row in rows()
    if row.tool in TOOLS and row.version == installed(row.tool)
]


@pytest.mark.one_in(8)
@pytest.mark.parametrize("row", ROWS)
def test_the_tool_still_says_so(row: Row) -> None:
    assert row.near(answer(row)), f"{row.tool} now says {answer(row)!r}"


def test_the_accountant_of_the_test_environment_was_asked() -> None:
    assert installed("dp-accounting") == "0.6.0"
    assert len(ROWS) >= 60
