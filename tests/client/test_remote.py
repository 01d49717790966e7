"""A ledger behind its API answers as the ledger itself: the same words, fields and charges."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ledger.conformance import TABLES, ConformanceTable, Deed, LedgerActor, found
from tests.release.cases import CASES, Case
from tests.release.test_laws import Broken, Untouchable
from tests.web.conftest import HERE, SEARCH, Client, Serve

import tightbudget as tb
from tightbudget.client import remote as remote_module
from tightbudget.client.remote import RemoteBudget
from tightbudget.ledger.acts.budget_acts import Terms, open_budget
from tightbudget.ledger.acts.unit_of_work import Act
from tightbudget.ledger.tokens import Tokens
from tightbudget.promises.audited import AuditRecord
from tightbudget.promises.chain import digest
from tightbudget.release import Meter

COIN = tb.OutputDP({"number": 0.1, "nothing": 0}, delta=1e-7)


@pytest.fixture
def remote(client: Client, token: Callable[..., str]) -> Iterator[tb.RemoteLedger]:
    """The served ledger, as an administrator sees it."""
    with connected(client, token("administrator")) as ledger:
        yield ledger


def connected(client: Client, token: str | None) -> tb.RemoteLedger:
    return tb.RemoteLedger(HERE, token=token, transport=client()._transport)


# ------------------------------------------------------------------------- conformance


class RemoteActor(LedgerActor):
    """Does what a table says over the API; what that does not offer, beside it."""

    BESIDE = ("open", "raise", "close", "expire", "verify", "reopen")

    def __init__(self, url: str, far: tb.RemoteLedger) -> None:
        super().__init__(url)
        self.far = far

    def act(self, deed: Deed) -> str:
        near = self.ledger
        if deed.verb in self.BESIDE:
            return super().act(deed)
        self.ledger = self.far  # type: ignore[assignment]
        try:
            return super().act(deed)
        finally:
            self.ledger = near


@pytest.fixture
def ledger_url(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A ledger in which nothing has happened."""
    url = f"sqlite:///{tmp_path}/budget.db"
    tb.Ledger(url).close()
    return url


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES, ids=str)
def test_a_served_ledger_answers_as_the_tables_say(
    table: ConformanceTable, ledger_url: str, remote: tb.RemoteLedger
) -> None:
    with contextlib.closing(RemoteActor(ledger_url, remote)) as actor:
        table.check(actor)


# ------------------------------------------------------------------------------- twins


def plain(answer: Any) -> Any:
    """What an answer says, wherever it comes from."""
    if isinstance(answer, (tb.ledger.LedgerHold, tb.client.RemoteHold)):
        names = ("key", "state", "guarantee", "interactive", "cell", "told", "token", "charges")
        return {name: getattr(answer, name) for name in names} | {"charge": answer.charge}
    if isinstance(answer, (tb.ledger.LedgerBudget, tb.client.RemoteBudget)):
        return repr(answer).replace("Remote", "Ledger")
    if isinstance(answer, (tb.ledger.Blocks, tb.client.RemoteBlocks)):
        return (repr(answer).replace("Remote", ""), answer.terms, answer.has_cap, answer.person)
    if isinstance(answer, (tb.ledger.BlockRange, tb.client.RemoteBlockRange)):
        return (repr(answer).replace("Remote", ""), answer.names, len(answer), answer.left)
    if isinstance(answer, Iterator):
        return [anonymous(event) for event in answer]
    return tuple(map(plain, answer)) if isinstance(answer, tuple) else answer


@dataclasses.dataclass(frozen=True)
class Refused:
    """A refusal with all that it says."""

    kind: type[tb.TightBudgetError]
    message: str
    fields: dict[str, Any]


def anonymous(event: Any) -> Any:
    """An event without time, hash, and what is on a token alone, or random."""
    alone = ("by", "token_sha256", "id", "digest", "expires")
    details = {name: value for name, value in event.details.items() if name not in alone}
    return dataclasses.replace(event, at="", hash="", details=details)


TOKENS: dict[tuple[Any, str], str] = {}  # of runs, by the ledger and the key


def begun(ledger: Any, hold: Any) -> None:
    """Starts a run, and keeps its token."""
    hold.start()
    TOKENS[ledger, hold.key] = hold.token


