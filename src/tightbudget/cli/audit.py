"""``tightbudget audit``: guesses or scores of canaries, against a plan."""

from __future__ import annotations

import csv as csv_format
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from tightbudget import audit as audits
from tightbudget import read_plan
from tightbudget.cli.ledger.options import ByDefault, opened
from tightbudget.cli.options import AsJson, number
from tightbudget.cli.output import Stopwatch, print_answer, print_rows
from tightbudget.cli.refusals import REFUTED
from tightbudget.drawing import picture, picture_path
from tightbudget.errors import FileError, ParameterError
from tightbudget.numerics.validate import count, float_of
from tightbudget.text_file import read_text

_NONE = ("", "none", "-")  # how a file says that nothing was guessed
_COLUMNS = ({"score", "included"}, {"guess", "included"})


def audit(
    canaries: Annotated[
        Path, typer.Argument(help="CSV with the columns included and score, or included and guess.")
    ],
    delta: Annotated[float, number("The delta of the lower bound of epsilon.")],
    plan: Annotated[
        Path | None, typer.Option(help="The plan that is tested.", show_default="none")
    ] = None,
    confidence: Annotated[float, number("Of the verdict and of each lower bound.")] = 0.95,
    seed: Annotated[int, number("Decides between equal scores.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Draw it, to a .png, .svg or .pdf (extra: plot).")
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Writes it down in this ledger: sqlite:///FILE or postgresql+psycopg://HOST/NAME.",
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Of --ledger: the budget that the run was charged to.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Of --ledger: the key of the run; the same again is once.")
    ] = None,
    by: ByDefault = None,
    json: AsJson = False,
) -> None:
    """Tests whether a run keeps a plan, by guesses about canaries. Files may be .gz.

    Each line is a canary: included is 1 if it was in the data and 0 if not, as a fair coin has
    decided; score is higher the more it looks included; guess is 1, 0 or empty. The lower bounds
    hold with the confidence, and "refuted" (exit code 8) is wrong with a probability of 1 -
    confidence. A plan that is not refuted is not proved.

    With --ledger, --budget and --key, the verdict is written down beside the budget, as an event
    that changes no balance.

    For example: tightbudget audit guesses.csv --plan plan.toml --delta 1e-5
    """
    watch = Stopwatch()
    place = _place(ledger, budget, key, by)
    if out is not None:
        picture_path(out)
    table = _table(canaries)
    claim = None if plan is None else read_plan(plan)
    asked: dict[str, Any] = {"delta": delta, "confidence": confidence}
    if "score" in table:
        asked["seed"] = count(seed=seed)
    function = audits.one_run if "score" in table else audits.one_run_of_guesses
    first, labels = table.get("score", table.get("guess")), table["included"]
    found = function(first, labels, claim=claim, **asked)
    kept = {} if place is None else place.keep(found)
    if out is not None:
        with picture(out, f"{canaries.name}: {found.verdict}") as ax:
            found.plot(ax=ax)
    if json:
        said = {"canaries": str(canaries), **({} if plan is None else {"plan": str(plan)}), **asked}
        print_answer({**found.to_dict(), **kept}, said, watch)
    else:
        wrote = {} if out is None else {"wrote": str(out)}
        at = {name: str(number) for name, number in kept.items()}
        print_rows(wrote | found.rows() | at | {"seconds": f"{watch.seconds:.2f}"})
    if found.verdict == "refuted":
        raise typer.Exit(REFUTED)


class AuditPlace(NamedTuple):
    """A budget of a ledger, and the key under which an audit is written down there."""

    ledger: str
    budget: str
    key: str
    by: str | None

    def keep(self, found: audits.Audit) -> dict[str, int]:
        """Writes an audit down, and returns the number of its event."""
        with opened(self.ledger) as it:
            event = it.budget(self.budget).record_audit(self.key, found, by=self.by)
        return {"event": event.sequence}


def _place(
    ledger: str | None, budget: str | None, key: str | None, by: str | None
) -> AuditPlace | None:
    """Says where the audit is written down; None for nowhere.

    Raises:
        ParameterError: some of it is said, and not all.
    """
    if ledger is not None and budget is not None and key is not None:
        return AuditPlace(ledger, budget, key, by)
    given = {"--ledger": ledger, "--budget": budget, "--key": key, "--by": by}
    if any(value is not None for value in given.values()):
        missing = " and ".join(n for n, value in given.items() if value is None and n != "--by")
        raise ParameterError(
            f"an audit is written down with --ledger, --budget and --key: {missing} is missing"
        )
    return None


def _table(path: Path) -> dict[str, list[float | None]]:
    """Reads the columns of a file of canaries.

    Raises:
        FileError: the file cannot be read, or a line is not two values.
    """
    try:
        lines = list(csv_format.reader(read_text(path).splitlines()))
    except csv_format.Error as error:
        raise FileError(f"{path}: not CSV: {error}") from None
    head = [name.strip() for name in lines[0]] if lines else []
    if set(head) not in _COLUMNS or len(head) != 2:
        got = ", ".join(head) or "nothing"
        raise FileError(
            f"{path}: the first line must be score,included or guess,included, got {got}"
        )
    table: dict[str, list[float | None]] = {name: [] for name in head}
    for n, cells in enumerate(lines[1:], start=2):
        if not cells:
            continue
        if len(cells) != len(head):
            raise FileError(f"{path}: line {n} must have 2 values, got {len(cells)}")
        for name, cell in zip(head, cells, strict=True):
            text = cell.strip()
            if name == "guess" and text.lower() in _NONE:
                table[name].append(None)
                continue
            try:
                table[name].append(float_of(text))
            except ValueError:
                raise FileError(
                    f"{path}: line {n} must have a number as {name}, got {text[:40]!r}"
                ) from None
    return table
