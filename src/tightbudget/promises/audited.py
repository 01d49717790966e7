"""Records of audits in a ledger: the verdict, its confidence, a line of text, and a digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tightbudget.errors import ParameterError
from tightbudget.numerics.bounds import rounded
from tightbudget.numerics.validate import refuse
from tightbudget.promises.chain import digest
from tightbudget.promises.text import printable
from tightbudget.text_file import json_text

_VERDICTS = ("consistent", "refuted", "no claim")
_DIGEST = 64  # hexadecimal digits of SHA-256


class AuditResult(Protocol):
    """The result of an audit, such as :func:`tightbudget.audit.one_run` returns."""

    @property
    def verdict(self) -> str:
        """Says "refuted", "consistent" or "no claim"."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Returns the whole result as plain values."""
        ...


@dataclass(frozen=True, repr=False)
class AuditContent:
    """The result of an audit as its JSON has it.

    Attributes:
        content: what ``to_dict()`` of the result has returned.
    """

    content: dict[str, Any]

    @property
    def verdict(self) -> str:
        """Says "refuted", "consistent" or "no claim"."""
        return str(self.content.get("verdict"))

    def to_dict(self) -> dict[str, Any]:
        """Returns the content."""
        return self.content

    def __repr__(self) -> str:
        fields = ", ".join(map(repr, [*self.content][:8])) or "nothing"
        return f"an object with {fields}"


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """A record has what an event of the history says of an audit.

    Attributes:
        audit_sha256: the SHA-256 of the audit's JSON, with its keys sorted, in hexadecimal digits.
        verdict: "consistent", "refuted" or "no claim".
        confidence: of the verdict and of each lower bound.
        said: the result in a line.
    """

    audit_sha256: str
    verdict: str
    confidence: float
    said: str

    @staticmethod
    def of(audit: AuditResult) -> AuditRecord:
        """Makes the record of an audit.

        Raises:
            ParameterError: this is no result of an audit.
        """
        write = getattr(audit, "to_dict", None)
        try:
            content = write() if callable(write) else None
        except TypeError:  # a class, whose method wants an object
            content = None
        found = AuditRecord._read(content) if isinstance(content, dict) else None
        if found is None:
            must = "be the result of an audit, as tb.audit.one_run returns (of a search, its audit)"
            raise refuse("audit", must, audit)
        return found

    @staticmethod
    def _read(content: dict[str, Any]) -> AuditRecord | None:
        """Makes the record of an audit's plain values; None if they are those of something else."""
        try:
            verdict, test = content["verdict"], printable(test=content["test"])
            confidence, delta = float(content["confidence"]), float(content["delta"])
            epsilon, trials = float(content["epsilon_at_least"]), int(content["trials"])
            claimed = content["claimed"]
            claim = "" if claimed is None else f", claimed at most {rounded(claimed, 4, up=True)}"
            whole = json_text(content, ordered=True)
        except (KeyError, TypeError, ValueError, OverflowError, ParameterError):
            return None
        numbers = 0 < confidence < 1 and 0 <= delta <= 1 and epsilon >= 0 and trials > 0
        if verdict not in _VERDICTS or not numbers:
            return None
        said = verdict if verdict != "no claim" else "no claim was tested"
        least = rounded(epsilon, 4, up=False)
        return AuditRecord(
            audit_sha256=digest(whole),
            verdict=verdict,
            confidence=confidence,
            said=f"{said}; at {100 * confidence:.6g} %: epsilon at least {least}{claim},"
            f" at delta {delta!r} ({test}, {trials:,} trials)",
        )

    @staticmethod
    def of_details(details: Mapping[str, Any]) -> AuditRecord:
        """Reads the record in an event's details.

        Raises:
            ValueError: the details are not those of an audit.
            KeyError: one of them is missing.
        """
        names = ("audit_sha256", "verdict", "confidence", "said")
        whole, verdict, confidence, said = (details[name] for name in names)
        texts = isinstance(whole, str) and isinstance(said, str)
        if not texts or len(whole) != _DIGEST or verdict not in _VERDICTS:
            raise ValueError("not an audit")
        if not 0 < confidence < 1:
            raise ValueError("a confidence outside of (0, 1)")
        return AuditRecord(audit_sha256=whole, verdict=verdict, confidence=confidence, said=said)