def told(deed: Callable[[], Any]) -> Any:
    """What a deed answers."""
    try:
        return plain(deed())
    except tb.TightBudgetError as refusal:
        return Refused(type(refusal), str(refusal), vars(refusal))


@pytest.fixture
def twins(tmp_path: Path, ledger: tb.Ledger, remote: tb.RemoteLedger) -> Iterator[Any]:
    """Two ledgers in the same state, one here and one served; ``both`` asks them the same."""
    with tb.Ledger(f"sqlite:///{tmp_path}/twin.db", by="administrator") as twin:
        Tokens(twin).create("administrator", "administrator", lasts=timedelta(hours=1))
        for book in (twin, ledger):
            book.open_budget("data", epsilon=1, delta=1e-6)
            book.open_budget("ada", epsilon=0.25, parent="data")
            book.open_budget("rho", kind="zcdp", rho=0.5)
            book.open_budget("plan", kind="plan", plan=tb.Gaussian(4.0) * 10, delta=1e-6)
            book.open_budget("over", epsilon=1).close()
            book.blocks("visits", by=["day"], epsilon=Fraction(1, 3), rows_in=3, unlocking=10)
            book.blocks(
                "clicks", by=("day", "site"), epsilon=1, delta=1e-6, cap_epsilon=3, cap_delta=1,
                quota_epsilon=0.5, quota_delta=1e-6,
            )  # fmt: skip

        def both(deed: Callable[[Any], Any]) -> Any:
            here, far = told(lambda: deed(twin)), told(lambda: deed(remote))
            assert far == here
            return far

        yield both


