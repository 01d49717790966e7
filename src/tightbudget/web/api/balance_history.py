"""The route of a budget's balance over time."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from tightbudget.ledger.budget import LedgerBudget
from tightbudget.web.access import READ, Caller, allow, caller_of
from tightbudget.web.api.schemas import (
    IN_DIGITS,
    AnswerShape,
    Event,
    Statement,
    answered,
    router_of,
)
from tightbudget.web.api.visibility import budget_seen, event_seen, statement_seen

router = router_of("history")


class Moment(AnswerShape):
    """An event, and the budget just after that event."""

    event: Event
    statement: Statement


class Course(AnswerShape):
    """The last events of a budget, oldest first."""

    course: list[Moment]


@router.get("/course", dependencies=[allow(READ)], response_model=Course)
def course(
    request: Request,
    budget: Annotated[str, Query(examples=["ada"])],
    last: Annotated[int, Query(ge=1, le=1000, description="So many at most."), IN_DIGITS] = 500,
) -> Response:
    """The balance of a budget after each of its last events."""
    found = course_seen(budget_seen(request, budget), caller_of(request), last)
    return answered({"course": found})


def course_seen(budget: LedgerBudget, caller: Caller, last: int) -> list[dict[str, Any]]:
    """Returns a budget's last events, oldest first, each with the budget just after it."""
    return [
        {"event": event_seen(event, caller), "statement": statement_seen(then, caller)}
        for event, then in budget.balance_history(last)
    ]
