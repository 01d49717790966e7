"""A checkpoint of a verification: a text that says how far it has come.

It is kept where the ledger is not. A later verification goes on from there: it reads the events
after the checkpoint's head, and takes the state at the head from the checkpoint.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.promises.chain import Head, canonical, digest
from tightbudget.promises.replay import ReplayedBudget, ReplayedLedger, ReplayedRun, ReplayedToken

_FORMAT = 1


@dataclass(slots=True, kw_only=True)
class Compared:
    """The counts of the ended reservations that were compared with their rows so far.

    Attributes:
        reservations: the number of rows of ``reservations`` that were compared.
        charges: the number of rows of ``charges`` that were compared.
        used: for each plan and step, the number of its runs that were reserved.
    """

    reservations: int = 0
    charges: int = 0
    used: dict[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """The state of a verification after an event: ``str(checkpoint)`` is its whole text.

    Guarantee: everything up to ``head`` was played and compared, but for the rows of what was open
    then, which the verification that goes on from here compares.

    Attributes:
        head: the last event that was played.
        state: the state of the ledger there, as JSON.
    """

    head: Head
    state: str = field(repr=False)

    def __str__(self) -> str:
        content = {"format": _FORMAT, "head": str(self.head), "state": self.state}
        return canonical({**content, "sha256": digest(canonical(content))})

    @staticmethod
    def from_text(text: str) -> Checkpoint:
        """Reads a checkpoint from the text that ``str(checkpoint)`` has written.

        Raises:
            ParameterError: the text is no checkpoint, or not a whole one.
        """
        try:
            content = json.loads(text)
            said = content.pop("sha256")
            state = str(content["state"])
            whole = said == digest(canonical(content)) and content["format"] == _FORMAT
            head = Head.from_text(content["head"])
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            whole = False
        if not whole:  # guard: whole-checkpoints
            raise ParameterError(
                "a checkpoint must be the whole text that a verification has written; without one,"
                " a verification begins at the first event"
            )
        return Checkpoint(head, state)

    @staticmethod
    def of(history: ReplayedLedger, compared: Compared) -> Checkpoint:
        """Writes the state of a history, of which all that has ended was compared."""
        state = {
            "moved": history.moved,
            "budgets": {name: _plain(budget) for name, budget in history.budgets.items()},
            "runs": {key: _plain(run) for key, run in history.runs.items()},
            "tokens": {id: _plain(token) for id, token in history.tokens.items()},
            "compared": {
                **_plain(compared),
                "used": [[*place, times] for place, times in compared.used.items()],
            },
        }
        return Checkpoint(history.head, canonical(state))

    def resumed(self) -> tuple[ReplayedLedger, Compared]:
        """Returns the history and the counts as they were at the head."""
        state = json.loads(self.state)
        history, compared = ReplayedLedger(), state["compared"]
        history.head, history.moved = self.head, state["moved"]
        history.budgets = {n: ReplayedBudget(**budget) for n, budget in state["budgets"].items()}
        history.runs = {key: _run(run) for key, run in state["runs"].items()}
        history.tokens = {id: ReplayedToken(**token) for id, token in state["tokens"].items()}
        used = {(plan, step): times for plan, step, times in compared["used"]}
        return history, Compared(**{**compared, "used": used})


def _plain(one: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass by name."""
    return {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}


def _run(said: dict[str, Any]) -> ReplayedRun:
    """Reads a reservation; JSON has lists where its amounts are pairs."""
    amounts = {
        name: {budget: (epsilon, delta) for budget, (epsilon, delta) in said[name].items()}
        for name in ("granted", "cost")
    }
    return ReplayedRun(**{**said, **amounts})
