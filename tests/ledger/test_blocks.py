"""Sets of blocks: ranges, one charge for all, caps and quotas beside them, nothing half-opened."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ledger.test_many_budgets import counted

import tightbudget as tb
from tightbudget.promises.kinds.blocks import BlockSet

PRICES = tb.OutputDP({"yes": 0.3, "no": 0.1}, delta=Fraction(1, 10**9))
TERMS: dict[str, Any] = {"by": ("day", "region"), "epsilon": 1, "delta": Fraction(1, 10**6)}


@pytest.fixture
def ledger(url: str) -> Iterator[tb.Ledger]:
    with tb.Ledger(url, by="ann") as ledger:
        yield ledger


def run(blocks: tb.ledger.BlockRange, key: str, cell: str = "no", **more: Any) -> None:
    hold = blocks.reserve(key, PRICES, **more)
    hold.start()
    hold.settle(cell)


def spent(ledger: tb.Ledger) -> dict[str, float]:
    return {one.name: one.spent.amount for one in ledger.statements() if one.spent.amount}


# ------------------------------------------------------------------------------- ranges


@pytest.mark.parametrize(
    ("by", "where", "number", "first", "last"),
    [
        (["day"], {"day": "2026-01..2026-12"}, 365, "day=2026-01-01", "day=2026-12-31"),
        (["day"], {"day": "2028"}, 366, "day=2028-01-01", "day=2028-12-31"),
        (["day"], {"day": date(2026, 2, 3)}, 1, "day=2026-02-03", "day=2026-02-03"),
        (["day"], {"day": datetime(2026, 2, 3, 4, tzinfo=UTC)}, 1, "day=2026-02-03", None),
        (["day"], {"day": ["2026-02", "2026-02-28..2026-03-01"]}, 29, None, "day=2026-03-01"),
        (["day"], {"day": "9999-12-30..9999"}, 2, "day=9999-12-30", "day=9999-12-31"),
        (["month"], {"month": "2026..2027-02"}, 14, "month=2026-01", "month=2027-02"),
        (["year"], {"year": 2026}, 1, "year=2026", "year=2026"),
        (["hour"], {"hour": "0..23"}, 24, "hour=0", "hour=9"),
        (["hour"], {"hour": "-1..1"}, 3, "hour=-1", "hour=1"),
        (["site"], {"site": np.array([2, 10])}, 2, "site=10", "site=2"),
        (["site"], {"site": {"b", "a"}}, 2, "site=a", "site=b"),
        (["a", "b"], {"b": [1, 2], "a": "x"}, 2, "a=x, b=1", "a=x, b=2"),
    ],
)
def test_a_range_names_its_blocks(
    by: list[str], where: Any, number: int, first: str | None, last: str | None
) -> None:
    names = blocks_in(_set(by=by), where)
    assert len(names) == len(set(names)) == number
    assert first is None or names[0] == f"clicks[{first}]"
    assert last is None or names[-1] == f"clicks[{last}]"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"day": "2026"}, r"where must name a value.* for each of day, region, got \['day'\]"),
        ({"day": "2026", "region": 1, "x": 1}, "where must name .* got .*'x'"),
        ({"day": "2026-13", "region": 1}, "day must be in the calendar, got '2026-13'"),
        ({"day": "2026-02-30", "region": 1}, "day must be in the calendar"),
        ({"day": "26", "region": 1}, "day must be a day such as 2026-01-31, or a longer period"),
        ({"day": True, "region": 1}, "day must be a day"),
        ({"day": "2026-02..2026-01", "region": 1}, "first period before its last"),
        ({"day": "2026..2066", "region": 1}, "at most 10000 values, got more"),
        ({"day": "2026", "region": range(28)}, "at most 10000 blocks, got 10220"),
        ({"day": "2026", "region": "2..1"}, "region must have its first value before its last"),
        ({"day": "2026", "region": "a=b"}, "region must be without"),
        ({"day": "2026", "region": "a..b"}, "region must be without"),
        ({"day": "2026", "region": ""}, "region must be a text of 1 to 200"),
        ({"day": "2026", "region": []}, "region must name at least one value"),
        ({"day": "2026", "region": 1.5}, "region must be a text, an integer, a range"),
        ({"day": "2026", "region": b"eu"}, "region must be a text, an integer, a range"),
        ({"day": "2026", "region": 10**5000}, "region must be an integer of at most 18 digits"),
        ({"day": 10**5000, "region": 1}, "day must be in the calendar, got 'a larger number'"),
        ({"day": "2026", "region": "9" * 5000 + "..1"}, "region must be a text of 1 to 200"),
        ({"day": "２０２６", "region": 1}, "day must be a day such as"),
        (
            {"day": "2026-01-01", "region": itertools.count()},
            "at most 10000 values, got more",
        ),
        ({"day": "2026", "region": True}, "region must be a text, an integer, a range"),
        ({"day": "2026", "region": "x" * 200}, "block must be a text of 1 to 200"),
    ],
)
def test_a_range_that_names_no_blocks_is_refused(where: Any, message: str) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        blocks_in(_set(), where)


def test_a_month_takes_no_day() -> None:
    with pytest.raises(tb.ParameterError, match="month must be a month such as 2026-01"):
        blocks_in(_set(by=["month"]), {"month": "2026-01-05"})


words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@given(st.lists(st.tuples(words, words), min_size=2, max_size=2, unique=True))
def test_different_values_have_different_blocks(places: list[tuple[str, str]]) -> None:
    terms = _set(by=("a", "b"))
    try:
        names = [blocks_in(terms, {"a": a, "b": b}) for a, b in places]
    except tb.ParameterError:
        return
    if all(len(one) == 1 for one in names):
        values = [terms.values(one[0]) for one in names]
        assert (names[0] == names[1]) == (values[0] == values[1])


# -------------------------------------------------------------------------------- terms


def blocks_in(terms: BlockSet, where: Any) -> tuple[str, ...]:
    """The names of the blocks of a range."""
    return terms.combinations(terms.values_in(where))


def _set(**changed: Any) -> BlockSet:
    terms: dict[str, Any] = {
        "rows_in": "one block", "cap_epsilon": None, "cap_delta": 0, "quota_epsilon": None,
        "quota_delta": 0, "unlocking": None, **TERMS, **changed,
    }  # fmt: skip
    return BlockSet.of("clicks", **terms)


numbers = st.fractions(Fraction(1, 10**6), 10)
shares = st.fractions(0, 1)


@given(
    rows_in=st.one_of(st.just("one block"), st.integers(1, 50)),
    cap=st.one_of(st.none(), st.tuples(numbers, shares)),
    quota=st.one_of(st.none(), st.tuples(numbers, shares)),
    unlocking=st.one_of(st.none(), st.integers(1, 400)),
    epsilon=numbers,
    delta=shares,
)
def test_terms_are_read_as_they_were_written(
    rows_in: Any, cap: Any, quota: Any, unlocking: Any, epsilon: Fraction, delta: Fraction
) -> None:
    cap_epsilon, cap_delta = cap or (None, 0)
    quota_epsilon, quota_delta = quota or (None, 0)
    terms = _set(
        rows_in=rows_in, cap_epsilon=cap_epsilon, cap_delta=cap_delta, unlocking=unlocking,
        quota_epsilon=quota_epsilon, quota_delta=quota_delta, epsilon=epsilon, delta=delta,
    )  # fmt: skip
    assert BlockSet.of_text("clicks", terms.text) == terms
    k = 1 if rows_in == "one block" else rows_in
    assert terms.person[0] == min(k * epsilon, cap_epsilon or k * epsilon)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"by": "day"}, "by must be a list of dimensions"),
        ({"by": 5}, "by must be a list of dimensions"),
        ({"by": []}, "by must be a list of dimensions"),
        ({"by": ["day", "day"]}, "by must name each dimension once"),
        ({"by": ["a=b"]}, r"by\[0\] must be without"),
        ({"epsilon": 0}, "epsilon must be a finite number > 0"),
        ({"delta": 2}, r"delta must be in \[0, 1\]"),
        ({"rows_in": 0}, "rows_in must be"),
        ({"rows_in": "two blocks"}, "rows_in must be"),
        ({"cap_epsilon": -1}, "cap_epsilon must be"),
        ({"cap_delta": 0.1}, "cap_delta needs cap_epsilon"),
        ({"quota_delta": 0.1}, "quota_delta needs quota_epsilon"),
        ({"unlocking": 0}, "unlocking must be"),
        ({"unlocking": 10**5000}, "unlocking must be at most 1000000 days, got more"),
        ({"unlocking": 3, "by": ["region"]}, "unlocking must be None unless a dimension is one of"),
    ],
)
def test_terms_that_make_no_set_are_refused(
    ledger: tb.Ledger, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        ledger.blocks("clicks", **{**TERMS, **changed})
    assert ledger.statements() == ()


def test_a_set_is_declared_once(ledger: tb.Ledger) -> None:
    first = ledger.blocks("clicks", **TERMS, rows_in=3)
    assert ledger.blocks("clicks", **TERMS, rows_in=3).person == first.person
    assert ledger.blocks("clicks").person == first.person
    assert (first.person.epsilon, first.person.delta) == (3, 3e-6)
    with pytest.raises(tb.KeyConflictError, match="on other terms"):
        ledger.blocks("clicks", **TERMS)
    with pytest.raises(tb.ParameterError, match="be the name of a budget"):
        ledger.blocks("views")
    ledger.open_budget("data", epsilon=1)
    with pytest.raises(tb.ParameterError, match="be the name of a set of blocks, got 'data'"):
        ledger.blocks("data")
    with pytest.raises(tb.ParameterError, match="be given both"):
        ledger.blocks("clicks", epsilon=1)
    with pytest.raises(tb.ParameterError, match=r"name must be without = , \[ \]"):
        ledger.blocks("a[b", **TERMS)
    with pytest.raises(tb.ParameterError, match="kind"):
        ledger.open_budget("x", kind="block", epsilon=1)


# ------------------------------------------------------------------------------ charges


def test_a_run_is_charged_to_each_block_of_its_range(ledger: tb.Ledger) -> None:
    clicks = ledger.blocks("clicks", **TERMS)
    assert ledger.statements(blocks=False) == ledger.statements()
    run(clicks.where(day="2026-01-01..2026-01-02", region=["eu", "us"]), "A", "yes")
    run(clicks.where(day="2026-01-02..2026-01-03", region="eu"), "B", "no")
    assert spent(ledger) == {
        "clicks[day=2026-01-01, region=eu]": 0.3,
        "clicks[day=2026-01-01, region=us]": 0.3,
        "clicks[day=2026-01-02, region=eu]": 0.4,
        "clicks[day=2026-01-02, region=us]": 0.3,
        "clicks[day=2026-01-03, region=eu]": 0.1,
    }
    assert [one.name for one in ledger.statements(blocks=False)] == ["clicks"]
    assert [one.name for one in clicks.statements()] == [*spent(ledger)]
    assert [one.name for one in clicks.statements(last=1)] == ["clicks[day=2026-01-03, region=eu]"]
    assert clicks.where(day="2026-01-02..2026-01-09", region="eu").left.epsilon == 0.6
    ledger.verify()


def test_a_refusal_opens_no_block_and_names_the_tightest(ledger: tb.Ledger) -> None:
    clicks = ledger.blocks("clicks", **TERMS)
    for i in range(3):  # 0.9 of the first day, 0.3 of the next ones
        run(clicks.where(day="2026-01-01", region="eu"), f"A{i}", "yes")
    run(clicks.where(day="2026-01-02..2026-01-20", region="eu"), "B", "yes")
    before = ledger.statements()
    wanted = clicks.where(day="2026-01", region=["eu", "us"])
    asked = tb.OutputDP({"yes": 0.8})
    preview = wanted.what_if(asked)
    with pytest.raises(tb.BudgetExceeded) as refused:
        wanted.reserve("C", asked)
    assert preview.message == str(refused.value)
    assert (preview.fits, preview.left.epsilon) == (False, 0.1)
    said = str(refused.value)
    assert "of 'clicks[day=2026-01-01, region=eu]'; left epsilon 0.1" in said
    assert "20 of 62 budgets have too little left: next" in said
    assert said.count("clicks[") == 10
    assert ledger.statements() == before
    with pytest.raises(tb.BudgetExceeded):  # the key stays refused
        wanted.reserve("C", asked)
    with pytest.raises(tb.BudgetExceeded, match=r"requested epsilon 2.0.*'clicks.day=2027"):
        clicks.where(day="2027-01-01", region="eu").reserve("D", tb.OutputDP({"yes": 2}))
    assert ledger.statements() == before
    ledger.verify()


def test_the_same_key_is_the_same_run(ledger: tb.Ledger) -> None:
    clicks = ledger.blocks("clicks", **TERMS)
    here = clicks.where(day="2026-01", region="eu")
    run(here, "A")
    assert here.reserve("A", PRICES).charges
    with pytest.raises(tb.KeyConflictError):
        clicks.where(day="2026-02", region="eu").reserve("A", PRICES)
    assert set(spent(ledger).values()) == {0.1}


def test_a_cap_over_all_blocks_is_charged_once_a_run(ledger: tb.Ledger) -> None:
    clicks = ledger.blocks("clicks", **TERMS, rows_in=40, cap_epsilon=0.35, cap_delta=1e-8)
    assert clicks.person.epsilon == 0.35
    run(clicks.where(day="2026-01", region="eu"), "A", "no")
    assert spent(ledger)["clicks"] == 0.1
    with pytest.raises(tb.BudgetExceeded, match=r"of 'clicks'; left epsilon 0.25"):
        clicks.where(day="2027-01", region="eu").reserve("B", PRICES)
    ledger.verify()


def test_a_quota_is_beside_the_blocks(ledger: tb.Ledger) -> None:
    clicks = ledger.blocks("clicks", **TERMS, quota_epsilon=0.35, quota_delta=1e-7)
    here = clicks.where(day="2026-01-01", region="eu")
    run(here, "A", "yes", by="ann")
    with pytest.raises(tb.BudgetExceeded, match=r"of 'clicks\[analyst ann\]'"):
        clicks.where(day="2026-05-01", region="eu").reserve("B", PRICES)
    run(here, "C", "yes", by="bob")
    assert spent(ledger) == {
        "clicks[day=2026-01-01, region=eu]": 0.6,
        "clicks[analyst ann]": 0.3,
        "clicks[analyst bob]": 0.3,
    }
    assert clicks.values("clicks[analyst ann]") is None
    assert clicks.values(here.names[0]) == {"day": "2026-01-01", "region": "eu"}


def test_budgets_beside_blocks_pay_the_same_price(ledger: tb.Ledger) -> None:
    clicks = ledger.blocks("clicks", **TERMS)
    ledger.open_budget("project", epsilon=1, delta=1e-6)
    here = clicks.where(day="2026-01-01", region="eu")
    run(here, "A", also=["project"])
    assert spent(ledger) == {"project": 0.1, "clicks[day=2026-01-01, region=eu]": 0.1}
    ledger.open_budget("planned", kind="plan", plan=tb.Gaussian(5), delta=1e-6)
    views = ledger.blocks("views", **TERMS)
    run(views.where(day="2026-01-01", region="eu"), "B")
    for also, message in (
        (["nobody"], "budget must be the name of a budget in this ledger, got 'nobody'"),
        (["planned"], "guarantee must be steps of the plan"),
        (["views"], "name no block of another set"),
        (["views[day=2026-01-01, region=eu]"], "name no block of another set"),
        (["clicks[day=2026-01-02, region=eu]"], "name other budgets than the set"),
        (
            ["clicks[day=today]"],
            "than the set.s: where.. names its blocks, got 'clicks.day=today",
        ),
        (["clicks[analyst bob]"], "name other budgets than the set"),
        (["clicks"], "name other budgets than the set"),
        ("project", "also must be a list of names"),
    ):
        with pytest.raises(tb.ParameterError, match=message):
            here.reserve("C", PRICES, also=also)


def test_blocks_unlock_over_time(url: str) -> None:
    today = datetime(2026, 1, 1, tzinfo=UTC)
    with tb.Ledger(url, clock=lambda: today) as ledger:
        clicks = ledger.blocks(
            "clicks", **TERMS, unlocking=10, rows_in=9, cap_epsilon=5, cap_delta=1e-6,
            quota_epsilon=5, quota_delta=1e-6,
        )  # fmt: skip
        ledger.open_budget("project", epsilon=1, delta=1e-6)
        here = clicks.where(day="2026-01-01", region="eu")
        assert here.left.epsilon == 0
        with pytest.raises(tb.BudgetExceeded, match=r"left epsilon 0.0.*unlocks over 10 days"):
            here.reserve("A", PRICES)
        today = datetime(2026, 1, 5, tzinfo=UTC)
        run(here, "B", "yes", also=["project"])  # budgets beside blocks are not locked
        assert here.left.epsilon == 0.1
        assert ledger.statements(budgets=here.names)[0].left.epsilon == 0.7
        with pytest.raises(tb.BudgetExceeded, match=r"left epsilon 0.1"):
            here.reserve("C", PRICES)
        today = datetime(2027, 1, 1, tzinfo=UTC)
        run(here, "D", "yes")
        assert here.left.epsilon == 0.4
        ledger.verify()


def test_single_blocks_are_charged_and_changed_by_their_set_alone(ledger: tb.Ledger) -> None:
    clicks = ledger.blocks("clicks", **TERMS, cap_epsilon=5)
    here = clicks.where(day="2026-01-01", region="eu")
    hold = here.reserve("A", tb.OutputDP({"yes": 0.3}))
    for name in ("clicks", here.names[0]):
        budget = ledger.budget(name)
        with pytest.raises(tb.ParameterError, match="name no block"):
            budget.reserve("B", PRICES)
        with pytest.raises(tb.ParameterError, match="which keeps its terms"):
            budget.raise_cap(by="ada", reason="more", epsilon=9)
        with pytest.raises(tb.errors.SettlementError, match="still held by 'A'"):
            budget.close()
    hold.start()
    with pytest.raises(tb.ParameterError, match="False on blocks unless delta = 0"):
        here.reserve("C", PRICES, interactive=True)
    talk = here.reserve("D", tb.OutputDP({"yes": 0.3}), interactive=True)
    talk.void()
    hold.settle("yes")
    ledger.budget(here.names[0]).close()
    with pytest.raises(tb.errors.SettlementError, match="is closed"):
        here.reserve("E", PRICES)
    clicks.close()
    with pytest.raises(tb.errors.SettlementError, match="'clicks' is closed"):
        clicks.where(day="2026-01-02", region="eu").reserve("F", PRICES)


def test_the_names_of_a_set_are_for_its_blocks(ledger: tb.Ledger) -> None:
    clicks = ledger.blocks("clicks", **TERMS)
    for name in ("clicks[day=2026-01-01, region=eu]", "clicks[", "clicks[analyst ann]"):
        with pytest.raises(tb.ParameterError, match="so the set 'clicks' names its blocks, got"):
            ledger.open_budget(name, epsilon=100)
    for name in ("Clicks[x=1]", "clicks x[y]", "[", "click[s]"):
        ledger.open_budget(name, epsilon=1)
    with pytest.raises(tb.ParameterError, match=r"a budget 'Clicks\[x=1\]', as its blocks"):
        ledger.blocks("Clicks", **TERMS)
    assert ledger.blocks("clicks", **TERMS).terms == clicks.terms
    run(clicks.where(day="2026-01-01", region="eu"), "A")
    assert ledger.blocks("clicks", **TERMS).terms == clicks.terms


@pytest.mark.parametrize(
    "given",
    [{"delta": 0.5}, {"rows_in": 2}, {"cap_epsilon": 3}, {"quota_epsilon": 1},
     {"unlocking": 10**5000}, {"delta": np.zeros(2)}],
    ids=["delta", "rows_in", "cap", "quota", "unlocking", "an array"],
)  # fmt: skip
def test_terms_of_a_known_set_are_not_ignored(ledger: tb.Ledger, given: dict[str, Any]) -> None:
    clicks = ledger.blocks("clicks", **TERMS)
    with pytest.raises(tb.ParameterError, match="terms of a set must be given with by and epsilon"):
        ledger.blocks("clicks", **given)
    assert ledger.blocks("clicks").terms == clicks.terms


def test_whoever_sees_a_set_sees_its_blocks(ledger: tb.Ledger) -> None:
    for name in ("clicks", "Clicks", "click"):
        here = ledger.blocks(name, **TERMS, quota_epsilon=5, quota_delta=1)
        run(here.where(day="2026-01-01", region=["eu", "us"]), f"A {name}")
        here.where(day="2026-01-02", region="eu").reserve(f"B {name}", PRICES)
    ledger.open_budget("clicks elsewhere", epsilon=1, delta=1)
    ledger.reserve("C", PRICES, ["clicks elsewhere"])
    blocks = {
        f"clicks[day=2026-01-0{end}]" for end in ("1, region=eu", "1, region=us", "2, region=eu")
    }
    seen = ledger.within(["clicks", "unheard of"])
    own = ledger.within(["clicks"], analyst="ann")
    for budgets, also in ((seen, set()), (own, {"clicks[analyst ann]"})):
        names = {"clicks"} | blocks | also
        everything = {one.name for one in ledger.statements()}
        assert {one.name for one in ledger.statements(budgets=budgets)} == names
        assert {name for name in everything if name in budgets} == names
        assert [hold.key for hold in ledger.open_holds(budgets=budgets)] == ["B clicks"]
        assert ledger.count_open(budgets) == 1
        assert {event.budget for event in ledger.events(budgets=budgets)} == names
        assert {event.budget for event in ledger.latest(99, budgets=budgets)} == names
    assert "clicks[day=2030-01-01, region=eu]" in seen  # that nobody has touched
    assert None not in seen


def test_a_budget_of_a_blocks_name_is_no_block(ledger: tb.Ledger) -> None:
    with mock.patch("tightbudget.ledger.acts.budget_acts.check_name"):  # an earlier version
        ledger.open_budget("clicks[day=2026-01-01, region=eu]", epsilon=100)
        clicks = ledger.blocks("clicks", **TERMS)
    with pytest.raises(tb.ParameterError, match="that is no block of 'clicks'"):
        clicks.where(day="2026-01-01", region="eu").reserve("A", PRICES)


def test_a_range_is_a_meter(ledger: tb.Ledger) -> None:
    here = ledger.blocks("clicks", **TERMS).where(day="2026-01", region="eu")
    count = tb.release.LaplaceRelease(lambda data: len(data), sensitivity=1, epsilon=0.25, step=1)
    answers = [count.release([1] * 50, meter=meter) for meter in [here.keyed("count")] * 2]
    assert len(answers) == 2
    assert here.left.epsilon == 0.5
    assert (len(here), len([*here]), len(here.names)) == (31, 31, 31)
    assert "31 blocks of 'clicks'" in repr(here)
    assert "31 blocks" in here._repr_html_()


def test_a_set_in_a_notebook(ledger: tb.Ledger) -> None:
    clicks = ledger.blocks("clicks", **TERMS)
    run(clicks.where(day="2026-01-01", region="eu"), "A")
    assert "clicks[day=2026-01-01, region=eu]" in clicks._repr_html_()
    assert "a person&#x27;s epsilon is at most 1.0" in clicks._repr_html_()


@pytest.mark.parametrize("again", [False, True])
def test_a_range_has_a_constant_number_of_statements(ledger: tb.Ledger, again: bool) -> None:
    numbers = []
    for i, days in enumerate(("2026-01-01..2026-01-03", "2026-03..2026-04")):
        here = ledger.blocks(f"set {i}", **TERMS, quota_epsilon=9, quota_delta=1).where(
            day=days, region="eu"
        )
        if again:
            run(here, f"before {i}")
        with counted() as seen:
            here.reserve(f"K{i}", tb.OutputDP({"yes": 0.1}))
        numbers.append(len(seen))
    assert numbers[0] == numbers[1]


# ---------------------------------------------------------------------------- guarantee


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_no_person_ever_loses_more_than_is_promised(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Each run costs a person its price once if it reads any of her blocks, and else nothing."""
    k = data.draw(st.integers(1, 3))
    cap = data.draw(st.sampled_from([None, 1, 2]))
    folder = tmp_path_factory.mktemp("blocks")
    people = data.draw(
        st.lists(st.sets(st.integers(0, 5), min_size=1, max_size=k), min_size=1, max_size=3)
    )
    lost = [[Fraction(0), Fraction(0)] for _ in people]
    with tb.Ledger(f"sqlite:///{folder}/budget.db") as ledger:
        clicks = ledger.blocks(
            "clicks", by=["site"], epsilon=1, delta=Fraction(1, 10**6), rows_in=k,
            cap_epsilon=cap, cap_delta=0 if cap is None else Fraction(1, 10**6),
        )  # fmt: skip
        for i in range(data.draw(st.integers(0, 12))):
            sites = data.draw(st.sets(st.integers(0, 5), min_size=1, max_size=6))
            prices = {
                c: data.draw(st.sampled_from([Fraction(n, 10) for n in range(7)])) for c in "ab"
            }
            delta = data.draw(st.sampled_from([Fraction(0), Fraction(1, 10**7)]))
            try:
                hold = clicks.where(site=sites).reserve(f"K{i}", tb.OutputDP(prices, delta))
            except tb.BudgetExceeded:
                continue
            hold.start()
            cell = data.draw(st.sampled_from(["a", "b", None]))
            if cell is None:
                hold.forfeit()
            else:
                hold.settle(cell)
            price = max(prices.values()) if cell is None else prices[cell]
            for loss, hers in zip(lost, people, strict=True):
                if hers & sites:
                    loss[0] += price
                    loss[1] += delta
        epsilon, delta = clicks._set.person
        for loss in lost:
            assert loss[0] <= epsilon
            assert loss[1] <= delta
        ledger.verify()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("cap", [False, True], ids=["", "cap"])
