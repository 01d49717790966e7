"""Verification: the whole history is played again, and compared with every row.

This is a second reading of the protocol, which shares no arithmetic with the acts: balances
and states are computed from the events alone, and then held against the rows.

The memory that a verification takes is bounded by the budgets, the access tokens, the open
reservations and one page of events. An ended reservation is compared with its rows, counted and
forgotten: a later event cannot use its key unseen, because a second reservation of that key
would need a second row with the key, which the table's constraint refuses, and any other event
finds no reservation. Rows that the history does not know are found by counting. What is left in
memory between two pages is the state that a checkpoint has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, Table, exists, func, select, text
from sqlalchemy.exc import DBAPIError

from tightbudget.errors import LedgerCorruptError, LedgerError
from tightbudget.ledger.acts.requests import runs_of
from tightbudget.ledger.rows import budget_rows, event_rows, run_rows, token_rows
from tightbudget.ledger.rows.budget_rows import Balance, StepOfPlan
from tightbudget.ledger.rows.run_rows import Reservation
from tightbudget.ledger.store.schema import charges, events, reservations, steps
from tightbudget.ledger.store.shape import check_shape
from tightbudget.output_dp.guarantee import cell_from_json
from tightbudget.output_dp.pricing import BudgetRule
from tightbudget.promises.chain import Head, digest
from tightbudget.promises.checkpoint import Checkpoint, Compared
from tightbudget.promises.kinds import rule_of
from tightbudget.promises.replay import ReplayedLedger, ReplayedRun, shortened
from tightbudget.promises.stored_words import EventKind, ReservationState
from tightbudget.promises.units import Units

# Events that are in memory at once: a megabyte. Of ten thousand, the collector of garbage finds so
# many alive that it takes a quarter of the time.
_PAGE = 2_000
_KEPT = 250 * _PAGE  # events from one checkpoint to the next, about ten seconds
_AT_ONCE = 500  # reservations that are read at once; the body of each may be a megabyte


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The result of a verification that has found nothing wrong.

    Attributes:
        head: the end of the history that was played.
        budgets: the number of budgets that were compared.
        reservations: the number of reservations that were compared.
        tokens: the number of access tokens that were compared; None where the role of this
            connection may not read them.
    """

    head: Head
    budgets: int
    reservations: int
    tokens: int | None


def verify(
    connection: Connection,
    progress: Callable[[Iterable[int]], Iterable[int]],
    *,
    since: Checkpoint | None = None,
    keep: Callable[[Checkpoint], None] | None = None,
) -> Verification:
    """Plays the history, and compares it with the rows, in one unchanging view.

    Args:
        connection: a view of the ledger.
        progress: wraps the list of pages while they are read.
        since: the checkpoint whose head is not read before; by default the first event is next.
        keep: takes a checkpoint now and then, and one at the end.

    Raises:
        LedgerCorruptError: says where they first differ.
    """
    with _making_sense("definitions of the database"):
        check_shape(connection)
    with _making_sense("the checkpoint and the event that it ends with"):
        history, compared = _begun(connection, since)
    with _making_sense("rows of events"):
        count, first = _count(connection, events), history.head.sequence
    for after in progress(range(first, count, _PAGE)):
        with _making_sense("rows of events"):
            for entry in event_rows.entries(connection, after=after, limit=_PAGE):
                history.add(entry)
        with _making_sense("rows of reservations"):
            _compare_reservations(connection, history.forget_ended(), compared)
        if keep is not None and (after - first) % _KEPT == _KEPT - _PAGE:
            keep(Checkpoint.of(history, compared))
    at_the_end = None if keep is None else Checkpoint.of(history, compared)
    found = _compare_the_end(connection, history, compared, count)
    if keep is not None and at_the_end is not None:
        keep(at_the_end)
    return found


def _compare_the_end(
    connection: Connection, history: ReplayedLedger, compared: Compared, count: int
) -> Verification:
    """Compares what was played with the number of events, and with all rows that may change.

    Raises:
        LedgerCorruptError: something differs.
    """
    with _making_sense("rows of events"):
        head = event_rows.head(connection)
    if history.head != head:
        raise LedgerCorruptError(f"event {history.head.sequence + 1} is missing")
    # guard: events-counted
    if count != history.head.sequence:  # their numbers are below 1, and no list shows them
        raise LedgerCorruptError(f"{count - history.head.sequence} events are before the first")
    with _making_sense("rows of reservations"):
        _compare_reservations(connection, history.runs, compared)
        _check_counts(connection, compared)
    with _making_sense("rows of budgets"):
        _compare_budgets(connection, history, compared.used)
    with _making_sense("rows of access tokens"):
        tokens = _compare_tokens(connection, history)
    return Verification(
        head=history.head,
        budgets=len(history.budgets),
        reservations=compared.reservations,
        tokens=tokens,
    )


