"""Polars queries of OpenDP on a ledger's budget: what each release is charged."""

from __future__ import annotations

from fractions import Fraction
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import tightbudget as tb

pytestmark = pytest.mark.needs

pl = pytest.importorskip("polars")
dp = pytest.importorskip("opendp.prelude")
if f"polars=={metadata.version('polars')};" not in "".join(metadata.requires("opendp") or ()):
    pytest.skip("make tools: OpenDP reads frames of another Polars", allow_module_level=True)

from tightbudget.adapters.opendp_context import context_on_budget  # noqa: E402


@pytest.fixture
def ada(tmp_path: Path) -> Any:
    dp.enable_features("contrib")
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        yield ledger.open_budget("ada", epsilon=1.0, delta=1e-6)


def context(meter: Any, **more: Any) -> Any:
    frame = pl.LazyFrame({"age": [23, 45, 61] * 500, "ward": ["a", "b", "b"] * 500})
    given = {
        "privacy_unit": dp.unit_of(contributions=1),
        "measure": dp.approximate(dp.max_divergence()),
        "margins": [dp.polars.Margin(by=(), max_length=10_000)],
        **more,
    }
    return context_on_budget(frame, meter=meter, **given)


def ages() -> Any:
    return pl.col("age").fill_null(0).dp.sum(bounds=(0, 100))


def test_the_columns_of_a_query_are_one_run_at_their_price(ada: Any) -> None:
    asked = context(ada.keyed("A"))
    query = asked.query(epsilon=0.2, delta=0.0).select(dp.len(signed=True), ages())
    scales = dict(query.summarize()["column", "scale"].iter_rows())
    released = query.release()
    assert (ada.spent.amount, ada.spent.delta) == (0.2, 0.0)
    # at the noise that was drawn: a row moves the length by 1, and the sum by 100
    least = Fraction(1) / Fraction(scales["len"]) + Fraction(100) / Fraction(scales["age"])
    assert Fraction(1, 5) * Fraction(1 - 1e-9) < least <= Fraction(1, 5)
    assert released.collect().columns == ["len", "age"]
    assert [event.kind for event in ada.history()][1:] == ["reserved", "started", "settled"]
    with pytest.raises(dp.OpenDPException):
        released.collect()
    assert ada.spent.amount == 0.2


def test_names_of_groups_cost_delta(ada: Any) -> None:
    asked = context(ada.keyed("A"))
    query = asked.query(epsilon=0.2, delta=1e-7).group_by("ward").agg(dp.len(signed=True))
    assert sorted(query.release().collect()["ward"]) == ["a", "b"]
    assert ada.spent.amount == 0.2
    assert 0.0 < ada.spent.delta <= 1e-7


def test_a_rho_is_charged_at_its_delta(ada: Any) -> None:
    asked = context(ada.keyed("A"), measure=dp.zero_concentrated_divergence(), delta=1e-8)
    asked.query(rho=0.005).select(dp.len(signed=True)).release().collect()
    assert tb.Gaussian(10.0).epsilon(1e-8).lower <= ada.spent.amount <= 0.62
    assert ada.spent.delta == 1e-8


def test_what_is_refused_is_not_charged(ada: Any) -> None:
    asked = context(ada.keyed("A"))
    with pytest.raises(tb.errors.BudgetError, match=r"requested epsilon 1\.5"):
        asked.query(epsilon=1.5, delta=0.0).select(dp.len(signed=True)).release()
    with pytest.raises(dp.OpenDPException, match="not recognized"):
        asked.query(epsilon=0.1, delta=0.0).select(pl.col("age").sum()).release()
    with pytest.raises(dp.OpenDPException, match="threshold must be greater"):
        asked.query(epsilon=0.1, delta=0.0).group_by("ward").agg(dp.len(signed=True)).release()
    assert ada.spent.amount == ada.held.amount == 0.0
