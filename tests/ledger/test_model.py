"""Random deeds over several connections: every answer and balance is the model's."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tests.ledger.conformance import Deed, LedgerActor
from tests.ledger.model import Model
from tests.ledger.servers import Server
from tests.ledger.victims import watched

BUDGETS = ("data", "ada", "bob")
KEYS = tuple(f"K{i}" for i in range(5))
PRICES = ("0", "1e-30", "0.1", "0.3", "yes=0.3,no=0.1", "yes=0.5,no=0,*=0.7", "0.5000000004", "0.7")
DELTAS = ("", "", "+1e-7", "+1e-20", "+6e-7")

names, keys = st.sampled_from(BUDGETS), st.sampled_from(KEYS)
caps = st.builds(
    "{} {}".format, st.sampled_from(("0.5", "1", "1.3")), st.sampled_from(("0", "1e-6"))
)
places = st.lists(names, min_size=1, max_size=2, unique=True).map(",".join)
deeds = st.one_of(
    st.builds("open {} {}".format, names, caps),
    st.builds("open {} {} in {}".format, names, caps, names),
    st.builds("raise {} {}".format, names, caps),
    st.builds("close {}".format, names),
    st.builds(
        "reserve {} {}{} on {}".format,
        keys,
        st.sampled_from(PRICES),
        st.sampled_from(DELTAS),
        places,
    ),
    st.builds(
        "{} {}".format, st.sampled_from(("start", "start", "void", "forfeit", "expire")), keys
    ),
    st.builds("settle {} {}".format, keys, st.sampled_from(("yes", "no", "perhaps"))),
    st.builds("audit {} {} on {}".format, keys, st.sampled_from(("0.5", "0.01")), names),
).map(Deed.read)


class _UnpluggedError(Exception):
    pass


class Interleaved(RuleBasedStateMachine):
    """Two connections to one ledger, beside the model."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url, self.model = url, Model()
        self.actors = [LedgerActor(url), LedgerActor(url)]

    @initialize(whole=st.sampled_from(("", " in data")))
    def begin(self, whole: str) -> None:
        for line in ("open data 1 1e-6", f"open ada 0.5 5e-7{whole}"):
            self.act(0, Deed.read(line))

    @rule(who=st.integers(0, 1), deed=deeds)
    def act(self, who: int, deed: Deed) -> None:
        assert self.actors[who].act(deed) == self.expected(who, deed)
        self.compare(self.actors[1 - who])

    @rule(who=st.integers(0, 1))
    def reopen(self, who: int) -> None:
        """As after a crash: what was not in the database is gone."""
        self.actors[who].act(Deed.read("reopen"))

    @rule(who=st.integers(0, 1), deed=deeds, at=st.integers(0, 12))
    def interrupt(self, who: int, deed: Deed, at: int) -> None:
        """An exception out of nowhere, in the middle: not a trace, or all of it."""
        passed = iter(range(at))

        def pass_by(point: str) -> None:
            if next(passed, None) is None and point != "after commit":
                raise _UnpluggedError

        actor = self.actors[who]
        before = actor.ledger.head()
        with contextlib.suppress(_UnpluggedError), watched(pass_by):
            actor.act(deed)
        if actor.ledger.head() == before:
            self.compare(actor)
            self.act(who, deed)
            return
        self.expected(who, deed)
        for one in (actor, self.model):  # the token may not have been told
            one.act(Deed(verb="forget", name=deed.name))
        self.compare(self.actors[1 - who])

    def expected(self, who: int, deed: Deed) -> str:
        self.model.who = who
        return self.model.act(deed)

    def compare(self, actor: LedgerActor) -> None:
        for verb in ("epsilon", "delta"):
            for name in self.model.accounts:
                deed = Deed(verb=verb, name=name)
                assert actor.act(deed) == self.model.act(deed), f"{verb} {name}"

    def teardown(self) -> None:
        self.actors[0].ledger.verify()
        for actor in self.actors:
            actor.ledger.close()


SCALE = settings(max_examples=12, stateful_step_count=25)


@pytest.mark.slow
def test_random_deeds_on_sqlite(tmp_path: Path) -> None:
    numbers = itertools.count()

    class OnSQLite(Interleaved):
        def __init__(self) -> None:
            super().__init__(f"sqlite:///{tmp_path}/{next(numbers)}.db")

    run_state_machine_as_test(OnSQLite, settings=SCALE)


@pytest.mark.slow
def test_random_deeds_on_postgresql(postgres: Server) -> None:
    class OnPostgreSQL(Interleaved):
        def __init__(self) -> None:
            super().__init__(postgres.create_database())

    run_state_machine_as_test(OnPostgreSQL, settings=SCALE)
