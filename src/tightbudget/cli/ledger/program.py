"""Runs a program and holds its output back: not a byte is seen before it is paid for."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import IO

from tightbudget import ParameterError

# Signals by which people and systems end a program; not every system has all of them.
_ENDING = [
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
# As in shells: a program that a signal has ended has the status 128 + the signal.
_BY_SIGNAL = 128
_CANNOT_RUN = 126  # as in shells, too
_LONGEST = 1 << 16  # bytes of a last line that can name a cell
_CHUNK = 1 << 20


def program_of(command: Sequence[str]) -> list[str]:
    """Returns the command, if its first word is a program.

    Raises:
        ParameterError: the first word is no program; nothing was charged yet.
    """
    if shutil.which(command[0]) is None:
        raise ParameterError(f"command must begin with a program, got {command[0]!r}")
    return list(command)


class HeldBack:
    """One run of a program, whose stdout and stderr go to files that nobody else can open.

    The files have no name: if this process is killed, the output is gone.
    """

    def __init__(self, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self._files = (stdout, stderr)
        self._sizes = (0, 0)
        self._program: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    @staticmethod
    @contextmanager
    def files() -> Iterator[HeldBack]:
        """Opens the files of a run, and forgets the output at the end."""
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            yield HeldBack(stdout, stderr)

    # ------------------------------------------------------------------------- running

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Passes signals that would end this process on to the program.

        A signal that comes before the program starts is sent to the program at its beginning.
        After the program's end, a signal does nothing.
        """
        before = {number: signal.getsignal(number) for number in _ENDING}
        taken = [number for number, what in before.items() if what not in (signal.SIG_IGN, None)]
        try:
            for number in taken:
                signal.signal(number, self._pass_on)
            yield
        finally:
            for number in taken:
                signal.signal(number, before[number])

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if self._program is None:
            self._early.append(number)
        else:
            self._program.send_signal(number)  # does nothing after the end of the program

    def run(self, command: Sequence[str]) -> int:
        """Runs the program to its end: its exit status, or 128 + the signal that ended it."""
        stdout, stderr = self._files
        try:
            self._program = subprocess.Popen(command, stdout=stdout, stderr=stderr)
        except OSError:
            return _CANNOT_RUN
        for number in self._early:
            self._program.send_signal(number)
        code = self._program.wait()
        # Processes that the program has left behind may go on to write, which is no part of its
        # output.
        self._sizes = (os.fstat(stdout.fileno()).st_size, os.fstat(stderr.fileno()).st_size)
        return code if code >= 0 else _BY_SIGNAL - code

    # -------------------------------------------------------------------------- output

    @property
    def size(self) -> int:
        """The number of bytes that the program printed."""
        return sum(self._sizes)

    def last_line(self) -> str | None:
        """Returns the last line of stdout without its end; None if it can name no cell."""
        (file, _), (size, _) = self._files, self._sizes
        file.seek(max(0, size - _LONGEST))
        tail = file.read(min(size, _LONGEST)).removesuffix(b"\n")
        if b"\n" not in tail and size > _LONGEST:
            return None
        try:
            return tail.rpartition(b"\n")[2].removesuffix(b"\r").decode() or None
        except UnicodeDecodeError:
            return None

    def read(self) -> tuple[bytes, bytes]:
        """Returns the program's stdout and stderr."""
        stdout, stderr = (b"".join(chunks) for chunks in self._chunks())
        return stdout, stderr

    def reveal(self) -> None:
        """Prints the program's stdout and stderr, byte for byte."""
        for to, chunks in zip((sys.stdout, sys.stderr), self._chunks(), strict=True):
            to.flush()
            to.buffer.writelines(chunks)
            to.flush()

    def _chunks(self) -> Iterator[Iterator[bytes]]:
        return (_first(size, file) for file, size in zip(self._files, self._sizes, strict=True))


def _first(size: int, file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while size and (chunk := file.read(min(size, _CHUNK))):  # guard: output-until-program-ends
        size -= len(chunk)
        yield chunk
