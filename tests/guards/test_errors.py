"""Each guard of an error that travels is taken away, and what it keeps true is then false."""

from __future__ import annotations

import pickle

import pytest
from tests.guards.mutants import Mutation, each, lose_a_truth

from tightbudget.errors import BudgetError, LedgerError, TightBudgetError


def a_budget_error_reaches_another_process() -> bool:
    error = BudgetError("no", requested=0.3, left=0.1, held=0.2)
    try:
        return vars(pickle.loads(pickle.dumps(error))) == vars(error)
    except TypeError:
        return False


def an_unknown_outcome_is_never_taken_for_a_known_one() -> bool:
    try:
        TightBudgetError.from_dict({"type": "LedgerError", "message": "cut off"})
    except KeyError:
        return True
    return False


def a_stranger_is_not_called() -> bool:
    try:
        TightBudgetError.from_dict({"type": "_plain", "message": "no"})
    except ValueError:
        return True
    except AttributeError:
        return False
    return False


def a_note_stays_at_home() -> bool:
    error = LedgerError("no")
    error.add_note("the password is ...")
    return "__notes__" not in error.to_dict()


MUTATIONS = [
    Mutation("errors carry their attributes in a pickle", TightBudgetError, "__reduce__",
             (("return _made_again, (type(self), self.args, carried), vars(self) or None",
               "return type(self), self.args, vars(self) or None"),),
             a_budget_error_reaches_another_process),
    Mutation("an attribute that is missing is refused", TightBudgetError, "from_dict",
             (("{name: content[name] for name", "{name: content.get(name) for name"),),
             an_unknown_outcome_is_never_taken_for_a_known_one),
    Mutation("a type is looked up among errors alone", TightBudgetError, "from_dict",
             (("if kind not in __all__:", "if kind not in globals():"),),
             a_stranger_is_not_called),
    Mutation("attributes are those of the constructor", TightBudgetError, "to_dict",
             (("for name in self.attributes()", "for name in vars(self)"),),
             a_note_stays_at_home),
]  # fmt: skip


@each(MUTATIONS)
def test_a_guard_that_is_gone_is_missed(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_a_truth(monkeypatch, mutation)
