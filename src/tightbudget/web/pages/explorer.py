"""The explorer's page: a question in the address, its answer with both ends, what follows from it.

The curve and what takes longer are asked for apart: ``part`` in the address says which of both an
answer is for. Without scripts, the form asks for all at once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from tightbudget import MECHANISMS, Bounds, TightBudgetError
from tightbudget.explorer import answers, questions
from tightbudget.explorer.form import GOALS, KINDS, RELATIONS, SHOWS, Form
from tightbudget.explorer.picture import Drawn, picture
from tightbudget.web.access import READ, allow
from tightbudget.web.api.explore import MEDIA, asked
from tightbudget.web.api.schemas import answered
from tightbudget.web.pages import render
from tightbudget.web.refusals import HttpRefusal, status_of
from tightbudget.web.state import state_of

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

_ANSWERS: dict[type[questions.ExplorerQuestion], Callable[[Any], dict[str, Any]]] = {
    questions.Curve: answers.curve,
    questions.Compare: answers.compare,
    questions.OneMore: answers.one_more,
    questions.Stopping: answers.stopping,
    questions.Calibrate: answers.calibrate,
}
_QUICK = (questions.Curve, questions.OneMore)
_OF_A_STEP = re.compile(r"steps\[(\d+)\](?:\.|: )(\w+)")
_OF_ALL = re.compile(r"(delta|epsilon) ")


@dataclass(frozen=True)
class Part:
    """What a template shows of a question.

    Attributes:
        answer: None if it was not asked, or refused.
        problem: why it was; status: of HTTP; field: of the form that it is about.
    """

    answer: dict[str, Any] | None = None
    problem: str = ""
    status: int = 200
    field: str = ""


@router.get("/explorer", dependencies=[allow(READ)])
async def explorer(
    request: Request, part: Literal["", "curve", "panel", "all"] = "", do: str = ""
) -> Response:
    """The form as it is, and the answers to the parts that are asked for."""
    form = _form(request)
    if do:
        return RedirectResponse(f"/explorer?{form.done(do).address()}", 303)
    curve = await _part(request, form.curve) if part != "panel" else Part()
    wanted = part in ("panel", "all") or (part == "" and form.show == "one-more")
    panel = await _part(request, form.panel) if wanted else Part()
    return render(
        request,
        "explorer.html",
        status=curve.status,
        form=form,
        curve=curve,
        panel=panel,
        kinds={kind: MECHANISMS[kind].__name__ for kind in KINDS},
        relations=RELATIONS,
        shows=SHOWS,
        goals={goal: " and ".join(names) for goal, names in GOALS.items()},
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
    """An answer as a file: its numbers, or a picture of a curve or of the prices of stopping."""
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


async def _answer(request: Request, question: questions.ExplorerQuestion) -> dict[str, Any]:
    pools = state_of(request).explorer
    pool = pools.quick if isinstance(question, _QUICK) else pools.slow
    return await asked(request, pool, _ANSWERS[type(question)], question)


async def _part(request: Request, ask: Callable[[], questions.ExplorerQuestion]) -> Part:
    try:
        return Part(await _answer(request, ask()))
    except ValidationError as error:
        return Part(problem=_said(error), status=400)
    except TightBudgetError as error:
        problem = str(error)
        return Part(problem=problem, status=status_of(error), field=_field(problem))


def _said(error: ValidationError) -> str:
    """The first thing that is wrong, with its name."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _field(problem: str) -> str:
    """The field of the form that a refusal is about, or nothing."""
    if found := _OF_A_STEP.search(problem):
        return f"{found[1]}.{found[2]}"
    return "at" if _OF_ALL.match(problem) else ""


def ends(bounds: dict[str, float]) -> tuple[str, str]:
    """Both ends with the digits that are certified, rounded outwards."""
    lower, upper = str(Bounds(**bounds))[1:-1].split(", ")
    return lower.replace("inf", "∞"), upper.replace("inf", "∞")
