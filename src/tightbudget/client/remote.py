"""A ledger on another machine, behind ``tightbudget serve``: the same budgets, the same promises.

A mechanism is charged and answered there as it would be beside the database. The network adds one
failure, an answer that gets lost. Reserve, settle, void and forfeit are then asked for again, which
is safe under one key; a start is never asked for twice: it counts as started.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from tightbudget.client.http import Retry, Wire
from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import positive_count
from tightbudget.output_dp.amount import Amount
from tightbudget.output_dp.guarantee import Cell
from tightbudget.output_dp.pricing import Guarantee
from tightbudget.promises.audited import AuditRecord, AuditResult
from tightbudget.promises.block_names import BlockNames
from tightbudget.promises.chain import Head
from tightbudget.promises.charged_blocks import BaseBlockRange, BaseBlocks
from tightbudget.promises.hold import BaseHold
from tightbudget.promises.payer import Payer
from tightbudget.promises.pricing import Stored, content_of
from tightbudget.promises.secret import chosen_or_new, opens
from tightbudget.promises.text import check_encodable, printable, question_text, storable_cell
from tightbudget.promises.values import (
    BlockTerms,
    Event,
    Preview,
    ReservationView,
    Statement,
    token_text,
)

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

# the largest pages that the server gives out
_PAGE = 1000  # events
_MOST = 1000  # budgets or reservations

# what a server before questions answers to one, since its requests have no other fields
_UNKNOWN_QUESTION = "question: Extra inputs are not permitted"


class RemoteLedger:
    """A ledger that is served, for those who charge it.

    Guarantee: what returns was done, and is durable; what raises was not done, except for a
    :class:`LedgerError` that is ``unknown``. Nothing is done twice.

    Args:
        url: the address where it is served: ``https://ledger.example.org``.
        token: the text that ``tightbudget token create`` printed; reading may need none.
        timeout: seconds that each step of a request may take. A request without an answer is
            sent four times at most, but for a start.
        insecure: whether plain http may go to another machine; whoever listens on the way can
            then read the token, and charge.
        transport: carries the requests, if not the network.

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
        """The address where it is served."""
        return str(self._wire)

    def close(self) -> None:
        """Closes the connections; every act that has returned is durable already."""
        self._wire.close()

    def __repr__(self) -> str:
        return f"RemoteLedger({self.url!r})"

    # --------------------------------------------------------------------------- budgets

    def budget(self, name: str) -> RemoteBudget:
        """Returns the budget of this name.

        Raises:
            ParameterError: there is none, or it is not for this token.
        """
        return RemoteBudget(self, self._statement(name).name)

    def budgets(self) -> tuple[RemoteBudget, ...]:
        """Returns all budgets that are for this token, each after the one that it is a part of."""
        return tuple(RemoteBudget(self, statement.name) for statement in self.statements())

    def statements(self) -> tuple[Statement, ...]:
        """Reads all budgets that are for this token; each thousand of them are of one moment."""
        return tuple(self._pages("budgets", {}, _statements))

    def _statement(self, name: str) -> Statement:
        """Reads the statement of one budget."""
        return self._wire.get("budget", {"name": printable(name=name)}, Statement.from_dict)

    def blocks(self, name: str) -> RemoteBlocks:
        """Returns the set of blocks of this name, which was declared beside the ledger.

        Raises:
            ParameterError: there is none, or it is not for this token.
        """
        query = {"name": printable(name=name), "limit": 1}
        return RemoteBlocks(self, self._wire.get("blocks", query, BlockTerms.from_dict))

    # ---------------------------------------------------------------------- reservations

    def reserve(
        self,
        key: str,
        guarantee: Guarantee,
        budgets: Sequence[str],
        *,
        interactive: bool = False,
        question: str | None = None,
    ) -> RemoteHold:
        """Holds the mechanism's worst-case price, in several budgets or in none.

        See :meth:`Ledger.reserve`.
        """
        asked = {
            "key": key,
            "guarantee": content_of(guarantee),
            "budgets": budgets if isinstance(budgets, str) else list(budgets),
            "interactive": bool(interactive),
        }
        return self._reserved("reserve", asked, question)

    def _reserved(self, path: str, asked: Mapping[str, object], question: str | None) -> RemoteHold:
        """Asks for a reservation, with the question if there is one."""
        said = question_text(question)
        with_question = asked if said is None else {**asked, "question": said}
        try:
            answer = self._wire.post(path, with_question, ReservationView.from_dict)
        except ParameterError as refusal:
            # guard: earlier-servers-know-no-question
            if said is None or _UNKNOWN_QUESTION not in str(refusal):
                raise
            answer = self._wire.post(path, asked, ReservationView.from_dict)
        return RemoteHold(self._wire, answer, None)

    def hold(self, key: str, *, token: str | int | None = None) -> RemoteHold:
        """Returns the reservation of this key, for instance of a process that is no more.

        Args:
            key: the key that it was reserved under.
            token: the token of its start, if this process may settle it. Anyone may forfeit it.
                For a run that an earlier version has started, the number that it answered.

        Raises:
            SettlementError: there is none.
            BudgetExceeded: it was refused.
            ParameterError: the token is neither a text nor a number.
        """
        shown = token_text(token)
        answer = self._wire.get("hold", {"key": printable(key=key)}, ReservationView.from_dict)
        return RemoteHold(self._wire, answer, shown)

    def holds(self) -> tuple[RemoteHold, ...]:
        """Returns all reservations that are not ended, of budgets that are for this token."""
        return self._holds(budget=None)

    def _holds(self, budget: str | None) -> tuple[RemoteHold, ...]:
        """Reads the reservations that are not ended, of this budget or of all."""
        found = self._pages("holds", {"budget": budget}, _views)
        return tuple(RemoteHold(self._wire, answer, None) for answer in found)

    def _pages(
        self,
        path: str,
        query: Mapping[str, object],
        read: Callable[[Any], tuple[Sequence[T], str | None]],
    ) -> Iterator[T]:
        """Reads a list page by page."""
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
        """Reads the history, oldest first, of budgets that are for this token.

        Args:
            budget: selects events of this budget only.
            key: selects events of this reservation only.
            after: the number of the last event that is left out.
            limit: the largest number of events.
            kind: selects events of this kind only.
            search: selects events with this text in the key, the budget's name, the cell or the
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
        while last is not None and (limit is None or limit > 0):  # guard: history-goes-on
            size = _PAGE if limit is None else min(limit, _PAGE)
            page, last = self._wire.get("events", {**wanted, "after": last, "limit": size}, _events)
            yield from page
            limit = None if limit is None else limit - len(page)

    def head(self) -> Head:
        """Returns the history's length and hash; ``str(ledger.head())`` is to be kept elsewhere."""
        return self._wire.get("head", {}, _head)


