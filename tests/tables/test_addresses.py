"""An address in place of a path is answered with the call that is meant, and shows no password."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.numerics.test_credentials import PLACES, SECRET

import tightbudget as tb
from tightbudget.tables.opening import opened

MEANT = {
    "postgresql://h/db": 'give tb.Table(ibis.connect("postgresql://...").table("name")), got',
    "postgres://h/db": 'give tb.Table(ibis.connect("postgres://...").table("name")), got',
    "postgresql+psycopg://h/db": 'give tb.Table(ibis.connect("postgresql://...").table("name"))',
    "SNOWFLAKE://h/db": 'give tb.Table(ibis.connect("snowflake://...").table("name")), got',
    "duckdb:///trips.db": 'give tb.Table(ibis.connect("duckdb://...").table("name")), got',
    "mysql://h/db": 'give its rows as a frame, ibis.connect("mysql://...").table("name").to_pyarro',
    "sqlite:///trips.db": 'its rows as a frame, ibis.connect("sqlite://...").table("name").to_pyar',
    "s3://bucket/trips.parquet": "give a path of this machine, or a frame, say pandas.read_parq",
    "https://h/trips.csv": "give a path of this machine, or a frame, say pandas.read_parq",
    "file:///trips.parquet": "give its path, without file://, got 'file:///trips.parquet'",
}


@pytest.mark.parametrize("address", MEANT)
def test_an_address_is_answered_with_the_call_that_is_meant(address: str) -> None:
    for given in (address, Path(address)):
        with pytest.raises(tb.ParameterError) as caught:
            tb.Table(given)
        message = str(caught.value)
        assert message.startswith("data must be a path, a frame or an Ibis table: give ")
        if given is address:
            assert MEANT[address] in message


@pytest.mark.one_in(6)
@pytest.mark.parametrize("text", PLACES)
def test_no_message_of_a_table_shows_a_secret(text: str, tmp_path: Path) -> None:
    there = tmp_path / "there.csv"
    there.write_text("a\n1\n")
    table = tb.Table(there)
    deeds: list[Any] = [
        *(lambda end=end: opened(text + end, {}) for end in ("", ".parquet", ".csv")),
        lambda: opened(Path(text), {}),
        lambda: table.join(text, on="a"),
        lambda: table.filter(text),
        lambda: tb.Table(there, unit=text, rows_per_unit=1),
        lambda: tb.Table(there, domains={"a": [text, 1]}),
        lambda: tb.Table(there, types={"a": text}),
        lambda: tb.Session(text, tb.OutputDPFilter(1)),  # type: ignore[arg-type]
        lambda: tb.Session(table, text),
        lambda: tb.Session(table, tb.OutputDPFilter(1), name=text * 10),
        lambda: tb.Session(table, tb.OutputDPFilter(1)).ask(text),  # type: ignore[arg-type]
        lambda: tb.Session(table, tb.OutputDPFilter(1)).ask(tb.Count(epsilon=0.1, where=text)),
    ]
    for number, deed in enumerate(deeds):
        with pytest.raises(tb.TightBudgetError) as caught:
            deed()
        assert SECRET not in str(caught.value), number


@pytest.mark.parametrize("header", [b"\n", b"\xff\n"])
def test_a_file_s_name_is_shown_without_a_secret(header: bytes, tmp_path: Path) -> None:
    file = tmp_path / "password=hunter2.csv"
    file.write_bytes(header)
    with pytest.raises(tb.ParameterError, match=r"in '.*password=\*\*\*'$"):
        tb.Table(file)


def test_a_path_with_a_colon_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a:").mkdir()
    (tmp_path / "a:" / "there.csv").write_text("a\n1\n")
    monkeypatch.chdir(tmp_path)
    assert dict(tb.Table("a:/there.csv").columns) == {"a": "string"}
