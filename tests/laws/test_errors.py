"""Laws of every error of the tree: it travels as a dictionary, as JSON and between processes."""

from __future__ import annotations

import inspect
import json
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

import tightbudget as tb
from tightbudget import errors
from tightbudget.cli.refusals import as_json as printed_as_json
from tightbudget.engine.answer import Answer, Asked
from tightbudget.errors import ParameterError, TightBudgetError
from tightbudget.output_dp.amount import Amount
from tightbudget.text_file import json_text
from tightbudget.web import refusals
from tightbudget.web.api.schemas import Error

TREE: dict[str, type[TightBudgetError]] = {name: getattr(errors, name) for name in errors.__all__}
VALUES: dict[str, Any] = {
    "lower": 0.25,
    "upper": float("inf"),
    "requested": {"amount": 0.3, "delta": 1e-9, "unit": "epsilon"},
    "left": {"amount": 0.1, "delta": 0.0, "unit": "epsilon"},
    "held": {"amount": 0.2, "delta": 0.0, "unit": "epsilon"},
    "budget": "ada",
    "holds": ("A1", "B2"),
    "unknown": True,
}


def an_error(name: str) -> TightBudgetError:
    """One error of this class, whose attributes differ from their defaults."""
    kind = TREE[name]
    return kind("nothing works", **{key: VALUES[key] for key in kind.attributes()})


def said(error: TightBudgetError) -> tuple[Any, ...]:
    return type(error), str(error), error.args, vars(error)


@pytest.mark.parametrize("name", TREE)
def test_an_error_comes_back_from_its_dictionary_and_from_json(name: str) -> None:
    error = an_error(name)
    content = error.to_dict()
    assert list(content) == ["type", "message", *type(error).attributes()]
    assert said(TightBudgetError.from_dict(content)) == said(error)
    assert said(TightBudgetError.from_dict(json.loads(json.dumps(content)))) == said(error)


@pytest.mark.parametrize("name", TREE)
def test_an_error_reaches_another_process(name: str) -> None:
    error = an_error(name)
    error.add_note("seen on the way")
    found = pickle.loads(pickle.dumps(error))
    assert said(found) == said(error)


@pytest.mark.parametrize("name", TREE)
def test_what_an_error_carries_is_what_its_constructor_takes_and_its_docstring_names(
    name: str,
) -> None:
    kind = TREE[name]
    assert set(kind.attributes()) == vars(an_error(name)).keys()
    text = inspect.getdoc(kind) or ""
    listed = re.findall(r"^    ([a-z, ]+):", text.partition("Attributes:")[2], re.MULTILINE)
    named = [one.strip() for line in listed for one in line.split(",")]
    inherited = "Attributes:" not in (kind.__doc__ or "")
    assert inherited or named == list(kind.attributes())


def test_a_note_is_no_attribute() -> None:
    error = errors.LedgerError("no", unknown=True)
    error.add_note("tried five times")
    assert error.to_dict() == {"type": "LedgerError", "message": "no", "unknown": True}


def test_a_private_class_travels_as_the_public_one_that_it_refines() -> None:
    class RefinedError(ParameterError):
        pass

    assert RefinedError("no").to_dict() == {"type": "ParameterError", "message": "no"}


@pytest.mark.parametrize("kind", ["NoSuchError", "Callable", None, ["ParameterError"]])
def test_a_type_that_is_no_error_is_refused(kind: object) -> None:
    with pytest.raises(ParameterError, match="type must be the name of an error of tightbudget"):
        TightBudgetError.from_dict({"type": kind, "message": "no"})


@pytest.mark.parametrize("name", TREE)
def test_an_attribute_that_is_missing_is_never_made_up(name: str) -> None:
    content = an_error(name).to_dict()
    for missing in content:
        with pytest.raises(KeyError, match=missing):
            TightBudgetError.from_dict({k: v for k, v in content.items() if k != missing})


def test_the_served_refusal_has_every_attribute_of_a_ledgers_errors() -> None:
    """Bounds alone stay behind: a client takes those that always hold."""
    carried = {name for kind in TREE.values() for name in kind.attributes()}
    assert set(Error.model_fields) - {"type", "message"} == carried - {"lower", "upper"}


def exceeded() -> errors.BudgetExceeded:
    amounts = {name: Amount(**VALUES[name]) for name in ("requested", "left", "held")}
    return errors.BudgetExceeded("too much", **amounts, budget="ada", holds=("A1", "B2"))