@pytest.mark.parametrize("quota", [False, True], ids=["", "quota"])
@pytest.mark.parametrize("unlocking", [None, 30], ids=["", "unlocking"])
@pytest.mark.parametrize("also", [(), ("a",), ("project",)], ids=str)
def test_everything_beside_blocks_pays_the_price_once(
    tmp_path: Path, cap: bool, quota: bool, unlocking: int | None, also: tuple[str, ...]
) -> None:
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db", by="ann") as ledger:
        for name in also:
            ledger.open_budget(name, epsilon=1, delta=1e-6)
        clicks = ledger.blocks(
            "clicks", **TERMS, unlocking=unlocking, rows_in=2,
            cap_epsilon=2 if cap else None, cap_delta=1e-6 if cap else 0,
            quota_epsilon=1 if quota else None, quota_delta=1e-6 if quota else 0,
        )  # fmt: skip
        here = clicks.where(day="2020-01", region="eu")
        assert here.what_if(PRICES).fits
        run(here, "A", "yes", also=also)
        beside = [*also, *["clicks"] * cap, *["clicks[analyst ann]"] * quota]
        assert spent(ledger) == dict.fromkeys([*here.names, *beside], 0.3)
        assert here.left.epsilon == 0.7
        ledger.verify()


def test_a_refusal_names_no_further_budget_beside_the_set(ledger: tb.Ledger) -> None:
    clicks = ledger.blocks("clicks", **TERMS, quota_epsilon=0.5)
    ledger.open_budget("secret", epsilon=0.6)
    with pytest.raises(tb.BudgetExceeded) as refused:
        clicks.where(day="2026-01-01..2026-01-02", region="eu").reserve(
            "A", tb.OutputDP({"yes": 2}), also=["secret"]
        )
    said = str(refused.value)
    assert "of 'clicks[analyst ann]'; left epsilon 0.5" in said
    assert "4 of 4 budgets have too little left: next 'clicks[day=2026-01-01" in said
    assert "secret" not in said


