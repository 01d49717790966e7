"""The shapes of requests and answers, named as in the OpenAPI document, and their JSON."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Coroutine
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from tightbudget.mechanisms.composition import Composition
from tightbudget.numerics.validate import refuse, writes_number
from tightbudget.output_dp.amount import exact
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.promises.pricing import Stored
from tightbudget.promises.text import LONGEST_QUESTION
from tightbudget.text_file import json_text

_LONGEST = 1000  # characters of a number: exact arithmetic with more fills the processor
_QUOTIENT = re.compile(r"[+-]?[0-9]+/[0-9]+", re.ASCII)
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}", re.ASCII)


class _Exactly(Request):
    """A request whose numbers are read as they are written: 0.1 is one tenth."""

    async def json(self) -> Any:
        return json.loads(await self.body(), parse_float=_decimal)


def _decimal(text: str) -> Decimal:
    if len(text) > _LONGEST:  # guard: numbers-short
        raise ValueError(f"a number must have at most {_LONGEST} characters")
    return Decimal(text)


class _Route(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def answer(request: Request) -> Response:
            return await handler(_Exactly(request.scope, request.receive))

        return answer


def router_of(group: str, *, exactly: bool = True) -> APIRouter:
    """Makes a router for a group of routes; all of them refuse in the same shape.

    Args:
        group: the name of the group in the document.
        exactly: whether numbers are read as they are written, or else as doubles.
    """
    return APIRouter(
        prefix="/api/v1",
        tags=[group],
        route_class=_Route if exactly else APIRoute,
        responses={"4XX": {"model": Refused, "description": "Refused."},
                   "5XX": {"model": Refused, "description": "The ledger does not do it."}},
    )  # fmt: skip


def answered(content: dict[str, Any]) -> Response:
    """Makes a JSON response."""
    return Response(json_text(content), media_type="application/json")


class Body(BaseModel):
    """A request's body; it takes its declared fields and no others."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


def _in_digits(value: Any) -> Any:
    if isinstance(value, str) and not _WHOLE.fullmatch(value):
        raise ValueError("Input should be an integer in the digits 0 to 9")
    return value


# It stands behind the limits of an integer (ge, le), which would be missing in the document
# otherwise.
IN_DIGITS = BeforeValidator(_in_digits)
Name = Annotated[str, Field(min_length=1, max_length=200)]
Question = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=LONGEST_QUESTION,
        description="The question that the run answers, which the history keeps.",
    ),
]
Number = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}],
            "description": "A number, or its digits as a text: 0.1 or 1/3.",
        }
    ),
]
Cell = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "array", "items": {}}],
            "description": "A text, an integer, or a list of these.",
        }
    ),
]
Guarantee = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "description": "One of four: what `OutputDP.to_json` writes, with a price for each "
            "cell; epsilon and delta of a guarantee without cells; an amount of what budgets of "
            "other kinds count (rho, mu, a divergence); or steps of a fixed plan, as "
            "`Composition.to_json` writes them.",
        }
    ),
]


def number_of(**given: Any) -> Any:
    """Returns the exact number that a text writes; a value that is no text passes unchanged.

    Raises:
        ParameterError: the text writes no number.
    """
    ((name, value),) = given.items()
    if not isinstance(value, str):
        return value
    if len(value) <= _LONGEST:
        with contextlib.suppress(ArithmeticError, ValueError):
            if writes_number(value):  # guard: numbers-plain-digits
                return Decimal(value)
            if _QUOTIENT.fullmatch(value):
                return Fraction(value)
    raise refuse(name, "be a number, or its digits such as 0.1 or 1/3", value)


def doubles(content: Any) -> Any:
    """``content`` with a float in the place of each Decimal, as mechanisms take parameters."""
    if isinstance(content, dict):
        return {name: doubles(value) for name, value in content.items()}
    if isinstance(content, list):
        return [doubles(value) for value in content]
    return float(content) if isinstance(content, Decimal) else content


