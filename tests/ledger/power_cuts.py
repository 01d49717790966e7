"""Power cuts by replay: what a disk may have if the power goes at any moment of a recorded run.

A library that is loaded before all others (``power_cuts.c``) records what a process writes below
a folder, and when it flushes which file. A disk keeps what was flushed. Of what was written after
the last flush of a file it keeps any part: each write whole, not at all, or torn into sectors.

What the process was told is in the record, too: it writes each answered act to a file of its own.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.pool import Pool

import tightbudget as tb

__all__ = ["Recording", "record", "replay"]

SECTOR = 512  # bytes that a disk writes whole
RUNS = 12  # of each thread, three acts each
FILES = ("budget.db", "budget.db-wal")
COIN = tb.OutputDP({"yes": 1e-6, "no": 1e-7}, delta=1e-15)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the recorded process."""

    name: str  # write, append, truncate, flush
    file: str
    offset: int
    content: bytes


Recording = list[Call]


# ------------------------------------------------------------------------------- recording


def record(folder: Path, *, threads: int, synchronous: str) -> Recording:
    """Runs threads of one process on a new ledger, and returns what the process wrote.

    Args:
        folder: an empty folder.
        threads: how many threads act at the same time.
        synchronous: SQLite's setting.

    Raises:
        CalledProcessError: there is no C compiler, or the process failed.
    """
    library, disk, file = folder / "recorder.so", folder / "disk", folder / "record"
    disk.mkdir()
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    place = {"RECORD_FOLDER": str(disk), "RECORD_FILE": str(file), "LD_PRELOAD": str(library)}
    words = [sys.executable, "-m", __name__, str(disk), str(threads), synchronous]
    subprocess.run(words, check=True, env=os.environ | place, timeout=300)
    return _read(file.read_bytes())


def _read(content: bytes) -> Recording:
    calls, at = [], 0
    while at < len(content):
        end = content.index(b"\n", at)
        name, offset, length, file = content[at:end].decode().split(" ", 3)
        at = end + 1 + int(length)
        calls.append(Call(name, file, int(offset), content[end + 1 : at]))
    return calls


def _act(folder: str, threads: int, synchronous: str) -> None:
    """Runs in the recorded process: threads reserve, start and settle."""

    def connected(connection: Any, *_: Any) -> None:
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        # a checkpoint every few acts: its writes to the database are cut, too
        connection.execute("PRAGMA wal_autocheckpoint = 20")

    event.listen(Pool, "checkout", connected)
    told = os.open(f"{folder}/told", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    ledger = tb.Ledger(f"sqlite:///{folder}/budget.db")
    budget = ledger.open_budget("data", epsilon=1_000, delta=1e-3)
    os.write(told, b"opened\n")

    def runs(thread: int) -> None:
        for run in range(RUNS):
            hold = budget.reserve(f"{thread}/{run}", COIN)
            os.write(told, f"reserved {hold.key}\n".encode())
            hold.start()
            os.write(told, f"started {hold.key}\n".encode())
            hold.settle("no")
            os.write(told, f"settled {hold.key}\n".encode())

    workers = [threading.Thread(target=runs, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    os._exit(0)  # without the checkpoint of a proper end


# ---------------------------------------------------------------------------------- replay


def replay(recording: Recording, folder: Path, *, seconds: float) -> tuple[int, int]:
    """Cuts the power at random moments, and checks what a new process finds then.

    Returns:
        the number of cuts, and of answered acts that were there after them, of all cuts together.

    Raises:
        AssertionError: an act is missing that had been answered.
        LedgerError: the ledger does not open, or does not verify.
    """
    chance = random.Random(20261123)
    first = next(i for i, call in enumerate(recording) if call.file == "told")
    cuts = found = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        cut = chance.randrange(first + 1, len(recording) + 1)
        before = recording[:cut]
        told = b"".join(call.content for call in before if call.file == "told").decode().split("\n")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in FILES:
            calls = [call for call in before if call.file == name]
            (folder / name).write_bytes(_remains(calls, chance))
        with tb.Ledger(f"sqlite:///{folder}/{FILES[0]}", create=False) as ledger:
            ledger.verify()
            there = {f"{event.kind} {event.key}" for event in ledger.events()}
        lost = [act for act in told if act not in there and " " in act]
        assert not lost, f"cut at {cut}: answered, and not there: {lost}"
        cuts, found = cuts + 1, found + len(told)
    return cuts, found


def _remains(calls: Sequence[Call], chance: random.Random) -> bytes:
    """Returns what a disk has of a file after the power went."""
    flushed = max((i for i, call in enumerate(calls) if call.name == "flush"), default=-1)
    # Of a cut's unflushed writes nearly all or nearly none may have arrived.
    arrives = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0))
    content = bytearray()
    for number, call in enumerate(calls):
        sure = number <= flushed
        if call.name == "truncate" and (sure or chance.random() < arrives):
            content[:] = content[: call.offset].ljust(call.offset, b"\0")
        elif call.name == "write":
            for start in range(0, len(call.content), SECTOR):
                if sure or chance.random() < arrives:
                    piece = call.content[start : start + SECTOR]
                    at = call.offset + start
                    content.extend(bytes(max(0, at - len(content))))
                    content[at : at + len(piece)] = piece
    return bytes(content)


if __name__ == "__main__":
    _act(sys.argv[1], int(sys.argv[2]), sys.argv[3])
