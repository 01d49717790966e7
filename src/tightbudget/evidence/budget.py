"""Statements of privacy on a budget of a ledger, and on a session that asks a table."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tightbudget.errors import (
    LedgerCorruptError,
    ParameterError,
    SettlementError,
    TightBudgetError,
)
from tightbudget.evidence.loaders import NOT_KNOWN, assumed_of
from tightbudget.evidence.statement import (
    CLAIM_KEPT,
    HISTORY,
    SAID,
    PrivacyStatement,
    Row,
    Variant,
    arithmetic,
    certified_at,
    checked,
    neighbours_of,
    sections_of,
)
from tightbudget.mechanisms.composition import Composition
from tightbudget.notation.words import in_words
from tightbudget.numerics.validate import open_probability, refuse
from tightbudget.output_dp.account import Account
from tightbudget.output_dp.amount import Amount, exact, in_short, printed_down, printed_up
from tightbudget.output_dp.filter import OutputDPOdometer
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.output_dp.worst_case_filters import (
    AdvancedFilter,
    GaussianDPFilter,
    RenyiFilter,
    ZCDPFilter,
)
from tightbudget.promises.charged_blocks import BaseBlockRange
from tightbudget.promises.keyed import Keyed
from tightbudget.promises.kinds import KINDS
from tightbudget.promises.payer import Payer
from tightbudget.release.noise.noise import FixedNoise, OpenDPNoise
from tightbudget.tables.session import Session

if TYPE_CHECKING:  # a statement on a session needs no database
    from tightbudget.ledger.ledger import Ledger
    from tightbudget.tables.table import Table

_MOST_RUNS = 200  # runs with a line each; the others are counted
_MOST_PARTS = 100  # parts, blocks and quotas with a line each
_MOST_CELLS = 5  # output cells of a run that are shown with their prices
_READINGS = 5  # of a ledger that goes on while it is read

# How the runs of a budget compose, by its kind
COMPOSITION = {
    "output_dp": "adaptive, and each run costs the price of the output that came out",
    "zcdp": "adaptive, by the sum of rho of worst cases (zCDP)",
    "renyi": "adaptive, by the sum of Rényi divergences of worst cases, of one order",
    "gaussian_dp": "adaptive, by the sum of mu^2 of worst cases (Gaussian DP)",
    "advanced": "adaptive, by the sum of epsilon^2 / 2 of worst cases (advanced composition)",
    "plan": "the declared runs, whose exact composition is charged before the first one",
    "blocks": "adaptive, by the price of the output that came out, in each block that was read",
    "block": "adaptive, and each run costs the price of the output that came out",
}
_IN_MEMORY = {
    OutputDPOdometer: "output_dp",
    ZCDPFilter: "zcdp",
    RenyiFilter: "renyi",
    GaussianDPFilter: "gaussian_dp",
    AdvancedFilter: "advanced",
}
# Of runs that are charged by a price that somebody declared
_SAMPLER = [("sampler", NOT_KNOWN), ("assumed of the loader", NOT_KNOWN)]


def statement_of_budget(
    ledger: Ledger,
    budget: str,
    *,
    delta: float | None = None,
    table: Table | None = None,
    strict: bool = False,
    **said: str,
) -> PrivacyStatement:
    """States what a budget of a ledger has spent, on what, and how that can be checked later.

    The whole history is verified. A statement about a ledger that does not verify says so in its
    first line. Of a set of blocks the statement has the terms, each block, and who holds which
    quota.

    Guarantee: amounts spent and held are rounded up, what is left is rounded down. All amounts are
    those at the head that is named, and a ledger that has this head later was not rewritten before
    it; if the ledger goes on each time that it is read, the statement says that instead.

    Args:
        ledger: the ledger, open.
        budget: the name of the budget, or of a set of blocks.
        delta: the statement says also at which epsilon, in nats, all that the budget's cap lets
            through is (epsilon, delta)-DP; it does not if absent.
        table: the table that the budget's questions were asked of; its unit, its neighbours and
            what a unit contributes are then known.
        strict: True to refuse a ledger that does not verify.
        **said: as for :func:`statement_of_run`.

    Raises:
        ParameterError: an argument is refused, ``said`` has another name, or there is no such
            budget.
        LedgerCorruptError: the ledger does not verify, and ``strict`` is True; or it was changed so
            that the budget cannot be read at all.
    """
    found, said = _read(ledger, budget, delta, strict), checked(said)
    known = found.known
    if table is not None:
        known["Unit of privacy"] = _declared(table, said)
    elif found.plan is not None and "neighbours" not in said:
        known["Unit of privacy"] = neighbours_of(found.plan)
    return PrivacyStatement(
        f"budget {budget}", sections_of(known, said), found.warning, found.variant, found.parameters
    )


def statement_of_session(
    session: Session,
    *,
    ledger: Ledger | None = None,
    delta: float | None = None,
    strict: bool = False,
    **said: str,
) -> PrivacyStatement:
    """States what a session has asked of its table, on which unit, and what that has cost.

    Guarantee: amounts spent, held and charged are rounded up, what is left or came back is rounded
    down. Each answer of the session has a line; what else its budget has paid for is in the amounts
    spent alone, or with a ledger among the runs.

    Args:
        session: the session.
        ledger: the ledger that its budget is in, open: the statement then has all that
            :func:`statement_of_budget` says, too. Without it the history is not verified.
        delta: as for :func:`statement_of_budget`.
        strict: True to refuse a ledger that does not verify.
        **said: as for :func:`statement_of_run`.

    Raises:
        ParameterError: an argument is refused, ``said`` has another name, or the session's budget
            is not in this ledger.
        LedgerCorruptError: the ledger does not verify, and ``strict`` is True; or it was changed so
            that the budget cannot be read at all.
    """
    if not isinstance(session, Session):
        raise refuse("session", "be a tb.Session", session)
    said = checked(said)
    meter = session.meter.budget if isinstance(session.meter, Keyed) else session.meter
    if ledger is None:
        found = _of_meter(meter, None if delta is None else open_probability(delta=delta))
    else:
        # guard: ledger-of-the-session
        if getattr(meter, "url", None) != ledger.url or not isinstance(
            meter, (Payer, BaseBlockRange)
        ):
            raise refuse("ledger", "be the one that the session's budget is in", ledger)
        found = _read(ledger, _name(meter), delta, strict)
    known, warning = found.known, found.warning
    if isinstance(session.noise, FixedNoise):
        warning = f"The noise of this session is not random: nothing is private. {warning}".strip()
    algorithms = known["Algorithms and their correctness"]
    none = "none: an answer is from one scan"
    algorithms[:] = [
        *_receipts(session),
        *((name, none) if (name, text) in _SAMPLER else (name, text) for name, text in algorithms),
    ]
    if "randomness" not in said:
        algorithms.append((SAID["randomness"][1], _source(session.noise)))
    known["Unit of privacy"] = [
        *_declared(session.table, said),
        ("units of what else this budget has paid for", NOT_KNOWN),
    ]
    if isinstance(meter, BaseBlockRange):
        read = ", ".join(f"{by}={','.join(values)}" for by, values in meter.values.items())
        by_hand = "by their columns" if session.columns else "by the caller, who chose the rows"
        known["Budget"].append(("blocks that the session reads", f"{read}; kept {by_hand}"))
    return PrivacyStatement(
        f"session {session.name}, paid by {_name(meter)}",
        sections_of(known, said),
        warning,
        found.variant,
        found.parameters,
    )


@dataclass(frozen=True)
class _Found:
    """Holds what is known of a budget, by heading.

    Attributes:
        known: for each heading its rows.
        warning: "" or why the amounts must not be relied on.
        variant: the variant of differential privacy of ``parameters``.
        parameters: those that bound the privacy loss.
        plan: the declared runs, if the budget is of the kind ``plan``.
    """

    known: dict[str, list[Row]]
    warning: str
    variant: Variant
    parameters: dict[str, float]
    plan: Composition | None = None


def _read(ledger: Ledger, budget: str, delta: float | None, strict: bool) -> _Found:
    """Reads a budget of a ledger; one that somebody has made unreadable is refused by name."""
    if not callable(getattr(ledger, "verify", None)):
        raise refuse("ledger", "be a tb.Ledger, opened", ledger)
    try:
        return _verified(ledger, budget, delta, strict)
    except Exception as error:  # whatever a changed row makes of it, or an argument that is refused
        if isinstance(error, TightBudgetError) and not isinstance(error, ParameterError):
            raise
        if _verifies(ledger):
            raise
        raise LedgerCorruptError(f"budget {budget!r} cannot be read: {error!r}") from error


def _verifies(ledger: Ledger) -> bool:
    """Says whether a ledger is as it was written; its own refusals, as of a busy one, pass."""
    try:
        ledger.verify()
    except LedgerCorruptError:
        return False
    except TightBudgetError:
        raise
    except Exception:  # it cannot even be read
        return False
    return True


def _verified(ledger: Ledger, budget: str, delta: float | None, strict: bool) -> _Found:
    """Reads a budget of a ledger, whose history is verified."""
    account, warning = ledger.budget(budget), ""
    at = None if delta is None else open_probability(delta=delta)
    for _ in range(_READINGS):
        before = ledger.head()
        now = account.statement()
        blocks = ledger.blocks(now.name) if now.kind == "blocks" else None
        # guard: runs-of-all-blocks
        among = {"budget": now.name} if blocks is None else {"budgets": ledger.within([now.name])}
        seen: list[str] = []
        events = _seen(ledger.events(**among), seen)
        runs = _runs(events, now.spent.unit, lambda key: _declared_in(ledger, key))
        audits = tuple(ledger.events(**among, kind="audited"))
        within = [] if blocks is None else list(_blocks(blocks))
        parts = account.parts(_MOST_PARTS + 1)
        shares = [
            (f"part {name}", ledger.budget(name).statement().balance())
            for name in parts[:_MOST_PARTS]
        ]
        try:
            head = ledger.verify().head
        except LedgerCorruptError as error:
            if strict:
                raise
            history = "NOT VERIFIED"
            warning = f"This ledger does not verify: no amount in it can be relied on: {error}"
            break
        history = f"verified, head {head}"
        if head == before:  # guard: amounts-of-the-head
            break
        history += "; it went on while this was read, so that the amounts may be older"
    plan = _plan(ledger, now.name) if now.kind == "plan" else None
    amounts = [
        ("spent", in_short(now.spent)),
        ("held by open runs and parts", in_short(now.held)),
        *(
            [("spent by open parts, of what they hold", in_short(now.spent_in_parts))]
            if parts and now.spent_in_parts is not None
            else []
        ),
        ("cap", in_short(now.cap)),
        *([] if plan is None else [_of_plan(plan, now.cap.delta)]),
        *([] if at is None else [_of_cap(account, at)]),
        ("left", in_short(now.left)),
        ("given back, beside worst cases", in_short(now.saved)),
    ]
    most = now.cap
    if blocks is not None:
        most = blocks.person
        own = amounts if blocks.has_cap else [("spent", "by each block: see the blocks below")]
        amounts = [("all that is ever released about one person", f"at most {most}"), *own]
    known: dict[str, list[Row]] = {
        "Privacy parameters": [("kind of budget", _kind(now.kind)), *amounts],
        "Algorithms and their correctness": [
            *runs,
            ("composition", COMPOSITION.get(now.kind, NOT_KNOWN)),
            *(_SAMPLER if plan is None else [("declared plan", _line(plan)), *assumed_of(plan)]),
            *arithmetic(),
            *_audits(audits),
        ],
        "Budget": [
            ("name", f"{now.name}{f', a part of {now.parent}' * bool(now.parent)}"),
            ("state", "closed" if now.closed else "open"),
            (HISTORY, history),
            *[("last event", _when(at)) for at in seen],
            *within,
            *shares,
            *([("further parts", "not shown")] if len(parts) > _MOST_PARTS else []),
        ],
    }
    # guard: record-of-the-cap
    variant, parameters = _loss(most)
    if variant == "Custom" and at is not None:
        variant, parameters = "Approximate DP", {"epsilon": account.epsilon(at), "delta": at}
    return _Found(known, warning, variant, parameters, plan)


def _of_meter(meter: Any, delta: float | None) -> _Found:
    """Reads a budget without its ledger: one in memory, on a server, or a range of blocks."""
    variant: Variant = "Custom"
    parameters: dict[str, float] = {}
    rows: list[Row] = []
    state, history = NOT_KNOWN, "not verified: that needs the ledger"
    if isinstance(meter, Payer):
        now = meter.statement()
        kind, amounts = now.kind, {"spent": now.spent, "held": now.held, "cap": now.cap}
        variant, parameters = _loss(now.cap)
        saved, state = in_short(now.saved), "closed" if now.closed else "open"
    elif isinstance(meter, Account):
        kind = next((k for of, k in _IN_MEMORY.items() if isinstance(meter, of)), NOT_KNOWN)
        amounts = {"spent": meter.spent, "held": meter.held}
        saved, history = NOT_KNOWN, "in memory: it ends with its process"
        if meter.cap is None:
            rows = [("cap", "none: nothing bounds beforehand what is spent")]
        else:
            amounts["cap"] = meter.cap.down(meter.unit)
            variant, parameters = _loss(amounts["cap"])
    else:
        kind = "block" if isinstance(meter, BaseBlockRange) else NOT_KNOWN
        amounts, saved = {}, NOT_KNOWN
        rows = [(name, NOT_KNOWN) for name in ("spent", "held", "cap")]
    if delta is not None and callable(getattr(meter, "epsilon", None)):
        rows.append(_of_cap(meter, delta))
    known: dict[str, list[Row]] = {
        "Privacy parameters": [
            ("kind of budget", _kind(kind)),
            *[(name, in_short(amount)) for name, amount in amounts.items()],
            *rows,
            ("left", in_short(meter.left)),
            ("given back, beside worst cases", saved),
        ],
        "Algorithms and their correctness": [
            ("composition", COMPOSITION.get(kind, NOT_KNOWN)),
            *_SAMPLER,
            *arithmetic(),
            (CLAIM_KEPT, NOT_KNOWN),
        ],
        "Budget": [
            ("name", _name(meter)),
            ("state", state),
            (HISTORY, history),
        ],
    }
    return _Found(known, "", variant, parameters)


def _name(meter: Any) -> str:
    """Names a budget; a range of blocks by its set."""
    if isinstance(meter, BaseBlockRange):
        return meter.of
    return meter.name if isinstance(meter, Payer) else f"{type(meter).__name__}, in memory"


def _plan(ledger: Ledger, name: str) -> Composition:
    """Returns the runs that a budget of a plan was opened with; they never change."""
    (opened,) = ledger.events(budget=name, kind="opened")
    return Composition.from_dict(opened.details["parameters"]["plan"])


def _loss(amount: Amount) -> tuple[Variant, dict[str, float]]:
    """Names the variant of differential privacy that an amount is of, with its parameters."""
    delta = {"delta": amount.delta} if amount.delta else {}
    if amount.unit == "epsilon":
        return "Approximate DP" if delta else "Pure DP", {"epsilon": amount.amount, **delta}
    if amount.unit == "rho" and not delta:
        return "Zero-concentrated DP", {"rho": amount.amount}
    return "Custom", {}


def _declared(table: Table, said: dict[str, str]) -> list[Row]:
    """Writes what a table declares of its units, where the caller says nothing else."""
    if not callable(getattr(table, "contribution", None)):
        raise refuse("table", "be a tb.Table", table)
    groups = f", in at most {table.groups:,} groups" * (table.unit is not None)
    rows = {
        "unit": "each row" if table.unit is None else f"all rows with the same {table.unit}",
        "neighbours": "one has all rows of the other, and all rows of one unit more",
        "contribution": "one row"
        if table.unit is None
        else f"at most {table.rows:,} rows{groups}; which ones is drawn anew for each answer",
    }
    public = [f"the {len(table.domain(by)):,} keys of {by}" for by in table.domains]
    public += [] if table.units is None else [f"a number of units, at most {table.units:,}"]
    return [
        *[(SAID[name][1], f"{row} (declared)") for name, row in rows.items() if name not in said],
        ("declared to be public", ", ".join(public) or "the names and types of columns alone"),
    ]


def _of_cap(account: Any, delta: float) -> Row:
    """The epsilon at a delta of all that a budget's cap lets through."""
    return f"epsilon at delta = {delta!r} of the cap, nats", f"{account.epsilon(delta)!r}, at most"


