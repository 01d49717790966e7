"""Curves and schedules as picture files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tightbudget.accounting.schedule import StoppingSchedule
from tightbudget.drawing import picture
from tightbudget.mechanisms.curve import Curve


def save_plot(curves: Mapping[str, Curve], path: str | Path, title: str | None = None) -> None:
    """Draws labelled curves into one picture, in the format that the path's name ends in.

    Raises:
        ExtraError: matplotlib is not installed.
        FileError: another ending than .png, .svg or .pdf, or it cannot be written there.
    """
    with picture(path, title) as ax:
        for label, curve in curves.items():
            curve.plot(ax=ax, label=label)


def save_schedule(schedule: StoppingSchedule, path: str | Path, title: str | None = None) -> None:
    """Draws a schedule into a picture, in the format that the path's name ends in.

    Raises:
        ExtraError: matplotlib is not installed.
        FileError: another ending than .png, .svg or .pdf, or it cannot be written there.
    """
    with picture(path, title) as ax:
        schedule.plot(ax=ax)
