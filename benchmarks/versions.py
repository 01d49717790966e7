"""The package of this tree and that of an earlier commit, side by side in processes of their own.

A version is a folder with the package, which goes in front of the path of its processes. Workers
(``ledger_jobs.py``) read a job from each line of their input, as JSON, and answer with a line.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["NOW", "Version", "Worker", "earlier", "serving"]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


@dataclass(frozen=True)
class Version:
    """A version of the package.

    Attributes:
        name: what it is called in the results: now or before.
        source: the folder that has ``tightbudget`` in it.
    """

    name: str
    source: Path

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of a process that imports this version."""
        return os.environ | {"PYTHONPATH": str(self.source)}


NOW = Version("now", ROOT / "src")


def earlier(commit: str, folder: Path) -> Version:
    """Unpacks the package of a commit into an empty folder.

    Raises:
        CalledProcessError: there is no such commit here.
    """
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit, "src"], check=True, stdout=subprocess.PIPE
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return Version("before", folder / "src")


class Worker:
    """A process that does jobs with one version of the package; use it in a ``with`` block."""

    def __init__(self, version: Version) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "ledger_jobs.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=version.environment,
        )
        package = Path(self.does("where"))
        if not package.is_relative_to(version.source):
            raise RuntimeError(f"it imports {package}, and should import {version.source}")

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def does(self, job: str, **arguments: object) -> Any:
        """Does a job of ``ledger_jobs.py`` and returns its answer.

        Raises:
            RuntimeError: the process has ended, with a traceback on its standard error.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([job, arguments]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker has ended during {job} with {arguments}")
        return json.loads(line)


@contextlib.contextmanager
def serving(words: list[str], version: Version, log: Path) -> Iterator[str]:
    """Runs a server in a process of its own; it prints its address on its first line.

    Args:
        words: the arguments of Python.
        version: the package that the server imports.
        log: the file that takes what it logs.
    """
    with log.open("a", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=version.environment,
        )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:  # it has ended
            raise RuntimeError(f"the server did not start: {log.read_text(encoding='utf-8')}")
        yield url
    finally:
        process.kill()
        process.communicate()