STORY: list[Callable[[Any], Any]] = [
    lambda b: b.budget("data").reserve("A1", COIN),
    lambda b: b.budget("data").reserve("A1", COIN),
    lambda b: b.budget("data").reserve("A1", COIN, interactive=True),
    lambda b: b.budget("data").reserve("A2", tb.OutputDP.from_dp(0.3)).start(),
    lambda b: b.budget("data").reserve("A3", tb.OutputDP.from_dp(0.5, 1e-8)),
    lambda b: b.hold("A3"),
    lambda b: b.hold("A3").start(),
    lambda b: b.budget("data").reserve("A21", COIN).start(token="0123456789abcdef" * 2),
    lambda b: b.hold("A21", token="0123456789abcdef" * 2).settle("nothing"),
    lambda b: b.hold("A9"),
    lambda b: b.budget("dato"),
    lambda b: b.budget("over").reserve("A4", COIN),
    lambda b: b.reserve("A4", COIN, ["data", "ada"]),
    lambda b: b.reserve("A4", 0.1, ["data"]),
    lambda b: b.reserve("A4", COIN, ["rho"]),
    lambda b: b.reserve("R1", 0.1, ["rho"], interactive=True),
    lambda b: b.reserve("R2", Fraction(1, 3), ["rho"]),
    lambda b: b.reserve("P1", tb.Gaussian(4.0) * 3, ["plan"]),
    lambda b: b.reserve("P2", tb.Gaussian(4.0) * 8, ["plan"]),
    lambda b: b.reserve("B1", tb.OutputDP({"a": 0.2, ("b", (-7, ())): 0}), ["rho", "ada"]),
    lambda b: b.reserve("B2", tb.OutputDP({"a": 0.2, ("b", (-7, ())): 0}), ["ada"]),
    lambda b: b.hold("A1").settle("number"),
    lambda b: b.hold("A2").settle("number"),
    lambda b: b.hold("A2", token=99).settle("number"),
    lambda b: b.hold("A2", token="99").settle("number"),
    lambda b: b.hold("A2", token=True).settle("number"),
    lambda b: b.hold("A2", token=-1).settle("number"),
    lambda b: b.hold("A2", token=10**5000).settle("number"),
    lambda b: b.hold("A2", token="\ud800").settle("number"),
    lambda b: b.hold("A2").void(),
    lambda b: b.hold("A2").start(),
    lambda b: b.hold("A1").void(),
    lambda b: b.hold("A1").forfeit(),
    lambda b: begun(b, b.budget("data").reserve("S", SEARCH)),
    lambda b: b.hold("S", token=TOKENS.get((b, "S"))).settle("not found"),
    lambda b: b.hold("S").settle("not found"),
    lambda b: b.hold("S").settle("found"),
    lambda b: begun(b, b.hold("B2")),
    lambda b: b.hold("B2", token=TOKENS.get((b, "B2"))).settle(("b", (-7, ()))),
    lambda b: b.hold("A2").forfeit(),
    lambda b: b.budget("data").reserve("U", tb.OutputDP({"\ud800": 0.1})),
    lambda b: begun(b, b.budget("data").reserve("U", tb.OutputDP({"\x00": 0.1, 10**30: 0.01}))),
    lambda b: b.hold("U", token=TOKENS.get((b, "U"))).settle("\ud800"),
    lambda b: b.hold("U", token=TOKENS.get((b, "U"))).settle("\x00"),
    lambda b: b.hold("\ud800"),
    lambda b: b.budget("\ud800"),
    lambda b: list(b.events(search="\ud800")),
    lambda b: b.hold("U").settle("x" * 10_000),
    lambda b: b.hold("U").settle(10**5000),
    lambda b: b.hold("U").settle(True),
    lambda b: b.budget("data").what_if(COIN),
    lambda b: b.budget("data").what_if(tb.OutputDP.from_dp(2)),
    lambda b: b.budget("over").what_if(COIN),
    lambda b: b.budget("rho").what_if(COIN),
    lambda b: b.budget("data").can_afford(COIN, 3),
    lambda b: b.budget("data").can_afford(COIN, 300),
    lambda b: b.budget("data").can_afford(COIN, 0),
    lambda b: b.budget("ada").reserve("T", Fraction(1, 3)),
    lambda b: b.budget("ada").reserve("T", tb.OutputDP.from_dp(Fraction("0.05000000001"))),
    lambda b: b.budget("data").reserve("D", COIN, also=["rho"]),
    lambda b: b.budget("data").statement(),
    lambda b: b.budget("data").holds(),
    lambda b: b.budget("data").history(),
    lambda b: (b.budget("data").kind, b.budget("ada").parent, b.budget("over").closed),
    lambda b: (b.budget("data").cap, b.budget("data").saved, b.budget("data").keyed("x").left),
    lambda b: b.statements(),
    lambda b: [(budget.name, budget.statement()) for budget in b.budgets()],
    lambda b: b.holds(),
    lambda b: b.events(),
    lambda b: b.events(key="S", limit=2),
    lambda b: b.events(budget="data", after=6),
    lambda b: b.events(kind="refused"),
    lambda b: b.events(search="dearest"),
    lambda b: b.events(limit=0),
    lambda b: b.head().sequence,
]


def days(book: Any, when: Any = "2026-01-01..2026-01-03", site: Any = ("a", "b")) -> Any:
    return book.blocks("clicks").where(day=when, site=site)


