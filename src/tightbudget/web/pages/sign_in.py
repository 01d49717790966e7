"""Pages that sign a browser in with a token, and out."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from tightbudget.web import access
from tightbudget.web.access import PUBLIC, allow
from tightbudget.web.pages import Form, render
from tightbudget.web.refusals import HttpRefusal

router = APIRouter(include_in_schema=False)


@router.get("/sign-in", dependencies=[allow(PUBLIC)])
def sign_in(request: Request) -> Response:
    """The page with the form that asks for a token."""
    return render(request, "sign_in.html", problem="")


@router.post("/sign-in", dependencies=[allow(PUBLIC, form=True)])
def begin(request: Request, form: Form) -> Response:
    """Begins a session, and shows the budgets."""
    answer = RedirectResponse("/", 303)
    try:
        access.sign_in(request, answer, str(form.get("token", "")))
    except HttpRefusal as refusal:
        page = render(request, "sign_in.html", status=refusal.status, problem=str(refusal))
        page.headers.update(refusal.headers)
        return page
    return answer


@router.post("/sign-out", dependencies=[allow(PUBLIC, form=True)])
def end(request: Request) -> Response:
    """Ends the session."""
    answer = RedirectResponse("/", 303)
    access.sign_out(request, answer)
    return answer