class RemoteBudget(Payer["RemoteHold"]):
    """A budget of a ledger that is served, which is read anew each time that it is asked.

    Args:
        ledger: the ledger.
        name: the budget's name, as the ledger spells it.
    """

    def __init__(self, ledger: RemoteLedger, name: str) -> None:
        super().__init__(name)
        self._ledger = ledger

    def statement(self) -> Statement:
        return self._ledger._statement(self._name)

    def reserve(
        self,
        key: str,
        guarantee: Guarantee,
        *,
        also: Sequence[str] = (),
        interactive: bool = False,
        question: str | None = None,
    ) -> RemoteHold:
        return self._ledger.reserve(
            key, guarantee, (self._name, *also), interactive=interactive, question=question
        )

    def _hold(self, key: str, token: str | None) -> RemoteHold:
        return self._ledger.hold(key, token=token)

    def what_if(self, guarantee: Guarantee) -> Preview:
        return self._asked(Preview.from_dict, guarantee, 1)

    def can_afford(self, guarantee: Guarantee, n: int = 1) -> bool:
        return self._asked(_affordable, guarantee, positive_count(n=n))

    def _asked(self, read: Callable[[Any], T], guarantee: Guarantee, times: int) -> T:
        """Asks what would become of so many runs; nothing is held."""
        asked = {"guarantee": content_of(guarantee), "budget": self._name, "times": times}
        return self._ledger._wire.post("what-if", asked, read, Retry.READING)

    def holds(self) -> tuple[RemoteHold, ...]:
        return self._ledger._holds(self._name)

    def record_audit(self, key: str, audit: AuditResult) -> Event:
        """Writes down an audit of this budget, or of a run in it, once for each key.

        See :meth:`LedgerBudget.record_audit`: no balance changes. The whole result goes to the
        server, which keeps its SHA-256, its verdict and a line, with the access token's name.

        Args:
            key: the key of the run that was audited, or another name for this audit, of 1 to 200
                printable characters.
            audit: the result, such as :func:`tightbudget.audit.one_run` returns.

        Raises:
            KeyConflictError: another audit of this budget has this key.
            ParameterError: the key or the audit is refused, or this is the budget of a block that
                nobody has touched.
            LedgerError: it was not written down; or, if it is ``unknown``, it may have been.
        """
        AuditRecord.of(audit)  # what is no audit is refused before it is sent
        asked = {"name": self._name, "key": printable(key=key), "audit": audit.to_dict()}
        return self._ledger._wire.post("audit", asked, Event.from_dict)

    def history(self) -> Iterator[Event]:
        return self._ledger.events(budget=self._name)