STORY_OF_BLOCKS: list[Callable[[Any], Any]] = [
    lambda b: b.blocks("clicks"),
    lambda b: b.blocks("visits"),
    lambda b: b.blocks("clicks").statements(),
    lambda b: b.blocks("data"),
    lambda b: b.blocks("nowhere"),
    lambda b: b.blocks("\ud800"),
    lambda b: days(b),
    lambda b: days(b, when="2026-01", site="a"),
    lambda b: days(b, when="yesterday"),
    lambda b: days(b, when=()),
    lambda b: days(b, when="2000..2100"),
    lambda b: days(b, site={"a": 1}),
    lambda b: b.blocks("clicks").where(day="2026"),
    lambda b: b.blocks("visits").where(day=2020),
    lambda b: b.blocks("visits").where(day="2999").what_if(COIN),
    lambda b: b.blocks("visits").where(day=["2020-01-01", "2020-02"]).reserve("V", COIN),
    lambda b: b.blocks("visits").where(day="2020").reserve("V2", tb.OutputDP.from_dp(0.2)),
    lambda b: b.blocks("visits").where(day="2020").reserve("V3", tb.OutputDP.from_dp(0.2)),
    lambda b: days(b).what_if(COIN),
    lambda b: days(b).reserve("C1", COIN),
    lambda b: days(b).reserve("C1", COIN),
    lambda b: days(b, site="a").reserve("C1", COIN),
    lambda b: days(b).left,
    lambda b: begun(b, b.hold("C1")),
    lambda b: b.hold("C1", token=TOKENS.get((b, "C1"))).settle("nothing"),
    lambda b: days(b, site="c").reserve("C2", COIN, also=["data"], interactive=True),
    lambda b: days(b, site="c").reserve("C3", tb.OutputDP.from_dp(0.1), interactive=True),
    lambda b: days(b, site="c").reserve("C4", COIN, also=["data"]),
    lambda b: days(b, site="c").reserve("C5", COIN, also="data"),
    lambda b: days(b, site="c").reserve("C5", COIN, also=["nobody"]),
    lambda b: days(b, site="c").reserve("C5", COIN, also=["clicks"]),
    lambda b: days(b, site="c").reserve("C5", COIN, also=["visits"]),
    lambda b: days(b, site="c").reserve("C5", 0.3),
    lambda b: days(b, site="c").reserve("C6", tb.OutputDP.from_dp(0.45)),
    lambda b: days(b, site="c").what_if(tb.OutputDP.from_dp(0.45)),
    lambda b: b.reserve("C7", COIN, ["clicks"]),
    lambda b: b.budget("clicks[day=2026-01-01, site=a]").statement(),
    lambda b: b.budget("clicks[day=2026-01-01, site=z]").statement(),
    lambda b: b.blocks("clicks").statements(),
    lambda b: b.blocks("clicks").values("clicks[day=2026-01-01, site=a]"),
    lambda b: b.blocks("clicks").values("clicks[analyst administrator]"),
    lambda b: days(b).keyed("K").left,
    lambda b: b.statements(),
    lambda b: b.events(),
    lambda b: b.head().sequence,
]


@pytest.mark.slow
def test_blocks_that_are_served_and_blocks_here_answer_alike(
    twins: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_module, "_MOST", 3)  # lists of blocks come in pages
    answers = [twins(deed) for deed in STORY_OF_BLOCKS]
    refused = [answer.kind for answer in answers if isinstance(answer, Refused)]
    assert {tb.BudgetExceeded, tb.KeyConflictError, tb.ParameterError} <= set(refused)
    assert len(refused) < len(answers) / 2