@contextmanager
def _making_sense(what: str) -> Iterator[None]:
    """Refuses what cannot be read: anybody may have written anything there.

    Args:
        what: the name of the text that is read, for the message.

    Raises:
        LedgerCorruptError: it cannot be read.
    """
    try:
        yield
    except (LedgerError, DBAPIError, MemoryError):
        raise
    except Exception as error:
        raise LedgerCorruptError(f"{what} make no sense: {shortened(error)}") from error


def _begun(connection: Connection, since: Checkpoint | None) -> tuple[ReplayedLedger, Compared]:
    """Returns the state to go on from, of a ledger that still has the checkpoint's last event.

    Raises:
        LedgerCorruptError: the ledger was set back, or went another way.
    """
    if since is None:
        return ReplayedLedger(), Compared()
    check_head(connection, since.head)
    return since.resumed()


def check_head(connection: Connection, head: Head) -> None:
    """Checks that the history went on from an exported head.

    Raises:
        LedgerCorruptError: it was set back, or went another way.
    """
    now = event_rows.head(connection)
    if now.sequence < head.sequence:  # guard: heads-fall-back
        missing = head.sequence - now.sequence
        raise LedgerCorruptError(
            f"{missing} {'events are' if missing > 1 else 'event is'} missing: this is an earlier"
            " state of the ledger, such as a restored backup"
        )
    entry = event_rows.entry(connection, head.sequence)
    found = Head.after(entry)
    if found != head:  # guard: heads-fork
        raise LedgerCorruptError(
            f"event {head.sequence} is another one: this ledger and the one that the head was"
            " exported from are copies of which both were used, or one was changed"
        )


def _compare_reservations(
    connection: Connection, runs: Mapping[str, ReplayedRun], compared: Compared
) -> None:
    """Compares the rows of some reservations with the history, and adds them to the counts.

    Raises:
        LedgerCorruptError: one of them is not what the history says, or is missing.
    """
    listed = list(runs.items())
    for first in range(0, len(listed), _AT_ONCE):
        page = listed[first : first + _AT_ONCE]
        numbers = [run.row for _, run in page]
        rows = {found.id: found for found in run_rows.reservations_numbered(connection, numbers)}
        prices = _Prices()
        for key, run in page:
            found = rows.get(run.row)
            if found is None:
                raise LedgerCorruptError(f"the reservation {key!r} is missing")
            if found.key != key or not _agree(found, run):  # guard: reservations-keep-keys
                raise LedgerCorruptError(
                    f"the reservation {found.key!r} is not what the history says it is"
                )
            prices.check(found, run)
            for charge in found.charges:
                if charge.rule.declared is not None and found.state != ReservationState.VOID:
                    for step, times in runs_of(found.guarantee).items():
                        place = charge.name, step
                        compared.used[place] = compared.used.get(place, 0) + times
            compared.reservations += 1
            compared.charges += len(found.charges)


def _check_counts(connection: Connection, compared: Compared) -> None:
    """Checks that there are no reservations and charges but those that were compared.

    Raises:
        LedgerCorruptError: there are.
    """
    more = _count(connection, reservations) - compared.reservations
    if more:  # guard: reservations-counted
        if more < 0:  # only one that was compared before a checkpoint can be gone
            raise LedgerCorruptError("a reservation that had ended is missing")
        made = exists().where(
            events.c.sequence == reservations.c.id,
            events.c.kind.in_([EventKind.RESERVED, EventKind.REFUSED]),
        )
        key = connection.scalar(select(reservations.c.key).where(~made).limit(1))
        raise LedgerCorruptError(
            f"there are {more} reservations that the history does not know"
            if key is None
            else f"the reservation {key!r} is not what the history says it is"
        )
    if compared.charges != _count(connection, charges):
        raise LedgerCorruptError("there are charges that belong to no reservation")


def _agree(found: Reservation, run: ReplayedRun) -> bool:
    """Says whether a row of ``reservations`` and its charges are what the history says."""
    said = {
        "id": run.row,
        "digest": run.digest,
        "interactive": run.interactive,
        "told": run.told,
        "state": run.state,
        "started": run.started,
        "token": run.token,
        "cell": run.cell,
    }  # guard: run-tokens-replayed
    shown = {name: getattr(found, name) for name in said}
    taken = {charge.name: tuple(charge.units) for charge in found.charges}
    # guard: reservations-replayed
    return said == shown and taken == run.granted | run.cost and digest(found.body) == run.digest