def _of_plan(plan: Composition, delta: float) -> Row:
    """Writes both bounds of the epsilon of a plan, of which the upper one is the cap."""
    return f"epsilon of the declared plan at delta = {delta!r}, nats", certified_at(plan, delta)


def _declared_in(ledger: Ledger, key: str) -> str:
    """Writes what was declared for a run; a run that only a changed event names has nothing."""
    try:
        return _line(ledger.hold(key).guarantee)
    except SettlementError:
        return NOT_KNOWN


def _runs(history: Iterable[Any], unit: str, declared: Callable[[str], str]) -> list[Row]:
    """Reads what became of each run: how many there are, and a line for each of the first ones.

    Args:
        history: the events.
        unit: of the amounts.
        declared: what was declared for the run of a key.
    """
    last: dict[str, Any] = {}
    amounts: dict[str, str] = {}  # what a run holds, until it is settled
    questions: dict[str, str] = {}
    for event in history:
        if event.key is None or event.kind in ("refused", "audited"):
            continue
        last[event.key] = event
        if event.kind in ("reserved", "settled", "forfeited"):
            amount = in_short(Amount(amount=event.epsilon, delta=event.delta, unit=unit))
            amounts[event.key] = f", {'holds ' * (event.kind == 'reserved')}{amount}"
        elif event.kind in ("void", "expired"):
            amounts[event.key] = ", nothing charged"
        if event.question is not None:
            questions[event.key] = event.question
    kinds = Counter(event.kind for event in last.values())
    rows = [("runs", ", ".join(f"{n:,} {kind}" for kind, n in kinds.items()) or "none was charged")]
    for key, event in list(last.items())[:_MOST_RUNS]:
        cell = "" if event.cell is None else f" with {event.cell!r}"
        asked = f": {questions[key]}" if key in questions else ""
        rows.append(
            (
                f"run {key}{asked}",
                f"{event.kind}{cell}{amounts.get(key, '')}, {_when(event.at)}; "
                f"declared: {declared(key)}",
            )
        )
    more = len(last) - _MOST_RUNS
    return rows + ([("further runs", f"{more:,}")] if more > 0 else [])


