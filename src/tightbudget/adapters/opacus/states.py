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


def checked_passes(passes: object) -> list[tuple[float, int, int, int, int]]:
    """Returns the entries of a list of passes as plain numbers; refuses any other list.

    An entry without the number of smaller batches is that of an older checkpoint, which does not
    know whether the last batch was smaller: it counts as smaller.
    """
    if isinstance(passes, (tuple, list)):
        # guard: older-pass-may-end-small
        passes = [_with_smaller(entry) for entry in passes]
    entries = _entries("passes", passes, "noise multiplier, batches, smaller, passes, steps")
    plain = [
        (
            non_negative(**{f"passes[{i}][0]": sigma}),
            positive_count(**{f"passes[{i}][1]": batches}),
            count(**{f"passes[{i}][2]": smaller}),
            count(**{f"passes[{i}][3]": often}),
            count(**{f"passes[{i}][4]": steps}),
        )
        for i, (sigma, batches, smaller, often, steps) in enumerate(entries)
    ]
    for i, (_, batches, smaller, *_) in enumerate(plain):
        if smaller >= batches:
            must = f"be below passes[{i}][1] ({batches})"
            raise refuse(f"passes[{i}][2]", must, smaller)
    return plain


def _with_smaller(entry: Any) -> Any:
    """Adds the number of smaller batches to an entry (noise multiplier, batches, passes, steps)."""
    if not isinstance(entry, (tuple, list)) or len(entry) != 4:
        return entry
    sigma, batches, often, steps = entry
    return sigma, batches, int(batches != 1), often, steps


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
