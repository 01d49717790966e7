"""A table has a row for each question, and the same numbers in every format."""

from __future__ import annotations

import csv
import functools
import gzip
import importlib
import math
from pathlib import Path

import pytest
from tests.sweeps.small import GRID, PLAN, QUESTIONS

import tightbudget as tb

ASKED = [*QUESTIONS, tb.sweeps.Question.of(tb.Gaussian(2.0), delta=1e-5, labels={"name": "a, b"})]
COLUMNS = ("sigma", "runs", "delta", "epsilon", "plan", "name")
ANSWER = ("asked", "value", "lower", "upper", "refusal", "apart")


@functools.cache
def whole() -> tb.sweeps.Sweep:
    return tb.sweep(ASKED)


@pytest.mark.slow
def test_columns_are_all_labels_then_the_answer() -> None:
    assert whole().columns == (*COLUMNS, *ANSWER)
    assert tb.sweep(tb.sweeps.questions(PLAN, GRID, delta="$delta")).columns == (*GRID, *ANSWER)


def test_rows_are_the_questions_in_their_order() -> None:
    assert len(whole()) == len(whole().rows()) == len(ASKED)
    for row, question, answer in zip(whole().rows(), ASKED, whole(), strict=True):
        assert tuple(row) == whole().columns
        assert {k: v for k, v in row.items() if k in COLUMNS and v is not None} == dict(
            question.labels
        )
        assert row["asked"] == question.asked
        assert (
            tb.sweeps.Answer(*(row[name] for name in ("lower", "upper", "value", "refusal")))
            == answer
        )
    assert [whole()[i] for i in range(len(whole()))] == list(whole())
    assert all(
        (whole()[i].refusal is not None) == (i in whole().refused) for i in range(len(whole()))
    )


def same_rows(found: list[dict[str, object]]) -> bool:
    """To the bit, where what is not there may be None or NaN."""

    def plain(value: object) -> object:
        missing = value is None or (isinstance(value, float) and math.isnan(value))
        return None if missing else float(value) if isinstance(value, int) else value

    ours = [{k: plain(v) for k, v in row.items()} for row in whole().rows()]
    return ours == [{k: plain(v) for k, v in row.items()} for row in found]


def test_polars_has_every_row() -> None:
    polars = pytest.importorskip("polars")
    frame = whole().to_polars()
    types = dict(zip(frame.columns, frame.dtypes, strict=True))
    assert {types[name] for name in ("value", "lower", "upper")} == {polars.Float64}
    assert {types[name] for name in ("asked", "refusal")} == {polars.String}
    # a refused row has a label that is no number
    assert same_rows(frame.rows(named=True))


def test_pandas_has_every_row() -> None:
    pytest.importorskip("pandas")
    frame = whole().to_pandas()
    assert tuple(frame.columns) == whole().columns
    assert same_rows(frame.to_dict(orient="records"))


def test_the_worst_of_a_table_with_a_refusal_is_infinite() -> None:
    """A maximum over a column never skips a refused row."""
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    assert whole().to_pandas()["upper"].max() == math.inf
    assert whole().to_polars()["upper"].max() == math.inf


def test_a_parquet_file_has_every_row(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    whole().write(tmp_path / "a.parquet")
    assert same_rows(polars.read_parquet(tmp_path / "a.parquet").rows(named=True))


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_csv_file_has_every_digit(name: str, tmp_path: Path) -> None:
    whole().write(tmp_path / name)
    raw = (tmp_path / name).read_bytes()
    text = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode()
    rows = list(csv.DictReader(text.splitlines()))
    for row, answer in zip(rows, whole(), strict=True):
        assert (float(row["lower"]), float(row["upper"])) == (answer.lower, answer.upper)
        assert row["value"] == ("" if answer.value is None else repr(answer.value))
        assert row["refusal"] == (answer.refusal or "")
    assert rows[-1]["name"] == "a, b"
    assert list(rows[0]) == list(whole().columns)


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
        whole().write(tmp_path / name)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_place_where_nothing_can_be_written_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(tb.errors.FileError, match=f"none/{name}: no such file or directory"):
        whole().write(tmp_path / "none" / name)


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
        call(whole())