def _seen(history: Iterable[Any], last: list[str]) -> Iterator[Any]:
    """Hands on the events, and keeps the moment of the last one in ``last``."""
    for event in history:
        last[:] = [event.at]
        yield event


def _kind(kind: str) -> str:
    """Writes a kind of budget for people."""
    return KINDS[kind].words if kind in KINDS else kind


def _when(at: str) -> str:
    """Writes the moment of an event, which is in UTC, to the second."""
    return f"{at[:10]} {at[11:19]} UTC"


def _line(guarantee: Any) -> str:
    """Writes what was declared for a run in a line: prices by output, a plan, or an amount."""
    if isinstance(guarantee, OutputDP):
        first = itertools.islice(guarantee.cells.items(), _MOST_CELLS)
        prices = [f"{cell!r} {printed_up(price)!r}" for cell, price in first]
        if len(guarantee.cells) > _MOST_CELLS:
            prices.append(f"... {len(guarantee.cells):,} outputs in all")
        rho = "" if guarantee.rho is None else f", rho {printed_up(guarantee.rho)!r}"
        prices.append(f"any other output {printed_up(guarantee.sup)!r}")
        return f"epsilon of {', '.join(prices)}; delta {printed_up(guarantee.delta)!r}{rho}"
    if isinstance(guarantee, Composition):
        return in_words(guarantee).replace("\n", "; ")
    return f"the amount {printed_up(guarantee)!r}"


