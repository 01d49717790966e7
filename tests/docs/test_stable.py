"""What 1.0 will freeze is a list in the repository, and the list is that of the code."""

from __future__ import annotations

from docs.building import stable


def test_what_is_frozen_has_not_changed_unseen() -> None:
    kept = stable.FILE.read_text(encoding="utf-8").splitlines()
    now = [*stable.lines()]
    gone, new = sorted({*kept} - {*now}), sorted({*now} - {*kept})
    assert kept == now, (
        f"gone: {gone}; new: {new}; if that is meant, say so in CHANGELOG.md and in "
        "docs/upgrading.md, and run PYTHONPATH=. python docs/building/stable.py --write"
    )


def test_the_top_level_is_small() -> None:
    """A name that few people need in the first week belongs to its room."""
    names = [line for line in stable.lines() if line.count(".") == 1 and line[:5] == "name "]
    assert len(names) <= 91
