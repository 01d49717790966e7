"""Routes that verify the ledger and tell the progress."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from pydantic import Field
from starlette.responses import Response

from tightbudget.errors import LedgerCorruptError
from tightbudget.ledger.verification import Verification
from tightbudget.web.access import READ, allow, caller_of
from tightbudget.web.api.schemas import AnswerShape, answered, router_of
from tightbudget.web.refusals import HttpRefusal
from tightbudget.web.state import state_of
from tightbudget.web.verifications import VerificationJob

router = router_of("verification")


class Begun(AnswerShape):
    """The verification that runs now."""

    job: str


class Result(AnswerShape):
    """A successful verification; the two counts are for callers who see all budgets."""

    head: str
    events: int
    budgets: int | None
    reservations: int | None


class Progress(AnswerShape):
    """The progress of a verification."""

    state: str = Field(description="running, verified or failed")
    checked: int = Field(description="Pages of events.")
    of: int | None
    result: Result | None
    message: str | None = Field(description="What is wrong, if it failed.")


@router.post("/verify", dependencies=[allow(READ)], response_model=Begun)
def verify(request: Request) -> Response:
    """Begins to replay the whole history and to compare it with all that is stored.

    There is one verification at a time: if one runs already, the answer is its id.
    """
    return answered({"job": state_of(request).verifications.begin().id})


@router.get("/verify", dependencies=[allow(READ)], response_model=Progress)
def progress(request: Request, job: str) -> Response:
    """Tells the progress of a verification, and its result."""
    return answered(progress_seen(request, job))


def progress_seen(request: Request, job: str) -> dict[str, Any]:
    """Returns a verification's progress; an analyst learns nothing about others' budgets.

    Raises:
        HttpRefusal: there is no verification of this id.
    """
    found = state_of(request).verifications.find(job)
    if found is None:
        raise HttpRefusal(
            404, "NotFound", f"there is no verification {job[:100]!r}, or not any more"
        )
    return _seen(found, sees_all=caller_of(request).budgets is None)


def _seen(job: VerificationJob, *, sees_all: bool) -> dict[str, Any]:
    result, message = None, None
    if isinstance(job.result, Verification):
        head = job.result.head
        result = {"head": str(head), "events": head.sequence}
        result |= {n: getattr(job.result, n) if sees_all else None for n in
                   ("budgets", "reservations")}  # fmt: skip
    elif job.result is not None:
        is_found = isinstance(job.result, LedgerCorruptError)
        told = "the ledger is not what its history says" if is_found else "it came to no end"
        message = str(job.result) if sees_all else told
    return {
        "state": job.state,
        "checked": job.checked,
        "of": job.of,
        "result": result,
        "message": message,
    }