# ------------------------------------------------------------- what a lost disk has forgotten


def test_a_block_that_nobody_has_touched_is_corrected(ledger: tb.Ledger) -> None:
    """After a restore: what was lost may have touched it first."""
    clicks = ledger.blocks(
        "clicks", **TERMS, cap_epsilon=4, cap_delta=1, quota_epsilon=2, quota_delta=1
    )
    block, quota = "clicks[day=2026-01-31, region=eu]", "clicks[analyst ann]"
    run(clicks.where(day="2026-01-30", region="eu"), "before")
    for name in (block, "clicks[analyst bob]", "clicks"):
        budget = ledger.budget(name)
        left, before = budget.left, ledger.head().sequence
        assert budget.statement().spent.epsilon == (0.1 if name == "clicks" else 0)
        budget.correct(epsilon=Fraction(1, 4), by="grace", reason="lost with the disk")
        assert budget.left.epsilon == left.epsilon - 0.25
        assert ledger.head().sequence - before == (1 if name == "clicks" else 2)
    assert [event.kind for event in ledger.budget(block).history()] == ["opened", "corrected"]
    assert len(ledger.budget(block).balance_history()) == 2
    assert clicks.where(day="2026-01-31", region="eu").left.epsilon == 0.75
    run(clicks.where(day="2026-01-30..2026-01-31", region="eu"), "after")
    assert spent(ledger)[block] == 0.35
    assert spent(ledger)[quota] == 0.2
    ledger.verify()


