"""What a reproduction says about its paper, worked out from its own numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "Verdict"]


class Verdict(StrEnum):
    """Whether the paper's claim holds."""

    MATCHES = "matches"
    IN_PART = "matches in part"
    DIFFERS = "does not match"
    BEYOND = "goes beyond the paper"  # which makes no claim that could be checked

    @staticmethod
    def of(holds: bool) -> Verdict:
        """Of a claim that is one statement."""
        return Verdict.MATCHES if holds else Verdict.DIFFERS


@dataclass(frozen=True)
class Finding:
    """What came out, in a sentence or two, with the reason where it is not the paper's claim."""

    text: str
    verdict: Verdict