@pytest.mark.slow
def test_a_served_ledger_and_one_here_answer_alike(
    twins: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every deed, in one long story: answers, refusals, their words and fields."""
    monkeypatch.setattr(remote_module, "_PAGE", 4)  # the history comes in pages
    answers = [twins(deed) for deed in STORY]
    refused = (answer for answer in answers if isinstance(answer, Refused))
    kinds = {answer.kind for answer in refused}
    assert {
        tb.BudgetExceeded, tb.errors.FencingError, tb.KeyConflictError, tb.ParameterError,
        tb.errors.SettlementError,
    } <= kinds  # fmt: skip


def test_a_hold_says_how_far_it_has_come(ledger: tb.Ledger, remote: tb.RemoteLedger) -> None:
    ledger.open_budget("data", epsilon=1, delta=1e-6)
    data = remote.budget("data")
    assert repr(data) == "<RemoteBudget 'data'>"
    hold = data.reserve("A1", COIN)
    assert repr(hold) == "<RemoteHold 'A1': reserved>"
    assert hold.token is None
    hold.start()
    assert digest(str(hold.token)) == ledger.hold("A1")._is.token
    assert hold.settle("nothing") == hold.charge == tb.Amount(0.0, 1e-7, "epsilon")
    assert repr(hold) == "<RemoteHold 'A1': settled with cell 'nothing'>"
    assert remote.head() == ledger.head()
    overruled = data.reserve("A2", COIN)
    overruled.start()
    remote.hold("A2").forfeit(reason="the machine is gone")
    with pytest.raises(tb.errors.FencingError, match="'A2' was overruled"):
        overruled.settle("nothing")
    assert list(data.history())[-1].details == {
        "by": "administrator", "reason": "the machine is gone"
    }  # fmt: skip


# -------------------------------------------------------------------------- mechanisms

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.mark.one_in(6)
@every
def test_a_mechanism_charges_what_it_would_here(
    case: Case, ledger: tb.Ledger, remote: tb.RemoteLedger
) -> None:
    epsilon, delta = case.mechanism.guarantee.worst_case()
    for name in ("far", "near"):
        ledger.open_budget(name, epsilon=epsilon + 1, delta=delta)
    meter: Meter = remote.budget("far").keyed("run")
    foreseen = case.mechanism.what_if(meter)
    assert foreseen.fits
    answer = case.run(case.mechanism, case.data, meter, None)
    near = ledger.budget("near").reserve("near", case.mechanism.guarantee)
    held = near.charge
    near.start()
    assert answer.receipt == tb.release.Receipt(held, near.settle(answer.cell))
    for name in ("spent", "held", "left", "saved"):
        assert getattr(remote.budget("far"), name) == getattr(ledger.budget("near"), name)


@pytest.mark.one_in(6)
@every
def test_what_does_not_fit_is_refused_before_the_data_is_touched(
    case: Case, ledger: tb.Ledger, remote: tb.RemoteLedger
) -> None:
    epsilon, delta = case.mechanism.guarantee.worst_case()
    small = ledger.open_budget("small", epsilon=epsilon * Fraction(999, 1000), delta=delta)
    with pytest.raises(tb.BudgetExceeded) as caught:
        case.run(case.mechanism, Untouchable(), remote.budget("small").keyed("run"), None)
    assert caught.value.left == small.left
    assert (caught.value.budget, caught.value.holds) == ("small", ())
    assert small.spent == small.held == tb.Amount(0.0, 0.0, "epsilon")


@pytest.mark.one_in(6)
@every
def test_a_failure_after_the_start_costs_the_dearest_price(
    case: Case, ledger: tb.Ledger, remote: tb.RemoteLedger
) -> None:
    ledger.open_budget("data", epsilon=10, delta=1)
    with pytest.raises(tb.ReleaseError):
        case.run(case.mechanism, case.data, remote.budget("data").keyed("run"), Broken())
    (event,) = remote.events(kind="forfeited")
    assert event.epsilon >= case.mechanism.guarantee.sup


@pytest.mark.parametrize(
    ("terms", "charged"),
    [
        ({"kind": "zcdp", "rho": 1}, tb.Amount(0.00125, 0.0, "rho")),
        ({"kind": "renyi", "order": 8, "epsilon": 1}, tb.Amount(0.01, 0.0, "divergence")),
    ],
)
def test_a_gaussian_release_is_charged_its_rho_far_away(
    ledger: tb.Ledger, remote: tb.RemoteLedger, terms: dict[str, Any], charged: tb.Amount
) -> None:
    budget = ledger.open_budget("data", **terms)
    count = tb.release.GaussianRelease(len, sensitivity=1, sigma=20, delta=1e-7)
    wrong: Any = remote.budget("data")
    with pytest.raises(tb.ParameterError, match=r"^meter must have a key for its runs, say bud"):
        count.release(Untouchable(), meter=wrong)
    answer = count.release([], meter=remote.budget("data").keyed("A7"))
    assert answer.receipt == tb.release.Receipt(charged, charged)
    assert budget.spent == charged
    assert remote.hold("A7").guarantee == count.guarantee


# ------------------------------------------------------------------------------- rights


def test_an_analyst_sees_and_charges_the_budgets_of_the_token(
    ledger: tb.Ledger, client: Client, token: Callable[..., str]
) -> None:
    ledger.open_budget("census", epsilon=4, delta=1e-6)
    ledger.open_budget("ada", parent="census", epsilon=1, delta=1e-7)
    ledger.open_budget("bob", parent="census", epsilon=1, delta=1e-7)
    ledger.budget("bob").reserve("B1", SEARCH)
    with connected(client, token("analyst", "ada")) as ada:
        assert ada.budget("ada").parent is None
        assert [budget.name for budget in ada.budgets()] == ["ada"]
        assert ada.budget("ada").reserve("A1", SEARCH).charges.keys() == {"ada"}
        assert [hold.key for hold in ada.holds()] == ["A1"]
        assert {event.budget for event in ada.events()} == {"ada"}
        with pytest.raises(tb.ParameterError, match="budget must be the name of a budget"):
            ada.budget("bob")
        with pytest.raises(tb.ParameterError, match="budget must be the name of a budget"):
            ada.reserve("A2", SEARCH, ["ada", "bob"])
        with pytest.raises(tb.errors.SettlementError, match="there is no reservation 'B1'"):
            ada.hold("B1")


def test_an_audit_is_kept_far_away_as_here(
    ledger: tb.Ledger, client: Client, token: Callable[..., str]
) -> None:
    labels = np.arange(40) % 2
    audits = [
        found("0.01"),
        tb.audit.many_runs(labels, labels, claim=(0.25, 0.0), delta=0.0),
        tb.audit.many_runs(labels, labels, delta=1e-5),
        tb.audit.one_run(labels, labels, claim=tb.Gaussian(1e-3), delta=0.0),
        dataclasses.replace(found("0.5"), epsilon_at_least=math.inf, p_value=5e-324),
    ]
    for name in ("ada", "bob"):
        ledger.open_budget(name, epsilon=1, delta=1e-7)
    before = ledger.statements()
    with connected(client, token("analyst", "ada")) as remote:
        ada = remote.budget("ada")
        for i, audit in enumerate(audits):
            event = ada.record_audit(f"A{i}", audit)
            # the same digest as beside the ledger, where the same audit is the same event
            assert event.details["audit_sha256"] == AuditRecord.of(audit).audit_sha256
            assert event.details["by"].startswith("analyst")
            assert ledger.budget("ada").record_audit(f"A{i}", audit) == event
            assert ada.record_audit(f"A{i}", audit) == event
            with pytest.raises(tb.errors.KeyConflictError, match="another audit of 'ada'"):
                ada.record_audit(f"A{i}", audits[i - 1])
        assert len(list(remote.events("ada", kind="audited"))) == len(audits)
        with pytest.raises(tb.ParameterError, match="audit must be the result of an audit"):
            ada.record_audit("A9", {"verdict": "refuted"})  # type: ignore[arg-type]
        with pytest.raises(tb.ParameterError, match="name of a budget in this ledger, got 'bob'"):
            RemoteBudget(remote, "bob").record_audit("A9", audits[0])
    assert ledger.statements() == before
    ledger.verify()


def test_who_may_not_write_reads(
    ledger: tb.Ledger, client: Client, token: Callable[..., str]
) -> None:
    ledger.open_budget("data", epsilon=1)
    for bearer, message in (
        (token("viewer"), "this is not for the role viewer: it needs another token"),
        (None, "this needs a token"),
    ):
        with connected(client, bearer) as reader:
            data = reader.budget("data")
            assert data.left == tb.Amount(1.0, 0.0, "epsilon")
            with pytest.raises(tb.LedgerError, match=message) as caught:
                data.reserve("A1", SEARCH)
            assert not caught.value.unknown
    unknown = "this token is unknown, expired or revoked"
    with (
        connected(client, "tb_000000000000_" + 64 * "0") as nobody,
        pytest.raises(tb.LedgerError, match=unknown),
    ):
        nobody.statements()


@pytest.mark.slow
def test_ten_thousand_budgets_pay_for_one_run_over_http(
    ledger_url: str, served: Serve, token: Callable[..., str]
) -> None:
    names = [f"the clicks of one of very many groups of people, {i:05d}" for i in range(10_000)]

    def opened(act: Act) -> None:
        terms = Terms.of("output_dp", {"epsilon": 1, "delta": 1e-6})
        whole = Terms.of("output_dp", {"epsilon": 20_000, "delta": 0.1})
        open_budget(act, name="clicks", terms=whole, parent=None)
        for name in names:
            open_budget(act, name=name, terms=terms, parent="clicks")

    with tb.Ledger(ledger_url) as ledger:
        ledger.session.write(opened)
    url = served(ledger_url).url
    with tb.RemoteLedger(url, token=token("analyst", "clicks")) as remote:
        hold = remote.reserve("many", SEARCH, names)
        hold.start()
        hold.settle("not found")
        assert len(hold.charges) == len(names)
        assert remote.hold("many").state.value == "settled"
        with pytest.raises(tb.TightBudgetError, match="10000"):
            remote.reserve("more", SEARCH, [*names, "ada"])
    with tb.Ledger(ledger_url) as ledger:
        assert {str(one.spent.epsilon) for one in ledger.statements(budgets=names)} == {"0.1"}
        ledger.verify()
