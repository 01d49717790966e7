"""``tightbudget release``: answers from a file, paid by a budget of a ledger."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.terminal import answer, refusal, run

import tightbudget as tb
from tightbudget.cli.release.where import condition, keys_of

ROWS = pd.DataFrame(
    {
        "rider": [1, 1, 2, 2, 3, None],
        "zone": ["a", "b", "a", "a", None, "b"],
        "fare": [5.0, 12.5, 30.0, 8.0, 15.0, None],
        "paid": [True, False, True, True, False, True],
        "at": pd.to_datetime(["2026-01-01", "2026-01-02", "2026-01-02"] * 2),
    }
).astype({"rider": "Int64"})
ADA = ["--unit", "rider", "--rows-per-unit", 2, "--budget", "ada"]
# noise that is 0 but for one in 10^17 of all runs
EXACT = ["--epsilon", 100]


@pytest.fixture(autouse=True)
def _ada(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIGHTBUDGET_LEDGER", "sqlite:///budget.db")
    with tb.Ledger("sqlite:///budget.db") as ledger:
        ledger.open_budget("ada", epsilon=1000, delta=1e-3)
    ROWS.to_parquet("trips.parquet")
    ROWS.to_csv("trips.csv", index=False)


def released(what: str, *more: object) -> dict[str, Any]:
    return answer("release", what, "trips.parquet", *ADA, *EXACT, *more)


def spent() -> float:
    with tb.Ledger("sqlite:///budget.db") as ledger:
        return ledger.budget("ada").spent.epsilon


# ------------------------------------------------------------------------ answers


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("conditions", "count"),
    [
        ([], 6),
        (["fare > 8"], 3),
        (["fare>=8"], 4),
        (["fare < 8"], 1),
        (["fare <= 8", "zone == a"], 2),
        (["zone == 'a'"], 3),
        (["zone != a"], 2),
        (["paid == true"], 4),
        (["paid != true"], 2),
        (["rider == 2"], 2),
        (["rider > 1.5"], 3),
        (["at >= 2026-01-02"], 4),
        (["at < 2026-01-01T12:00:00"], 2),
    ],
)
def test_conditions_choose_rows(conditions: list[str], count: int) -> None:
    found = released("count", *(word for text in conditions for word in ("--where", text)))
    assert found["columns"] == ["value", "std", "low", "high", "mostly_noise"]
    assert found["rows"][0][0] == count
    assert found["rows"][0][2:] == [count, count, False]
    assert found["receipt"]["charged"]["amount"] == 100
    said = "trips" + (f" where {' and '.join(conditions)}" if conditions else "")
    assert found["key"].startswith(f"{said}/Count(epsilon=100) ")


@pytest.mark.slow
def test_each_question_is_answered() -> None:
    assert released("count", "--of", "units")["rows"][0][0] == 4
    ends = ["--column", "fare", "--low", 0, "--high", 64]
    assert released("sum", *ends)["rows"][0][0] == pytest.approx(70.5, abs=20)
    mean = released("mean", *ends)
    assert mean["rows"][0][0] == pytest.approx(70.5 / 6, abs=5)
    half = released("quantiles", *ends, "--probabilities", "0.5")
    assert half["columns"][:5] == ["probability", "value", "std", "low", "high"]
    assert half["columns"][5:] == ["rank_error", "mostly_noise"]
    assert half["rows"][0][:2] == [0.5, pytest.approx(12, abs=8)]
    assert half["rows"][0][2:] == [None, None, None, 1, None]
    bins = released("histogram", "--column", "fare", "--edges", "0,10,20,50")
    assert bins["columns"][:3] == ["from", "to", "value"]
    assert [row[:3] for row in bins["rows"]] == [[0, 10, 2], [10, 20, 2], [20, 50, 1]]
    zones = released("groups", "--column", "zone", "--keys", "a,b,c")
    assert zones["columns"][:2] == ["zone", "value"]
    assert [row[:2] for row in zones["rows"]] == [["a", 3], ["b", 2], ["c", 0]]
    riders = released("groups", "--column", "rider", "--keys", "1, 2")
    assert [row[:2] for row in riders["rows"]] == [[1, 2], [2, 2]]


def test_sums_means_and_quantiles_are_answered_by_group() -> None:
    ends = ["--column", "fare", "--low", 0, "--high", 64]
    of_each = ["--group", "zone", "--keys", "a,b,c"]
    halves = released("quantiles", *ends, "--probabilities", "0.5", *of_each)
    assert halves["columns"][:3] == ["zone", "probability", "value"]
    assert [row[:2] for row in halves["rows"]] == [["a", 0.5], ["b", 0.5], ["c", 0.5]]
    for question in ("sum", "mean"):
        grouped = released(question, *ends, *of_each)
        assert grouped["columns"][:2] == ["zone", "value"]
        assert [row[0] for row in grouped["rows"]] == ["a", "b", "c"]
    assert spent() == 300


def test_months_and_bins_are_groups() -> None:
    months = released("groups", "--column", "at", "--months", "2025-12,2026-01")
    assert months["columns"][:2] == ["at_month", "value"]
    assert [row[0] for row in months["rows"]] == ["2025-12", "2026-01"]
    ends = ["--column", "fare", "--low", 0, "--high", 64]
    bins = released("mean", *ends, "--group", "fare", "--bins", "0,10,64")
    assert [row[0] for row in bins["rows"]] == ["[0, 10)", "[10, 64)"]
    zones = released("distinct", "--column", "zone", "--keys", "a,b,c")
    assert zones["rows"][0][0] == 2


def test_ratios_pay_half_for_each_part() -> None:
    ends = ["--low", 0, "--high", 64]
    fares = released("ratio", "--numerator", "fare", *ends, "--denominator", "units")
    assert fares["columns"] == ["value", "std", "low", "high", "mostly_noise"]
    assert fares["rows"][0][0] == pytest.approx(70.5 / 4, abs=10)
    assert fares["receipt"]["charged"]["amount"] == 100
    assert spent() == 100


def test_ratios_are_answered_by_group() -> None:
    two = ["--denominator", "fare", "--denominator-low", 0, "--denominator-high", 64]
    trips = released("ratio", "--numerator", "rows", *two, "--group", "zone", "--keys", "a,b")
    assert [row[0] for row in trips["rows"]] == ["a", "b"]
    assert spent() == 100


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (["rows", "fares"], "denominator must be rows, units, or one of"),
        (["fare", "rows"], "low and high must be given: the public bounds of fare"),
        (["rows", "fare"], "denominator-low and denominator-high must be given"),
        (["rows", "units", "--low", 0], "low and high must be left out: rows are counted"),
        (["rows", "units", "--keys", "a"], "group must be given with keys"),
        (["rows", "units", "--epsilon", -1], "epsilon must be a finite number > 0, got -1"),
    ],
)
def test_a_part_of_a_ratio_is_refused_by_name(parts: list[object], said: str) -> None:
    above, below, *more = parts
    asked = ["--numerator", above, "--denominator", below, *more]
    assert said in refusal("release", "ratio", "trips.parquet", *ADA, *EXACT, *asked)
    assert spent() == 0


def test_a_column_whose_name_is_a_word_of_ratios_is_refused() -> None:
    pd.DataFrame({"rows": [1, 2]}).to_parquet("odd.parquet")
    asked = ["--numerator", "rows", "--denominator", "units"]
    said = refusal("release", "ratio", "odd.parquet", *ADA, *EXACT, *asked)
    assert "numerator must be clear: the table has a column of this name" in said


def test_a_csv_file_has_the_types_that_are_named() -> None:
    found = answer(
        "release", "count", "trips.csv", *EXACT, "--budget", "ada", "--type", "fare=float64",
        "--where", "fare > 8",
    )  # fmt: skip
    assert found["rows"][0][0] == 3


def test_a_person_sees_a_table_and_the_price() -> None:
    result = run("release", "groups", "trips.parquet", *ADA, *EXACT, "--column", "zone",
                 "--keys", "a,b", "--key", "A1")  # fmt: skip
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["zone", "value", "std", "low", "high", "mostly_noise"]
    assert [line[:2] for line in lines[1:]] == [["a", "3"], ["b", "2"]]
    assert result.stderr == "charged epsilon 100.0 of ada; key A1\n"


def test_a_program_gets_csv() -> None:
    result = run("release", "groups", "trips.parquet", *ADA, *EXACT, "--column", "zone",
                 "--keys", "a,b", "--csv")  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [(row["zone"], row["value"]) for row in rows] == [("a", "3"), ("b", "2")]


def test_a_dry_run_charges_nothing() -> None:
    asked = ["release", "count", "trips.parquet", *ADA, "--epsilon", 0.5, "--dry-run"]
    found = answer(*asked)
    assert found["fits"] is True
    assert found["questions"][0]["sensitivity"] == 2
    assert found["questions"][0]["half_width"] == 12
    assert "Count(epsilon=0.5)" in run(*asked).stdout
    assert spent() == 0
    with tb.Ledger("sqlite:///budget.db") as ledger:
        assert [event.kind for event in ledger.events()] == ["opened"]


def test_a_key_is_charged_once() -> None:
    asked = ["release", "count", "trips.parquet", *ADA, "--epsilon", "0.1", "--key", "A1"]
    assert run(*asked).exit_code == 0
    assert "a hold is started once, and 'A1' is settled" in refusal(*asked, code=5)
    assert spent() == 0.1
    again = asked[:-2]
    assert run(*again).exit_code == run(*again).exit_code == 0
    assert spent() == 0.3


def test_gaussian_noise_is_charged_with_its_delta() -> None:
    found = answer("release", "count", "trips.parquet", *ADA, "--epsilon", 1, "--delta", "1e-6")
    assert found["receipt"]["charged"] == {"amount": 1.0, "delta": 1e-6, "unit": "epsilon"}


# ------------------------------------------------------------------------ refusals

COUNT = ["release", "count", "trips.parquet"]
GROUPS = ["release", "groups", "trips.parquet", *ADA, *EXACT]
PAID = [*COUNT, *EXACT, "--budget", "ada"]
SIGNS = "where must be COLUMN SIGN VALUE with one of the signs == != <= >= < >, got "


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ([*COUNT, *ADA, "--epsilon", 0], "epsilon must be a finite number > 0, got 0"),
        ([*COUNT, *ADA, *EXACT, "--of", "riders"], "of must be one of"),
        ([*PAID, "--unit", "rider"], "rows_per_unit must be given"),
        ([*PAID, "--unit", "nobody"], "unit must be one of the columns"),
        ([*PAID, "--unit", "fare"], "unit must be a column of integers"),
        ([*COUNT, *EXACT, "--budget", "eve"], "budget must be the name of a budget in this ledger"),
        (["release", "count", "no.parquet", *PAID[3:]], "the file 'no.parquet'"),
        (["release", "count", "no.xml", *PAID[3:]], "data must be a path that ends"),
        ([*COUNT, *ADA, *EXACT, "--where", "fare ~ 3"], SIGNS + "'fare ~ 3'"),
        ([*COUNT, *ADA, *EXACT, "--where", "fare = 3"], SIGNS + "'fare = 3'"),
        ([*COUNT, *ADA, *EXACT, "--where", "1 < fare < 3"], "where must name one of the columns"),
        ([*COUNT, *ADA, *EXACT, "--where", "tip > 3"], "where must name one of the columns rider,"),
        (
            [*COUNT, *ADA, *EXACT, "--where", "fare > high"],
            "where 'fare > high' must have a value of type float64",
        ),
        (
            [*COUNT, *ADA, *EXACT, "--where", "fare > nan"],
            "where 'fare > nan' must have a value of type float64",
        ),
        (
            [*COUNT, *ADA, *EXACT, "--where", "paid == yes"],
            "where 'paid == yes' must have a value of type boolean",
        ),
        (
            [*COUNT, *ADA, *EXACT, "--where", "zone < b"],
            "where must compare 'zone' of type string by == or !=, got 'zone < b'",
        ),
        ([*COUNT, *ADA, *EXACT, "--type", "fare"], "type must be COLUMN=TYPE, say fare=float64"),
        (
            ["release", "groups", "trips.parquet", *ADA, *EXACT, "--column", "fare", "--keys", "1"],
            "column must name a column of integers, texts or truth values, got 'fare'",
        ),
        (
            ["release", "groups", "trips.parquet", *ADA, *EXACT, "--column", "tip", "--keys", "1"],
            "column must be one of the columns rider, zone",
        ),
        (
            [*GROUPS, "--keys", "a", "--column", "rider"],
            "key 'a' must have a value of type int64",
        ),
        (
            ["release", "groups", "trips.parquet", *ADA, *EXACT, "--column", "zone",
             "--keys", "a,a"],
            "domains['zone'] must have each key once, got 'a'",
        ),
        (
            ["release", "histogram", "trips.parquet", *ADA, *EXACT, "--column", "fare",
             "--edges", "low,high"],
            "edges must be numbers with commas between them, got 'low,high'",
        ),
        (
            ["release", "quantiles", "trips.parquet", *ADA, *EXACT, "--column", "fare", "--low",
             0, "--high", 64, "--probabilities", "0.5", "--delta", "1e-6"],
            "delta must be 0: quantiles have a price of epsilon alone, got 1e-06",
        ),
        (
            ["release", "sum", "trips.parquet", *ADA, *EXACT, "--column", "fare", "--low", 3,
             "--high", 1],
            "bounds must ascend, got (3, 1)",
        ),
        (
            ["release", "mean", "trips.parquet", *ADA, *EXACT, "--column", "fare", "--low", 0,
             "--high", 9, "--group", "zone"],
            "give one of --keys, --months and --bins: groups have public keys",
        ),
        (
            ["release", "mean", "trips.parquet", *ADA, *EXACT, "--column", "fare", "--low", 0,
             "--high", 9, "--group", "tip", "--keys", "1"],
            "group must be one of the columns rider, zone",
        ),
        (
            ["release", "mean", "trips.parquet", *ADA, *EXACT, "--column", "fare", "--low", 0,
             "--high", 9, "--bins", "0,9"],
            "group must be given with keys: the column that names a group",
        ),
        (
            [*GROUPS, "--column", "at", "--months", "2026-13"],
            "first must be a month, say '2026-01', got '2026-13'",
        ),
        (
            [*GROUPS, "--column", "zone", "--bins", "0,9"],
            "domains['zone_bin'] must be made of a column of numbers, got 'zone of type string'",
        ),
    ],
)  # fmt: skip
def test_a_refusal_charges_nothing(asked: list[Any], said: str) -> None:
    assert said in refusal(*asked)
    assert spent() == 0


def test_an_answer_has_one_form() -> None:
    result = run(*COUNT, *ADA, *EXACT, "--json", "--csv")
    assert result.exit_code == 2
    assert result.stderr == "error: give one of --csv and --json, got both\n"
    assert spent() == 0


def test_what_does_not_fit_is_refused() -> None:
    said = refusal(*COUNT, *ADA, "--epsilon", 2000, code=4)
    assert "requested epsilon 2000.0" in said


@pytest.mark.slow
def test_a_server_names_who_by_the_token() -> None:
    asked = [*COUNT, *ADA, *EXACT, "--ledger", "http://127.0.0.1:1", "--by", "eve"]
    assert "by must be left out: a server writes down the name" in refusal(*asked)
    assert "127.0.0.1:1" in refusal(*asked[:-2], "--token", "t", code=6)


# ------------------------------------------------------------------------ conditions

COLUMNS = {"a": "int64", "b c": "float64", "t": "string", "y": "boolean", "x": "array<int64>"}


class Rows(dict[str, Any]):
    """One row as a rule sees it."""


@given(st.text(max_size=30))
def test_no_text_does_more_than_compare_or_be_refused(text: str) -> None:
    for given_text in (text, f"a {text}", f"a > {text}", f"b c =={text}"):
        try:
            rule = condition(given_text, COLUMNS)
        except tb.ParameterError:
            continue
        name = next(n for n in COLUMNS if given_text.strip().startswith(n))
        assert rule(Rows({n: 3 if n == name else None for n in COLUMNS})) in (True, False)


@given(st.integers(), st.integers(-(2**63), 2**63 - 1), st.sampled_from(["==", "!=", "<", ">="]))
def test_integers_are_compared_exactly(row: int, value: int, sign: str) -> None:
    rule = condition(f"a {sign} {value}", COLUMNS)
    assert rule(Rows(a=row)) is eval(f"{row} {sign} {value}")


def test_a_type_that_cannot_be_typed_in_is_refused() -> None:
    with pytest.raises(tb.ParameterError, match=re.escape("a type that can be typed in, got arr")):
        condition("x == 3", COLUMNS)
    assert condition('t == "a > b"', COLUMNS)(Rows(t="a > b"))
    assert keys_of("'a'", "string", "t") == ["a"]


def quoted(text: str, quote: str) -> str:
    """A text as a person writes it in quotes."""
    return quote + text.replace(quote, quote * 2) + quote


BLANKS = st.sampled_from(["", " ", "  "])
WRITTEN = st.tuples(st.text(max_size=8), st.sampled_from("'\""), BLANKS, BLANKS)


@given(st.lists(WRITTEN, min_size=1, max_size=5))
def test_keys_that_are_written_in_quotes_are_read_back(
    written: list[tuple[str, str, str, str]],
) -> None:
    text = ",".join(before + quoted(key, q) + behind for key, q, before, behind in written)
    assert keys_of(text, "string", "t") == [key for key, *_ in written]


@given(
    st.lists(st.from_regex(r"[^'\",\s]([^,\n]*[^,\s])?", fullmatch=True), min_size=1, max_size=5)
)
def test_plain_keys_are_read_back(keys: list[str]) -> None:
    keys = [key.strip() for key in keys]
    assert keys_of(", ".join(keys), "string", "t") == keys


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers_are_keys(key: int) -> None:
    assert keys_of(f"{key} ,1", "int64", "t") == [key, 1]


@given(st.text(max_size=8), st.sampled_from("'\""), st.text(min_size=1, max_size=8))
def test_nothing_may_follow_a_text_in_quotes(text: str, quote: str, more: str) -> None:
    rule = condition(f"t == {quoted(text, quote)}", COLUMNS)
    assert rule(Rows(t=text)) is True
    if more.strip() and not more.lstrip().startswith(quote):
        with pytest.raises(tb.ParameterError, match="must be one condition: give --where again"):
            condition(f"t == {quoted(text, quote)} {more}{quote}", COLUMNS)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("a,'c,d", "must stand in quotes, say a,'b, c','d''s': got \"a,'c,d\", at \"'c,d\""),
        ("'c'd,a", "keys must have commas between them, and a key with a comma or a quote at its"),
        ("a,,b", "keys must not be empty, got 'a,,b': write '' for an empty text"),
        ("a,", "keys must not be empty, got 'a,'"),
        ("", "keys must not be empty, got ''"),
    ],
)
def test_keys_of_another_form_are_refused(keys: str, said: str) -> None:
    assert said in refusal(*GROUPS, "--column", "zone", "--keys", keys)
    assert spent() == 0


def test_a_key_may_have_a_comma() -> None:
    zones = released("groups", "--column", "zone", "--keys", "a,'c,d',' e','it''s'")
    assert [row[:2] for row in zones["rows"]] == [["a", 3], ["c,d", 0], [" e", 0], ["it's", 0]]


@pytest.mark.parametrize(
    "text",
    [
        "zone == 'a' or 1==1",
        "zone == a or b",
        "zone == a AND paid == true",
        "zone == 'a",
        "zone == 'a'b'",
        "zone == a == b",
    ],
)
def test_two_conditions_in_one_are_refused(text: str) -> None:
    said = refusal(*COUNT, *ADA, *EXACT, "--where", text)
    assert f"where {text!r} must be one condition: give --where again for another one" in said
    assert spent() == 0


def test_integers_beyond_int64_are_compared_or_refused() -> None:
    for value in (2**63, -(2**63) - 1):
        with pytest.raises(tb.ParameterError, match="must have a value of type int64"):
            condition(f"a == {value}", COLUMNS)
    with pytest.raises(tb.ParameterError, match="must have a value of type uint64"):
        condition(f"u == {2**64}", {"u": "uint64"})
    table = tb.Table(pa.table({"u": pa.array([2**63, 2**63 - 1, 5], pa.uint64())}))
    for sign, number in (("==", 1), ("<", 2), (">=", 1)):
        found = table.filter(condition(f"u {sign} {2**63}", table.columns))
        assert found.source.counts(found.contribution(), [None]) == [number]
