"""Prices by cell: construction, Lemmas 3, 4 and 6, products, partitions, text."""

from __future__ import annotations

import json
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tightbudget as tb
from tightbudget.output_dp import guarantee
from tightbudget.output_dp.guarantee import cell_from_lists

TENTH = Fraction(1, 10)

NAMES = st.recursive(
    st.one_of(st.text(max_size=3), st.integers(-3, 3)),
    lambda inner: st.tuples(inner, inner),
    max_leaves=3,
)
PRICES = st.one_of(
    st.fractions(0, 3),
    st.floats(0, 3),
    st.integers(0, 3),
    st.decimals("0", "3", places=4),
    st.floats(0, 3).map(lambda x: tb.Bounds(0.0, x)),
)


@st.composite
def guarantees(draw: st.DrawFn) -> tb.OutputDP:
    cells = draw(st.dictionaries(NAMES, PRICES, min_size=1, max_size=4))
    delta = draw(st.fractions(0, 1))
    table = tb.OutputDP(cells, delta)
    above = draw(st.one_of(st.none(), st.fractions(0, 1)))
    return table if above is None else tb.OutputDP(cells, delta, sup=table.sup + above)


# ------------------------------------------------------------------------ the value itself


def test_prices_are_the_numbers_that_were_written() -> None:
    g = tb.OutputDP({"above=0": 0.1, "above=1": Decimal("0.25"), "above=2": 1}, delta=1e-6)
    assert list(g.cells) == ["above=0", "above=1", "above=2"]
    assert [g.price(c) for c in g.cells] == [TENTH, Fraction(1, 4), 1]
    assert g.worst_case() == (Fraction(1), Fraction(1, 10**6))


def test_the_upper_end_of_bounds_is_charged() -> None:
    bounds = (tb.Laplace(10.0) * 3).epsilon(delta=1e-3)
    assert tb.OutputDP({"value": bounds}).price("value") == Fraction(bounds.upper)
    assert tb.OutputDP({"value": 0}, delta=tb.Bounds(0.0, 1e-9)).delta == Fraction(1e-9)


def test_what_is_not_listed_costs_the_sup() -> None:
    assert tb.OutputDP({"a": 0.1, "b": 0.2}).price("c") == Fraction(1, 5)
    assert tb.OutputDP({"a": 0.1}, sup=0.5).price("c") == Fraction(1, 2)
    assert tb.OutputDP({}, sup=0.5).price("c") == Fraction(1, 2)


@pytest.mark.slow
@given(guarantees())
def test_the_sup_is_at_least_every_price(g: tb.OutputDP) -> None:
    assert g.sup >= max(g.cells.values())
    assert g.worst_case() == (g.sup, g.delta)
    assert all(g.price(c) == price for c, price in g.cells.items())


@given(guarantees())
def test_value_semantics(g: tb.OutputDP) -> None:
    turned = tb.OutputDP(dict(list(g.cells.items())[::-1]), g.delta, sup=g.sup)
    assert turned == g
    assert hash(turned) == hash(g)
    assert pickle.loads(pickle.dumps(g)) == g
    assert tb.OutputDP(g.cells, g.delta, sup=g.sup + 1) != g
    assert g != "g"
    with pytest.raises(AttributeError):
        g.delta = Fraction(0)  # type: ignore[misc]
    with pytest.raises(TypeError):
        g.cells["a"] = Fraction(0)  # type: ignore[index]


def test_a_later_change_of_the_table_changes_nothing() -> None:
    table = {"a": 0.1}
    g = tb.OutputDP(table)
    table["a"] = 0.0
    assert g.price("a") == TENTH