def _blocks(blocks: Any) -> Iterator[Row]:
    """Writes the terms of a set of blocks, and what each block and each analyst's quota has."""
    terms = blocks.terms
    unlocking = "" if terms.unlocking is None else f", unlocked over {terms.unlocking:,} days"
    yield "blocks", f"by {', '.join(terms.by)}; each {in_short(terms.block)}{unlocking}"
    yield "blocks that have rows of one person", f"at most {terms.rows_in:,} (declared)"
    yield "cap over all blocks", "none" if terms.cap is None else in_short(terms.cap)
    yield "quota of each analyst", "none" if terms.quota is None else in_short(terms.quota)
    touched = blocks.statements()
    for one in touched[:_MOST_PARTS]:
        what = "quota" if blocks.values(one.name) is None else "block"
        yield f"{what} {one.name}", one.balance()
    if len(touched) > _MOST_PARTS:
        yield "further blocks and quotas", f"{len(touched) - _MOST_PARTS:,}"


def _receipts(session: Session) -> list[Row]:
    """Writes a line for each of the first answers of a session, and what came back in all."""
    receipts = session.receipts
    rows = [("answers of this session", f"{len(receipts):,}")]
    if receipts:
        back = [r.returned for r in receipts]
        total = Amount(
            printed_down(sum((exact(returned=r.amount) for r in back), Fraction(0))),
            printed_down(sum((exact(returned=r.delta) for r in back), Fraction(0))),
            back[0].unit,
        )
        rows.append(("given back by these answers", in_short(total)))
    for number, receipt in enumerate(receipts[:_MOST_RUNS], start=1):
        held, charged = in_short(receipt.held), in_short(receipt.charged)
        rows.append((f"answer {number:,}: {receipt.question}", f"held {held}; charged {charged}"))
    more = len(receipts) - _MOST_RUNS
    return rows + ([("further answers", f"{more:,}")] if more > 0 else [])