class RemoteBlocks(BaseBlocks["RemoteBlockRange"]):
    """A set of blocks of a ledger that is served; :class:`Blocks` says what it guarantees.

    :meth:`RemoteLedger.blocks` makes one.

    Args:
        ledger: the ledger.
        terms: the terms of the set.
    """

    def __init__(self, ledger: RemoteLedger, terms: BlockTerms) -> None:
        super().__init__(terms)
        self._ledger = ledger

    def _range(self, chosen: Mapping[str, Sequence[str]]) -> RemoteBlockRange:
        return RemoteBlockRange(self._ledger, self._names, chosen)

    def statements(self) -> tuple[Statement, ...]:
        """Reads the budgets that were touched, in the order of their names.

        Each thousand of them are of one moment. Of the quotas, a token of an analyst reads its own.
        """
        found = self._ledger._pages("blocks", {"name": self.name}, _statements)
        return tuple(sorted(found, key=lambda statement: statement.name))


class RemoteBlockRange(BaseBlockRange["RemoteHold"]):
    """Blocks of a set of a ledger that is served: each is charged for a run, or none.

    The quota that pays, if the set has quotas, is that of the token's name.
    :meth:`RemoteBlocks.where` makes one.

    Args:
        ledger: the ledger.
        of: the names of the set.
        chosen: for each dimension the values, all combinations of which are blocks of the range.
    """

    def __init__(
        self, ledger: RemoteLedger, of: BlockNames, chosen: Mapping[str, Sequence[str]]
    ) -> None:
        super().__init__(of, chosen)
        self._ledger = ledger
        self._said = {
            "set": of.name,
            "where": {name: list(found) for name, found in chosen.items()},
        }

    @property
    def left(self) -> Amount:
        return self._ledger._wire.post("blocks/left", self._said, _left, Retry.READING)

    def reserve(
        self,
        key: str,
        guarantee: Guarantee,
        *,
        also: Sequence[str] = (),
        interactive: bool = False,
        question: str | None = None,
    ) -> RemoteHold:
        asked = {
            **self._said,
            "key": key,
            "guarantee": content_of(guarantee),
            "also": self._beside(also),
            "interactive": bool(interactive),
        }
        return self._ledger._reserved("blocks/reserve", asked, question)

    def _hold(self, key: str, token: str | None) -> RemoteHold:
        return self._ledger.hold(key, token=token)

    def what_if(self, guarantee: Guarantee) -> Preview:
        asked = {**self._said, "guarantee": content_of(guarantee)}
        return self._ledger._wire.post("blocks/what-if", asked, Preview.from_dict, Retry.READING)