def test_equal_however_the_numbers_were_written() -> None:
    a = tb.OutputDP({"x": 0.1, "y": 0.2}, 1e-6)
    assert a == tb.OutputDP({"y": Fraction(1, 5), "x": Decimal("0.1")}, Decimal("1e-6"), sup=0.2)
    assert a != tb.OutputDP({"x": tb.Bounds(0.1, 0.1), "y": 0.2}, 1e-6)  # a double above 1/10
    assert tb.OutputDP({np.int64(1): 1}) == tb.OutputDP({1: 1})
    assert repr(a) == "OutputDP({'x': 1/10, 'y': 1/5}, delta=1/1000000, sup=1/5)"


# -------------------------------------------------------------------------------- lemmas


@given(PRICES, st.fractions(0, 1), st.lists(NAMES, max_size=4))
def test_lemma_3_and_lemma_4_are_inverse(epsilon: Any, delta: Fraction, cells: list[Any]) -> None:
    g = tb.OutputDP.from_dp(epsilon, delta, cells)
    assert set(g.cells) == set(cells)
    assert set(g.cells.values()) <= {g.sup}
    assert tb.OutputDP.from_dp(*g.worst_case(), cells) == g


def test_lemma_6_the_deltas_add_up() -> None:
    g = tb.OutputDP.from_subset_dp({"a": (0.1, 0.1), "b": (0.3, 0.2), "c": (0, 0)})
    assert dict(g.cells) == {"a": TENTH, "b": Fraction(3, 10), "c": 0}
    assert g.delta == Fraction(3, 10)
    assert tb.OutputDP.from_subset_dp({"a": (0, 0.75), "b": (0, 0.75)}).delta == 1


# ------------------------------------------------------------------------------- families


def test_a_rising_family_ends_exactly_at_its_cap() -> None:
    g = tb.OutputDP.rising(0.1, 0.2, 3)
    assert dict(g.cells) == {0: TENTH, 1: Fraction(1, 6), 2: Fraction(7, 30), 3: Fraction(3, 10)}
    assert g.sup == Fraction(3, 10)
    assert g.price(4) == g.sup


def test_a_family_by_a_function() -> None:
    finite = tb.OutputDP.family(lambda k: Fraction(k, 7), 8, delta=0.1)
    assert finite == tb.OutputDP.rising(0, 1, 7, delta=0.1)


def test_an_infinite_family_charges_its_declared_sup_beyond_what_is_listed() -> None:
    g = tb.OutputDP.family(lambda k: 1 - Fraction(1, 2**k), 10, sup=1)
    assert g.price(3) == Fraction(7, 8)
    assert g.price(10) == g.price(10**30) == 1
    with pytest.raises(tb.ParameterError, match="sup must be at least every price, also 511/512"):
        tb.OutputDP.family(lambda k: 1 - Fraction(1, 2**k), 10, sup=0.99)


# --------------------------------------------------------------------- products, partitions


@pytest.mark.slow
@given(guarantees(), guarantees())
def test_a_product_costs_the_sum_cell_by_cell(a: tb.OutputDP, b: tb.OutputDP) -> None:
    both = tb.OutputDP.product(a, b)
    for x in a.cells:
        for y in b.cells:
            assert both.price((x, y)) == a.price(x) + b.price(y)
    assert both.sup == a.sup + b.sup
    assert both.delta == min(1, a.delta + b.delta)


def test_products_of_none_one_and_three() -> None:
    coin = tb.OutputDP({"number": 0.1, "nothing": 0}, delta=0.01)
    assert tb.OutputDP.product() == tb.OutputDP({(): 0})
    assert tb.OutputDP.product(coin).price(("number",)) == TENTH
    three = tb.OutputDP.product(coin, coin, coin)
    assert three.price(("number", "nothing", "number")) == Fraction(1, 5)
    assert three.delta == Fraction(3, 100)