class _Prices:
    """The prices of the reservations of one page: most of a page's runs ask the same.

    They are kept by the address of a budget's rule, and the page keeps its rules in memory as long
    as these prices; and by the digest of a request's body, which :func:`_agree` has compared.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, str, str | None], Units] = {}

    def check(self, found: Reservation, run: ReplayedRun) -> None:
        """Checks that a reservation holds and costs the prices of its stored guarantee.

        A history that was made up from the beginning has right hashes, and wrong prices.

        Raises:
            LedgerCorruptError: a price is another one.
        """
        for charge in found.charges:
            asked = self._of(charge.rule, found, None)
            granted = Units(*run.granted[charge.name])
            cut = run.told is not None and granted.fits(asked) and asked.nearly_fits(granted)
            if granted != asked and not cut:
                raise LedgerCorruptError(f"{found.key!r} held another amount than its guarantee's")
            if found.cell is not None:
                price = self._of(charge.rule, found, found.cell)
                if charge.units.epsilon != min(price.epsilon, granted.epsilon):
                    raise LedgerCorruptError(
                        f"{found.key!r} was settled at another price than its own"
                    )

    def _of(self, rule: BudgetRule, found: Reservation, cell: str | None) -> Units:
        """Returns the price of a cell, or of None at the worst case, as a rule has it."""
        which = id(rule), found.digest, cell
        if which not in self._known:
            observed = None if cell is None else cell_from_json(cell)
            self._known[which] = Units.charged(rule.cost(found.guarantee, observed))
        return self._known[which]


def _compare_budgets(
    connection: Connection, history: ReplayedLedger, used: dict[tuple[str, str], int]
) -> None:
    """Compares all budgets, and the steps of plans with how often they were reserved.

    Raises:
        LedgerCorruptError: one of them is not what the history says, or one is missing.
    """
    seen: dict[int, Balance] = {}
    declared = 0
    for found in budget_rows.balances(connection):
        whole = None if found.parent is None else seen.get(found.parent)
        seen[found.id] = found
        budget = history.budgets.get(found.name)
        said = budget and {
            "id": budget.row,
            "kind": budget.kind,
            "parameters": budget.parameters,
            "parent": budget.parent,
            "closed": budget.closed,
            "cap": budget.cap,
            "spent": budget.spent,
            "held": budget.held,
            "saved": budget.saved,
        }
        shown = {
            "id": found.id,
            "kind": found.kind,
            "parameters": found.parameters,
            "parent": whole and whole.name,
            "closed": found.closed,
            "cap": list(found.cap),
            "spent": list(found.spent),
            "held": list(found.held),
            "saved": found.saved.epsilon,
        }
        rooted = found.root == (whole.root if whole else found.id)
        # guard: balances-replayed
        if said != shown or not rooted or (found.parent is None) != (whole is None):
            raise LedgerCorruptError(f"the budget {found.name!r} is not what the history says")
        _compare_steps(connection, found, used)
        plan = found.rule.declared
        declared += 0 if plan is None else len(runs_of(plan))
    if len(seen) != len(history.budgets):
        raise LedgerCorruptError(f"{len(history.budgets) - len(seen)} budgets are missing")
    if declared != _count(connection, steps):
        raise LedgerCorruptError("there are steps that belong to no plan")


def _compare_steps(
    connection: Connection, found: Balance, used: dict[tuple[str, str], int]
) -> None:
    """Compares the steps of one plan with its declaration and with what was reserved.

    Raises:
        LedgerCorruptError: they differ.
    """
    plan = rule_of(found.kind, found.parameters).declared
    runs = {} if plan is None else runs_of(plan)
    said = {
        step: StepOfPlan(times=times, used=used.get((found.name, step), 0))
        for step, times in runs.items()
    }
    if budget_rows.steps_of(connection, found) != said:
        raise LedgerCorruptError(f"the steps of {found.name!r} are not what the history says")


def _compare_tokens(connection: Connection, history: ReplayedLedger) -> int | None:
    """Compares all access tokens and counts them; None where they may not be read.

    Raises:
        LedgerCorruptError: one of them is not what the history says, or one is missing.
    """
    if connection.dialect.name == "postgresql" and not connection.scalar(
        text("SELECT has_table_privilege('tokens', 'SELECT')")
    ):
        return None
    seen = 0
    for row in token_rows.tokens_in_order(connection):
        known = history.tokens.get(row["id"])
        if known is None and history.moved:  # guard: access-tokens-have-event
            continue  # of a ledger that was sealed before tokens had events: none can be added
        said = None if known is None else (known.said, known.revoked)
        if said != (
            token_rows.said_of_token(row),
            row["revoked"],
        ):  # guard: access-tokens-unchanged
            raise LedgerCorruptError(
                f"the access token {row['id']!r} is not what the history says it is"
            )
        seen += 1
    if seen != len(history.tokens):  # guard: access-tokens-complete
        raise LedgerCorruptError(f"{len(history.tokens) - seen} access tokens are missing")
    return seen


def _count(connection: Connection, table: Table) -> int:
    """Counts the rows of a table."""
    return connection.scalar(select(func.count()).select_from(table)) or 0
