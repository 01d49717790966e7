"""The page of one budget: its balance over time, its events, and what an administrator may do."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from tightbudget.errors import ParameterError, TightBudgetError
from tightbudget.ledger.budget import LedgerBudget
from tightbudget.output_dp.amount import printed_up
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.promises.kinds.blocks import BLOCKS
from tightbudget.promises.stored_words import EventKind
from tightbudget.web.access import ADMINISTER, READ, Caller, allow, caller_of
from tightbudget.web.api.balance_history import course_seen
from tightbudget.web.api.schemas import IN_DIGITS
from tightbudget.web.api.verify import progress_seen
from tightbudget.web.api.visibility import (
    budget_seen,
    event_seen,
    hold_found,
    hold_seen,
    hold_touched,
    holds_seen,
    statement_seen,
)
from tightbudget.web.pages import Form, render
from tightbudget.web.pages.blocks import heat_map
from tightbudget.web.pages.budgets import HOLDS, After, held_page, to_budget
from tightbudget.web.pages.fields import fields, parameters
from tightbudget.web.pages.share import share_of
from tightbudget.web.pages.template_filters import KINDS_OF_EVENTS, down, up, when
from tightbudget.web.refusals import HttpRefusal, status_of
from tightbudget.web.state import state_of

router = APIRouter(include_in_schema=False)

_PAGE = 30  # events that are listed at once
_PLOTTED = 500
_CELLS = 20
_PARTS = 100

_Text = Annotated[str, Query(max_length=200)]


@dataclass(frozen=True)
class EventFilters:
    """The filters of the listed events; an empty text filters nothing."""

    search: _Text = ""
    kind: _Text = ""
    key: _Text = ""

    def said(self) -> dict[str, str]:
        """Returns the filters that are not empty."""
        return {name: text for name, text in vars(self).items() if text}


@router.get("/budget", dependencies=[allow(READ)])
def budget(
    request: Request,
    name: str,
    wanted: Annotated[EventFilters, Depends()],
    before: Annotated[int | None, Query(ge=1, lt=2**63), IN_DIGITS] = None,
    job: _Text = "",
    held_after: After = None,
) -> Response:
    """The page of a budget: its amounts now, their history, and its events."""
    return _page(request, name, wanted, before=before, job=job, held_after=held_after)


@router.post("/budget/raise-cap", dependencies=[allow(ADMINISTER, form=True)])
def raise_cap(request: Request, form: Form) -> Response:
    """Sets another cap for a budget."""

    def act(budget: LedgerBudget, caller: Caller) -> None:
        given = parameters(form).given()
        budget.raise_cap(by=caller.name, reason=str(form.get("reason", "")), **given)

    return _done(request, form, act)


@router.post("/budget/close", dependencies=[allow(ADMINISTER, form=True)])
def close(request: Request, form: Form) -> Response:
    """Closes a budget for good."""

    def act(budget: LedgerBudget, caller: Caller) -> None:
        if not form.get("sure"):
            raise ParameterError("a budget is closed for good: tick the box")
        budget.close()

    return _done(request, form, act)


@router.post("/budget/expire", dependencies=[allow(ADMINISTER, form=True)])
def expire(request: Request, form: Form) -> Response:
    """Frees a reservation that was never started."""

    def act(budget: LedgerBudget, caller: Caller) -> None:
        hold = hold_touched(request, str(form.get("key", "")))
        reason = str(form.get("reason", ""))
        state_of(request).ledger.expire(hold.key, by=caller.name, reason=reason)

    return _done(request, form, act)


@router.post("/budget/verify", dependencies=[allow(READ, form=True)])
def verify(request: Request, form: Form) -> Response:
    """Begins to verify the ledger, and shows the progress."""
    return to_budget(str(form.get("name", "")), job=state_of(request).verifications.begin().id)


def _done(
    request: Request, form: Mapping[str, Any], act: Callable[[LedgerBudget, Caller], None]
) -> Response:
    """Does the act of a form; if it is refused, shows the form again with the reason."""
    name = str(form.get("name", ""))
    try:
        act(budget_seen(request, name), caller_of(request))
    except TightBudgetError as error:
        return _page(
            request, name, EventFilters(), given=form, problem=str(error), status=status_of(error)
        )
    return to_budget(name)


def _page(
    request: Request,
    name: str,
    wanted: EventFilters,
    *,
    before: int | None = None,
    job: str = "",
    held_after: str | None = None,
    given: Mapping[str, Any] | None = None,
    problem: str = "",
    status: int = 200,
) -> Response:
    caller, state, found = caller_of(request), state_of(request), budget_seen(request, name)
    ledger, head = state.ledger, state.ledger.head()  # read first: the rest is at least as new
    name = found.name
    statement = statement_seen(found.statement(), caller)
    listed = ledger.latest(_PAGE + 1, before=before, budget=name, **wanted.said())
    events = [event_seen(event, caller) for event in listed[:_PAGE]]
    course, numbers = course_seen(found, caller, _PLOTTED), fields(statement["kind"])
    asked = {"name": name, **wanted.said()}
    holds, following = holds_seen(request, name, after=held_after, limit=HOLDS)
    is_a_set = statement["kind"] == BLOCKS.name
    blocks = heat_map(ledger.blocks(name), caller.sees) if is_a_set else None
    return render(
        request,
        "budget.html",
        status=status,
        problem=problem,
        statement=statement,
        share=share_of(statement),
        blocks=blocks,
        is_charged=blocks is None or blocks.has_cap,
        wholes=list(_wholes(request, statement))[::-1],
        inside=found.parts(_PARTS + 1),
        most_inside=_PARTS,
        holds=holds,
        more_holds=held_page("/budget", asked, following),
        fewer_holds=held_after is not None,
        course=course,
        summary=_in_words(course),
        latest=course[-1]["event"],
        runs=[[event] for event in events] if wanted.key else _runs(events),
        wanted=wanted,
        reservation=_reservation(request, wanted.key) if wanted.key else None,
        newest=f"/budget?{urlencode(asked)}#timeline-title" if before else None,
        older=_after(asked, events) if len(listed) > _PAGE else None,
        query=urlencode({"budget": name, **wanted.said()}),
        kinds_of_events=KINDS_OF_EVENTS,
        head=head,
        job=_progress(request, job) if job else None,
        numbers=numbers,
        given={**dict.fromkeys(("reason", *(f.name for f in numbers)), ""), **(given or {})},
    )


def _reservation(request: Request, key: str) -> dict[str, Any] | None:
    """Describes a reservation and its costliest declared cells; None if the caller sees none."""
    try:
        hold = hold_found(request, key)
    except (TightBudgetError, HttpRefusal):
        return None
    guarantee = hold.guarantee
    declared = guarantee.cells if isinstance(guarantee, OutputDP) else {}
    costliest = sorted(declared.items(), key=lambda item: -item[1])[:_CELLS]
    prices = [(cell, printed_up(price), cell == hold.cell) for cell, price in costliest]
    return {**hold_seen(hold, caller_of(request)), "prices": prices, "declared": len(declared)}


def _wholes(request: Request, statement: Mapping[str, Any]) -> Iterator[str]:
    """Yields the names of a budget's ancestors that the caller sees, the parent first."""
    caller, ledger = caller_of(request), state_of(request).ledger
    while (name := statement["parent"]) is not None:
        yield name
        statement = statement_seen(ledger.budget(name).statement(), caller)


