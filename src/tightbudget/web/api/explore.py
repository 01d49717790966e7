"""Routes that price mechanisms without a ledger; numbers are doubles here.

A question that takes too long or too much memory is refused; the library has no such limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import Body, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from tightbudget.explorer import answers, questions
from tightbudget.explorer.picture import Drawn, Format, picture
from tightbudget.explorer.workers import Workers
from tightbudget.web.access import READ, address_of, allow
from tightbudget.web.api.schemas import answered, router_of
from tightbudget.web.state import state_of

Q = TypeVar("Q")
A = TypeVar("A")

router = router_of("explorer", exactly=False)

MEDIA = {"png": "image/png", "svg": "image/svg+xml"}
_FILE = {"schema": {"type": "string", "format": "binary"}}


class Ends(BaseModel):
    """Certified bounds of a number."""

    lower: float
    upper: float


class Found(BaseModel):
    """An answer to a question about mechanisms."""

    model_config = ConfigDict(extra="allow")

    what: str = Field(description="The mechanisms, in words.")
    steps: list[dict[str, Any]] = Field(description="The mechanisms, as in a plan file.")
    ends: str | None = Field(
        None, description="What the two bounds are, where no one pair of distributions is exact."
    )
    python: str = Field(description="A program that gives the same answer.")
    command: str | None = Field(description="A command line that does, where there is one.")


class FoundCurve(Found):
    """The given one of epsilon and delta, bounds of the other one, and the curve."""

    epsilon: float | Ends
    delta: float | Ends
    curve: dict[str, Any] = Field(
        description='{"delta": [...], "epsilon": {"lower": [...], "upper": [...]}}'
    )


class FoundRows(Found):
    """One row for each bound: `answer` is a number where it is not proved."""

    answered: str
    rows: list[dict[str, Any]]


class FoundMore(Found):
    """One row for each mechanism: the answer after one more run, and its increase."""

    epsilon: float | Ends
    delta: float | Ends
    one_more: list[dict[str, Any]]


class FoundPrices(Found):
    """The price of each stop, nats, by three accounts with the same delta."""

    stops: list[int]
    epsilons: list[float]
    renyi_filter: list[float]
    separate: list[float]
    delta: Ends


class FoundStates(BaseModel):
    """The priced states of a plan with choices, the costliest first, and the delta for all."""

    model_config = ConfigDict(extra="allow")

    what: str = Field(description="The plan, in words.")
    states: list[dict[str, Any]] = Field(
        description='{"state": ..., "epsilon": nats, "costliest_way": [...]}'
    )
    delta: Ends
    target: float = Field(description="The delta that was asked for, if one was.")
    python: str = Field(description="A program that gives the same answer.")
    command: str = Field(description="A command line that does.")


class FoundValue(Found):
    """The calibrated value of a parameter, and the cost that is reached with it."""

    parameter: str
    value: float


async def asked(request: Request, pool: Workers, answer: Callable[[Q], A], question: Q) -> A:
    """Asks a pool of workers one question; addresses with waiting questions take turns."""
    return await pool.answer(answer, question, request.is_disconnected, of=address_of(request))


@router.post("/explore/curve", dependencies=[allow(READ)], response_model=FoundCurve)
async def curve(request: Request, question: questions.Curve) -> Response:
    """Bounds epsilon at a delta, or delta at an epsilon, and the curve around this point."""
    pool = state_of(request).explorer.quick
    return answered(await asked(request, pool, answers.curve, question))


@router.post("/explore/compare", dependencies=[allow(READ)], response_model=FoundRows)
async def compare(request: Request, question: questions.Compare) -> Response:
    """Compares our bounds with those of other people's theorems."""
    pool = state_of(request).explorer.slow
    return answered(await asked(request, pool, answers.compare, question))


@router.post("/explore/one-more", dependencies=[allow(READ)], response_model=FoundMore)
async def one_more(request: Request, question: questions.OneMore) -> Response:
    """Prices one more run of each mechanism."""
    pool = state_of(request).explorer.quick
    return answered(await asked(request, pool, answers.one_more, question))


@router.post("/explore/stopping", dependencies=[allow(READ)], response_model=FoundPrices)
async def stopping(request: Request, question: questions.Stopping) -> Response:
    """Prices early stopping at each stop, all stops covered by one delta."""
    pool = state_of(request).explorer.slow
    return answered(await asked(request, pool, answers.stopping, question))


@router.post("/explore/prices", dependencies=[allow(READ)], response_model=FoundStates)
async def prices(request: Request, question: questions.Prices) -> Response:
    """Prices the states of a plan with choices, all of them covered by one delta."""
    pool = state_of(request).explorer.slow
    return answered(await asked(request, pool, answers.prices, question))


@router.post("/explore/calibrate", dependencies=[allow(READ)], response_model=FoundValue)
async def calibrate(request: Request, question: questions.Calibrate) -> Response:
    """Finds the least noise, or the most runs, for which the upper bound meets a target."""
    pool = state_of(request).explorer.slow
    return answered(await asked(request, pool, answers.calibrate, question))


@router.post(
    "/explore/picture",
    dependencies=[allow(READ)],
    response_class=Response,
    responses={200: {"content": {media: _FILE for media in MEDIA.values()}}},
)
async def drawn(
    request: Request,
    question: Annotated[
        questions.Curve | questions.Stopping,
        Body(examples=questions.Curve.model_config["json_schema_extra"]["examples"]),
    ],
    format: Annotated[Format, Query(description="Of the picture.")] = "png",
) -> Response:
    """Draws the curve, or the prices of stopping for a body as `stopping` has it."""
    pool = state_of(request).explorer.slow
    content = await asked(request, pool, picture, Drawn(question, format))
    return Response(content, media_type=MEDIA[format])
