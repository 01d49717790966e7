"""Connections that wait for their next use, in a deque: no interrupt leaves a lock behind.

SQLAlchemy's own pool keeps them in a queue with a condition, which is entered by Python code. An
interrupt (Ctrl-C) in there leaves the condition locked, and every other thread of the process
waits for a connection for ever.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any

from sqlalchemy.pool import ConnectionPoolEntry, Pool


class IdleConnections(Pool):
    """Opens a connection for each thread that needs one, and keeps the last few for their next use.

    Args:
        creator: opens a connection.
        pool_size: the largest number of connections that wait for their next use.
        settings: what every pool takes.
    """

    def __init__(self, creator: Any, pool_size: int = 5, **settings: Any) -> None:
        super().__init__(creator, **settings)
        self._size = pool_size
        self._idle: deque[ConnectionPoolEntry] = deque()

    def _do_get(self) -> ConnectionPoolEntry:
        try:
            return self._idle.pop()
        except IndexError:
            return self._create_connection()

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        if len(self._idle) < self._size:
            self._idle.append(record)
        else:
            record.close()

    def dispose(self) -> None:
        """Closes the connections that are not in use."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def recreate(self) -> IdleConnections:
        """Makes an empty pool of the same settings, for the engine."""
        return IdleConnections(
            self._creator,
            self._size,
            pre_ping=self._pre_ping,
            recycle=self._recycle,
            echo=self.echo,
            logging_name=self._orig_logging_name,
            reset_on_return=self._reset_on_return,
            _dispatch=self.dispatch,
            dialect=self._dialect,
        )

    def status(self) -> str:
        """Says how many connections wait for their next use."""
        return f"{len(self._idle)} idle connections"
