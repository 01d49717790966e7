"""Routes of the history: its events, oldest first, and its head."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from starlette.responses import Response, StreamingResponse

from tightbudget.promises.text import printable
from tightbudget.text_file import json_text
from tightbudget.web.access import READ, allow, caller_of
from tightbudget.web.api.schemas import IN_DIGITS, AnswerShape, Event, answered, router_of
from tightbudget.web.api.visibility import budget_seen, event_seen
from tightbudget.web.state import state_of

router = router_of("history")

_COLUMNS = (
    *("sequence", "at", "kind", "key", "budget"),
    *("epsilon", "delta", "cell", "details", "hash", "question"),
)
_COMPUTED = "=+-@"  # characters that begin a formula in a spreadsheet
_SKIPPED = ("\t", "\r", "\n")  # some spreadsheets start a new cell at these, or drop them


class Events(AnswerShape):
    """A part of the history."""

    events: list[Event]
    next: int | None


class Head(AnswerShape):
    """The end of the history; `head` is the line to be kept where the ledger is not."""

    head: str
    sequence: int
    hash: str


@dataclass(frozen=True)
class Filters:
    """The filters of a request for events."""

    budget: Annotated[str | None, Query(description="Of this budget.", examples=["ada"])] = None
    key: Annotated[str | None, Query(description="Of this reservation.")] = None
    kind: Annotated[str | None, Query(description="Of this kind.", examples=["settled"])] = None
    search: Annotated[
        str | None, Query(description="With this text in key, budget, cell or details.")
    ] = None


def _asked(request: Request, filters: Filters, after: int, limit: int | None) -> Any:
    """Returns the events that pass the filters and that the caller may see."""
    if filters.budget is not None:
        budget_seen(request, filters.budget)
    for name in ("key", "kind", "search"):
        if getattr(filters, name) is not None:
            printable(**{name: getattr(filters, name)})
    return state_of(request).ledger.events(
        **vars(filters), after=after, limit=limit, budgets=caller_of(request).budgets
    )  # guard: only-own-events


@router.get("/events", dependencies=[allow(READ)], response_model=Events)
def events(
    request: Request,
    filters: Annotated[Filters, Depends()],
    after: Annotated[
        int, Query(ge=0, lt=2**63, description="From the event after this on."), IN_DIGITS
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="So many at most."), IN_DIGITS] = 100,
) -> Response:
    """Lists events, oldest first; `next` is the event to go on after, if there are more."""
    found, caller = list(_asked(request, filters, after, limit + 1)), caller_of(request)
    shown = [event_seen(event, caller) for event in found[:limit]]
    more = len(found) > limit
    return answered({"events": shown, "next": shown[-1]["sequence"] if more else None})


@router.get("/events.csv", dependencies=[allow(READ)], response_class=StreamingResponse,
            responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}},
                             "description": "A line for each event."}})  # fmt: skip
def events_csv(request: Request, filters: Annotated[Filters, Depends()]) -> Response:
    """Exports the whole history, or the events that pass the filters, for a spreadsheet.

    A text that a spreadsheet would compute, also behind blanks, begins with an apostrophe.
    """
    found, caller = _asked(request, filters, 0, None), caller_of(request)

    def lines() -> Iterator[bytes]:
        yield _line(_COLUMNS)
        for event in found:
            content = event_seen(event, caller)
            yield _line([_field(name, content[name]) for name in _COLUMNS])

    name = {"content-disposition": 'attachment; filename="events.csv"'}
    return StreamingResponse(lines(), headers=name, media_type="text/csv")


@router.get("/events.json", dependencies=[allow(READ)], response_class=StreamingResponse,
            responses={200: {"content": {"application/json": {"schema": {"type": "object"}}},
                             "description": "The events."}})  # fmt: skip
def events_json(request: Request, filters: Annotated[Filters, Depends()]) -> Response:
    """Exports the whole history, or the events that pass the filters, in one document."""
    found, caller = _asked(request, filters, 0, None), caller_of(request)

    def parts() -> Iterator[str]:
        yield '{"events": ['
        for number, event in enumerate(found):
            yield (",\n" if number else "\n") + json_text(event_seen(event, caller))
        yield "\n]}\n"

    name = {"content-disposition": 'attachment; filename="events.json"'}
    return StreamingResponse(parts(), headers=name, media_type="application/json")


@router.get("/head", dependencies=[allow(READ)], response_model=Head)
def head(request: Request) -> Response:
    """Returns the head of the history, to be kept where the ledger is not."""
    found = state_of(request).ledger.head()
    return answered({"head": str(found), "sequence": found.sequence, "hash": found.hash})


def _field(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (int, float)):
        return repr(value)
    text = value if isinstance(value, str) else json_text(value)
    return f"'{text}" if _is_computed(text) else text


def _is_computed(text: str) -> bool:
    """Tells whether a spreadsheet may take a text for a formula.

    Some spreadsheets read a full-width sign as a plain one, and some drop blanks, tabs and control
    characters before they look for the sign of a formula.
    """
    plain = unicodedata.normalize("NFKC", text)
    # guard: formulas-marked-behind-blanks
    first = next((sign for sign in plain if sign.isprintable() and not sign.isspace()), "")
    return text.startswith(_SKIPPED) or (first != "" and first in _COMPUTED)


def _line(fields: Any) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer).writerow(fields)
    # an earlier version stored cells with lone surrogates, which must not end the whole export
    return buffer.getvalue().encode("utf-8", "backslashreplace")  # guard: surrogates-escaped
