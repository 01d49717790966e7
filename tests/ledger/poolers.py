"""Poolers in transaction mode before a PostgreSQL server: pgbouncer, and a proxy that stands in.

A client keeps its connection to the pooler. Each of its transactions is done by whichever server
connection is free, so that what belongs to a server connection (prepared statements, settings)
may be another client's, and a server that was stopped and started meanwhile is not noticed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url
from tests.ledger.servers import Server

__all__ = ["POOLERS", "Pooler", "Proxy", "pgbouncer", "proxied"]

# what makes a pooler before a server: yields what turns an address into that through the pooler
Pooler = Callable[[Server], AbstractContextManager[Callable[[str], str]]]

_SSL, _GSS = 80877103, 80877104  # requests for encryption, instead of a version of the protocol


class _GoneError(Exception):
    """The other end has closed its connection."""


class _Wire:
    """One connection, message by message."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.status = b""  # of the transaction, as the server's last message has it

    def take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                more = self.link.recv(size - len(data))
            except OSError:
                more = b""
            if not more:
                raise _GoneError
            data += more
        return data

    def first(self) -> bytes:
        """The first message, which has no kind; encryption is declined."""
        while True:
            size = self.take(4)
            rest = self.take(struct.unpack("!I", size)[0] - 4)
            if struct.unpack("!I", rest[:4])[0] not in (_SSL, _GSS):
                return size + rest
            self.give(b"N")

    def message(self) -> bytes:
        head = self.take(5)
        return head + self.take(struct.unpack("!I", head[1:])[0] - 4)

    def answers(self) -> bytes:
        """All that a server says until it waits for the next question."""
        said = b""
        while True:
            message = self.message()
            said += message
            if message[:1] == b"Z":
                self.status = message[5:6]
                return said

    def give(self, data: bytes) -> None:
        try:
            self.link.sendall(data)
        except OSError:
            raise _GoneError from None

    @property
    def is_silent(self) -> bool:
        """Whether the connection is open, and nothing is to be read."""
        self.link.setblocking(False)
        try:
            self.link.recv(1, socket.MSG_PEEK)  # the end, or an error that nobody has asked for
        except BlockingIOError:
            return True
        except OSError:
            pass
        finally:
            self.link.setblocking(True)
        return False


class Proxy:
    """Takes the longest idle server connection for each transaction of a client.

    Attributes:
        server: where it makes new connections to; it may be changed.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self._idle: dict[bytes, deque[_Wire]] = {}
        self._lock = threading.Lock()
        self._door = socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._door.close()
        with self._lock:  # a client that has just left may still give a connection back
            for wire in [wire for idle in self._idle.values() for wire in idle]:
                wire.link.close()

    def through(self, url: str) -> str:
        """The address of a database, through this proxy."""
        return _through(self._door.getsockname()[1])(url)

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._door.accept()
            except OSError:
                return  # it is closed
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._client, args=(_Wire(link),), daemon=True).start()

    def _client(self, client: _Wire) -> None:
        server: _Wire | None = None
        with contextlib.closing(client.link), contextlib.suppress(_GoneError):
            who = client.first()
            try:
                server, hello = self._connected(who)
                client.give(hello)
                while True:
                    if server.status == b"I":
                        with self._lock:
                            self._idle.setdefault(who, deque()).append(server)
                        server = None
                    message = client.message()
                    if message[:1] == b"X":
                        return
                    server = server or self._free(who)
                    server.give(message)
                    if message[:1] in b"QS":
                        client.give(server.answers())
            finally:
                if server is not None:
                    server.link.close()

    def _free(self, who: bytes) -> _Wire:
        while True:
            with self._lock:
                idle = self._idle.get(who)
                wire = idle.popleft() if idle and len(idle) > 1 else None
            if wire is None:
                return self._connected(who)[0]
            if wire.is_silent:
                return wire
            wire.link.close()

    def _connected(self, who: bytes) -> tuple[_Wire, bytes]:
        link = socket.socket(socket.AF_UNIX)
        wire = _Wire(link)
        try:
            of = self.server.url
            folder = of.query.get("host") or of.host
            link.connect(f"{folder}/.s.PGSQL.{of.port or 5432}")
            wire.give(who)
            return wire, wire.answers()
        except (OSError, _GoneError):
            link.close()
            raise _GoneError from None


def _through(port: int) -> Callable[[str], str]:
    def address(url: str) -> str:
        pooled = make_url(url).set(host="127.0.0.1", port=port).difference_update_query(["host"])
        return pooled.render_as_string(hide_password=False)

    return address


@contextmanager
def proxied(server: Server) -> Iterator[Callable[[str], str]]:
    """A proxy that never does two transactions in a row on the same server connection."""
    with Proxy(server) as proxy:
        yield proxy.through


@contextmanager
def pgbouncer(server: Server, mode: str = "transaction") -> Iterator[Callable[[str], str]]:
    """The real one; a skip that says so where there is none."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("there is no pgbouncer: only a proxy stands in for poolers")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="tb-pool-"))
    host = str(server.url.query.get("host") or server.url.host)
    (folder / "ini").write_text(
        "[databases]\n"
        f"* = host={host} port={server.url.port or 5432} user={server.url.username}\n"
        "[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        f"pool_mode = {mode}\nserver_round_robin = 1\nmax_client_conn = 500\n"
        "default_pool_size = 20\nserver_login_retry = 1\nquery_wait_timeout = 60\n"
        f"logfile = {folder}/log\n"
    )
    words = [program, "-q", str(folder / "ini")]
    if os.geteuid() == 0:  # which it refuses to run as
        user = Path(host).owner() if os.path.isdir(host) else "nobody"
        shutil.chown(folder, user)
        words[1:1] = ["-u", user]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield _through(port)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(port: int) -> None:
    end = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert time.monotonic() < end, "the pooler does not answer"
            time.sleep(0.02)


POOLERS = pytest.mark.parametrize("pooler", [proxied, pgbouncer], ids=["proxy", "pgbouncer"])
