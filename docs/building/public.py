"""The public names, each with its one place: ``tightbudget`` itself, or a room that has a face."""

from __future__ import annotations

import tightbudget as tb

ROOMS = (
    tb.audit,
    tb.client,
    tb.errors,
    tb.evidence,
    tb.ledger,
    tb.marginals,
    tb.mechanisms,
    tb.release,
    tb.sweeps,
    tb.tables,
    tb.trials,
    tb.workflows,
)


def public() -> dict[str, str]:
    """Maps every public name to its dotted path; a name of the package itself is there alone."""
    in_rooms = {name: f"{room.__name__}.{name}" for room in ROOMS for name in room.__all__}
    rooms = {room.__name__.partition(".")[2] for room in ROOMS}
    return in_rooms | {name: f"tightbudget.{name}" for name in tb.__all__ if name not in rooms}