def test_a_correction_that_is_refused_opens_no_block(ledger: tb.Ledger) -> None:
    clicks = ledger.blocks("clicks", **TERMS)
    ledger.open_budget("other", epsilon=1, delta=0)
    block, before = "clicks[day=2026-01-31, region=eu]", ledger.head()
    budget = ledger.budget(block)
    with pytest.raises(tb.errors.BudgetError, match="does not fit"):
        budget.correct(epsilon=2, by="grace", reason="lost")
    with pytest.raises(tb.ParameterError, match=r"name|terms"):
        budget.raise_cap(epsilon=2, by="grace", reason="more")
    with pytest.raises(tb.ParameterError, match="name"):
        budget.reserve("A", PRICES)
    assert budget.statement().left.epsilon == 1
    assert not list(budget.history())
    assert not budget.balance_history()
    assert not budget.parts(1)
    assert budget.can_afford(PRICES)
    assert ledger.head() == before
    clicks.close()
    with pytest.raises(tb.errors.SettlementError, match="closed"):
        budget.correct(epsilon=Fraction(1, 2), by="grace", reason="lost")


@pytest.mark.parametrize(
    "name",
    [
        "clicks[day=2026-01, region=eu]",
        "clicks[day=2026-01-31..2026-02-01, region=eu]",
        "clicks[region=eu, day=2026-01-31]",
        "clicks[day=2026-01-31]",
        "clicks[day=2026-01-31, region=eu",
        "clicks[day=2026-01-31,region=eu]",
        "clicks[day=2026-01-31, region=eu, x=1]",
        "clicks[day=2026-02-30, region=eu]",
        "clicks[day=2026-01-31, region=]",
        "clicks[analyst ann]",
        "clicks[]",
        "clicks[",
        "data[day=2026-01-31, region=eu]",
        "nobody[day=2026-01-31, region=eu]",
    ],
)
def test_what_names_no_block_is_no_budget(ledger: tb.Ledger, name: str) -> None:
    ledger.blocks("clicks", **TERMS)
    ledger.open_budget("data", epsilon=1, delta=0)
    with pytest.raises(tb.ParameterError, match="must be the name of a budget in this ledger"):
        ledger.budget(name)


@given(
    st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=3, unique=True),
    st.data(),
)
def test_a_name_is_a_blocks_if_a_range_has_it(by: list[str], data: st.DataObject) -> None:
    """Law: any text that is taken for the name of a block is the name that its values give."""
    try:
        declared = _set(by=by)
    except tb.ParameterError:
        return
    values = [data.draw(st.one_of(st.text(max_size=4), st.integers().map(str))) for _ in by]
    name = f"clicks[{', '.join(f'{n}={v}' for n, v in zip(by, values, strict=True))}]"
    try:
        (block,) = blocks_in(declared, dict(zip(declared.by, values, strict=True)))
    except (tb.ParameterError, ValueError):
        assert not declared.names_block(name)
    else:
        assert declared.names_block(block)
        assert declared.names_block(name) == (name == block)
