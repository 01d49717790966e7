"""A file of lines that outlives its process: each is durable before the next is written.

The first line names what the file is. Every other line is a checksum and a content. A line whose
checksum is wrong (the last one, after a crash) counts as not there. It shows damage, and not who
wrote the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from tightbudget.errors import FileError
from tightbudget.text_file import reason

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class DurableLines:
    """A file to which lines are added.

    Guarantee: a line that was kept is found again after any crash, and a torn line is never taken
    for one.

    Attributes:
        found: the lines that were whole when the file was opened, in their order.

    Args:
        path: the file; it is made if it is not there.
        head: the first line, which ends in a line feed.
        kind: what the file is, for the refusal of another file.
        alone: waits until no other object has the file open so, in this process or another one of
            this machine; where the system has no such locks (Windows), it does not wait.

    Raises:
        FileError: the file cannot be read or written, or is a file of another kind.
    """

    def __init__(self, path: str | Path, head: bytes, kind: str, *, alone: bool = False) -> None:
        self.path, self._head, self._kind = Path(path), head, kind
        with contextlib.ExitStack() as stack:
            try:
                self._file = stack.enter_context(self.path.open("a+b"))
                if alone and fcntl is not None:
                    # the system takes the lock back when the process dies
                    fcntl.flock(self._file, fcntl.LOCK_EX)  # guard: one-process-in-the-file
                self.found = self._begun()
            except OSError as error:
                raise FileError(f"{path}: {reason(error)}") from error
            stack.pop_all()  # it stays open

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def keep(self, content: bytes) -> None:
        """Makes a line durable.

        Raises:
            FileError: the file cannot be written.
        """
        try:
            self._write(_checksum(content) + b" " + content + b"\n")
        except OSError as error:
            raise FileError(f"{self.path}: {reason(error)}") from error

    def _begun(self) -> list[bytes]:
        """Reads the kept lines; begins the file anew if its first line is not whole."""
        self._file.seek(0)
        content = self._file.read()
        if self._head.startswith(content):
            self._write(self._head[len(content) :])
            _make_durable(self.path.parent)
            return []
        if not content.startswith(self._head):  # guard: any-file-journal
            raise FileError(f"{self.path}: not {self._kind}")
        if not content.endswith(b"\n"):  # guard: torn-line-takes-next-along
            self._write(b"\n")  # so that the next line begins a line
        whole = map(_content, content[len(self._head) :].splitlines())
        return [line for line in whole if line is not None]

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest()[:16].encode()


def _content(line: bytes) -> bytes | None:
    checksum, _, content = line.partition(b" ")
    if checksum != _checksum(content):  # guard: changed-line-believed
        return None
    return content


def _make_durable(folder: Path) -> None:
    """Writes a folder's names to disk, so that a new file in it is found after a crash."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
