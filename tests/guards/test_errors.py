"""Each guard of an error that travels is taken away, and what it keeps true is then false."""

from __future__ import annotations

import pickle

import pytest
from tests.guards.mutants import Without, each, lose_a_truth

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
    Without(
        "errors carry their attributes in a pickle",
        {"errors-carry-their-attributes": ("return type(self), self.args, vars(self) or None")},
        a_budget_error_reaches_another_process,
    ),
    Without(
        "an attribute that is missing is refused",
        {
            "missing-attribute-refused": (
                "carried = {name: content.get(name) for name in raised.attributes()}"
            )
        },
        an_unknown_outcome_is_never_taken_for_a_known_one,
    ),
    Without(
        "a type is looked up among errors alone",
        {"only-error-types": "if kind not in globals():"},
        a_stranger_is_not_called,
    ),
    Without(
        "attributes are those of the constructor",
        {
            "constructor-attributes": (
                "carried = {name: _plain(getattr(self, name)) for name in vars(self)}"
            )
        },
        a_note_stays_at_home,
    ),
]


@each(MUTATIONS)
def test_a_guard_that_is_gone_is_missed(mutation: Without, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_a_truth(monkeypatch, mutation)
