"""The pages: HTML that the server writes, whole without scripts; what scripts add comes after.

One environment of templates, and :func:`render`, through which every page goes.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

__all__ = ["render", "templates"]

templates = Environment(
    loader=PackageLoader("tightbudget.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(request: Request, name: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """A page from the template of this name, for whoever asks.

    Args:
        request: its ``state.caller`` and ``state.csrf`` say who asks, and with which forms.
        name: a file in ``templates``.
        status: of the answer.
        context: what the template shows.
    """
    page = templates.get_template(name).render(
        here=request.url.path,
        caller=getattr(request.state, "caller", None),
        csrf=getattr(request.state, "csrf", ""),
        version=version("tightbudget"),
        **context,
    )
    return HTMLResponse(page, status)
