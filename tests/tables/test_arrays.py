"""Columns as NumPy arrays: what an object names does not depend on the objects beside it."""

from __future__ import annotations

import datetime
import fractions
import itertools
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget.tables import SelectedCounts, SelectedKeys, Table
from tightbudget.tables.arrays import Arrays, _named
from tightbudget.tables.source import ONE, Contribution, OnGrid

X = OnGrid(column="x", low=-4, high=4)


class Odd:
    """An object of which every part of Python's own code fails, or answers at random."""

    def __init__(self, of: str) -> None:
        self.of = of

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._failed("class", Odd)

    def __eq__(self, other: object) -> Any:
        return self._failed("eq", np.array([1, 2]))

    def __hash__(self) -> int:
        return int(self._failed("hash", 1))

    def __str__(self) -> str:
        return str(self._failed("str", "a"))

    def _failed(self, what: str, else_: Any) -> Any:
        if self.of == what:
            raise RuntimeError("seen")
        return else_


class Text(str):
    """A text of a type of its own."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("seen")


UTC = datetime.UTC
# Objects of which many are equal without being the same, or are no names.
OBJECTS: list[Any] = [
    *(True, 1, 1.0, Decimal("1"), Decimal("1.00"), fractions.Fraction(1), np.int8(1), np.True_),
    *(np.float32(1), np.longdouble(1), 0, -0.0, False, 0.5, Decimal("0.50"), 0.1, Decimal("0.1")),
    *(2**53 + 1, float(2**53), 2**63, 2**64, 1e308, Decimal("1e400"), Decimal("1e600"), 10**5000),
    *("a", Text("a"), np.str_("a"), b"a", np.bytes_(b"a"), "1", "", "\ud800", "|", "%"),
    *((1, "x"), (True, "x"), (1.0, np.str_("x")), (None, 0), ("row", 0), (), ((1,),), (Odd("eq"),)),
    *(None, float("nan"), Decimal("nan"), Decimal("sNaN"), pd.NaT, pd.NA),
    np.datetime64("NaT", "s"),
    *(np.ma.masked, np.datetime64("2020-01-01"), pd.Timestamp("2020-01-01"), float("inf"), 1j),
    *(datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1), datetime.datetime.max),
    *(datetime.datetime(2020, 1, 1, fold=1), datetime.datetime(2020, 1, 1, tzinfo=UTC)),
    *(uuid.UUID(int=1), [1], {}, {1}, frozenset({1}), np.array([1]), object(), Ellipsis, int),
    *(Odd("eq"), Odd("hash"), Odd("str"), Odd("class")),
]


# Hypothesis hashes what it draws: so it draws places in the list.
PLACES = st.integers(0, len(OBJECTS) - 1)


def of_objects(values: list[Any]) -> np.ndarray[Any, Any]:
    array = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        array[i] = value
    return array


def answers(values: list[Any], unit: str | None, rows: int) -> list[Any]:
    """An answer of each verb; the objects name units, groups, and what rows have."""
    source = Arrays.of(
        {
            "u": of_objects(values),
            "k": np.array([f"k{i % 3}" for i in range(len(values))]),
            "x": np.arange(len(values)) % 5 - 2.0,
        }
    )
    bound = Contribution(unit=unit, rows=rows, groups=rows, salt="5eed" * 8)
    groups = source.groups(bound, ["u"], [], keys=None)
    both = source.groups(bound, ["u", "k"], [ONE, X], keys=None)
    return [
        source.counts(bound, [None]),
        source.counts(bound, [None], units=True),
        source.sums(bound, [X]),
        source.histogram(bound, X),
        groups,
        both,
        {1: [0], **source.groups(bound, ["u"], [ONE], keys=[1, "a"])}[1],
    ]


def names_of(answer: list[Any]) -> dict[str, str]:
    """The names that groups have, in the form that is shown."""
    return {repr(key): repr(sums) for groups in answer[4:6] for key, sums in groups.items()}


def one_record_changes_one_name(values: list[Any], more: Any) -> bool:
    """Whether one row more, of a unit of its own, changes counts by 1 and no other name."""
    with_it, without = answers([*values, more], None, 1), answers(values, None, 1)
    for i in (0, 1):
        if with_it[i] != [without[i][0] + 1]:
            return False
    if abs(with_it[2][0] - without[2][0]) > 4 or abs(with_it[6][0] - without[6][0]) > 1:
        return False
    before, after = names_of(without), names_of(with_it)
    lost = {key for key in before if key not in after}
    changed = {key for key in before if before[key] != after.get(key)}
    return not lost and len(changed) <= 2 and len(after) <= len(before) + 2


def no_record_names_another() -> bool:
    """Whether what equal objects are called is the same in whichever order they come."""
    for one, other in itertools.permutations(OBJECTS[:12], 2):
        # of the one unit, at most one row counts; of two units, one of each
        rows = answers([one, other], "u", 1)
        if rows[0] != rows[1] or rows != [*answers([other, one], "u", 1)[:2], *rows[2:]]:
            return False
        both, turned = (answers(v, None, 1) for v in ([one, one, other], [other, one, one]))
        if set(map(repr, both[4])) != set(map(repr, turned[4])):
            return False
    return one_record_changes_one_name([1] * 5, True) and one_record_changes_one_name([True], 1)


def test_one_record_changes_no_name_of_others() -> None:
    assert no_record_names_another()
    for value, more in itertools.product(OBJECTS, OBJECTS[::7]):
        assert one_record_changes_one_name([value, "b"], more), (type(value), type(more))


@settings(max_examples=30, deadline=None)
@given(values=st.lists(PLACES, max_size=12), more=PLACES)
def test_one_record_of_drawn_objects_changes_no_name_of_others(
    values: list[int], more: int
) -> None:
    if values:
        assert one_record_changes_one_name([OBJECTS[i] for i in values], OBJECTS[more])


@settings(max_examples=30, deadline=None)
@given(
    values=st.lists(PLACES, min_size=1, max_size=12),
    unit=PLACES,
    many=st.integers(1, 5),
    bound=st.integers(1, 2),
)
def test_a_unit_of_drawn_objects_counts_within_its_bound(
    values: list[int], unit: int, many: int, bound: int
) -> None:
    """All rows of one name more: each answer moves by no more than its rows that may count."""
    _unit_within_its_bound([OBJECTS[i] for i in values], OBJECTS[unit], many, bound)


def _unit_within_its_bound(values: list[Any], unit: Any, many: int, bound: int) -> None:
    if _named(unit) is None:
        many = 1  # each row without a unit is a unit of its own
    others = [value for value in values if not _same(value, unit)] or ["b"]
    without, with_it = answers(others, "u", bound), answers([*others, *[unit] * many], "u", bound)
    assert 0 <= with_it[0][0] - without[0][0] <= bound
    assert 0 <= with_it[1][0] - without[1][0] <= 1
    assert abs(with_it[2][0] - without[2][0]) <= 4 * bound
    runs, more = dict(without[3]), dict(with_it[3])
    assert sum(abs(more.get(p, 0) - runs.get(p, 0)) for p in {*runs, *more}) <= bound
    moved = {
        key for key in {*without[4], *with_it[4]} if without[4].get(key) != with_it[4].get(key)
    }
    assert len(moved) <= bound


def _same(one: Any, other: Any) -> bool:
    """Whether two objects are, or may be, of one unit."""
    try:
        return type(one) is type(other) or bool(one == other)
    except Exception:
        return True


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([True] + [1] * 50, 1),
        ([1.0] + [1] * 50, 1),
        ([Decimal("1.00")] + [Decimal("1.0")] * 50, 1),
        ([(True, "x")] + [(1, "x")] * 50, (1, "x")),
        ([Decimal("0.50")] + [0.5] * 50, 0.5),
        ([np.str_("a")] + ["a"] * 50, "a"),
    ],
)
def test_a_selected_key_has_one_form(values: list[Any], shown: Any) -> None:
    for given_ in (values, values[::-1], values[1:]):
        table = Table({"z": of_objects(given_)})
        asked: dict[str, Any] = {"by": "z", "epsilon": 50, "delta": 0.01}
        (key,) = SelectedKeys(**asked).release(table, meter=tb.OutputDPFilter(99, 0.5)).value
        assert repr(key) == repr(shown)
        (key,) = SelectedCounts(**asked).release(table, meter=tb.OutputDPFilter(99, 0.5)).value
        assert repr(key) == repr(shown)


# --------------------------------------------------------------------------- typed arrays


TYPED = ["?", "i1", "u1", "i8", "u8", "f2", "f4", "f8", "U3", "S3", "M8[D]", "M8[us]", "M8[ns]"]


@pytest.mark.parametrize("kind", TYPED)
def test_one_record_of_a_typed_array_changes_no_name_of_others(kind: str) -> None:
    values = np.array([0, 1, 1, 1, 0]).astype(kind)
    for more in values[:2]:
        longer = np.append(values, more)
        for unit, rows in ((None, 1), ("u", 1), ("u", 2)):
            bound = Contribution(unit=unit, rows=rows, groups=rows, salt="5eed" * 8)
            before = Arrays.of({"u": values}).groups(bound, ["u"], [], keys=None)
            after = Arrays.of({"u": longer}).groups(bound, ["u"], [], keys=None)
            assert list(map(repr, before)) == list(map(repr, after))
            moved = sum(abs(after[key][0] - before[key][0]) for key in before)
            assert moved == (1 if unit is None else 0)


@pytest.mark.parametrize("kind", [*TYPED, "O"])
def test_a_masked_value_is_missing(kind: str) -> None:
    assert masked_values_are_missing(kind)


def masked_values_are_missing(kind: str = "i8") -> bool:
    """Whether a masked value neither names nor adds anything, and its mask is no type."""
    values = np.array([1, 0, 1]).astype(kind)
    column = np.ma.array(values, mask=[False, True, False])
    each_row = Contribution(unit=None, rows=1, groups=1)
    by_name = Contribution(unit="u", rows=1, groups=1)
    source = Arrays.of({"u": column})
    groups = source.groups(each_row, ["u"], [], keys=None)
    if list(groups.values()) != [[2]]:
        return False
    if source.counts(by_name, [None], units=True) != [2] or source.counts(by_name, [None]) != [2]:
        return False
    if kind == "?" and source.counts(each_row, ["u"]) != [2]:
        return False
    numbers = kind[0] in "iuf"
    if numbers and source.sums(each_row, [OnGrid(column="u", low=-3, high=3)]) != [2 - 3]:
        return False
    open_ = Arrays.of({"u": np.ma.array(values)})
    return open_.columns == source.columns


def test_a_column_without_a_type_is_refused() -> None:
    assert lists_are_refused()
    with pytest.raises(
        tb.ParameterError, match=r"data\['u'\] must be a NumPy array, which has a ty"
    ):
        Table({"u": [1, 2]})
    with pytest.raises(
        tb.ParameterError, match=r"got Series: say np.array\(column, dtype=...\), or"
    ):
        Table({"u": pd.Series([1, 2])})


def lists_are_refused() -> bool:
    """Whether lists are refused alike, whatever type NumPy would read off their values."""
    said = set()
    for values in ([1, 2], [1, 2.5], [1, None], ["a", 1]):
        try:
            said.add(str(Table({"u": values}).columns))
        except tb.ParameterError as error:
            said.add(str(error))
    return len(said) == 1


def odd_units_have_a_bound() -> bool:
    """Whether rows of a unit that has no name count at most as one unit's would."""
    odd = Odd("eq")
    values = of_objects([odd] * 7)
    bound = Contribution(unit="u", rows=2, groups=2)
    return Arrays.of({"u": values}).counts(bound, [None])[0] <= 2


MUTATIONS = [
    Without(
        "the first record names", {"one-form-of-a-name": "return value"}, no_record_names_another
    ),
    Without(
        "odd units have no bound",
        {"rows-of-odd-units-left-out": "counts = [True] * self._length"},
        odd_units_have_a_bound,
    ),
    Without(
        "masked values count",
        {"masked-values-are-missing": "hidden = np.zeros(len(array), dtype=bool)"},
        masked_values_are_missing,
    ),
    Without("lists have types", {"typed-arrays": "if False:"}, lists_are_refused),
]


@each(MUTATIONS)
def test_without_the_guard(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)
