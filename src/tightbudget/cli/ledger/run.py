"""``tightbudget ledger run``: any program, paid for before anybody sees its output.

Order: reserve -> start -> run -> settle -> reveal. If the command is killed at any point, either
nobody has seen the output, or the output is paid for.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tightbudget import Amount, LedgerError, OutputDP
from tightbudget.cli.ledger.answers import charged
from tightbudget.cli.ledger.holds import cell_of, is_declared
from tightbudget.cli.ledger.options import (
    AmountOption,
    BlocksOf,
    Budgets,
    ByDefault,
    Delta,
    Epsilon,
    GuaranteeFile,
    Key,
    Plan,
    QuestionOption,
    Url,
    Where,
    guarantee_from_options,
    opened,
    reserved,
)
from tightbudget.cli.ledger.program import HeldBack, program_of
from tightbudget.cli.options import AsJson
from tightbudget.cli.output import print_json
from tightbudget.errors import LedgerCorruptError, SettlementError
from tightbudget.output_dp.account import State
from tightbudget.output_dp.guarantee import Cell

if TYPE_CHECKING:
    from tightbudget.ledger import LedgerHold

_RAN = "ran"  # the cell of a program whose guarantee has no cells
_PAUSES = (
    0.1,
    0.3,
    1.0,
    3.0,
    10.0,
)  # seconds, 14.4 in all: a database that restarts is back by then

# The reason why a key cannot be run again, by the state of its reservation.
_BEFORE = {
    State.STARTED: "was started before, and nobody knows what has been seen of it: forfeit it, "
    "and take another key for another run",
    State.SETTLED: "has run before and is paid for; its output is not kept",
    State.FORFEITED: "was forfeited; take another key for another run",
    State.VOID: "was given up before it ran; take another key",
}


def run(
    command: Annotated[list[str], typer.Argument(help="The program and its arguments, after --.")],
    key: Key,
    ledger: Url,
    budget: Budgets = None,
    blocks: BlocksOf = None,
    where: Where = None,
    guarantee: GuaranteeFile = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    amount: AmountOption = None,
    plan: Plan = None,
    question: QuestionOption = None,
    by: ByDefault = None,
    json: AsJson = False,
) -> None:
    """Pays for a program, and shows its output when that is paid for.

    Reserves, starts, runs the program, settles the cell that the last line of its stdout names,
    and only then shows stdout and stderr. The exit status is the program's, or 128 + the signal
    that ended it: if it is not 0, the worst-case price is charged and nothing is shown. A last
    line that names no declared cell costs the worst-case price, too.

    For example: tightbudget ledger run --budget ada --key A1 --guarantee search.json
    --ledger sqlite:///budget.db -- python search.py --depth 3
    """
    program = program_of(command)
    with opened(ledger, by=by) as it, HeldBack.files() as running:
        wanted = guarantee_from_options(
            file=guarantee, epsilon=epsilon, delta=delta, amount=amount, plan=plan
        )
        hold = reserved(
            it, key, wanted, budgets=budget, blocks=blocks, where=where, question=question
        )
        if hold.state is not State.RESERVED:
            raise SettlementError(f"{key!r} {_BEFORE[hold.state]}")
        hold.start()
        with running.signals():
            status = running.run(program)
            why = _settle(hold, running, status)
        _reveal(hold, running, status, why, json=json)
    raise typer.Exit(status)


def _settle(hold: LedgerHold, running: HeldBack, status: int) -> str | None:
    """Charges for the output, durably; returns the reason if the worst-case price is charged.

    Raises:
        SettlementError: somebody else has ended the reservation.
        LedgerError: the ledger cannot be written.
    """
    if status:  # guard: failure-settles-no-cell
        why = f"its exit status is {status}"
    else:
        cell = _cell(hold.guarantee, running)
        if cell is not None:
            _patiently(lambda: hold.settle(cell))
            return None
        why = "its last line names no declared cell"
    _patiently(lambda: hold.forfeit(reason=why))
    return why


def _cell(guarantee: Any, running: HeldBack) -> Cell | None:
    """Returns the output cell of a program; None if its last line names no declared cell."""
    if not (isinstance(guarantee, OutputDP) and guarantee.cells):
        return _RAN
    line = running.last_line()
    cell = None if line is None else cell_of(line, guarantee)
    return cell if cell is not None and is_declared(cell, guarantee) else None


def _patiently(settle: Callable[[], Amount]) -> None:
    """Settles a run, and tries again for a few seconds if the ledger is away."""
    for pause in _PAUSES:
        try:
            settle()
            return
        except LedgerCorruptError:
            raise
        except LedgerError:
            time.sleep(pause)
    try:
        settle()
    except LedgerError as error:
        raise LedgerError(f"{error}; the output is not shown, and lost") from error


def _reveal(
    hold: LedgerHold, running: HeldBack, status: int, why: str | None, *, json: bool
) -> None:
    """Shows the output of a program that has not failed, and the cost of the run."""
    if json:
        shown = (None, None) if status else map(_as_text, running.read())
        output = dict(zip(("stdout_base64", "stderr_base64"), shown, strict=True))
        print_json({**hold.to_dict(), "exit_status": status, **output})
        return
    if not status:  # guard: failed-output-hidden
        running.reveal()
    cost = ", ".join(charged(hold.charges))
    end = f"settled with cell {hold.cell!r}" if why is None else f"forfeited, since {why}"
    kept = f"; {running.size} bytes of output are not shown" if status else ""
    told = "" if hold.told is None else f"; {hold.told}"
    typer.echo(f"{end}: {cost}{kept}{told}", err=True)


def _as_text(output: bytes) -> str:
    return base64.b64encode(output).decode()
