"""OpenDP's contexts on a budget: what each release costs, and what is refused before it runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tightbudget as tb

pytest.importorskip("opendp", reason="pip install 'tightbudget[release]'")

from opendp import combinators, domains, measurements, measures, metrics, mod
from opendp.context import unit_of

from tightbudget.adapters import opendp_context as adapter
from tightbudget.adapters.opendp_context import context_on_budget

ROWS = list(range(50))
PURE, RHO = measures.max_divergence(), measures.zero_concentrated_divergence()
BOTH = measures.approximate(PURE)


@pytest.fixture(autouse=True)
def features() -> Any:
    """OpenDP's features, for these tests alone."""
    kept = set(mod.GLOBAL_FEATURES)
    mod.enable_features("contrib", "honest-but-curious")
    yield
    mod.GLOBAL_FEATURES.clear()
    mod.GLOBAL_FEATURES.update(kept)


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as made:
        yield made


def space() -> Any:
    return domains.vector_domain(domains.atom_domain(T="i32"))


def context(meter: Any, **more: Any) -> Any:
    given = {"privacy_unit": unit_of(contributions=1), "domain": space(), **more}
    return context_on_budget(given.pop("data", ROWS), meter=meter, **given)


def said(measure: Any, answer: Any, function: Callable[[Any], Any] = len) -> Any:
    """A measurement on the context's data whose map says ``answer``."""
    return measurements.make_user_measurement(
        space(), metrics.symmetric_distance(), measure, function, lambda d_in: answer
    )


# ------------------------------------------------------------------------------- prices


def test_ten_queries_of_a_tenth_cost_one() -> None:
    budget = tb.OutputDPFilter(1)
    asked = context(budget)
    for _ in range(10):
        assert isinstance(asked.query(epsilon=0.1).count().laplace().release(), int)
    assert (budget.spent.amount, budget.left.amount, budget.held.amount) == (1.0, 0.0, 0.0)
    with pytest.raises(tb.errors.BudgetError, match=r"requested epsilon 0\.001"):
        asked.query(epsilon=0.001).count().laplace().release()


def test_the_price_is_what_the_map_says_rounded_up() -> None:
    draws = random.Random(7)
    for _ in range(30):
        loss, delta = draws.uniform(0, 2) ** 5, draws.choice([0.0, draws.uniform(0, 1)])
        asked = context(tb.OutputDPFilter(100, 1), measure=BOTH)
        price = asked._price(said(BOTH, (loss, delta)))
        # exact rationals: at least the double, and less than a unit in its last place above it
        for exact, double in ((price.sup, loss), (price.delta, delta)):
            assert Fraction(double) <= exact <= Fraction(double) * (1 + Fraction(2, 2**52))
        assert price.rho is None


@pytest.mark.parametrize("price", [0.0, 0.1, 0.3, 0.7, 1e-9, 1.1, 1e300, 5e-324])
def test_a_price_that_was_asked_for_costs_its_decimal(price: float) -> None:
    down = float(Fraction(repr(price)))
    assert adapter._decimal_above(down) >= Fraction(down)
    asked = context(tb.OutputDPFilter(1e301))
    found = asked.query(epsilon=price)._d_out
    assert Fraction(found) <= Fraction(repr(price))
    assert adapter._decimal_above(found) == Fraction(repr(price))


def test_a_unit_of_more_rows_costs_more() -> None:
    budget = tb.OutputDPFilter(1)
    asked = context(budget, privacy_unit=unit_of(contributions=3))
    asked.query().count().laplace(10.0).release()
    assert budget.spent.amount == pytest.approx(0.3, abs=1e-12)
    assert budget.spent.amount >= 0.3


