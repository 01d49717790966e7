"""Messages show no password and no token, wherever in an address or a setting it stands."""

from __future__ import annotations

import time
from pathlib import PurePosixPath

import pytest
from tests.guards.mutants import Without, each, lose_a_truth

from tightbudget.credentials import hidden
from tightbudget.numerics.validate import refuse

SECRET = "hunter2"
# A secret in each place of an address or of a setting, and what is shown of the whole.
PLACES = {
    "postgresql://ada:hunter2@h/db": "postgresql://***@h/db",
    "postgresql+psycopg://ada:hunter2@h:5432/db": "postgresql+psycopg://***@h:5432/db",
    "postgresql://ada:a@b/c?hunter2@h/db": "postgresql://***@h/db",
    "postgresql:/ada:hunter2@h/db": "postgresql:/***@h/db",
    "https://hunter2@h/rows.csv": "https://***@h/rows.csv",
    "postgresql://h/db?user=ada&password=hunter2": "postgresql://h/db?***",
    "postgresql://ada:hunter2@h/db?sslpassword=hunter2": "postgresql://***@h/db?***",
    "https://h/rows.parquet?sig=hunter2": "https://h/rows.parquet?***",
    "https://h/rows.parquet#hunter2": "https://h/rows.parquet#***",
    "jdbc:sqlserver://h;user=ada;pwd=hunter2": "jdbc:sqlserver://h;***",
    "host=h password=hunter2 dbname=d": "host=h password=***",
    "host=h password = 'a hunter2' dbname=d": "host=h password =***",
    "Server=h;PWD=hunter2": "Server=h;PWD=***",
    "{'host': 'h', 'password': 'hunter2'}": "{'host': 'h', 'password':***",
    "s3 api_key=hunter2": "s3 api_key=***",
}


@pytest.mark.parametrize("text", PLACES)
def test_a_secret_is_hidden_wherever_it_stands(text: str) -> None:
    assert hidden(text) == PLACES[text]
    for value in (text, PurePosixPath(text), {"url": text}, [text, "more"], text.encode()):
        assert SECRET not in str(refuse("x", "be good", value))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "'",
        "trips.parquet",
        "0.5",
        "a@b.org",
        "/data/a@b.csv",
        "sqlite:///budget.db",
        "passes=20",
    ],
)
def test_a_text_without_a_secret_is_shown(text: str) -> None:
    assert hidden(text) == text
    assert str(refuse("x", "be good", text)) == f"x must be good, got {text!r}"


def test_a_long_text_takes_no_long_time() -> None:
    start = time.process_time()
    for part in (":/", "@:/", "password", "?", "password ="):
        assert hidden(part * 100_000)
    assert time.process_time() - start < 0.5


MUTATIONS = [
    Without(
        "a refusal hides what may be a password",
        {"credentials-hidden": "shown = repr(value)"},
        lambda: SECRET not in str(refuse("x", "be good", f"postgresql://ada:{SECRET}@h/db")),
    ),
]


@each(MUTATIONS)
def test_a_guard_that_is_gone_is_missed(mutation: Without, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_a_truth(monkeypatch, mutation)
