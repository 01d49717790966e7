"""The explorer's page: the address holds the question, the page shows the bounds.

Scripts ask for the curve and for the panel beside it in two requests: ``part`` in the address says
which of the two a request is for. Without scripts, the form asks for both at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from tightbudget import Bounds, TightBudgetError
from tightbudget.explorer import answers, questions
from tightbudget.explorer.form import GOALS_IN_WORDS, KINDS, RELATIONS, SHOWS, WAYS, Form
from tightbudget.explorer.picture import Drawn, picture
from tightbudget.mechanisms import MECHANISMS
from tightbudget.numerics.bounds import rounded
from tightbudget.web.access import READ, allow
from tightbudget.web.api.explore import MEDIA, asked
from tightbudget.web.api.schemas import answered
from tightbudget.web.pages import render
from tightbudget.web.refusals import HttpRefusal, status_of
from tightbudget.web.state import state_of

router = APIRouter(include_in_schema=False)

_ANSWERS: dict[type[questions.ExplorerQuestion], Callable[[Any], dict[str, Any]]] = {
    questions.Curve: answers.curve,
    questions.Compare: answers.compare,
    questions.OneMore: answers.one_more,
    questions.Stopping: answers.stopping,
    questions.Calibrate: answers.calibrate,
}
_QUICK = (questions.Curve, questions.OneMore)
_DIGITS = 5  # of the headline, which is rounded up; the certified bounds stand below it


@dataclass(frozen=True)
class PagePart:
    """The part of a page that answers one question.

    Attributes:
        answer: the answer; None if the question was not asked, or was refused.
        problem: the reason of a refusal.
        status: the HTTP status of the answer or the refusal.
        field: the field of the form that the refusal is about.
    """

    answer: dict[str, Any] | None = None
    problem: str = ""
    status: int = 200
    field: str = ""


@router.get("/explorer", dependencies=[allow(READ)])
async def explorer(
    request: Request, part: Literal["", "curve", "panel", "begun", "all"] = "", do: str = ""
) -> Response:
    """The page with the form, and the answers to the wanted parts.

    The part ``begun`` is the panel with as much of its answer as is there at once.
    """
    form = _form(request)
    if do:
        return RedirectResponse(f"/explorer?{form.done(do).address()}", 303)
    curve, panel = PagePart(), PagePart()
    if part not in ("panel", "begun"):
        curve = await _part(request, form, form.curve)
    if part in ("panel", "begun", "all") or (part == "" and form.show == "one-more"):
        panel = await _part(request, form, form.panel, begun=part == "begun")
    return render(
        request,
        "explorer.html",
        status=curve.status,
        form=form,
        curve=curve,
        panel=panel,
        kinds={kind: MECHANISMS[kind].__name__ for kind in KINDS},
        ways=WAYS,
        relations=RELATIONS,
        shows=SHOWS,
        goals=GOALS_IN_WORDS,
        lacks_rate=_lacks_rate(form, curve),
        headline=headline,
        most_text=questions.MOST_TEXT_OF_PAGE,
        ends=ends,
        infinity=math.inf,
    )


@router.get("/explorer/download", dependencies=[allow(READ)])
async def download(
    request: Request,
    of: Literal["curve", "panel"],
    as_: Annotated[Literal["json", "png", "svg"], Query(alias="as")],
) -> Response:
    """Returns an answer as a file: its numbers, or a picture of a curve or of prices."""
    form = _form(request)
    try:
        question = form.curve() if of == "curve" else form.panel()
    except ValidationError as error:
        raise HttpRefusal(400, "ParameterError", _said(error)) from error
    name = "curve" if of == "curve" else form.show
    if as_ == "json":
        file = answered(await _answer(request, question))
    elif isinstance(question, questions.Curve | questions.Stopping):
        pool = state_of(request).explorer.slow
        content = await asked(request, pool, picture, Drawn(question, as_))
        file = Response(content, media_type=MEDIA[as_])
    else:
        raise HttpRefusal(404, "NotFound", f"there is no picture of {name}")
    file.headers["content-disposition"] = f'attachment; filename="{name}.{as_}"'
    return file


def _form(request: Request) -> Form:
    own = ("part", "do", "of", "as")
    return Form.of([pair for pair in request.query_params.multi_items() if pair[0] not in own])


async def _answer(
    request: Request, question: questions.ExplorerQuestion, *, begun: bool = False
) -> dict[str, Any]:
    pools = state_of(request).explorer
    if begun and isinstance(question, questions.Compare):
        return await asked(request, pools.quick, answers.compare_begun, question)
    pool = pools.quick if isinstance(question, _QUICK) else pools.slow
    return await asked(request, pool, _ANSWERS[type(question)], question)


def _lacks_rate(form: Form, curve: PagePart) -> bool:
    """Tells whether the page asks if the sampling rate was forgotten."""
    if curve.answer is None or form.given != "delta":
        return False
    return form.lacks_rate(curve.answer["epsilon"]["upper"])


async def _part(
    request: Request,
    form: Form,
    ask: Callable[[], questions.ExplorerQuestion],
    *,
    begun: bool = False,
) -> PagePart:
    try:
        return PagePart(await _answer(request, ask(), begun=begun))
    except ValidationError as error:
        return PagePart(problem=form.in_words(_said(error)), status=400)
    except TightBudgetError as error:
        problem = str(error)
        return PagePart(
            problem=form.in_words(problem),
            status=status_of(error),
            field=form.field_of(problem),
        )


def _said(error: ValidationError) -> str:
    """Returns the first error of a validation, with the name of its field."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def headline(upper: float) -> str:
    """Writes an upper bound with a few digits, rounded up."""
    return rounded(upper, _DIGITS, up=True).replace("inf", "∞")


def ends(bounds: dict[str, Any]) -> tuple[str, str]:
    """Writes the lower and the upper bound with their certified digits, rounded outwards."""
    lower, upper = str(Bounds(bounds["lower"], bounds["upper"]))[1:-1].split(", ")
    return lower.replace("inf", "∞"), upper.replace("inf", "∞")