class RemoteHold(BaseHold[ReservationView]):
    """One reservation, as it was when this object last asked the ledger.

    The ledger writes down the access token's name as that of who does something.

    Args:
        wire: the way to the ledger.
        answer: the ledger's last answer about it.
        token: the token that settles the run, or None if this process does not have it.
    """

    def __init__(self, wire: Wire, answer: ReservationView, token: str | None) -> None:
        self._wire = wire  # first, so that a deep copy is refused in its words
        super().__init__(answer, token)

    @property
    def _view(self) -> ReservationView:
        """The ledger's last answer."""
        return self._is

    @property
    def guarantee(self) -> Stored:
        """The guarantee that was reserved for; that of a hold from a list is fetched when read."""
        known = self._is.guarantee
        if known is None:
            known = self._wire.get("hold", {"key": self.key}, ReservationView.from_dict).guarantee
            assert known is not None, "a reservation says what it is for"
            self._is = dataclasses.replace(self._is, guarantee=known)
        return known

    def _is_started_with(self, token: str) -> bool:
        # the history has the digest of the token, which no answer about a reservation has
        wanted = {"key": self.key, "kind": "started", "after": 0, "limit": 1}
        events, _ = self._wire.get("events", wanted, _events)
        return bool(events) and opens(token, events[0].details.get("token_sha256"))

    def start(self, *, token: str | None = None) -> None:
        # a server of an earlier version knows no such field
        asked = {"key": self.key} | ({} if token is None else {"token": chosen_or_new(token)})
        self._is = self._wire.post("start", asked, ReservationView.from_dict, Retry.ONCE)
        self._token = self._is.token  # guard: start-token-kept

    def settle(self, cell: Cell) -> Amount:
        asked = {"key": self.key, "token": self._token, "cell": storable_cell(cell)}
        self._is = self._wire.post("settle", asked, ReservationView.from_dict)
        return self.charge

    def forfeit(self, *, reason: str | None = None) -> Amount:
        asked = {"key": self.key, "reason": reason}
        self._is = self._wire.post("forfeit", asked, ReservationView.from_dict)
        return self.charge

    def void(self) -> Amount:
        self._is = self._wire.post("void", {"key": self.key}, ReservationView.from_dict)
        return self.charge


# ---------------------------------------------------------------- answers of several values


def _left(content: Mapping[str, Any]) -> Amount:
    """Reads what a range of blocks has left."""
    return Amount.from_dict(content["left"])


def _views(content: Mapping[str, Any]) -> tuple[list[ReservationView], str | None]:
    """Reads a page of reservations, and the key after which the next page begins."""
    return list(map(ReservationView.from_dict, content["holds"])), content.get("next")


def _statements(content: Mapping[str, Any]) -> tuple[list[Statement], str | None]:
    """Reads a page of statements, and the name after which the next page begins."""
    return list(map(Statement.from_dict, content["budgets"])), content.get("next")


def _events(content: Mapping[str, Any]) -> tuple[list[Event], int | None]:
    """Reads a page of events, and the number after which the next page begins."""
    return list(map(Event.from_dict, content["events"])), content["next"]


def _affordable(content: Mapping[str, Any]) -> bool:
    """Reads the answer to a question whether runs would be granted."""
    return bool(content["affordable"])


def _head(content: Mapping[str, Any]) -> Head:
    """Reads the head of a history."""
    return Head(sequence=content["sequence"], hash=content["hash"])
