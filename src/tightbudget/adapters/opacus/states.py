"""The lists of steps that a checkpoint holds, checked."""

from __future__ import annotations

from typing import Any

from tightbudget.numerics.validate import count, non_negative, positive_count, probability, refuse


def _entries(name: str, given: object, fields: str) -> list[Any]:
    """Returns the entries of a list of tuples with these fields; refuses anything else."""
    if not isinstance(given, (tuple, list)):
        raise refuse(name, "be a list", given)
    for i, entry in enumerate(given):
        if not isinstance(entry, (tuple, list)) or len(entry) != len(fields.split(", ")):
            raise refuse(f"{name}[{i}]", f"be ({fields})", entry)
    return list(given)


def checked(history: object) -> list[tuple[float, float, int]]:
    """Returns the entries of a history as plain numbers; refuses any other history."""
    entries = _entries("history", history, "noise multiplier, sample rate, steps")
    return [
        (
            non_negative(**{f"history[{i}][0]": sigma}),
            probability(**{f"history[{i}][1]": rate}),
            count(**{f"history[{i}][2]": steps}),
        )
        for i, (sigma, rate, steps) in enumerate(entries)
    ]


def checked_passes(passes: object) -> list[tuple[float, int, int, int]]:
    """Returns the entries of a list of passes as plain numbers; refuses any other list."""
    entries = _entries("passes", passes, "noise multiplier, batches, passes, steps")
    return [
        (
            non_negative(**{f"passes[{i}][0]": sigma}),
            positive_count(**{f"passes[{i}][1]": batches}),
            count(**{f"passes[{i}][2]": often}),
            count(**{f"passes[{i}][3]": steps}),
        )
        for i, (sigma, batches, often, steps) in enumerate(entries)
    ]


def checked_draws(draws: object) -> list[tuple[float, int, int, int]]:
    """Returns the entries of a list of draws as plain numbers; refuses any other list."""
    entries = _entries("draws", draws, "noise multiplier, batch, of, steps")
    return [
        (
            non_negative(**{f"draws[{i}][0]": sigma}),
            positive_count(**{f"draws[{i}][1]": batch}),
            positive_count(**{f"draws[{i}][2]": of}),
            count(**{f"draws[{i}][3]": steps}),
        )
        for i, (sigma, batch, of, steps) in enumerate(entries)
    ]
