"""The first page: all budgets, open reservations, and the last refusals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from tightbudget.errors import TightBudgetError
from tightbudget.web.access import ADMINISTER, READ, Caller, allow, caller_of
from tightbudget.web.api.visibility import budget_seen, event_seen, holds_seen, statements_seen
from tightbudget.web.pages import Form, render
from tightbudget.web.pages.fields import fields, offered, parameters
from tightbudget.web.pages.share import share_of
from tightbudget.web.pages.template_filters import budget_kind
from tightbudget.web.refusals import status_of
from tightbudget.web.state import state_of

router = APIRouter(include_in_schema=False)

_REFUSALS = 5  # shown on the page
_BUDGETS = 75  # shown on one page, which has then less than 200 kB with all its reservations
HOLDS = 50  # open reservations shown on one page

After = Annotated[str | None, Query(max_length=200)]


def to_budget(name: str, **more: str) -> RedirectResponse:
    """Redirects to the page of a budget."""
    query = "&".join(f"{k}={quote(v, safe='')}" for k, v in {"name": name, **more}.items())
    return RedirectResponse(f"/budget?{query}", 303)


def held_page(path: str, query: Mapping[str, str], after: str | None) -> str | None:
    """Returns the address of the next open reservations; None if there are no more."""
    return (
        None if after is None else f"{path}?{urlencode({**query, 'held_after': after})}#open-title"
    )


@router.get("/", dependencies=[allow(READ)])
def budgets(request: Request, after: After = None, held_after: After = None) -> Response:
    """The page with the tree of budgets, open reservations and the last refusals."""
    return _page(request, {}, after=after, held_after=held_after)


@router.post("/budgets/open", dependencies=[allow(ADMINISTER, form=True)])
def open_(request: Request, form: Form) -> Response:
    """Opens a budget, and goes to its page."""
    name, parent = str(form.get("name", "")), str(form.get("parent", "")) or None
    try:
        if parent is not None:
            budget_seen(request, parent)
        state_of(request).ledger.open_budget(
            name, parent=parent, kind=str(form.get("kind", "")), **parameters(form).given()
        )
    except TightBudgetError as error:
        return _page(request, form, problem=str(error), status=status_of(error))
    return to_budget(name)


def _page(
    request: Request,
    given: Mapping[str, Any],
    *,
    after: str | None = None,
    held_after: str | None = None,
    problem: str = "",
    status: int = 200,
) -> Response:
    caller, ledger = caller_of(request), state_of(request).ledger
    head = ledger.head()  # read first, so that all else on the page is at least as new
    statements, following = statements_seen(request, after=after, limit=_BUDGETS, blocks=False)
    holds, held_following = holds_seen(request, after=held_after, limit=HOLDS)
    return render(
        request,
        "budgets.html",
        status=status,
        problem=problem,
        tree=_tree(statements),
        shares={statement["name"]: share_of(statement) for statement in statements},
        is_first=after is None,
        more=None if following is None else f"/?{urlencode({'after': following})}",
        holds=holds,
        more_holds=held_page("/", {} if after is None else {"after": after}, held_following),
        fewer_holds=held_after is not None,
        head=head,
        latest=_latest(request, caller),
        refusals=[
            event_seen(event, caller)
            for event in ledger.latest(_REFUSALS, budgets=caller.budgets, kind="refused")
        ],
        names=[statement["name"] for statement in statements if not statement["closed"]],
        kinds={kind: f"{budget_kind(kind)}: {says}" for kind, says in offered().items()},
        numbers=fields(),
        given={
            **dict.fromkeys(("name", "parent", "kind", *(f.name for f in fields())), ""),
            **given,
        },
    )


def _tree(statements: list[dict[str, Any]]) -> dict[str | None, list[dict[str, Any]]]:
    """Maps each budget to its parts; None maps to the budgets whose parent is not listed."""
    parts: dict[str | None, list[dict[str, Any]]] = {None: []}
    parts |= {statement["name"]: [] for statement in statements}
    for statement in statements:
        whole = statement["parent"]
        parts[whole if whole in parts else None].append(statement)
    return parts


def _latest(request: Request, caller: Caller) -> dict[str, Any] | None:
    """Returns the last event that the caller sees."""
    last = state_of(request).ledger.latest(1, budgets=caller.budgets)
    return event_seen(last[0], caller) if last else None
