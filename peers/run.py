"""Peers' own tests, run against the adapters: `make peers`, or `python peers/run.py NAME...`.

Each peer has a file `peers/NAME.toml`, which says:

- `distribution`, `version`, `sha256`: the source distribution on the package index that holds the
  tests. It is fetched with pip into the folder `.peers/`, and nothing of it is committed.
- `conftest`: a file beside the list that becomes the `conftest.py` of the unpacked source. It may
  be left out.
- `[[suite]]`: `files` to run together, what to `replace` in them (a table of text = text, each of
  which has to occur in at least one of the files), the number of `tests`, how many are `skipped`
  (none unless it says so), how many `differ`, and how many did `at_first`, when the suite was
  first run.
- `[[left_out]]`: `tests` that are not run, and `why`.
- `[[differs]]`: `tests` that fail, `why`, and where values differ the `proof` that ours is right:
  a test of this project, or a page. Tests are named by id, or by a pattern with `*`.

A failure that is not listed, a listed one that passes, and other numbers of tests are errors.
Where a source distribution cannot be fetched, its suite is skipped, and a line says so.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet", "--timeout", "10", "--retries", "1")


class NotFetchedError(Exception):
    """The refusal of a suite whose source distribution is not here and cannot be had."""


@dataclasses.dataclass(frozen=True)
class Peer:
    """The list of one peer: a file of `peers/`, read."""

    path: Path
    distribution: str
    version: str
    sha256: str
    suite: list[dict[str, Any]]
    conftest: str = ""
    left_out: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    differs: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Peer:
        """Reads a list."""
        return cls(path=path, **tomllib.loads(path.read_text("utf-8")))

    @property
    def stem(self) -> str:
        """The name of the source distribution, without `.tar.gz`."""
        return f"{self.distribution.replace('-', '_')}-{self.version}"

    @property
    def title(self) -> str:
        """The beginning of a line about this peer."""
        return f"{self.distribution:14} {self.version:8}"

    def failing(self) -> list[str]:
        """The ids and patterns of the tests that are expected to fail."""
        return [test for table in self.differs for test in table["tests"]]


def peers(folder: Path = HERE) -> list[Peer]:
    """Reads every list of a folder, in the order of their names."""
    return [Peer.read(path) for path in sorted(folder.glob("*.toml"))]


def matches(test: str, pattern: str) -> bool:
    """Says whether a pattern, in which only `*` is special, is the id of a test or its end.

    The end begins after `/` or `:`, so that `Class::test_a*` stands for every file.
    """
    ending = ".*".join(map(re.escape, pattern.split("*")))
    return re.fullmatch(rf"(.*[/:])?{ending}", test, re.DOTALL) is not None


def fetch(peer: Peer, cache: Path) -> Path:
    """Returns the path of the source distribution, fetched if it is not there.

    Raises:
        NotFetchedError: pip could not fetch it; the message has pip's last line.
        SystemExit: the file is another one than the list says.
    """
    path = cache / f"{peer.stem}.tar.gz"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        wanted = f"{peer.distribution}=={peer.version}"
        options = ("--no-deps", "--no-binary", ":all:", "--dest", str(cache))
        command = [sys.executable, *PIP, "download", *options, wanted]
        asked = subprocess.run(command, capture_output=True, text=True)
        if asked.returncode or not path.exists():
            lines = [line for line in asked.stderr.splitlines() if line.startswith("ERROR")]
            raise NotFetchedError(lines[-1] if lines else f"pip did not leave {path.name}")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != peer.sha256:
        sys.exit(f"{path} has the SHA-256 {found}, and {peer.path.name} says {peer.sha256}")
    return path


def unpack(peer: Peer, archive: Path, cache: Path) -> Path:
    """Unpacks a source distribution anew, and returns its folder."""
    root = cache / peer.stem
    shutil.rmtree(root, ignore_errors=True)
    with tarfile.open(archive) as packed:
        packed.extractall(cache, filter="data")
    if peer.conftest:
        shutil.copy(peer.path.parent / peer.conftest, root / "conftest.py")
    return root


def replace(peer: Peer, suite: dict[str, Any], root: Path) -> None:
    """Puts our accountant into the files of a suite."""
    for old, new in suite.get("replace", {}).items():
        texts = {file: (root / file).read_text("utf-8") for file in suite["files"]}
        if not any(old in text for text in texts.values()):
            sys.exit(f"{peer.path.name}: {old!r} is in none of {suite['files']}")
        for file, text in texts.items():
            (root / file).write_text(text.replace(old, new), "utf-8")


def run(peer: Peer, suite: dict[str, Any], root: Path, workers: str) -> dict[str, str]:
    """Runs the files of a suite, and returns the outcome of each test by its id.

    The unpacked source comes first on the path: the peer's library is the one that its tests were
    written for.
    """
    outcomes = root / "outcomes.json"
    outcomes.unlink(missing_ok=True)
    left_out = [test for table in peer.left_out for test in table["tests"]]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(root), str(HERE), os.environ.get("PYTHONPATH", "")]),
        "PEERS_OUTCOMES": str(outcomes),
        "PEERS_LEFT_OUT": json.dumps(left_out),
        "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu"),
    }
    options = ["--quiet", "--tb=short", "-p", "no:cacheprovider", "-p", "outcomes"]
    options += ["--config-file", os.devnull, "--rootdir", str(root), "--import-mode=importlib"]
    options += ["-n", workers] if workers != "0" else []
    command = [sys.executable, "-m", "pytest", *options, *suite["files"]]
    ran = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    log = root.parent / f"{peer.path.stem}-{Path(suite['files'][0]).stem}.log"
    said = ran.stdout + ran.stderr
    log.write_text(said, "utf-8")
    if ran.returncode not in (0, 1) or not outcomes.exists():
        sys.exit(f"{peer.path.name}: pytest could not run the tests\n{said[-4000:]}")
    found: dict[str, str] = json.loads(outcomes.read_text("utf-8"))
    return found


def compare(peer: Peer, results: list[dict[str, str]]) -> list[str]:
    """Lists what differs between the outcomes of all suites and the list of a peer."""
    wrong = []
    for suite, outcomes in zip(peer.suite, results, strict=True):
        counts = Counter(outcomes.values())
        # a suite of which most is skipped would pass: what is not listed as skipped has to run
        pinned = {"skipped": 0, **suite}
        for found, key in (
            (len(outcomes), "tests"),
            (counts["failed"], "differ"),
            (counts["skipped"], "skipped"),
        ):
            if found != pinned.get(key, found):
                wrong.append(f"{suite['files'][0]}: {key} = {found}, listed {pinned[key]}")
    outcome = {test: said for outcomes in results for test, said in outcomes.items()}
    expected = peer.failing()
    for test, said in outcome.items():
        listed = any(matches(test, pattern) for pattern in expected)
        if said == "failed" and not listed:
            wrong.append(f"fails, and is not listed: {test}")
        if said != "failed" and listed:
            wrong.append(f"{said}, and is listed as differing: {test}")
    for pattern in expected:
        if not any(matches(test, pattern) for test in outcome):
            wrong.append(f"listed, and there is no such test: {pattern}")
    return wrong


def check(peer: Peer, cache: Path, workers: str) -> bool:
    """Runs all suites of a peer, prints what came of it, and says whether it is what is listed."""
    try:
        archive = fetch(peer, cache)
    except NotFetchedError as reason:
        print(f"{peer.title} SKIPPED: could not be fetched: {reason}")
        return True
    try:
        here = importlib.metadata.version(peer.distribution)
    except importlib.metadata.PackageNotFoundError:
        here = "none"
    if here != peer.version:
        print(f"{peer.title} ERROR: the list is for this version, and {here} is installed")
        return False
    started = time.perf_counter()
    root = unpack(peer, archive, cache)
    results = []
    for suite in peer.suite:
        replace(peer, suite, root)
        results.append(run(peer, suite, root, workers))
    seconds = time.perf_counter() - started
    counts = Counter(said for outcomes in results for said in outcomes.values())
    print(
        f"{peer.title} {counts['passed']} of {counts.total()} tests pass, "
        f"{counts['failed']} differ, {counts['skipped']} are skipped [{seconds:.0f} s]"
    )
    wrong = compare(peer, results)
    for line in wrong:
        print(f"  {line}")
    if wrong:
        print(f"  what pytest said is in {cache}/{peer.path.stem}-*.log")
    return not wrong


def main(arguments: list[str] | None = None) -> int:
    """Runs the suites of the peers that are named, or of all; returns the exit status."""
    parser = argparse.ArgumentParser(description="run peers' own tests against the adapters")
    parser.add_argument("names", nargs="*", help="names of lists; default: all")
    parser.add_argument("--lists", type=Path, default=HERE, help="the folder of the lists")
    parser.add_argument("--cache", type=Path, default=ROOT / ".peers", help="where sources go")
    parser.add_argument("--workers", default="0", help="processes of pytest-xdist; 0: this one")
    given = parser.parse_args(arguments)
    listed = peers(given.lists)
    lists = [peer.path.stem for peer in listed]
    for name in given.names:
        if name not in lists:
            parser.error(f"no list named {name}: there are {', '.join(lists)}")
    chosen = [peer for peer in listed if not given.names or peer.path.stem in given.names]
    # every peer is asked, also after one that differs
    right = [check(peer, given.cache.resolve(), given.workers) for peer in chosen]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