@given(guarantees(), st.data())
def test_refining_keeps_prices_and_coarsening_takes_the_dearest(g: tb.OutputDP, data: Any) -> None:
    old = data.draw(st.sampled_from(list(g.cells)))
    parts = [("part", old, i) for i in range(3)]
    fine = g.refined({old: parts})
    assert [fine.price(part) for part in parts] == [g.price(old)] * 3
    assert fine.coarsened({old: parts}) == g
    everything = g.coarsened({"all": list(g.cells)})
    assert dict(everything.cells) == {"all": max(g.cells.values())}
    assert everything.worst_case() == g.worst_case()
    assert fine.worst_case() == g.worst_case()


# ---------------------------------------------------------------------------------- text


@given(guarantees())
def test_json_gives_the_same_value_back(g: tb.OutputDP) -> None:
    read = tb.OutputDP.from_json(g.to_json())
    assert read == g
    assert list(read.cells) == list(g.cells)


@given(guarantees())
def test_plain_values_give_the_same_value_back_and_are_what_the_text_says(g: tb.OutputDP) -> None:
    assert tb.OutputDP.from_dict(g.to_dict()) == g
    assert g.to_dict() == json.loads(g.to_json())  # lists, no tuples: nothing that JSON changes


def test_floats_and_decimals_in_plain_values_mean_what_they_print_as() -> None:
    def read(price: Any) -> tb.OutputDP:
        plain = {"cells": [["a", price]], "delta": Decimal("1e-6"), "sup": "1"}
        return tb.OutputDP.from_dict({"tightbudget": 1, "output_dp": plain})

    assert read(0.1) == read(Decimal("0.1")) == read("1/10")
    assert read(0.1) == tb.OutputDP({"a": 0.1}, 1e-6, sup=1)
    others: list[Any] = [Decimal("0.5"), 0.5, None, True, {}]
    for cell in others:
        plain = {"cells": [[cell, 0]], "delta": 0, "sup": 1}
        with pytest.raises(tb.ParameterError, match="cell must be a text, an integer, or a tuple"):
            tb.OutputDP.from_dict({"tightbudget": 1, "output_dp": plain})


def nested(depth: int) -> Any:
    value: Any = "a"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [1, 10, 100, 200])
def test_a_cell_of_lists_in_lists_is_read(depth: int) -> None:
    g = tb.OutputDP({cell_from_lists(nested(depth)): 1})
    assert tb.OutputDP.from_dict(g.to_dict()) == g


@pytest.mark.parametrize("depth", [1100, 5000, 100_000])
def test_a_cell_of_too_many_lists_in_lists_is_refused(depth: int) -> None:
    with pytest.raises(tb.ParameterError, match=r"^cell must not have hundreds of lists inside"):
        cell_from_lists(nested(depth))
    deep: Any = "a"
    for _ in range(depth):
        deep = (deep,)
    with pytest.raises(tb.ParameterError, match=r"^cell must not have hundreds of tuples inside"):
        tb.OutputDP({deep: 1})


def test_decimals_in_a_json_text_mean_themselves() -> None:
    text = '{"tightbudget": 1, "output_dp": {"cells": [["a", 0.1], [["b", 1], "1/3"]], '
    g = tb.OutputDP.from_json(text + '"delta": 1e-6, "sup": 1}}')
    assert g == tb.OutputDP({"a": 0.1, ("b", 1): Fraction(1, 3)}, 1e-6, sup=1)


def body(**changes: Any) -> str:
    content = {"cells": [["a", "1/10"]], "delta": "0", "sup": "1"} | changes
    return json.dumps({"tightbudget": 1, "output_dp": content})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON: "),
        (None, "not JSON: "),
        ("[" * 100_000, "not JSON: "),
        ("[]", 'no guarantee: expected {"tightbudget": 1, "output_dp": ...}'),
        ('{"tightbudget": 2}', "no guarantee"),
        (
            '{"tightbudget": 1}',
            "output_dp must have cells, delta and sup, and no more but rho, got",
        ),
        (body(more=1), "output_dp must have cells, delta and sup, and no more"),
        (body(cells={}), "cells must be a list of pairs, got {}"),
        (body(cells=[["a"]]), "cells[0] must be a pair of a cell and a price, got ['a']"),
        (body(cells=[["a", 0], ["a", 0]]), "cells[1] must be new, got 'a' again"),
    ],
)
def test_texts_that_are_no_guarantee(text: Any, message: str) -> None:
    with pytest.raises(tb.errors.FileError) as caught:
        tb.OutputDP.from_json(text)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("number", ["0.1", "1/0", "-1/2", "1/2/3", "1" * 5000, "nan", None, True])
