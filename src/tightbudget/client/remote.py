"""A ledger on another machine, behind ``tightbudget serve``: the same budgets, the same promises.

A mechanism there charges the same ledger as one here, and is told the same. What the network adds
is an answer that gets lost; reserve, settle, void and forfeit are then asked for again, which is
safe under one key. A start is never asked for twice: it counts as started.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from tightbudget.client.http import Act, Wire, amount
from tightbudget.ledger.chain import Head
from tightbudget.ledger.pricing import Guarantee, Stored, content_of, guarantee_of
from tightbudget.ledger.text import check_encodable, printable, storable_cell
from tightbudget.ledger.values import Event, Payer, Statement, WhatIf, token_text
from tightbudget.numerics.validate import positive_count
from tightbudget.output_dp.account import Budget, State
from tightbudget.output_dp.guarantee import Cell, cell_from_lists

if TYPE_CHECKING:
    import httpx

__all__ = ["RemoteBudget", "RemoteHold", "RemoteLedger"]

T = TypeVar("T")

_PAGE = 1000  # events that are asked for at once
_MOST = 1000  # budgets or reservations that are asked for at once


class RemoteLedger:
    """A ledger that is served, for those who charge it.

    Guarantee: what returns was done, and is durable; what raises was not done, except for a
    :class:`LedgerError` that is ``unknown``. Nothing is done twice.

    Args:
        url: where it is served: ``https://ledger.example.org``.
        token: who asks, from ``tightbudget token create``; reading may need none.
        timeout: seconds that each step of a request may take. What got no answer is asked for
            four times at most, but for a start.
        insecure: whether plain http may go to another machine; whoever listens on the way can
            then read the token, and charge.
        transport: how requests travel, if not over the network.

    Raises:
        ParameterError: the url, the token or the timeout is refused.
        ExtraError: httpx is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        insecure: bool = False,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._wire = Wire(url, token, timeout=timeout, insecure=insecure, transport=transport)

    def __enter__(self) -> RemoteLedger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where it is served."""
        return str(self._wire)

    def close(self) -> None:
        """Closes the connections; what was done is durable already."""
        self._wire.close()

    def __repr__(self) -> str:
        return f"RemoteLedger({self.url!r})"

    # --------------------------------------------------------------------------- budgets

    def budget(self, name: str) -> RemoteBudget:
        """The budget of this name.

        Raises:
            ParameterError: there is none, or it is not for this token.
        """
        return RemoteBudget(self, self._statement(name).name)

    def budgets(self) -> tuple[RemoteBudget, ...]:
        """All budgets that are for this token, each after the one that it is a part of."""
        return tuple(RemoteBudget(self, statement.name) for statement in self.statements())

    def statements(self) -> tuple[Statement, ...]:
        """All budgets that are for this token; each thousand of them are of one moment."""
        return tuple(self._pages("budgets", {}, _statements))

    def _statement(self, name: str) -> Statement:
        return self._wire.get("budget", {"name": printable(name=name)}, _statement)

    # ---------------------------------------------------------------------- reservations

    def reserve(
        self,
        key: str,
        guarantee: Guarantee,
        budgets: Sequence[str],
        *,
        interactive: bool = False,
    ) -> RemoteHold:
        """Holds what the mechanism's dearest output would cost, in several budgets or in none.

        See :meth:`Ledger.reserve`.
        """
        asked = {
            "key": key,
            "guarantee": content_of(guarantee),
            "budgets": budgets if isinstance(budgets, str) else list(budgets),
            "interactive": bool(interactive),
        }
        said = self._wire.post("reserve", asked, _said)
        return RemoteHold(self._wire, said, None)

    def hold(self, key: str, *, token: str | int | None = None) -> RemoteHold:
        """The reservation of this key, for instance of a process that is no more.

        Args:
            key: that it was reserved under.
            token: of its start, if this process may settle it. Anyone may forfeit it. A run
                that an earlier version has started has the number that it was answered then.

        Raises:
            SettlementError: there is none.
            BudgetExceeded: it was refused.
            ParameterError: the token is neither a text nor a number.
        """
        shown = token_text(token)
        said = self._wire.get("hold", {"key": printable(key=key)}, _said)
        return RemoteHold(self._wire, said, shown)

    def holds(self) -> tuple[RemoteHold, ...]:
        """All reservations that are not ended, of budgets that are for this token."""
        return self._holds(budget=None)

    def _holds(self, budget: str | None) -> tuple[RemoteHold, ...]:
        found = self._pages("holds", {"budget": budget}, _all_said)
        return tuple(RemoteHold(self._wire, said, None) for said in found)

    def _pages(
        self,
        path: str,
        query: Mapping[str, object],
        read: Callable[[Any], tuple[Sequence[T], str | None]],
    ) -> Iterator[T]:
        """A list, asked for page by page."""
        query = {**query, "limit": _MOST}
        page, after = self._wire.get(path, query, read)
        yield from page
        while after is not None:
            page, after = self._wire.get(path, {**query, "after": after}, read)
            yield from page

    # --------------------------------------------------------------------------- history

    def events(
        self,
        budget: str | None = None,
        key: str | None = None,
        after: int = 0,
        limit: int | None = None,
        *,
        kind: str | None = None,
        search: str | None = None,
    ) -> Iterator[Event]:
        """The history, oldest first, of budgets that are for this token.

        Args:
            budget: of this budget only.
            key: of this reservation only.
            after: from the event after this number on.
            limit: so many events at most.
            kind: of this kind only.
            search: only events with this text in the key, the budget's name, the cell or the
                details.
        """
        wanted = {
            "budget": None if budget is None else printable(budget=budget),
            "key": None if key is None else printable(key=key),
            "kind": kind,
            "search": search,
        }
        for name, text in wanted.items():
            if text is not None:
                check_encodable(**{name: text})
        last: int | None = after
        while last is not None and (limit is None or limit > 0):
            size = _PAGE if limit is None else min(limit, _PAGE)
            page, last = self._wire.get("events", {**wanted, "after": last, "limit": size}, _page)
            yield from page
            limit = None if limit is None else limit - len(page)

    def head(self) -> Head:
        """How far the history goes; ``str(ledger.head())`` is for keeping elsewhere."""
        return self._wire.get("head", {}, _head)


class RemoteBudget(Payer["RemoteHold"]):
    """A budget of a ledger that is served. What it says is read when it is asked for."""

    def __init__(self, ledger: RemoteLedger, name: str) -> None:
        super().__init__(name)
        self._ledger = ledger

    def statement(self) -> Statement:
        """All about it at one moment."""
        return self._ledger._statement(self._name)

    def reserve(
        self,
        key: str,
        guarantee: Guarantee,
        *,
        also: Sequence[str] = (),
        interactive: bool = False,
    ) -> RemoteHold:
        """Holds what the mechanism's dearest output would cost, here and in the budgets ``also``.

        See :meth:`Ledger.reserve`.
        """
        return self._ledger.reserve(key, guarantee, (self._name, *also), interactive=interactive)

    def what_if(self, guarantee: Guarantee) -> WhatIf:
        """What a reservation would be answered now; nothing is held.

        Raises:
            ParameterError: the guarantee is refused.
            SettlementError: the budget is closed.
        """
        return self._asked(_what_if, guarantee, 1)

    def can_afford(self, guarantee: Guarantee, n: int = 1) -> bool:
        """Whether this would be granted n times, if it cost the worst case each time.

        Raises:
            ParameterError: the guarantee or n is refused.
        """
        return self._asked(_affordable, guarantee, positive_count(n=n))

    def _asked(self, read: Callable[[Any], T], guarantee: Guarantee, times: int) -> T:
        asked = {"guarantee": content_of(guarantee), "budget": self._name, "times": times}
        return self._ledger._wire.post("what-if", asked, read, Act.READING)

    def holds(self) -> tuple[RemoteHold, ...]:
        """The reservations that hold something here."""
        return self._ledger._holds(self._name)

    def history(self) -> Iterator[Event]:
        """What happened here, oldest first."""
        return self._ledger.events(budget=self._name)


@dataclasses.dataclass(frozen=True)
class _Said:
    """What the ledger says about a reservation."""

    key: str
    state: State
    guarantee: Stored | None  # lists leave it out
    interactive: bool
    cell: Cell | None
    told: str | None
    token: str | None
    charges: dict[str, Budget]


class RemoteHold:
    """One reservation, as it was when this object last asked the ledger."""

    def __init__(self, wire: Wire, said: _Said, token: str | None) -> None:
        self._wire = wire
        self._is = said
        self._token = token

    def __repr__(self) -> str:
        cell = "" if self.cell is None else f" with cell {self.cell!r}"
        return f"<RemoteHold {self.key!r}: {self.state.value}{cell}>"

    @property
    def key(self) -> str:
        """What it was reserved under."""
        return self._is.key

    @property
    def state(self) -> State:
        """Reserved, started, settled, forfeited or void."""
        return self._is.state

    @property
    def guarantee(self) -> Stored:
        """The guarantee that was reserved for; that of a hold from a list is fetched when read."""
        known = self._is.guarantee
        if known is None:
            known = self._wire.get("hold", {"key": self.key}, _said).guarantee
            assert known is not None, "a reservation says what it is for"
            self._is = dataclasses.replace(self._is, guarantee=known)
        return known

    @property
    def interactive(self) -> bool:
        """Whether it answers more than once."""
        return self._is.interactive

    @property
    def cell(self) -> Cell | None:
        """What it was settled with."""
        return self._is.cell

    @property
    def told(self) -> str | None:
        """What the caller must know: that less was granted than was requested."""
        return self._is.told

    @property
    def token(self) -> str | None:
        """The token that settles this run, a secret to be kept with the output; None without it."""
        return self._token

    @property
    def charges(self) -> dict[str, Budget]:
        """What this run takes from each of its budgets: until it is settled, what is held."""
        return dict(self._is.charges)

    @property
    def charge(self) -> Budget:
        """What it takes from its budget, or from the first of them by name."""
        return next(iter(self._is.charges.values()))

    def start(self) -> None:
        """Marks that the mechanism runs, once; from here on nothing but its cell frees epsilon.

        Raises:
            SettlementError: it was started before, also by another process, or is over.
            LedgerError: the answer was lost, if it is ``unknown``. Run nothing: void the
                reservation, or if that is refused, forfeit it.
        """
        self._is = self._wire.post("start", {"key": self.key}, _said, Act.ONCE)
        self._token = self._is.token

    def settle(self, cell: Cell) -> Budget:
        """Charges what an output in ``cell`` costs, and frees the rest of epsilon, not delta.

        A cell that was not declared costs the sup. The same cell again changes nothing. The
        price is an output, too: it is as public as what the mechanism answered. Reveal that
        answer afterwards.

        Returns:
            what the run has cost: a receipt, to travel with the answer.

        Raises:
            FencingError: it was started by another process, or forfeited meanwhile: the answer
                must not be revealed by this one.
            SettlementError: it was not started, was settled with another cell, or is void.
            ParameterError: no cell looks like this; it is still held.
            LedgerError: the answer was lost, if it is ``unknown``. Reveal nothing before the
                same call has returned.
        """
        asked = {"key": self.key, "token": self._token, "cell": storable_cell(cell)}
        self._is = self._wire.post("settle", asked, _said)
        return self.charge

    def forfeit(self, *, reason: str | None = None) -> Budget:
        """Charges the dearest price, whatever came out. It frees nothing.

        Who says so, is the token's name.

        Raises:
            SettlementError: it was settled, or is void.
        """
        self._is = self._wire.post("forfeit", {"key": self.key, "reason": reason}, _said)
        return self.charge

    def void(self) -> Budget:
        """Frees everything: the mechanism has not run, and never will.

        Raises:
            SettlementError: it was started or is over.
        """
        self._is = self._wire.post("void", {"key": self.key}, _said)
        return self.charge


# ------------------------------------------------------------------------- as they travel


def _said(content: Mapping[str, Any]) -> _Said:
    return _Said(
        key=content["key"],
        state=State(content["state"]),
        guarantee=None if content["guarantee"] is None else guarantee_of(content["guarantee"]),
        interactive=content["interactive"],
        cell=_cell(content["cell"]),
        told=content["told"],
        token=token_text(content["token"]),
        charges={name: amount(charge) for name, charge in content["charges"].items()},
    )


def _all_said(content: Mapping[str, Any]) -> tuple[list[_Said], str | None]:
    return [_said(hold) for hold in content["holds"]], content.get("next")


def _statement(content: Mapping[str, Any]) -> Statement:
    which = [content[name] for name in ("name", "kind", "parent", "closed")]
    amounts = [amount(content[name]) for name in ("cap", "spent", "held", "left", "saved")]
    return Statement(*which, *amounts)


def _statements(content: Mapping[str, Any]) -> tuple[list[Statement], str | None]:
    return list(map(_statement, content["budgets"])), content.get("next")


def _what_if(content: Mapping[str, Any]) -> WhatIf:
    amounts = {name: amount(content[name]) for name in ("requested", "left", "left_after")}
    return WhatIf(fits=content["fits"], message=content["message"], **amounts)


def _affordable(content: Mapping[str, Any]) -> bool:
    return bool(content["affordable"])


def _page(content: Mapping[str, Any]) -> tuple[list[Event], int | None]:
    return [_event(event) for event in content["events"]], content["next"]


def _event(content: Mapping[str, Any]) -> Event:
    names = [field.name for field in dataclasses.fields(Event)]
    return Event(**{name: content[name] for name in names} | {"cell": _cell(content["cell"])})


def _cell(content: Any) -> Cell | None:
    return None if content is None else cell_from_lists(content)


def _head(content: Mapping[str, Any]) -> Head:
    return Head(content["sequence"], content["hash"])