def _progress(request: Request, job: str) -> dict[str, Any] | None:
    """Returns a verification's progress; None if the server has forgotten the verification."""
    try:
        return progress_seen(request, job)
    except HttpRefusal:
        return None


def _after(asked: Mapping[str, str], events: list[dict[str, Any]]) -> str:
    query = urlencode({**asked, "before": str(events[-1]["sequence"])})
    return f"/budget?{query}#timeline-title"


def _runs(events: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Groups listed events: neighbours that are about the same reservation make one group.

    An audit is no state of a reservation, and is alone.
    """

    def of(event: dict[str, Any]) -> Any:
        alone = event["key"] is None or event["kind"] == EventKind.AUDITED
        return event["sequence"] if alone else event["key"]

    return [list(group) for _, group in itertools.groupby(events, of)]


def _in_words(course: list[dict[str, Any]]) -> str:
    """Describes the plot of a balance in a sentence."""
    first, last = course[0], course[-1]
    most = max(moment["statement"]["held"]["amount"] for moment in course)
    spent = [up(moment["statement"]["spent"]["amount"]) for moment in (first, last)]
    return (
        f"From {when(first['event']['at'])} to {when(last['event']['at'])} UTC, spent went from"
        f" {spent[0]} to {spent[1]}, and at most {up(most)} was held at once;"
        f" {down(last['statement']['left']['amount'])} is left."
    )
