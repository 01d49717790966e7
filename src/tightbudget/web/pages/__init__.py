"""The pages: HTML that the server writes, complete without scripts.

A page shows the content of the JSON route with the same name, made by the same functions.
:func:`render` makes every page, from the one environment of templates.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.datastructures import FormData

from tightbudget.links import DOCUMENTATION
from tightbudget.web.access import caller_of
from tightbudget.web.pages.template_filters import FILTERS

__all__ = ["Form", "refused_page", "render"]


async def _form(request: Request) -> FormData:
    return await request.form()


# The fields of a submitted form.
Form = Annotated[FormData, Depends(_form)]

_templates = Environment(
    loader=PackageLoader("tightbudget.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters |= FILTERS


def render(request: Request, name: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """Renders a template into a page for the request's caller."""
    page = _templates.get_template(name).render(
        here=request.url.path,
        caller=caller_of(request),
        csrf=getattr(request.state, "csrf", ""),  # made by a gate, so that unknown paths lack it
        version=version("tightbudget"),
        documentation=DOCUMENTATION,
        status=status,
        **context,
    )
    # an earlier version stored reasons with lone surrogates, which must not break the page
    return HTMLResponse(page.encode("utf-8", "backslashreplace"), status)


def refused_page(
    request: Request, message: str, *, status: int, headers: Mapping[str, str]
) -> HTMLResponse:
    """Renders the page of a refused request."""
    missing = status == 404 and request.method in ("GET", "HEAD")  # a wrong address: no refusal
    page = render(request, "refused.html", status=status, message=message, missing=missing)
    page.headers.update(headers)
    return page
