"""A process that computes one thing after another, and that ends when its parent has ended.

A worker shares no queue and no lock with another worker, so that each can be killed at any moment,
and so that it is clear which call was lost with it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

if sys.platform == "linux":
    import fcntl

_READY = "ready"


class Lost(Exception):  # noqa: N818 (says what happened)
    """A worker ended before it had answered; the message says how.

    Attributes:
        killed: whether a signal ended it.
    """

    def __init__(self, exit_code: int) -> None:
        self.killed = exit_code < 0
        how = f"signal {-exit_code}" if self.killed else f"exit code {exit_code}"
        super().__init__(how)


def _nothing() -> None:
    """Prepares nothing."""


@dataclass(frozen=True)
class Worker:
    """One process and the pipe to it.

    Guarantee: the process ends with the process that started it, whatever ends that one, also in
    the middle of a call.

    Attributes:
        process: the process, which :meth:`end` kills.
        pipe: this process's end of the pipe; it is ready to be read when :meth:`receive` will not
            wait.
    """

    process: BaseProcess
    pipe: Connection

    @staticmethod
    def start(context: BaseContext, prepare: Callable[[], object] = _nothing) -> Worker:
        """Starts a process without waiting for it; the first :meth:`receive` says that it began.

        Args:
            context: how to start it: "spawn" or "forkserver". A plain fork would copy locks that
                threads of this process hold.
            prepare: a function to call in the new process before anything else.
        """
        ours, theirs = multiprocessing.Pipe()
        with theirs:  # the new process has its own copy: it alone keeps the pipe open
            process = context.Process(target=_serve, args=(theirs, prepare), daemon=True)  # type: ignore[attr-defined]
            try:
                process.start()
            except BaseException:
                ours.close()
                raise
        return Worker(process, ours)

    def send(self, function: Callable[..., object], *arguments: object) -> None:
        """Sends a call to the process; :meth:`receive` returns its result.

        Raises:
            Lost: the process has ended.
        """
        try:
            self.pipe.send((function, arguments))
        except OSError as error:
            raise self._lost() from error

    def receive(self) -> Any:
        """Waits for the result of the call, or at first for the process to begin.

        Raises:
            Lost: the process has ended.
            Exception: the call raised it.
        """
        try:
            found, error = self.pipe.recv()
        except (EOFError, OSError) as gone:
            raise self._lost() from gone
        if error is not None:
            raise error
        return found

    def end(self) -> None:
        """Ends the process, even if it is working."""
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def _lost(self) -> Lost:
        self.process.join()  # its end of the pipe is closed, so it has ended or is about to
        return Lost(self.process.exitcode or 0)


def _serve(pipe: Connection, prepare: Callable[[], object]) -> None:
    """Answers calls from a pipe until the pipe is closed; the main function of a process."""
    # a Ctrl-C of the terminal is for the parent, which ends its workers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent()
    prepare()
    with contextlib.suppress(EOFError, OSError):  # the parent has ended
        pipe.send((_READY, None))
        for function, arguments in _received(pipe):
            said: tuple[Any, Exception | None]
            try:
                said = function(*arguments), None
            except Exception as error:
                said = None, error
            pipe.send(said)


def _received(pipe: Connection) -> Iterator[Any]:
    while True:
        yield pipe.recv()


def _end_with_parent() -> None:
    """Makes this process end when its parent has ended, by whatever cause.

    A thread waits for the parent. It waits for the parent's sentinel, a pipe that closes when the
    parent ends, and where it can for the process itself: a child that the parent has forked keeps a
    copy of the sentinel's other end open.
    """
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid is None:
        raise RuntimeError("a worker must be started by multiprocessing")
    watched: list[Any] = [parent.sentinel]
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: not Linux
        watched.append(os.pidfd_open(parent.pid))
    _killed_when_closed(parent.sentinel)

    def watch() -> None:
        wait(watched)
        os._exit(1)

    # begun after the kernel was asked, so that a parent that had ended before is seen here
    threading.Thread(target=watch, name="end with parent", daemon=True).start()


def _killed_when_closed(sentinel: int) -> None:
    """Asks the kernel to kill this process when the other end of a pipe is closed (Linux).

    A call into C may hold the interpreter for minutes, and then no thread of Python runs.

    Args:
        sentinel: the pipe's descriptor; nothing is ever written to the pipe.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a kernel that cannot: the thread is left
            fcntl.fcntl(sentinel, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(sentinel, fcntl.F_SETSIG, signal.SIGKILL)
            flags = fcntl.fcntl(sentinel, fcntl.F_GETFL)
            fcntl.fcntl(sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)