def test_numbers_that_a_text_may_not_hold(number: Any) -> None:
    with pytest.raises(tb.ParameterError, match=r"cells\['a'\] must be a finite number >= 0, got"):
        tb.OutputDP.from_json(body(cells=[["a", number]]))


@pytest.mark.parametrize("rho", ["0.1", "-1", None, True])
def test_a_rho_that_a_text_may_not_hold(rho: Any) -> None:
    with pytest.raises(tb.ParameterError, match=r"^rho must be a finite number >= 0, got"):
        tb.OutputDP.from_json(body(rho=rho))


def test_a_rho_is_of_the_whole_mechanism() -> None:
    noisy = tb.OutputDP({"a": 1, "b": 2}, 0.01, rho=Fraction(1, 50))
    assert tb.OutputDP.from_json(noisy.to_json()) == pickle.loads(pickle.dumps(noisy)) == noisy
    assert noisy != tb.OutputDP({"a": 1, "b": 2}, 0.01)
    assert noisy.to_dict()["output_dp"]["rho"] == "1/50"
    assert "rho" not in G.to_dict()["output_dp"]
    assert repr(noisy) == "OutputDP({'a': 1, 'b': 2}, delta=1/100, sup=2, rho=1/50)"
    assert noisy.coarsened({"all": ["a", "b"]}).rho == noisy.refined({"a": ["c"]}).rho == noisy.rho
    assert tb.OutputDP.product(noisy, noisy).rho == Fraction(1, 25)
    assert tb.OutputDP.product(noisy, G).rho is None
    with pytest.raises(tb.ParameterError, match=r"^rho must be a finite number >= 0, got -1"):
        tb.OutputDP({"a": 1}, rho=-1)


def test_numbers_that_json_itself_spells_wrong() -> None:
    for number in ("NaN", "Infinity", "1e999999999"):
        with pytest.raises(tb.ParameterError, match=r"delta must be in \[0, 1\], got"):
            tb.OutputDP.from_json(body().replace('"0"', number))


# ------------------------------------------------------------------------------ refusals

