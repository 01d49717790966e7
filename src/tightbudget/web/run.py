"""Runs a server until somebody ends it."""

from __future__ import annotations

import gc
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from tightbudget.errors import ExtraError, LedgerError

try:
    import uvicorn
except ImportError as error:
    raise ExtraError("a server needs uvicorn: pip install 'tightbudget[web]'") from error

from tightbudget.web.app import create_app
from tightbudget.web.connection import with_limit
from tightbudget.web.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI


def run(settings: Settings, ready: Callable[[str], None]) -> None:
    """Serves until it is interrupted; requests that have begun are answered first.

    Args:
        settings: the ledger to serve, and the address to listen on.
        ready: is called with the address once the server accepts connections.

    Raises:
        LedgerError: there is no such ledger, or no such place to listen.
    """
    app = create_app(settings)
    app.state.open.explorer.warm()
    # what is loaded by now stays until the end: without it in every collection of garbage, acts on
    # ten thousand budgets take four fifths of the time
    gc.collect()
    gc.freeze()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    with _listening(settings.host, settings.port) as listening:
        where = f"[{settings.host}]" if ":" in settings.host else settings.host
        ready(f"http://{where}:{listening.getsockname()[1]}")
        uvicorn.Server(_config(settings, app)).run(sockets=[listening])


def _config(settings: Settings, app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=with_limit(settings.request_seconds),
        ws="none",
        access_log=False,  # it has queries, which name keys and budgets; guards.py logs paths
        log_config=None,
        server_header=False,
        proxy_headers=settings.public_url is not None,
        timeout_graceful_shutdown=10,
    )


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(address[:2], family=family, backlog=1024)
        # Accepted connections inherit the option: without it, the body of an answer waits until the
        # client has acknowledged the head.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        raise LedgerError(f"cannot listen on {host} port {port}: {error.strerror}") from error
