"""A network between a client and a server that loses requests and answers, when it is told to."""

from __future__ import annotations

import contextlib
import select
import socket
import socketserver
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Lossy", "lossy"]


class Lossy:
    """Carries bytes to a server and back.

    Attributes:
        requests: how many of the next ones are lost before the server sees them.
        answers: how many of the next ones are lost after the server has given them.
        spared: how many of both come through before that.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.requests = self.answers = self.spared = 0

    def loses(self, what: str) -> bool:
        """Whether what is on its way now is lost."""
        if self.spared:
            self.spared -= what == "answers"
            return False
        left = getattr(self, what)
        setattr(self, what, max(0, left - 1))
        return bool(left > 0)


@contextlib.contextmanager
def lossy(url: str) -> Iterator[Lossy]:
    """A network in front of a server."""
    far = urlsplit(url)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((far.hostname or "", far.port or 80)) as upstream:
                near: Any = self.request
                under_way = ""  # both come in several pieces
                while True:
                    (ready, *_), _, _ = select.select([near, upstream], [], [])
                    what = "requests" if ready is near else "answers"
                    try:
                        data = ready.recv(1 << 16)
                    except ConnectionError:
                        return
                    if not data:
                        return
                    if what != under_way and network.loses(what):
                        return
                    under_way = what
                    (upstream if ready is near else near).sendall(data)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as server:
        network = Lossy(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield network
        server.shutdown()
        thread.join()
