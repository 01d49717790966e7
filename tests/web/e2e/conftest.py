"""One browser for a session, and a ledger with a history that is served."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.web.browser import Watched, launched, watched
from tests.web.conftest import Serve, servers

import tightbudget as tb

expect.set_options(timeout=20_000)  # milliseconds: machines may be busy

Open = Callable[..., AbstractContextManager[Watched]]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with launched() as one:
        yield one


@pytest.fixture
def ledger_url(tmp_path: Path) -> str:
    """A census with analysts' parts: runs that were settled, refused, given up, and are open."""
    return a_survey(tmp_path)


def a_survey(folder: Path) -> str:
    """The URL of that ledger."""
    url = f"sqlite:///{folder}/budget.db"
    with tb.Ledger(url, clock=slowly()) as ledger:
        told(ledger)
    return url


def slowly() -> Callable[[], datetime]:
    """A clock on which every act is some hours later, until some hours ago."""
    begin, acts = datetime.now(UTC) - timedelta(days=21), itertools.count()
    return lambda: (
        begin + timedelta(hours=5.2) * (now := next(acts)) + timedelta(minutes=now**2 % 97)
    )


def told(ledger: tb.Ledger) -> None:
    """Some weeks of a survey."""
    search = tb.OutputDP({"found": 0.12, "not found": 0.02}, delta=1e-9)
    ledger.open_budget("census 2026", epsilon=4, delta=1e-6)
    ada = ledger.open_budget("ada", parent="census 2026", epsilon=1, delta=1e-7)
    ledger.open_budget("bob", parent="census 2026", epsilon=0.75, delta=1e-7)
    ledger.open_budget("bob's interns", parent="bob", epsilon=0.2, delta=1e-8)
    ledger.open_budget("telemetry", kind="zcdp", rho=0.5)
    for number in range(1, 25):
        hold = ada.reserve(f"search-{number:02}", search)
        hold.start()
        hold.settle("found" if number % 8 == 0 else "not found")
    ada.reserve("mistake", tb.OutputDP.from_dp(0.05)).void()
    lost = ada.reserve("machine-7", tb.OutputDP.from_dp(0.06))
    lost.start()
    lost.forfeit(by="grace", reason="the machine is gone")
    ledger.budget("telemetry").reserve("clicks", 0.125).start()
    ledger.reserve("joint", tb.OutputDP.from_dp(0.03), ["bob", "ada"])
    ada.reserve("median-age", tb.OutputDP({"stable": 0.1, "unstable": 0.04})).start()
    with pytest.raises(tb.BudgetExceeded):
        ada.reserve("everything", tb.OutputDP.from_dp(0.9, 1e-9))
    old = ledger.open_budget("pilot", epsilon=0.3, delta=0)
    old.reserve("first-look", tb.OutputDP.from_dp(0.1)).start()
    ledger.hold("first-look").forfeit(by="grace", reason="pilot is over")
    old.close()


@pytest.fixture
def site(served: Serve, ledger_url: str) -> str:
    """The address of a server for that ledger."""
    return served(ledger_url).url


@pytest.fixture
def look(browser: Browser, site: str) -> Open:
    """``with look(PHONE) as seen``: a page of the site, in a session of its own."""
    return partial(watched, browser, site)


@pytest.fixture(scope="session")
def glance(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """Opens a page of the site that tests share; none of them changes its ledger."""
    with servers() as serve:
        yield partial(watched, browser, serve(a_survey(tmp_path_factory.mktemp("survey"))).url)