AMOUNTS = (
    '"requested": {"amount": 0.3, "delta": 1e-09, "unit": "epsilon"}, '
    '"left": {"amount": 0.1, "delta": 0.0, "unit": "epsilon"}, '
    '"held": {"amount": 0.2, "delta": 0.0, "unit": "epsilon"}, '
)
SERVED = [
    (
        exceeded(),
        '{"error": {"type": "BudgetExceeded", "message": "too much", ' + AMOUNTS
        + '"budget": "ada", "holds": ["A1", "B2"], "unknown": null}}',
    ),
    (
        errors.LedgerError("gone", unknown=True),
        '{"error": {"type": "LedgerError", "message": "gone", "requested": null, "left": null, '
        '"held": null, "budget": null, "holds": null, "unknown": true}}',
    ),
    (
        errors.PrecisionError("wide", 0.5, 2.0),
        '{"error": {"type": "PrecisionError", "message": "wide", "requested": null, "left": null, '
        '"held": null, "budget": null, "holds": null, "unknown": null}}',
    ),
    (
        refusals.HttpRefusal(401, "NoToken", "this needs a token"),
        '{"error": {"type": "NoToken", "message": "this needs a token", "requested": null, '
        '"left": null, "held": null, "budget": null, "holds": null, "unknown": null}}',
    ),
]  # fmt: skip
PRINTED = [
    (
        exceeded(),
        '{"type": "BudgetExceeded", "message": "too much", "exit_code": 4, ' + AMOUNTS
        + '"budget": "ada", "holds": ["A1", "B2"]}',
    ),
    (
        errors.PrecisionError("wide", 0.5),
        '{"type": "PrecisionError", "message": "wide", "exit_code": 3, '
        '"lower": 0.5, "upper": 1e999}',
    ),
    (
        errors.LedgerCorruptError("cut"),
        '{"type": "LedgerCorruptError", "message": "cut", "exit_code": 7, "unknown": false}',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("error", "text"), SERVED, ids=lambda x: type(x).__name__)
def test_the_bytes_of_a_served_refusal_stay(error: Exception, text: str) -> None:
    assert json_text(refusals.as_json(error)) == text


@pytest.mark.parametrize(("error", "text"), PRINTED, ids=lambda x: type(x).__name__)
def test_the_bytes_of_a_printed_refusal_stay(error: TightBudgetError, text: str) -> None:
    assert json_text(printed_as_json(error)) == text


# ------------------------------------------------------------- the bounds of a PrecisionError

LONG = tb.Gaussian(1.0) * 1000
SAMPLED = tb.Gaussian(1.0).subsampled(0.01) * 10
TINY = 1e-18  # a gap that no answer in doubles reaches
TOO_NARROW: dict[str, Callable[[], object]] = {
    "epsilon": lambda: LONG.epsilon(1e-5, rtol=TINY),
    "delta": lambda: LONG.delta(100.0, rtol=TINY),
    "total_variation": lambda: (tb.Gaussian(0.1) * 3).total_variation(rtol=TINY),
    "renyi": lambda: SAMPLED.renyi(2.5, rtol=TINY),
    "risk": lambda: LONG.risk(1.0, rtol=TINY),
    "tradeoff": lambda: LONG.tradeoff([0.01], rtol=TINY),
    "curve of epsilon": lambda: LONG.curve(deltas=[1e-5], rtol=TINY),
    "curve of delta": lambda: LONG.curve(epsilons=[100.0], rtol=TINY),
    "explain": lambda: LONG.explain(delta=1e-5, rtol=TINY),
    "compare": lambda: tb.compare(LONG, delta=1e-5, rtol=TINY),
    "optimal_delta": lambda: tb.optimal_delta(
        [(0.3, 0.05), (0.5, 0.1)], [1, 2], [0.2, 0.4], rtol=1e-14
    ),
    "a release": lambda: tb.release.GaussianRelease(len, 1, 5, 1e-300),
}


def leads(message: str, lower: float, upper: float) -> bool:
    """Whether a message names the bounds before it says what was not reached."""
    before, said, _ = message.partition(f" is in {tb.Bounds(lower, upper)}")
    return bool(said) and "not reached" not in before and len(before) < 60


@pytest.mark.one_in(3)
@pytest.mark.parametrize("ask", TOO_NARROW.values(), ids=TOO_NARROW)
def test_a_refusal_for_its_gap_leads_with_the_bounds_that_it_carries(
    ask: Callable[[], object],
) -> None:
    with pytest.raises(errors.PrecisionError) as caught:
        ask()
    error = caught.value
    assert error.bounds == (error.lower, error.upper)
    assert leads(str(error), *error.bounds), str(error)


def test_a_row_of_a_sweep_leads_with_its_bounds() -> None:
    (row,) = tb.sweep([tb.sweeps.Question.of(LONG, delta=1e-5, rtol=TINY)])
    assert row.refusal is not None
    assert leads(row.refusal, row.lower, row.upper)


def test_two_pairs_are_refused_with_the_bounds_that_both_leave() -> None:
    """The words name the bounds of the error, which are those of neither pair alone."""
    above = Answer.missed("epsilon at delta = 0.1", tb.Bounds(1.0, 2.0), 1e-4)
    below = Answer.missed("epsilon at delta = 0.1", tb.Bounds(0.5, 1.5), 1e-4)
    asked = Asked(words="epsilon at delta = 0.1", gap=1e-4)
    error = above.down_to(below, asked, apart="a made-up sampler").error()
    assert error.bounds == (0.5, 2.0)
    assert leads(str(error), 0.5, 2.0)
    assert "of the dominating pair, epsilon at delta = 0.1 is in " in str(error)
