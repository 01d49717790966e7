"""Routes of sets of blocks: declare, look at what is left, reserve a range."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from fastapi import Query, Request
from pydantic import Field, WithJsonSchema
from starlette.responses import Response

from tightbudget.errors import SettlementError
from tightbudget.ledger.block_set import BlockRange, Blocks
from tightbudget.web.access import ADMINISTER, READ, WRITE, allow, caller_of
from tightbudget.web.api.limits import check_room, short_guarantee
from tightbudget.web.api.schemas import (
    IN_DIGITS,
    MOST,
    Amount,
    AnswerShape,
    Body,
    Foreseen,
    Guarantee,
    Hold,
    Limit,
    Name,
    Number,
    Question,
    Statement,
    answered,
    number_of,
    router_of,
)
from tightbudget.web.api.visibility import (
    blocks_listed,
    blocks_seen,
    hold_seen,
    names_seen,
    without_others,
)
from tightbudget.web.state import state_of

router = router_of("blocks")

_FEW = 20  # dimensions; the name of a block, with a value for each, has 200 characters at most
_COUNT = {"output_dp": {"cells": [["many", 0.3], ["few", 0.1]], "delta": 0, "sup": 0.3}}
Asked = Annotated[Guarantee, Field(examples=[{"tightbudget": 1, **_COUNT}])]
Count = Annotated[
    Any,
    WithJsonSchema(
        {"anyOf": [{"type": "string", "enum": ["one block"]}, {"type": "integer", "minimum": 1}]}
    ),
]
Set = Annotated[Name, Field(description="The name of the set.", examples=["clicks"])]
_VALUES = [{"type": "string"}, {"type": "integer"}]
_SEVERAL = {"type": "array", "items": {"anyOf": _VALUES}}
Where = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {"anyOf": [*_VALUES, _SEVERAL]},
            "description": "For each dimension a value, a range such as `2026-01..2026-03` or "
            "`1..12` with both its ends, or a list of these.",
        }
    ),
    Field(examples=[{"day": "2026-01", "region": ["eu", "us"]}]),
]


class Declare(Body):
    """The terms of a set of blocks; the same request again changes nothing."""

    name: Set
    by: list[Name] = Field(min_length=1, max_length=_FEW, examples=[["day", "region"]])
    epsilon: Number = Field(description="Of each block.", examples=[1])
    delta: Number = Field(0, description="Of each block.", examples=[1e-6])
    rows_in: Count = Field(
        "one block", description="The largest number of blocks that have rows of one person."
    )
    cap_epsilon: Number | None = Field(None, description="A cap over all blocks, beside them.")
    cap_delta: Number = Field(0, description="Of this cap.")
    quota_epsilon: Number | None = Field(
        None, description="What each token of one name may spend, beside the blocks."
    )
    quota_delta: Number = Field(0, description="Of this quota.")
    unlocking: Annotated[int, Field(ge=1), IN_DIGITS] | None = Field(
        None, description="Days over which the budget of a block is unlocked."
    )

    def given(self) -> dict[str, Any]:
        """Returns the terms in the types that the ledger takes."""
        texts = ("epsilon", "delta", "cap_epsilon", "cap_delta", "quota_epsilon", "quota_delta")
        terms = dict(self)
        return terms | {name: number_of(**{name: terms[name]}) for name in texts}


class SetOfBlocks(AnswerShape):
    """The terms of a set of blocks."""

    name: str
    by: list[str] = Field(description="The dimensions.")
    block: Amount = Field(description="The budget of each block.")
    rows_in: int = Field(description="The largest number of blocks with rows of one person.")
    cap: Amount | None = Field(description="What all blocks together are charged for at most.")
    quota: Amount | None = Field(description="What each analyst is charged for at most.")
    unlocking: int | None = Field(description="Days over which a block's budget is unlocked.")
    person: Amount = Field(description="Of all that is ever released about one person.")


class WithBlocks(SetOfBlocks):
    """A set of blocks, and the blocks that runs have touched, the first opened first."""

    budgets: list[Statement]
    next: str | None = Field(description="After which name to go on, if there are more.")


class Range(Body):
    """A range of blocks: all combinations of the values."""

    set: Set
    where: Where


class LeftInRange(AnswerShape):
    """The amount that every block of a range has left."""

    blocks: int = Field(description="The number of blocks.")
    left: Amount


class WhatIfInRange(Range):
    """A reservation on a range of blocks that is tried and not made."""

    guarantee: Asked


class ReserveRange(Range):
    """A reservation to be made on a range of blocks: its guarantee and its key."""

    key: Annotated[Name, Field(examples=["clicks in January"])]
    guarantee: Asked
    also: list[Name] = Field([], max_length=10_000, description="Budgets that pay, too.")
    interactive: bool = False
    question: Question = None


@router.post("/blocks", dependencies=[allow(ADMINISTER)], response_model=SetOfBlocks)
def declare(request: Request, body: Declare) -> Response:
    """Declares a set of blocks; again on the same terms, it is the one that is there."""
    declared = state_of(request).ledger.blocks(**body.given())
    return answered(declared.terms.to_dict())


@router.get("/blocks", dependencies=[allow(READ)], response_model=WithBlocks)
def blocks(
    request: Request,
    name: Annotated[str, Query(examples=["clicks"])],
    after: Annotated[str | None, Query(description="From the block after this name on.")] = None,
    limit: Limit = MOST,
) -> Response:
    """Returns a set of blocks; the budgets are those of blocks that were touched, and of quotas."""
    found = blocks_seen(request, name)
    budgets, following = blocks_listed(request, found, after=after, limit=limit)
    return answered({**found.terms.to_dict(), "budgets": budgets, "next": following})


@router.post("/blocks/left", dependencies=[allow(READ)], response_model=LeftInRange)
def left(request: Request, body: Range) -> Response:
    """Tells what every block of a range has left, unlocked today."""
    _, there = _range(request, body)
    return answered({"blocks": len(there), "left": there.left.to_dict()})


@router.post("/blocks/what-if", dependencies=[allow(READ)], response_model=Foreseen)
def what_if(request: Request, body: WhatIfInRange) -> Response:
    """Tells how a reservation on a range would be answered now, by its tightest budget."""
    _, there = _range(request, body)
    guarantee = short_guarantee(request, body.guarantee)
    answer = there.what_if(guarantee, by=caller_of(request).name or None)
    return answered(dataclasses.asdict(answer))


@router.post("/blocks/reserve", dependencies=[allow(WRITE)], response_model=Hold)
def reserve(request: Request, body: ReserveRange) -> Response:
    """Holds the worst-case price in all blocks of a range or in none; asking again is safe."""
    (found, there), also = _range(request, body), names_seen(request, body.also)
    guarantee, caller = short_guarantee(request, body.guarantee), caller_of(request)
    check_room(request, body.key, [*there.names, found.name, *also])
    try:
        hold = there.reserve(
            body.key,
            guarantee,
            also=also,
            interactive=body.interactive,
            question=body.question,
            by=caller.name,
        )
    except SettlementError as error:
        raise without_others(request, error) from None
    return answered(hold_seen(hold, caller))


def _range(request: Request, body: Range) -> tuple[Blocks, BlockRange]:
    """Returns the set that a body names, and the range of it.

    Raises:
        HttpRefusal: there is no such set for this caller.
        ParameterError: the budget is no set, or a dimension or a value is refused.
    """
    found = blocks_seen(request, body.set)
    return found, found.where(**body.where)