OutputDP: Any = tb.OutputDP  # what mypy would refuse is refused at run time, too
G = OutputDP({"a": 0.1, "b": 0.2})


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda: OutputDP([("a", 1)]), "cells must be a mapping with cells as its keys, got"),
        (lambda: OutputDP({}), "cells must name at least one cell, unless sup is given, got {}"),
        (
            lambda: OutputDP({1.5: 1}),
            "cell must be a text, an integer, or a tuple of these, got 1.5",
        ),
        (lambda: OutputDP({True: 1}), "cell must be a text, an integer, or a tuple of these"),
        (lambda: OutputDP({("a", None): 1}), "cell must be a text, an integer, or a tuple of"),
        (
            lambda: OutputDP({"a": float("nan")}),
            "cells['a'] must be a finite number >= 0, got nan",
        ),
        (
            lambda: OutputDP({"a": tb.Estimate(0.1, "Renyi")}),
            "cells['a'] must be certified (an Estimate cannot be charged to a budget), got Est",
        ),
        (lambda: OutputDP({"a": 1}, 2), "delta must be in [0, 1], got 2"),
        (lambda: OutputDP({"a": 1}, sup=0.5), "sup must be at least every price, also 1, got"),
        (lambda: OutputDP.from_dp(-1), "epsilon must be a finite number >= 0, got -1"),
        (lambda: OutputDP.from_dp(1, 0, "ab"), "cells must be a list of cells, got 'ab'"),
        (
            lambda: OutputDP.from_subset_dp({"a": 1}),
            "cells['a'] must be a pair (epsilon, delta), got 1",
        ),
        (
            lambda: OutputDP.from_subset_dp({"a": (1, 2)}),
            "delta of 'a' must be in [0, 1], got 2",
        ),
        (lambda: OutputDP.rising(0, 1, 0), "steps must be an integer >= 1, got 0"),
        (lambda: OutputDP.rising(0, "1", 2), "rise must be a finite number >= 0, got '1'"),
        (lambda: OutputDP.family(lambda k: k, 0), "size must be an integer >= 1, got 0"),
        (lambda: OutputDP.product(G, 1), "guarantees[1] must be an OutputDP, got 1"),
        (lambda: G.price(None), "cell must be a text, an integer, or a tuple of these, got None"),
        (
            lambda: G.coarsened({"x": ["a", "c"]}),
            "cell must be one of ['b'], each at most once, got",
        ),
        (lambda: G.coarsened({"x": ["a"], "y": ["a"]}), "cell must be one of ['b'], each at most"),
        (lambda: G.coarsened({"x": "a"}), "groups['x'] must be a list of cells, got 'a'"),
        (lambda: G.coarsened({"x": []}), "groups['x'] must name at least one cell, got []"),
        (lambda: G.coarsened({"b": ["a"]}), "cell must be new (there is another one of this"),
        (lambda: G.refined({"a": ["b"]}), "cell must be new (there is another one of this name"),
        (lambda: G.refined({"a": ["x", "x"]}), "parts['a'] must share no cell with the others"),
        (lambda: G.refined({"c": ["x"]}), "cell must be one of ['a', 'b'], each at most once"),
        (lambda: G.refined(["a"]), "parts must be a mapping with cells as its keys, got ['a']"),
    ],
)
def test_refusals(refused: Any, message: str) -> None:
    with pytest.raises(tb.ParameterError) as caught:
        refused()
    assert str(caught.value).startswith(message)


def test_a_rising_family_is_as_if_it_were_written_out() -> None:
    g = tb.OutputDP.rising(0.1, 0.2, 3, delta=0.25)
    prices = [Fraction(1, 10) + Fraction(k, 15) for k in range(4)]
    written = tb.OutputDP(dict(enumerate(prices)), delta=0.25)
    assert (g, hash(g), repr(g), g.to_json()) == (
        written, hash(written), repr(written), written.to_json()
    )  # fmt: skip
    assert pickle.loads(pickle.dumps(g)) == g
    cells: list[Any] = [0, 1, 3, 4, -1, "1", (1,), np.int64(2)]
    for cell in cells:
        assert g.price(cell) == written.price(cell)
        assert (cell in g.cells) == (cell in written.cells)
    assert list(g.cells.items()) == list(enumerate(prices))
    assert g.cheapest() == written.cheapest() == Fraction(1, 10)
    assert tb.OutputDP({}, sup=2).cheapest() == 2
    assert g.coarsened({"low": [0, 1]}) == written.coarsened({"low": [0, 1]})
    with pytest.raises(TypeError):
        g.cells[0] = Fraction(0)  # type: ignore[index]


def test_a_long_rising_family_makes_no_price_before_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    real = guarantee._Rising.__getitem__

    def counted(self: Any, cell: Any) -> Fraction:
        made.append(cell)
        return real(self, cell)

    monkeypatch.setattr(guarantee._Rising, "__getitem__", counted)
    svt = tb.release.SparseVector(1.0, aboves=10**9)
    assert svt.what_if(tb.OutputDPFilter(1)).fits
    assert svt.guarantee.price(2 * 10**9) == 1
    assert len(made) < 10
