"""``tightbudget serve``: a ledger over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tightbudget.cli.ledger.options import Url
from tightbudget.cli.options import number


def serve(
    ledger: Url,
    host: Annotated[
        str, typer.Option(help="Where it listens. Elsewhere than here, reading needs a token.")
    ] = "127.0.0.1",
    port: Annotated[Any, number("0 takes any that is free.")] = 8000,
    public_url: Annotated[
        str | None,
        typer.Option(
            help="The address that people use, if a reverse proxy answers it, such as "
            "https://budget.example.org. Reading then needs a token."
        ),
    ] = None,
    largest_body: Annotated[Any, number("Bytes that a request may have.")] = 1 << 20,
    most_cells: Annotated[
        Any, number("Cells that the guarantee of a reservation may have.")
    ] = 10_000,
    most_open: Annotated[
        Any,
        number(
            "Reservations that may be open in one budget, and in all budgets of an analyst's token "
            "together."
        ),
    ] = 1_000,
    request_seconds: Annotated[
        Any, number("In which the head of a request must arrive, and then its body.")
    ] = 10.0,
) -> None:
    """Serves a ledger: pages for people, and an API under /api/v1 for programs.

    On this machine reading needs no token; writing always does: see the command token. Encryption
    is a reverse proxy's task.

    For example: tightbudget serve --ledger sqlite:///budget.db
    """
    from tightbudget.web.run import run
    from tightbudget.web.settings import Settings

    settings = Settings(
        ledger,
        host=host,
        port=port,
        public_url=public_url,
        largest_body=largest_body,
        most_cells=most_cells,
        most_open=most_open,
        request_seconds=request_seconds,
    )
    run(settings, typer.echo)
