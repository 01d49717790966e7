"""``tightbudget serve``: a ledger over HTTP."""

from __future__ import annotations

import logging
import socket
from typing import Annotated

import typer

from tightbudget import ExtraError, LedgerError
from tightbudget.cli.ledger.options import Url

__all__ = ["serve"]


def serve(
    ledger: Url,
    host: Annotated[
        str, typer.Option(help="Where it listens. Elsewhere than here, reading needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes any that is free.")] = 8000,
    public_url: Annotated[
        str | None,
        typer.Option(
            help="The address that people use, if a reverse proxy answers it, such as "
            "https://budget.example.org. Reading then needs a token."
        ),
    ] = None,
) -> None:
    """Serves a ledger: pages for people, and an API under /api/v1 for programs.

    On this machine reading needs no token; writing always does: see the command token. Encryption
    is a reverse proxy's task.

    For example: tightbudget serve --ledger sqlite:///budget.db
    """
    try:
        import uvicorn
    except ImportError as error:
        raise ExtraError("a server needs uvicorn: pip install 'tightbudget[web]'") from error
    from tightbudget.web.app import create_app
    from tightbudget.web.settings import Settings

    settings = Settings(ledger, host=host, port=port, public_url=public_url)
    app = create_app(settings)
    app.state.open.explorer.warm()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = uvicorn.Config(
        app,
        access_log=False,  # it has queries, which name keys and budgets; guards.py logs paths
        log_config=None,
        server_header=False,
        proxy_headers=public_url is not None,
        timeout_graceful_shutdown=10,
    )
    listening = _listening(host, port)
    where = f"[{host}]" if ":" in host else host
    typer.echo(f"http://{where}:{listening.getsockname()[1]}")
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def _listening(host: str, port: int) -> socket.socket:
    """The socket on which it listens.

    Raises:
        LedgerError: there is no such place, or another program has it.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        raise LedgerError(f"cannot listen on {host} port {port}: {error.strerror}") from error
