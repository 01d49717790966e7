"""What holds for every mechanism on tables: the laws of the release room, and the truth."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.release import test_laws as release_laws
from tests.tables.cases import CASES, COLUMNS, Case, in_duckdb, table

import tightbudget as tb
from tightbudget.errors import SourceError
from tightbudget.tables import Table
from tightbudget.tables.ibis_source import IbisSource

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)

LAWS = [
    release_laws.test_reserve_start_settle,
    release_laws.test_a_release_costs_the_price_of_its_cell,
    release_laws.test_the_receipt_adds_up,
    release_laws.test_what_does_not_fit_is_refused_before_the_data_is_touched,
    release_laws.test_a_failure_after_the_start_costs_the_dearest_price,
    release_laws.test_what_is_no_meter_is_refused_by_name_before_the_data_is_touched,
    release_laws.test_what_if_touches_nothing,
    release_laws.test_what_if_says_that_it_does_not_fit,
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@every
def test_the_laws_of_mechanisms_on_data(case: Case, law: Any) -> None:
    law(case)


def with_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the choice of rows, and of halves, the same in each run."""
    contribution = Table.contribution
    monkeypatch.setattr(Table, "contribution", lambda self: replace(contribution(self), salt="5a"))


@every
def test_a_rehearsal_costs_what_a_release_is_charged(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_one_key(monkeypatch)
    release_laws.test_a_rehearsal_costs_what_a_release_is_charged_and_charges_nothing(
        case, monkeypatch
    )


class Silent:
    """NOT NOISE: zeros, and coins that change nothing."""

    batch = 1

    def laplace(self, scale: Any, size: int) -> Any:
        return np.zeros(size, dtype=np.int64)

    gaussian = laplace

    def coin(self) -> bool:
        return True


def silent(case: Case, data: Table) -> Any:
    return case.run(case.mechanism, data, release_laws.budget(case), Silent()).value


def same(answer: Any, truth: Any) -> None:
    """An answer is the truth; one that is a quotient is, but for its rounding."""
    if isinstance(truth, dict):
        assert list(answer) == list(truth)
        answer, truth = list(answer.values()), list(truth.values())
    assert np.asarray(answer).shape == np.asarray(truth).shape
    assert np.asarray(answer, dtype=float) == pytest.approx(
        np.asarray(truth, dtype=float), rel=1e-12, abs=1e-12
    )


@pytest.fixture(scope="module")
def duckdb() -> Table:
    return in_duckdb()


@pytest.mark.one_in(4)
@every
def test_without_noise_an_answer_is_the_truth(
    case: Case, duckdb: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_one_key(monkeypatch)
    largest = max(np.unique([str(u) for u in COLUMNS["u"]], return_counts=True)[1])
    assert largest <= 9  # no bound on a unit binds
    truth = case.truth(COLUMNS)
    if case.name.startswith(("top", "tested", "most")):  # no numbers
        assert silent(case, case.data) == silent(case, duckdb) == truth
        return
    same(silent(case, case.data), truth)
    same(silent(case, duckdb), truth)


@pytest.mark.one_in(8)
@every
@pytest.mark.parametrize(("rows", "groups"), [(1, None), (2, 1), (3, 2)])
def test_where_bounds_bind_an_engine_answers_as_arrays_do(
    case: Case, rows: int, groups: int | None
) -> None:
    arrays, engine = table(COLUMNS, rows, groups), in_duckdb(rows, groups)
    for salt in ("0a", "0b"):
        contribution = replace(arrays.contribution(), salt=salt)
        found = case.mechanism.plan(arrays).scan(contribution)
        assert found == case.mechanism.plan(engine).scan(contribution)


@every
def test_an_error_that_is_kept_keeps_no_table(case: Case) -> None:
    given = [table(COLUMNS)]
    gone = weakref.ref(given[0])
    with pytest.raises(tb.ReleaseError) as caught:
        case.mechanism.release(
            given.pop(), meter=release_laws.budget(case), noise=release_laws.Broken()
        )
    gc.collect(1)
    assert gone() is None
    assert caught.value.__traceback__ is not None


@every
def test_what_is_no_table_is_refused(case: Case) -> None:
    meter = release_laws.budget(case)
    with pytest.raises(tb.ParameterError, match=r"^data must be a Table, got 'dict'"):
        case.mechanism.release(dict(COLUMNS), meter=meter)
    assert meter.spent == meter.held == tb.Amount(0.0, 0.0, "epsilon")


# ------------------------------------------------------------------ scans that fail


def fails(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("secret 42")


def scans_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    for verb in ("counts", "sums", "histogram", "groups"):
        monkeypatch.setattr(IbisSource, verb, fails)


@every
def test_a_scan_that_fails_costs_the_worst_case_price(
    case: Case, duckdb: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans_fail(monkeypatch)
    meter = release_laws.budget(case)
    with pytest.raises(tb.ReleaseError) as caught:
        case.run(case.mechanism, duckdb, meter, None)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert meter._spent == case.mechanism.guarantee.worst_case()


@pytest.mark.one_in(3)
@every
def test_a_connection_that_was_lost_before_the_scan_costs_nothing(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = in_duckdb()
    source: Any = engine.source
    source.connection.disconnect()
    meter = release_laws.budget(case)
    with pytest.raises(SourceError, match=r"^the table's engine does not answer \(\w+\)$"):
        case.run(case.mechanism, engine, meter, None)
    assert meter.spent == meter.held == tb.Amount(0.0, 0.0, "epsilon")
