"""Whoever acts is killed at random moments, in loops of thousands of acts.

A client says which act it asks for, and afterwards how that was answered. At the end the ledger
must have every act that was answered, nothing that nobody asked for, and of each thread that was
killed at most the one act more that it was waiting for. The loops use the public interface alone,
so that they hold however acts are written.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Engine, event
from tests.ledger import power_cuts
from tests.ledger.servers import OwnServer
from tests.ledger.victims import born
from tests.web.load import Clients, Program, prepared
from tests.web.test_load import check as check_runs

import tightbudget as tb

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("TEST_KILL_SECONDS", "15"))  # of killing, in each loop
COIN = tb.OutputDP({"yes": 1e-6, "no": 1e-7}, delta=1e-15)
BUDGETS = ("ada", "bob")
SMALL = ("small",)  # too small for a COIN
# The acts after a reservation, run by run.
ENDS = (("start", "settle"), ("void",), ("start", "forfeit"), ("start", "settle"))
STATES = {
    "reserve": "reserved",
    "start": "started",
    "settle": "settled",
    "void": "void",
    "forfeit": "forfeited",
    "exceed": "refused",
}
LAST = list(STATES.values())  # no run is in an earlier state after a later one


class Said(NamedTuple):
    """A line of a client: it asks for an act, and was answered, or told that it failed.

    Attributes:
        what: asks, told, failed, unknown, or broke (no refusal of the ledger's); or head.
        key: the key that it is about, or the head.
        verb: the act.
    """

    what: str
    key: str
    verb: str = ""


# ------------------------------------------------------------------------------- clients


def client(url: str, life: str, threads: int, careless: bool, ear: Any) -> None:
    """Acts until it is killed: each thread run after run, on keys of its own.

    One thread more asks for keys that the same thread of other processes asks for, too, so that
    it is often told of an act that another process has just done; and one reads heads.
    """
    turn = threading.Lock()

    def say(*said: str) -> None:
        with turn:
            ear.send(Said(*said))

    with in_haste() if careless else contextlib.nullcontext():
        ledger = patient(lambda: tb.Ledger(url, create=False))
        works = [partial(runs, ledger, f"{life}/{i}", say) for i in range(threads)]
        works += [partial(shared_keys, ledger, say), partial(heads, ledger, say)]
        workers = [threading.Thread(target=work, daemon=True) for work in works]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def patient(ask: Callable[[], tb.Ledger]) -> tb.Ledger:
    """Asks again while the database is away."""
    while True:
        try:
            return ask()
        except tb.LedgerError:
            time.sleep(0.05)


def runs(ledger: tb.Ledger, name: str, say: Callable[..., None]) -> None:
    for number, ends in enumerate(itertools.cycle(ENDS)):
        key = f"{name}/{number}"
        hold = asked(say, key, "reserve", partial(ledger.reserve, key, COIN, BUDGETS))
        for verb in ends:
            if hold is None:
                break
            hold = asked(say, key, verb, partial(done, hold, verb))
        # Acts that are refused share what is written with others that are not: the first leaves
        # nothing behind, the second leaves a refusal.
        if hold is not None:
            asked(say, f"{key}/again", "", partial(done, hold, "start"))
        asked(say, f"{key}/more", "exceed", partial(ledger.reserve, f"{key}/more", COIN, SMALL))


def done(hold: tb.ledger.LedgerHold, verb: str) -> tb.ledger.LedgerHold:
    if verb == "settle":
        hold.settle("no")
    else:
        getattr(hold, verb)()
    return hold


def asked(
    say: Callable[..., None], key: str, verb: str, ask: Callable[[], tb.ledger.LedgerHold]
) -> tb.ledger.LedgerHold | None:
    """Says what is asked for and how it was answered; None after a failure."""
    refusal = {"": tb.errors.SettlementError, "exceed": tb.BudgetExceeded}.get(verb)
    say("asks", key, verb)
    try:
        hold = ask()
        if refusal is not None:
            raise AssertionError("it was granted")
    except (tb.errors.SettlementError, tb.BudgetExceeded) as error:
        if type(error) is not refusal:
            say("broke", f"{key}: {error!r}", verb)
            raise
        say("told", key, verb)
        return None
    except tb.LedgerError as error:
        say("unknown" if error.unknown else "failed", key, verb)
        time.sleep(0.05)
        return None
    except Exception as error:
        say("broke", f"{key}: {error!r}", verb)
        raise
    say("told", key, verb)
    return hold


def shared_keys(ledger: tb.Ledger, say: Callable[..., None]) -> None:
    """Reserves keys that have the time in them, so that all processes ask for the same ones."""
    while True:
        key = f"shared/{int(20 * time.time())}"
        asked(say, key, "reserve", partial(ledger.reserve, key, COIN, ["ada"]))


def heads(ledger: tb.Ledger, say: Callable[..., None]) -> None:
    while True:
        with contextlib.suppress(tb.LedgerError):
            say("head", str(ledger.head()))
        time.sleep(0.01)


@contextlib.contextmanager
def in_haste() -> Iterator[None]:
    """Takes durability away: acts are answered before anything is on the disk."""

    def hasty(
        connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any
    ) -> tuple[str, Any]:
        return statement.replace("synchronous_commit = on", "synchronous_commit = off"), parameters

    event.listen(Engine, "before_cursor_execute", hasty, retval=True)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", hasty)


# -------------------------------------------------------------------------------- record


@dataclass
class Record:
    """Everything that the clients said."""

    told: dict[str, str] = field(default_factory=dict)  # key: the latest state that was told
    possible: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    heads: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    answered: int = 0
    deaths: int = 0

    def hear(self, said: Said, open_acts: dict[str, Said]) -> None:
        if said.what == "head":
            self.heads.append(said.key)
            return
        if said.what == "broke":
            self.broken.append(said.key)
            return
        if not said.verb:  # it is refused, and nothing of it is ever there
            self.answered += said.what == "told"
            return
        state = STATES[said.verb]
        if said.what == "asks":
            open_acts[said.key] = said
            return
        open_acts.pop(said.key, None)
        if said.what == "unknown":
            self.possible[said.key].add(state)
        elif said.what == "told":
            self.answered += 1
            if LAST.index(state) >= LAST.index(self.told.get(said.key, "reserved")):
                self.told[said.key] = state

    def doubt(self, open_acts: dict[str, Said]) -> None:
        """The client is dead: what it was waiting for may have been done."""
        for said in open_acts.values():
            self.possible[said.key].add(STATES[said.verb])
        self.deaths += 1

    def check(self, url: str) -> None:
        """Compares the ledger with what was said; what nobody can explain is an error."""
        assert self.broken == []
        with tb.Ledger(url, create=False) as ledger:
            # It waits for the lock: what the dead have sent has been done by then.
            ledger.open_budget("end", epsilon=1, delta=0)
            ledger.verify()
            states = {e.key: e.kind for e in ledger.events() if e.key is not None}
            for key in {*states, *self.told, *self.possible}:
                told = self.told.get(key)
                allowed = {told, *self.possible.get(key, ())}
                assert states.get(key) in allowed, (
                    f"{key}: told {told}, and it is {states.get(key)}"
                )
            for head in self.heads:
                ledger.check(head)
            held = {hold.key for hold in ledger.holds()}
            assert held == {
                key for key, state in states.items() if state in ("reserved", "started")
            }
            self._check_balances(ledger, states)

    def _check_balances(self, ledger: tb.Ledger, states: dict[str, str]) -> None:
        """Adds the prices up from the states, in exact fractions."""
        for budget in BUDGETS:
            spent = held = Fraction(0)
            for key, state in states.items():
                if key.startswith("shared") and budget != "ada":
                    continue
                if state in ("reserved", "started"):
                    held += COIN.sup
                elif state == "settled":
                    spent += COIN.price("no")
                elif state == "forfeited":
                    spent += COIN.sup
            statement = ledger.budget(budget).statement()
            assert (statement.spent.amount, statement.held.amount) == (float(spent), float(held))


class Crowd:
    """Client processes, each of which is replaced by another when it is killed."""

    def __init__(self, url: str, *, processes: int, threads: int, careless: bool = False) -> None:
        self.record = Record()
        self._numbers = itertools.count()
        self._arguments = (url, threads, careless)
        self._lives = [self._birth() for _ in range(processes)]

    def _birth(self) -> tuple[Any, Any, dict[str, Said]]:
        url, threads, careless = self._arguments
        return *born(client, url, f"L{next(self._numbers)}", threads, careless), {}

    def hear(self) -> None:
        for life in self._lives:
            self._hear(*life)

    def _hear(self, _: Any, ear: Any, open_acts: dict[str, Said]) -> None:
        with contextlib.suppress(EOFError, ConnectionResetError):
            while ear.poll():
                self.record.hear(ear.recv(), open_acts)

    def kill_one(self, which: int) -> None:
        self._bury(self._lives[which])
        self._lives[which] = self._birth()

    def kill_all(self) -> Record:
        while self._lives:
            self._bury(self._lives.pop())
        return self.record

    def _bury(self, life: tuple[Any, Any, dict[str, Said]]) -> None:
        process, ear, open_acts = life
        process.kill()
        process.join()
        self._hear(process, ear, open_acts)
        ear.close()
        self.record.doubt(open_acts)


def opened(url: str) -> str:
    with tb.Ledger(url) as ledger:
        for name in BUDGETS:
            ledger.open_budget(name, epsilon=1_000, delta=1e-3)
        ledger.open_budget(*SMALL, epsilon=1e-9, delta=1e-3)
    return url


# --------------------------------------------------------------------------------- loops


@pytest.mark.parametrize(("processes", "threads"), [(6, 1), (2, 8)])
def test_clients_are_killed(url: str, processes: int, threads: int) -> None:
    """With many threads, SIGKILL meets acts that share what is written at once."""
    chance = random.Random(processes)
    crowd = Crowd(opened(url), processes=processes, threads=threads)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.0, 0.4))
        crowd.hear()
        crowd.kill_one(chance.randrange(processes))
    record = crowd.kill_all()
    record.check(url)
    print(f"{record.answered} acts answered, {record.deaths} clients killed")


def test_the_database_server_is_killed(mortal: OwnServer) -> None:
    """Of PostgreSQL every process: what it had not written to its log by then is gone."""
    url = opened(mortal.create_database())
    record = killed_again_and_again(mortal, url, careless=False)
    record.check(url)
    print(f"{record.answered} acts answered, {len(record.heads)} heads read")


def killed_again_and_again(server: OwnServer, url: str, *, careless: bool) -> Record:
    chance = random.Random(7)
    crowd = Crowd(url, processes=3, threads=4, careless=careless)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        rest = time.monotonic() + chance.uniform(0.2, 2.0)
        while time.monotonic() < rest:
            time.sleep(0.02)
            crowd.hear()
        server.kill()
        crowd.hear()
        server.start()
    return crowd.kill_all()


def test_acts_that_are_answered_too_early_are_missed(
    mortal: OwnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop before is worth something: it sees clients that do not wait for the log."""
    monkeypatch.setattr(f"{__name__}.SECONDS", 10.0)
    url = opened(mortal.create_database())
    # Nothing but a commit writes the log.
    for setting in ("wal_writer_delay = '10s'", "wal_buffers = '16MB'"):
        mortal.execute(f"ALTER SYSTEM SET {setting}")
    mortal.kill()
    mortal.start()
    record = killed_again_and_again(mortal, url, careless=True)
    with pytest.raises(AssertionError, match=r"told .*, and it is None"):
        record.check(url)


def test_the_http_server_is_killed(url: str, tmp_path: Path) -> None:
    chance = random.Random(11)
    token = prepared(url)
    program = Program(url, tmp_path / "log")
    with program.running():
        clients = Clients(program.url, token, 8)
        with clients.at_work():
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                time.sleep(chance.uniform(0.2, 3.0))
                program.kill()
                program.start()
            time.sleep(1)
    made = list(itertools.chain(*clients.runs))
    check_runs(url, made)
    print(f"{len(clients.seconds)} requests answered, {sum(bool(r.failure) for r in made)} not")


# ------------------------------------------------------------------------------ power cuts


def test_the_power_is_cut(tmp_path: Path) -> None:
    """Of what SQLite wrote and did not flush, any part may be gone."""
    with recorded(tmp_path, synchronous="FULL") as recording:
        cuts, told = power_cuts.replay(recording, tmp_path / "cut", seconds=SECONDS)
    assert cuts >= 50
    assert told >= 20 * cuts  # acts that had been answered before a cut, of all cuts
    print(f"{cuts} cuts, {told} acts were there")


def test_a_disk_that_is_not_flushed_is_seen(tmp_path: Path) -> None:
    with (
        recorded(tmp_path, synchronous="OFF") as recording,
        pytest.raises((AssertionError, tb.LedgerError)),
    ):
        power_cuts.replay(recording, tmp_path / "cut", seconds=SECONDS)


@contextlib.contextmanager
def recorded(folder: Path, *, synchronous: str) -> Iterator[power_cuts.Recording]:
    """Records what threads of one process write; skips where nothing can be compiled."""
    try:
        yield power_cuts.record(folder, threads=6, synchronous=synchronous)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no C compiler that makes a library for this Python: {error}")