def requested_guarantee(content: dict[str, Any]) -> Stored:
    """Reads a guarantee, which a request states in one of four ways.

    Raises:
        TightBudgetError: the content is no guarantee, or a part of it is refused.
    """
    if "output_dp" in content:
        return OutputDP.from_dict(content)
    if "steps" in content:
        return Composition.from_dict(doubles(content))
    if set(content) == {"amount"}:
        return exact(amount=number_of(amount=content["amount"]))
    if "epsilon" in content and set(content) <= {"epsilon", "delta"}:
        epsilon, delta = content["epsilon"], content.get("delta", 0)
        return OutputDP.from_dp(number_of(epsilon=epsilon), number_of(delta=delta))
    raise refuse("guarantee", "have output_dp, epsilon, amount or steps", sorted(content))


MOST = 1000  # entries of a list that are answered at once

Limit = Annotated[
    int,
    Query(ge=1, le=MOST, description="So many at most; `next` is where to go on, if any."),
    IN_DIGITS,
]


class AnswerShape(BaseModel):
    """A shape of answers; later versions may add fields."""


class Amount(AnswerShape):
    """An amount spent, held or left."""

    amount: float
    delta: float
    unit: str = Field(description="What the budget counts: epsilon, rho, ...")


class Foreseen(AnswerShape):
    """The answer that a reservation would get now."""

    fits: bool
    requested: Amount
    left: Amount
    left_after: Amount
    message: str | None


class Statement(AnswerShape):
    """A budget at one moment."""

    name: str
    kind: str
    parent: str | None = Field(description="The budget that it is a part of.")
    closed: bool
    cap: Amount = Field(description="What spent and held may come to.")
    spent: Amount = Field(description="Settled or forfeited, here or in parts that are closed.")
    held: Amount = Field(description="By reservations and parts that are open.")
    left: Amount = Field(description="What may still be reserved.")
    saved: Amount = Field(description="What worst cases would have cost beyond what came out.")
    spent_in_parts: Amount | None = Field(
        description="Spent by parts that are open, and by their own parts: a share of held. Null "
        "for an earlier moment."
    )


class Hold(AnswerShape):
    """A reservation with the amount that it holds or, after its end, has cost in each budget."""

    key: str
    state: str
    charges: dict[str, Amount]
    cell: Cell | None
    told: str | None = Field(description="What the caller must know: that less was granted.")
    token: str | None = Field(description="Of the start, for who has started it.")
    interactive: bool
    guarantee: dict[str, Any]
    question: str | None = Field(description="The question that the run answers, if one was said.")


class OpenHold(AnswerShape):
    """An open reservation in a list; fields that a list leaves out are null."""

    key: str
    state: str
    charges: dict[str, Amount]
    cell: None
    told: str | None = Field(description="What the caller must know: that less was granted.")
    token: None
    interactive: bool
    guarantee: None = Field(description="Lists have no prices: ask /api/v1/hold for this key.")
    since: str = Field(description="When it was reserved or, if it was, started.")
    by: str | None = Field(description="Who has reserved it or, if it was, started it.")
    question: str | None = Field(description="The question that the run answers, if one was said.")


class Event(AnswerShape):
    """One line of the history."""

    sequence: int
    at: str
    kind: str
    key: str | None
    budget: str | None
    epsilon: float
    delta: float
    cell: Cell | None
    details: dict[str, Any]
    hash: str
    question: str | None = Field(description="Of the reservation, if one was said; not hashed.")


class Error(AnswerShape):
    """A refusal; its type is an exception's name, or a word such as NotFound."""

    type: str
    message: str
    requested: Amount | None
    left: Amount | None
    held: Amount | None
    budget: str | None
    holds: list[str] | None = Field(description="Who holds the most: keys, and budgets inside.")
    unknown: bool | None = Field(
        description="Of a ledger that failed: whether it may have been done all the same. Asking "
        "again under the same key is safe."
    )


class Refused(AnswerShape):
    """The body of a refusal; attributes that the error lacks are null."""

    error: Error