def _source(noise: Any) -> str:
    """Says where the noise of a session comes from."""
    if noise is None or isinstance(noise, OpenDPNoise):
        return "OpenDP's samplers, fed by the operating system's cryptographic source"
    if isinstance(noise, FixedNoise):
        return "none: the integers were given"
    return f"{type(noise).__name__}, given by the caller"


def _audits(events: Sequence[Any]) -> list[Row]:
    """Says what audits have found; those that refute are listed first."""
    if not events:
        return [(CLAIM_KEPT, NOT_KNOWN)]
    found = Counter(event.details["verdict"] for event in events)
    if found["refuted"]:
        short = "no: refuted by an audit"
    else:
        short = "not refuted, and not proved" if found["consistent"] else "not tested"
    listed = ", ".join(f"{n:,} {verdict}" for verdict, n in sorted(found.items()) if n)
    rows = [(CLAIM_KEPT, f"{short}; audits: {listed}")]
    worst_first = sorted(events, key=lambda event: event.details["verdict"] != "refuted")
    for event in worst_first[:_MOST_RUNS]:
        said, by = event.details["said"], event.details.get("by", "nobody")
        rows.append((f"audit {event.key}", f"{said}, recorded by {by}, {_when(event.at)}"))
    more = len(events) - _MOST_RUNS
    return rows + ([("further audits", f"{more:,}")] if more > 0 else [])
