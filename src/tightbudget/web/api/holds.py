"""Routes of reservations: reserve, start, settle, and the other ends of a run."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from fastapi import Query, Request
from pydantic import Field
from starlette.responses import Response

from tightbudget.errors import SettlementError
from tightbudget.output_dp.guarantee import cell_from_lists
from tightbudget.web.access import ADMINISTER, READ, WRITE, allow, caller_of
from tightbudget.web.api.limits import check_room, short_guarantee
from tightbudget.web.api.schemas import (
    IN_DIGITS,
    MOST,
    AnswerShape,
    Body,
    Cell,
    Foreseen,
    Guarantee,
    Hold,
    Limit,
    Name,
    OpenHold,
    Question,
    answered,
    router_of,
)
from tightbudget.web.api.visibility import (
    budget_seen,
    hold_found,
    hold_seen,
    hold_touched,
    holds_seen,
    names_seen,
    without_others,
)
from tightbudget.web.state import state_of

router = router_of("reservations")

_SEARCH = {
    "tightbudget": 1,
    "output_dp": {
        "cells": [["found", 0.3], ["not found", 0.1]],
        "delta": 1e-9,
        "sup": 0.3,
    },
}
_TOKEN = "0123456789abcdef0123456789abcdef"
Asked = Annotated[Guarantee, Field(examples=[_SEARCH])]


class Holds(AnswerShape):
    """A list of open reservations, the oldest first."""

    holds: list[OpenHold]
    next: str | None = Field(description="After which key to go on, if there are more.")


class WhatIf(Body):
    """A reservation that is tried and not made."""

    budget: Annotated[Name, Field(examples=["ada"])]
    guarantee: Asked
    times: Annotated[int, Field(ge=1, le=10**9), IN_DIGITS] = Field(1, examples=[3])


class ForeseenTimes(Foreseen):
    """The answer that a reservation would get now, and whether several would get it."""

    affordable: bool = Field(description="Whether it would be granted so many times.")


class Reserve(Body):
    """A reservation to be made: its guarantee, its budgets and its key."""

    key: Annotated[Name, Field(examples=["A9"])]
    guarantee: Asked
    budgets: list[Name] = Field(min_length=1, max_length=10_000, examples=[["ada"]])
    interactive: bool = False
    question: Question = None


class Start(Body):
    """The key of the reservation to be started, and the token that will settle its run."""

    key: Annotated[Name, Field(examples=["A1"])]
    token: str | None = Field(
        None,
        pattern="^[0-9a-f]{32}$",
        description="A secret that the caller has drawn and kept; the server draws one without it.",
    )


class Settle(Body):
    """The output cell of a run that is to be settled."""

    key: Annotated[Name, Field(examples=["A2"])]
    token: str | Annotated[int, IN_DIGITS] | None = Field(
        None, description="What start has answered: a secret.", examples=[_TOKEN]
    )
    cell: Annotated[Cell, Field(examples=["not found"])]


class Void(Body):
    """The key of the reservation to be voided."""

    key: Annotated[Name, Field(examples=["A1"])]


class Forfeit(Body):
    """The key of the run to be forfeited, and the reason; the history adds the token's name."""

    key: Annotated[Name, Field(examples=["A2"])]
    reason: Name | None = Field(None, examples=["the machine is gone"])


class Expire(Body):
    """The key of the reservation to be freed, and the reason; the history adds the token's name."""

    key: Annotated[Name, Field(examples=["A1"])]
    reason: Annotated[Name, Field(examples=["left lying"])]


@router.get("/holds", dependencies=[allow(READ)], response_model=Holds)
def holds(
    request: Request,
    budget: Annotated[str | None, Query(examples=["ada"])] = None,
    after: Annotated[
        str | None, Query(description="From the reservation after this key on.")
    ] = None,
    limit: Limit = MOST,
) -> Response:
    """Lists the open reservations of a budget or of all; without the prices of their cells."""
    found, following = holds_seen(request, budget, after=after, limit=limit)
    return answered({"holds": found, "next": following})


@router.get("/hold", dependencies=[allow(READ)], response_model=Hold)
def hold(request: Request, key: Annotated[str, Query(examples=["A1"])]) -> Response:
    """Returns one reservation in any state; a refused one is refused again."""
    return answered(hold_seen(hold_found(request, key), caller_of(request)))


@router.post("/what-if", dependencies=[allow(READ)], response_model=ForeseenTimes)
def what_if(request: Request, body: WhatIf) -> Response:
    """Tells how a reservation would be answered now; nothing is held."""
    budget, guarantee = budget_seen(request, body.budget), short_guarantee(request, body.guarantee)
    answer = dataclasses.asdict(budget.what_if(guarantee))
    return answered({**answer, "affordable": budget.can_afford(guarantee, body.times)})


@router.post("/reserve", dependencies=[allow(WRITE)], response_model=Hold)
def reserve(request: Request, body: Reserve) -> Response:
    """Holds the worst-case price in all named budgets or in none; asking again is safe."""
    names = names_seen(request, body.budgets)
    guarantee, ledger = short_guarantee(request, body.guarantee), state_of(request).ledger
    check_room(request, body.key, names)
    try:
        found = ledger.reserve(
            body.key,
            guarantee,
            names,
            interactive=body.interactive,
            question=body.question,
            by=caller_of(request).name,
        )
    except SettlementError as error:
        raise without_others(request, error) from None
    return answered(hold_seen(found, caller_of(request)))


@router.post("/start", dependencies=[allow(WRITE)], response_model=Hold)
def start(request: Request, body: Start) -> Response:
    """Marks, once, that the mechanism runs now, and returns the token that settles the run.

    The token is a secret, told this once: keep it with the output. If the answer is lost, nobody
    has it, unless the caller has drawn it: forfeit the run.
    """
    found, caller = hold_touched(request, body.key), caller_of(request)
    found.start(token=body.token, by=caller.name)
    return answered(hold_seen(found, caller))


@router.post("/settle", dependencies=[allow(WRITE)], response_model=Hold)
def settle(request: Request, body: Settle) -> Response:
    """Charges the price of the output cell; an undeclared cell costs the sup. Reveal afterwards.

    The same cell again changes nothing.
    """
    found, caller = hold_touched(request, body.key, body.token), caller_of(request)
    found.settle(cell_from_lists(body.cell), by=caller.name)
    return answered(hold_seen(found, caller))


@router.post("/void", dependencies=[allow(WRITE)], response_model=Hold)
def void(request: Request, body: Void) -> Response:
    """Frees a reservation that was not started, and never will be."""
    found, caller = hold_touched(request, body.key), caller_of(request)
    found.void(by=caller.name)
    return answered(hold_seen(found, caller))


@router.post("/forfeit", dependencies=[allow(WRITE)], response_model=Hold)
def forfeit(request: Request, body: Forfeit) -> Response:
    """Charges the worst-case price of a run that did not come back."""
    found, caller = hold_touched(request, body.key), caller_of(request)
    found.forfeit(by=caller.name, reason=body.reason)
    return answered(hold_seen(found, caller))


@router.post("/expire", dependencies=[allow(ADMINISTER)], response_model=Hold)
def expire(request: Request, body: Expire) -> Response:
    """Frees a reservation that was never started, and never will be."""
    key, caller = hold_touched(request, body.key).key, caller_of(request)
    found = state_of(request).ledger.expire(key, by=caller.name, reason=body.reason)
    return answered(hold_seen(found, caller))
