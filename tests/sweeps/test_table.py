"""A table has a row for each question, and the same numbers in every format."""

from __future__ import annotations

import csv
import gzip
import importlib
import math
from pathlib import Path

import pytest
from tests.sweeps.small import GRID, PLAN, QUESTIONS

import tightbudget as tb

ASKED = [*QUESTIONS, tb.sweeps.Question.of(tb.Gaussian(2.0), delta=1e-5, labels={"name": "a, b"})]
WHOLE = tb.sweep(ASKED)
COLUMNS = ("sigma", "runs", "delta", "epsilon", "plan", "name")
ANSWER = ("asked", "value", "lower", "upper", "refusal", "apart")


def test_columns_are_all_labels_then_the_answer() -> None:
    assert WHOLE.columns == (*COLUMNS, *ANSWER)
    assert tb.sweep(tb.sweeps.questions(PLAN, GRID, delta="$delta")).columns == (*GRID, *ANSWER)


def test_rows_are_the_questions_in_their_order() -> None:
    assert len(WHOLE) == len(WHOLE.rows()) == len(ASKED)
    for row, question, answer in zip(WHOLE.rows(), ASKED, WHOLE, strict=True):
        assert tuple(row) == WHOLE.columns
        assert {k: v for k, v in row.items() if k in COLUMNS and v is not None} == dict(
            question.labels
        )
        assert row["asked"] == question.asked
        assert (
            tb.sweeps.Answer(*(row[name] for name in ("lower", "upper", "value", "refusal")))
            == answer
        )
    assert [WHOLE[i] for i in range(len(WHOLE))] == list(WHOLE)
    assert all((WHOLE[i].refusal is not None) == (i in WHOLE.refused) for i in range(len(WHOLE)))


def same_rows(found: list[dict[str, object]]) -> bool:
    """To the bit, where what is not there may be None or NaN."""

    def plain(value: object) -> object:
        missing = value is None or (isinstance(value, float) and math.isnan(value))
        return None if missing else float(value) if isinstance(value, int) else value

    ours = [{k: plain(v) for k, v in row.items()} for row in WHOLE.rows()]
    return ours == [{k: plain(v) for k, v in row.items()} for row in found]


def test_polars_has_every_row() -> None:
    polars = pytest.importorskip("polars")
    frame = WHOLE.to_polars()
    types = dict(zip(frame.columns, frame.dtypes, strict=True))
    assert {types[name] for name in ("value", "lower", "upper")} == {polars.Float64}
    assert {types[name] for name in ("asked", "refusal")} == {polars.String}
    # a refused row has a label that is no number
    assert same_rows(frame.rows(named=True))


def test_pandas_has_every_row() -> None:
    pytest.importorskip("pandas")
    frame = WHOLE.to_pandas()
    assert tuple(frame.columns) == WHOLE.columns
    assert same_rows(frame.to_dict(orient="records"))


def test_the_worst_of_a_table_with_a_refusal_is_infinite() -> None:
    """A maximum over a column never skips a refused row."""
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    assert WHOLE.to_pandas()["upper"].max() == math.inf
    assert WHOLE.to_polars()["upper"].max() == math.inf


def test_a_parquet_file_has_every_row(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    WHOLE.write(tmp_path / "a.parquet")
    assert same_rows(polars.read_parquet(tmp_path / "a.parquet").rows(named=True))


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_csv_file_has_every_digit(name: str, tmp_path: Path) -> None:
    WHOLE.write(tmp_path / name)
    raw = (tmp_path / name).read_bytes()
    text = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode()
    rows = list(csv.DictReader(text.splitlines()))
    for row, answer in zip(rows, WHOLE, strict=True):
        assert (float(row["lower"]), float(row["upper"])) == (answer.lower, answer.upper)
        assert row["value"] == ("" if answer.value is None else repr(answer.value))
        assert row["refusal"] == (answer.refusal or "")
    assert rows[-1]["name"] == "a, b"
    assert list(rows[0]) == list(WHOLE.columns)


def test_no_rows_make_a_table_too(tmp_path: Path) -> None:
    empty = tb.sweep([])
    empty.write(tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == ",".join(ANSWER) + "\n"
    assert empty.rows() == []


@pytest.mark.parametrize("name", ["a.xlsx", "a", "a.gz", "a.parquet.gz"])
def test_another_ending_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        tb.errors.FileError, match=rf"{name}: the name must end in .csv, .csv.gz, .parq"
    ):
        WHOLE.write(tmp_path / name)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_place_where_nothing_can_be_written_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(tb.errors.FileError, match=f"none/{name}: no such file or directory"):
        WHOLE.write(tmp_path / "none" / name)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (tb.sweeps.Sweep.to_polars, r"needs polars: pip install 'tightbudget\[sweep\]'"),
        (tb.sweeps.Sweep.to_pandas, r"needs pandas: pip install 'pandas'"),
        (lambda table: table.write("a.parquet"), r"polars: pip install 'tightbudget\[sweep\]'"),
    ],
)
def test_what_is_not_installed_is_named(call, message, monkeypatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(tb.errors.ExtraError, match=message):
        call(WHOLE)
