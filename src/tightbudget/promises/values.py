"""Values that a ledger answers with: statements, events, lists of holds, and the outlook of a run.

Nothing here knows a database or a network. A ledger in a database and a ledger behind an address
answer with these values, and the command line and the HTTP server send them as ``to_dict`` says.
Amounts that are sent are rounded already, against whoever reads them: what is spent, held or
requested up, what is left or saved down.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tightbudget import notebook
from tightbudget.errors import ParameterError
from tightbudget.output_dp.account import State
from tightbudget.output_dp.amount import Amount, amounts_table, in_short
from tightbudget.output_dp.guarantee import Cell, cell_from_json, cell_from_lists
from tightbudget.promises.chain import Entry
from tightbudget.promises.pricing import Stored, content_of, guarantee_of
from tightbudget.promises.units import Units

_MOST_EVENTS = 2**63  # a BIGINT numbers them; earlier versions used that number as a token


def _cell_of(content: Any) -> Cell | None:
    """Reads a cell that was sent, or None; lists become tuples."""
    return None if content is None else cell_from_lists(content)


@dataclass(frozen=True, kw_only=True)
class Event:
    """One line of the history.

    Attributes:
        sequence: the event's number, from 1 on without a gap.
        at: the time by the ledger's clock; nothing depends on it.
        kind: a value of :class:`tightbudget.promises.stored_words.EventKind`.
        key: the reservation's key, or of an audit its own; None if the event has none.
        budget: the name of the budget that it changed, or None.
        epsilon: the amount that it is about, rounded up, in the budget's unit: a cap, or an
            amount that was held or charged.
        delta: the delta beside that amount, rounded up.
        cell: the cell that was settled.
        details: who acted, the reason, and what else belongs to the kind.
        hash: SHA-256 of all this and of the event before, in hexadecimal digits.
        question: the question that the reservation of ``key`` answers, as its first event has it
            among its details; None where nobody has said one.
    """

    sequence: int
    at: str
    kind: str
    key: str | None
    budget: str | None
    epsilon: float
    delta: float
    cell: Cell | None
    details: dict[str, Any]
    hash: str
    question: str | None = None

    @staticmethod
    def of(entry: Entry, question: str | None = None) -> Event:
        """Reads a stored event: units become floats, JSON becomes values.

        Args:
            entry: the event.
            question: of its reservation, which its first event alone has among its details.
        """
        amount = Units(entry.epsilon, entry.delta).up("epsilon")
        return Event(
            sequence=entry.sequence,
            at=entry.at,
            kind=entry.kind,
            key=entry.key,
            budget=entry.budget,
            epsilon=amount.amount,
            delta=amount.delta,
            cell=None if entry.cell is None else cell_from_json(entry.cell),
            details=json.loads(entry.details),
            hash=entry.hash,
            question=question,
        )

    def to_dict(self) -> dict[str, Any]:
        """Writes the event as plain JSON; :meth:`from_dict` reads it."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> Event:
        """Reads an event that :meth:`to_dict` wrote, also that of a server before questions."""
        names = [field.name for field in dataclasses.fields(Event)]
        plain = {"question": None, **content}
        return Event(**{name: plain[name] for name in names} | {"cell": _cell_of(content["cell"])})


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A budget at one moment, its caps, remainders and savings rounded down, all else up.

    Attributes:
        name: the budget's name in its ledger.
        kind: ``output_dp``, or a kind without refunds.
        parent: the name of the budget that it is a part of, or None.
        closed: says whether it was closed.
        cap: the most that spent and held may come to.
        spent: the amount of settled and forfeited runs, and of parts that are closed.
        held: the amount that open reservations and open parts hold.
        left: the amount that may still be reserved.
        saved: the amount by which worst cases would have cost more than the observed cells.
        spent_in_parts: the amount that open parts, and their own open parts, have spent; it is
            within ``held``, which has their caps. None for an earlier moment of a budget.
    """

    name: str
    kind: str
    parent: str | None
    closed: bool
    cap: Amount
    spent: Amount
    held: Amount
    left: Amount
    saved: Amount
    spent_in_parts: Amount | None = None

    def balance(self) -> str:
        """The amounts in a line: what is left of the cap, and what is spent and held."""
        closed = "closed; " * self.closed
        spent, held = f"spent {in_short(self.spent)}", f"held {in_short(self.held)}"
        return f"{closed}left {in_short(self.left)} of {in_short(self.cap)}; {spent}; {held}"

    def _repr_html_(self) -> str:
        """Writes a table of the amounts, with a bar, for a notebook."""
        names = ("spent", "held", "left", "cap")
        amounts = amounts_table({name: getattr(self, name) for name in names}, title=self._title())
        return notebook.shown(amounts, self._bar())

    def _title(self) -> str:
        """The budget's name, and its kind unless it charges by the output."""
        kind = "" if self.kind == "output_dp" else f" ({self.kind})"
        return f"{self.name}{kind}{', closed' * self.closed}"

    def _bar(self) -> notebook.Html:
        """A picture of the spent and held shares of the cap."""
        return notebook.bar(spent=self.spent.amount, held=self.held.amount, cap=self.cap.amount)

    def to_dict(self) -> dict[str, Any]:
        """Writes the statement as plain JSON; :meth:`from_dict` reads it."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> Statement:
        """Reads a statement that :meth:`to_dict` wrote, also that of a server before this field."""
        inside = content.get("spent_in_parts")
        return Statement(
            name=content["name"],
            kind=content["kind"],
            parent=content["parent"],
            closed=content["closed"],
            cap=Amount.from_dict(content["cap"]),
            spent=Amount.from_dict(content["spent"]),
            held=Amount.from_dict(content["held"]),
            left=Amount.from_dict(content["left"]),
            saved=Amount.from_dict(content["saved"]),
            spent_in_parts=None if inside is None else Amount.from_dict(inside),
        )


@dataclass(frozen=True, kw_only=True)
class ReservationView:
    """A reservation as its ledger shows it to a caller.

    Attributes:
        key: the caller's name for the run.
        state: how far the run has come.
        interactive: says whether the mechanism answers more than once.
        cell: the cell that it was settled with, or None.
        told: a note for the caller that less was granted than was requested, or None.
        token: the token that settles the run, where the ledger says it: to who starts the run.
        charges: the amount that it holds, or has cost, in each of its budgets (rounded up).
        guarantee: the guarantee that was reserved for; None where a list leaves it out.
        question: the question that the run answers; None where nobody has said one.
    """

    key: str
    state: State
    interactive: bool
    cell: Cell | None
    told: str | None
    token: str | None
    charges: dict[str, Amount]
    guarantee: Stored | None
    question: str | None = None

    def __str__(self) -> str:
        return self.state.value + ("" if self.cell is None else f" with cell {self.cell!r}")

    def to_dict(self) -> dict[str, Any]:
        """Writes the reservation as plain JSON; :meth:`from_dict` reads it."""
        return {
            "key": self.key,
            "state": self.state.value,
            "charges": _charges_to_dict(self.charges),
            "cell": self.cell,
            "told": self.told,
            "token": self.token,
            "interactive": self.interactive,
            "guarantee": None if self.guarantee is None else content_of(self.guarantee),
            "question": self.question,
        }

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> ReservationView:
        """Reads a reservation that :meth:`to_dict` wrote.

        Raises:
            ParameterError: the token is neither a text nor a number.
        """
        guarantee = content["guarantee"]
        return ReservationView(
            key=content["key"],
            state=State(content["state"]),
            interactive=content["interactive"],
            cell=_cell_of(content["cell"]),
            told=content["told"],
            token=token_text(content["token"]),
            charges={name: Amount.from_dict(charge) for name, charge in content["charges"].items()},
            guarantee=None if guarantee is None else guarantee_of(guarantee),
            question=content.get("question"),  # which earlier servers do not answer
        )


@dataclass(frozen=True, kw_only=True)
class OpenHold:
    """A reservation that is not ended, in a list: without the prices that were declared for it.

    Attributes:
        key: the caller's name for the run.
        state: reserved or started.
        interactive: says whether the mechanism answers more than once.
        told: a note for the caller that less was granted than was requested, or None.
        since: the time of the start or, before it, of the reservation, by the ledger's clock.
        by: the name of the starter or, before that, of the reserver; None where an earlier
            version did not write it down.
        charges: the amount that it holds in each of its budgets (rounded up).
        question: the question that the run answers; None where nobody has said one.
    """

    key: str
    state: State
    interactive: bool
    told: str | None
    since: str
    by: str | None
    charges: dict[str, Amount]
    question: str | None

    def to_dict(self) -> dict[str, Any]:
        """Writes the reservation as plain JSON; the fields that a list leaves out are null."""
        return {
            "key": self.key,
            "state": self.state.value,
            "charges": _charges_to_dict(self.charges),
            "cell": None,
            "told": self.told,
            "token": None,
            "interactive": self.interactive,
            "guarantee": None,
            "since": self.since,
            "by": self.by,
            "question": self.question,
        }


def _charges_to_dict(charges: Mapping[str, Amount]) -> dict[str, Any]:
    """Writes the amount of each budget as plain JSON."""
    return {name: charge.to_dict() for name, charge in charges.items()}


@dataclass(frozen=True, kw_only=True)
class Preview:
    """The answer that a reservation would get now, without reserving anything.

    Attributes:
        fits: says whether it would be granted.
        requested: the amount that it would hold (rounded up).
        left: the amount that is left now (rounded down).
        left_after: the amount that would be left after it (rounded down).
        message: the text of the refusal; None if it fits.
    """

    fits: bool
    requested: Amount
    left: Amount
    left_after: Amount
    message: str | None

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> Preview:
        """Reads the answer of a served ledger."""
        return Preview(
            fits=content["fits"],
            requested=Amount.from_dict(content["requested"]),
            left=Amount.from_dict(content["left"]),
            left_after=Amount.from_dict(content["left_after"]),
            message=content["message"],
        )


@dataclass(frozen=True, kw_only=True)
class BlockTerms:
    """The terms of a set of blocks, with its amounts rounded down, and those of a person up.

    Attributes:
        name: the name of the set, and of its own budget.
        by: the names of the dimensions.
        block: the budget of each block.
        rows_in: the largest number of blocks that have rows of one person.
        cap: what all blocks together are charged for at most; None for no such cap.
        quota: what each analyst is charged for at most, beside the blocks; None for no quota.
        unlocking: the number of days over which the budget of a block is unlocked; None for all
            at once.
        person: the epsilon and delta of all that is ever released about one person.
    """

    name: str
    by: tuple[str, ...]
    block: Amount
    rows_in: int
    cap: Amount | None
    quota: Amount | None
    unlocking: int | None
    person: Amount

    def to_dict(self) -> dict[str, Any]:
        """Writes the terms as plain JSON."""
        return {**dataclasses.asdict(self), "by": list(self.by)}

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> BlockTerms:
        """Reads the answer of a served ledger."""

        def amount(name: str) -> Amount | None:
            return None if content[name] is None else Amount.from_dict(content[name])

        return BlockTerms(
            name=content["name"],
            by=tuple(content["by"]),
            block=Amount.from_dict(content["block"]),
            rows_in=content["rows_in"],
            cap=amount("cap"),
            quota=amount("quota"),
            unlocking=content["unlocking"],
            person=Amount.from_dict(content["person"]),
        )


def token_text(token: object) -> str | None:
    """Checks the token of a run and returns it as a text.

    Earlier versions answered a start with a number: the sequence of its event.

    Raises:
        ParameterError: it is neither a text of ASCII characters, such a number, nor None; the
            message does not show it, since it may be a secret.
    """
    if token is None or (isinstance(token, str) and token.isascii()):
        return token
    if isinstance(token, int) and not isinstance(token, bool) and 0 <= token < _MOST_EVENTS:
        return str(token)
    kind = type(token).__name__
    raise ParameterError(f"token must be the text that start has answered, got another {kind}")


def statements_table(statements: Sequence[Statement], *, title: str) -> str:
    """Makes a table of budgets, each part below its whole, for a notebook."""
    depth: dict[str | None, int] = {None: -1}
    rows: list[tuple[object, ...]] = []
    for one in statements:
        depth[one.name] = depth.get(one.parent, -1) + 1
        name = notebook.indented(one._title(), depth[one.name])
        amounts = [repr(amount.amount) for amount in (one.spent, one.held, one.left)]
        rows.append((name, one._bar(), one.cap.unit, *amounts, repr(one.left.delta)))
    head = ("budget", "", "counts", "spent", "held", "left", "delta left")
    shown = rows[: notebook.MOST_ROWS]
    table = notebook.table(shown, head=head, title=title)
    more = f"{len(rows) - len(shown):,} more budgets" if len(rows) > len(shown) else ""
    return notebook.shown(table, notebook.muted(more))