@pytest.mark.slow  # the curve of a rho
def test_a_budget_of_epsilon_pays_for_a_rho_at_its_delta(ledger: Any) -> None:
    budget = ledger.open_budget("e", epsilon=2.0, delta=1e-6)
    asked = context(budget.keyed("A"), measure=RHO, delta=1e-9)
    asked.query(rho=0.01).count().gaussian().release()
    spent = budget.spent
    # at least that of the noise, and at most the classic conversion
    sigma = (0.5 / 0.01) ** 0.5
    least = tb.Gaussian(sigma).epsilon(1e-9).lower
    assert least <= spent.amount <= 0.01 + 2 * (0.01 * 20.7232658369464) ** 0.5
    assert spent.delta == 1e-9


def test_a_delta_that_is_no_double_is_rounded_down(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def answer(*, delta: float) -> Any:
        asked.append(delta)
        return SimpleNamespace(bounds=tb.Bounds(0.25, 0.5))

    monkeypatch.setattr(adapter, "from_opendp", lambda *_: SimpleNamespace(answer=answer))
    for delta in (Fraction(1, 3), Fraction(1, 10), Fraction(1, 7 * 10**9)):
        price = context(tb.OutputDPFilter(9, 1), measure=RHO, delta=delta)._price(said(RHO, 0.25))
        assert delta * (1 - Fraction(1, 10**12)) <= Fraction(asked[-1]) <= delta
        assert (price.sup, price.delta, price.rho) == (Fraction(1, 2), delta, Fraction(1, 4))


def test_a_delta_below_all_doubles_is_none() -> None:
    least = Fraction(5e-324)
    for delta in (least * Fraction(7, 10), least / 3, Fraction(0)):
        with pytest.raises(tb.ParameterError, match="delta must be > 0"):
            context(tb.OutputDPFilter(9, 1), measure=RHO, delta=delta)
    context(tb.OutputDPFilter(9, 1), measure=RHO, delta=least)


def test_budgets_of_rho_and_of_a_divergence_are_charged_the_rho(ledger: Any) -> None:
    rho = ledger.open_budget("rho", kind="zcdp", rho=0.5)
    renyi = ledger.open_budget("renyi", kind="renyi", order=4.0, epsilon=2.0)
    for budget, expected in ((rho, 0.1), (renyi, 0.4)):
        asked = context(budget.keyed(budget.name), measure=RHO)
        asked.query(rho=0.1).count().gaussian().release()
        assert budget.spent.amount == expected
        assert asked.remaining_privacy_loss() == budget.left


@pytest.mark.parametrize("kind", ["gaussian_dp", "advanced"])
def test_budgets_that_know_no_rho_refuse_it(ledger: Any, kind: str) -> None:
    terms = {"mu": 1} if kind == "gaussian_dp" else {"epsilon": 1, "delta": 1e-6}
    budget = ledger.open_budget("it", kind=kind, **terms)
    asked = context(budget.keyed("A"), measure=RHO)
    with pytest.raises(tb.errors.TightBudgetError, match=r"have delta = 0|requested rho 0"):
        asked.query(rho=0.1).count().gaussian().release()
    assert budget.spent.amount == budget.held.amount == 0.0


def test_a_budget_of_rho_takes_pure_queries_at_half_their_square(ledger: Any) -> None:
    budget = ledger.open_budget("rho", kind="zcdp", rho=0.5)
    context(budget.keyed("A")).query(epsilon=0.5).count().laplace().release()
    assert budget.spent.amount == 0.125


def test_each_release_is_a_run_of_the_ledger_and_a_restart_is_refused(ledger: Any) -> None:
    budget = ledger.open_budget("ada", epsilon=1.0)
    asked = context(budget.keyed("A7"))
    for _ in range(2):
        asked.query(epsilon=0.1).count().laplace().release()
    found = [(event.key, event.kind, event.cell) for event in budget.history()][1:]
    assert found == [
        (key, kind, "ran" if kind == "settled" else None)
        for key in ("A7", "A7#2")
        for kind in ("reserved", "started", "settled")
    ]
    with pytest.raises(tb.errors.SettlementError):
        context(budget.keyed("A7")).query(epsilon=0.1).count().laplace().release()
    assert budget.spent.amount == 0.2


def test_the_price_is_held_while_opendp_runs() -> None:
    budget, seen = tb.OutputDPFilter(1), []

    def run(data: Any) -> int:
        seen.append((budget.held.amount, budget.spent.amount))
        return 0

    context(budget)(said(PURE, 0.25, run))
    assert seen == [(0.25, 0.0)]
    assert (budget.held.amount, budget.spent.amount) == (0.0, 0.25)


# ------------------------------------------------------------------------------ failures


def test_a_release_that_fails_is_charged_and_says_nothing_of_the_data() -> None:
    budget = tb.OutputDPFilter(1)

    def run(data: Any) -> int:
        raise ValueError(f"the rows {data}")

    with pytest.raises(tb.errors.ReleaseError, match="worst-case price is charged") as found:
        context(budget)(said(PURE, 0.25, run))
    assert "rows" not in str(found.value)
    assert found.value.__cause__ is found.value.__context__ is None
    assert budget.spent.amount == 0.25


def test_what_answers_more_than_once_is_charged_and_not_released() -> None:
    budget = tb.OutputDPFilter(1)
    with pytest.raises(tb.ParameterError, match="query answers more than once"):
        context(budget).query(epsilon=0.5).compositor(split_evenly_over=2).release()
    assert (budget.spent.amount, budget.held.amount) == (0.5, 0.0)


def test_a_query_that_does_not_fit_is_refused_before_anything_is_held() -> None:
    budget = tb.OutputDPFilter(1)
    asked = context(budget)
    odometer = combinators.make_fully_adaptive_composition(
        space(), metrics.symmetric_distance(), PURE
    )
    for query, reason in (
        (3, "query must be an OpenDP Measurement, got 3"),
        (odometer, "query must be an OpenDP Measurement"),
        (said(BOTH, (0.1, 0.0)), "output_measure of the query must be that of the context, MaxD"),
        (said(PURE, float("inf")), "must be finite"),
        (said(PURE, -1.0), "must be"),
    ):
        with pytest.raises(tb.ParameterError, match=reason):
            asked(query)
    other = measurements.make_laplace(
        domains.atom_domain(T="i32"), metrics.absolute_distance(T="i32"), scale=1.0
    )
    with pytest.raises(tb.ParameterError, match="input_domain of the query must be that of the"):
        asked(other)
    assert budget.spent.amount == budget.held.amount == 0.0


def test_what_a_context_cannot_pay_for_is_refused_by_name(ledger: Any) -> None:
    budget = ledger.open_budget("ada", epsilon=1.0, delta=1e-6)
    meter = budget.keyed("A")
    for measure in (measures.approximate(RHO), measures.renyi_divergence(), 3):
        with pytest.raises(tb.ParameterError, match="measure must be one of MaxDivergence, Appr"):
            context(meter, measure=measure)
    with pytest.raises(tb.ParameterError, match="delta must be given beside a rho"):
        context(meter, measure=RHO)
    with pytest.raises(tb.ParameterError, match="delta must be > 0"):
        context(meter, measure=RHO, delta=0.0)
    with pytest.raises(tb.ParameterError, match="delta must be None beside MaxDivergence"):
        context(meter, delta=1e-9)
    with pytest.raises(tb.ParameterError, match="meter must have a key for its runs"):
        context(budget)
    with pytest.raises(tb.ParameterError, match="epsilon must be"):
        context(meter).query(epsilon=-0.1)


class Frame:
    """Stands for a frame of Polars."""

    __module__ = "polars.lazyframe.frame"


def test_a_frame_of_another_polars_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"opendp": "0.16.0", "polars": "9.9"}
    monkeypatch.setattr(metadata, "version", versions.get)
    monkeypatch.setattr(metadata, "requires", lambda name: ['polars==1.36.1; extra == "polars"'])
    with pytest.raises(tb.errors.ExtraError, match=r"reads frames of Polars 1\.36\.1, and 9\.9"):
        context(tb.OutputDPFilter(1), data=Frame())
