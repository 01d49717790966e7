"""A new kind of budget is one value and one line in the list; all else takes it up."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest
from tests.cli.terminal import run

import tightbudget as tb
from tightbudget.output_dp.amount import ExactAmount, Price, exact_positive
from tightbudget.output_dp.guarantee import Cell
from tightbudget.output_dp.pricing import BudgetRule, Guarantee
from tightbudget.promises.kinds import KINDS, Kind
from tightbudget.web.pages.fields import fields, offered


@dataclass(frozen=True, init=False)
class PureRule(BudgetRule):
    """Pure differential privacy: every output costs the worst case, and nothing has a delta."""

    unit = "epsilon"

    limit: Fraction

    def __init__(self, *, epsilon: Price) -> None:
        object.__setattr__(self, "limit", exact_positive(epsilon=epsilon))

    @property
    def cap(self) -> ExactAmount:
        return ExactAmount(counted=self.limit, delta=Fraction(0))

    def cost(self, guarantee: Guarantee, cell: Cell | None) -> ExactAmount:
        assert isinstance(guarantee, tb.OutputDP)
        return ExactAmount(counted=guarantee.sup, delta=guarantee.delta)

    def epsilon(self, delta: Price) -> float:
        return float(self.limit)


PURE = Kind(name="pure", words="pure DP", rule=PureRule, offered="worst case, no δ")


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(KINDS, PURE.name, PURE)
    return f"sqlite:///{tmp_path}/budget.db"


def test_a_new_kind_is_opened_charged_changed_verified_and_divided(url: str) -> None:
    answer = tb.OutputDP({"yes": 0.25, "no": 0.125})
    with tb.Ledger(url) as ledger:
        whole = ledger.open_budget("whole", kind="pure", epsilon=2)
        part = ledger.open_budget("part", kind="pure", epsilon=1, parent=whole)
        hold = part.reserve("k", answer)
        hold.start()
        assert hold.settle("no").amount == 0.25  # the worst case
        part.raise_cap(epsilon=1.5, by="owner", reason="more questions")
        assert (part.left.amount, whole.left.amount) == (1.25, 0.5)
        with pytest.raises(tb.BudgetExceeded):
            part.reserve("m", tb.OutputDP({"yes": 2}))
        with pytest.raises(tb.ParameterError, match="be of the kind of 'whole', pure, got zcdp"):
            ledger.open_budget("other", kind="zcdp", rho=0.1, parent=whole)
        part.close()
        assert whole.spent.amount == 0.25
        assert "part (pure), closed" in part.statement()._repr_html_()
        ledger.verify()


def test_a_new_kind_is_in_forms_and_at_the_terminal(url: str) -> None:
    assert offered()["pure"] == "worst case, no δ"
    (field,) = (one for one in fields("pure", "zcdp") if "pure" in one.kinds)
    assert (field.name, field.hint) == ("epsilon", "for pure DP")
    tb.Ledger(url).close()
    done = run("ledger", "open", "ada", "--kind", "pure", "--epsilon", "1", "--ledger", url)
    assert done.exit_code == 0, done.output
    with tb.Ledger(url) as ledger:
        assert ledger.budget("ada").statement().kind == "pure"
