"""Routes of budgets: amounts spent, held and left; administrators open and close budgets."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request
from pydantic import Field
from starlette.responses import Response

from tightbudget.mechanisms.composition import Composition
from tightbudget.promises.audited import AuditContent
from tightbudget.web.access import ADMINISTER, READ, WRITE, allow, caller_of
from tightbudget.web.api.schemas import (
    MOST,
    AnswerShape,
    Body,
    Event,
    Limit,
    Name,
    Number,
    OpenHold,
    Statement,
    answered,
    doubles,
    number_of,
    router_of,
)
from tightbudget.web.api.visibility import (
    budget_seen,
    event_seen,
    holds_seen,
    statement_seen,
    statements_seen,
)
from tightbudget.web.state import state_of

router = router_of("budgets")


class Statements(AnswerShape):
    """A list of budgets, each after its parent."""

    budgets: list[Statement]
    next: str | None = Field(description="After which name to go on, if there are more.")


class WithHolds(Statement):
    """A budget, and the first reservations that hold something in it."""

    holds: list[OpenHold]
    next: str | None = Field(
        description="If there are more: ask /api/v1/holds for those of this budget after this key."
    )


class Parameters(Body):
    """The parameters of a budget; its kind decides which of them it has."""

    epsilon: Number | None = None
    delta: Number | None = None
    slack: Number | None = None
    rho: Number | None = None
    mu: Number | None = None
    order: Number | None = None
    plan: dict[str, Any] | None = Field(None, description="As `Composition.to_json` writes it.")

    def given(self) -> dict[str, Any]:
        """Returns the parameters that were given, in the types that the ledger takes."""
        found = {name: number_of(**{name: value}) for name, value in self if value is not None}
        if self.plan is not None:
            found["plan"] = Composition.from_dict(doubles(self.plan))
        if "order" in found:
            found["order"] = _double(found["order"])
        return found


def _double(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return value


class Open(Body):
    """A budget to be opened; the same request again changes nothing."""

    name: Annotated[Name, Field(examples=["carl"])]
    parent: Name | None = Field(None, examples=["census"])
    kind: str = Field("output_dp", examples=["output_dp"])
    parameters: Parameters = Field(examples=[{"epsilon": 0.5, "delta": 1e-7}])


class RaiseCap(Body):
    """A new cap for a budget; it is never below the sum of spent and held."""

    name: Annotated[Name, Field(examples=["ada"])]
    parameters: Parameters = Field(examples=[{"epsilon": 2.5}])
    reason: Annotated[Name, Field(examples=["second wave"])]


class RecordAudit(Body):
    """An audit to be written down; the same one again under its key changes nothing."""

    name: Annotated[Name, Field(examples=["ada"])]
    key: Annotated[Name, Field(examples=["audit of A1"])]
    audit: dict[str, Any] = Field(
        description="As `to_dict()` of the audit's result writes it; the history keeps its SHA-256,"
        " its verdict and a line.",
        examples=[
            {
                "verdict": "consistent",
                "test": "one run",
                "confidence": 0.95,
                "epsilon_at_least": 0.963,
                "delta": 1e-5,
                "claimed": 3.36,
                "trials": 1000,
            }
        ],
    )


class Close(Body):
    """A budget to be closed for good."""

    name: Annotated[Name, Field(examples=["eve"])]


@router.get("/budgets", dependencies=[allow(READ)], response_model=Statements)
def budgets(
    request: Request,
    after: Annotated[str | None, Query(description="From the budget after this name on.")] = None,
    limit: Limit = MOST,
) -> Response:
    """Lists budgets in the order in which they were opened, all as of one moment."""
    found, following = statements_seen(request, after=after, limit=limit)
    return answered({"budgets": found, "next": following})


@router.get("/budget", dependencies=[allow(READ)], response_model=WithHolds)
def budget(request: Request, name: Annotated[str, Query(examples=["ada"])]) -> Response:
    """Returns one budget, and the first reservations that hold something in it."""
    found, caller = budget_seen(request, name), caller_of(request)
    statement = statement_seen(found.statement(), caller)
    holds, following = holds_seen(request, name)
    return answered({**statement, "holds": holds, "next": following})


@router.post("/open", dependencies=[allow(ADMINISTER)], response_model=Statement)
def open_(request: Request, body: Open) -> Response:
    """Opens a budget; a second request with the same terms returns the open budget."""
    if body.parent is not None:
        budget_seen(request, body.parent)
    ledger = state_of(request).ledger
    opened = ledger.open_budget(
        body.name, parent=body.parent, kind=body.kind, **body.parameters.given()
    )
    return answered(statement_seen(opened.statement(), caller_of(request)))


@router.post("/raise-cap", dependencies=[allow(ADMINISTER)], response_model=Statement)
def raise_cap(request: Request, body: RaiseCap) -> Response:
    """Sets other parameters of a budget; the history keeps the token's name and the reason."""
    found, caller = budget_seen(request, body.name), caller_of(request)
    found.raise_cap(by=caller.name, reason=body.reason, **body.parameters.given())
    return answered(statement_seen(found.statement(), caller))


@router.post("/audit", dependencies=[allow(WRITE)], response_model=Event)
def audit(request: Request, body: RecordAudit) -> Response:
    """Writes down an audit of a budget, once for each key; no balance changes."""
    found, caller = budget_seen(request, body.name), caller_of(request)
    event = found.record_audit(body.key, AuditContent(doubles(body.audit)), by=caller.name)
    return answered(event_seen(event, caller))


@router.post("/close", dependencies=[allow(ADMINISTER)], response_model=Statement)
def close(request: Request, body: Close) -> Response:
    """Closes a budget; epsilon that was not spent goes back to its parent, delta does not."""
    found = budget_seen(request, body.name)
    found.close()
    return answered(statement_seen(found.statement(), caller_of(request)))
