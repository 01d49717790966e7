"""``tightbudget token``: shown once, listed without secrets, revoked by its id."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.cli.terminal import refusal, run

import tightbudget as tb
from tightbudget.ledger.tokens import Tokens


@pytest.fixture
def url(tmp_path: Path) -> str:
    found = f"sqlite:///{tmp_path}/budget.db"
    with tb.Ledger(found) as ledger:
        ledger.open_budget("ada", epsilon=1)
        ledger.open_budget("bob", epsilon=1)
    return found


def told(*words: object) -> dict[str, Any]:
    result = run("token", *words, "--json")
    assert result.exit_code == 0, result.stderr
    return dict(json.loads(result.stdout))


def create(url: str, *words: str) -> list[str]:
    return ["create", "--ledger", url, "--name", "n", *words]


def test_a_token_is_shown_once_and_opens_the_ledger(url: str) -> None:
    words = ("--role", "analyst", "--budget", "ada", "--budget", "bob", "--expires", "12h")
    made = told(*create(url, *words))
    text = made.pop("token")
    with tb.Ledger(url) as ledger:
        token = Tokens(ledger).borne_by(text)
    assert token is not None
    assert made == {
        "id": token.id, "name": "n", "role": "analyst", "budgets": ["ada", "bob"],
        "created": token.created.isoformat(), "expires": token.expires.isoformat(), "revoked": None,
    }  # fmt: skip
    assert told("list", "--ledger", url) == {"tokens": [made]}


@pytest.mark.parametrize(
    ("words", "lasts"),
    [([], timedelta(days=30)), (["--expires", "90m"], timedelta(minutes=90)),
     (["--expires", "1d"], timedelta(days=1))],
)  # fmt: skip
def test_it_lasts_as_long_as_was_said(url: str, words: list[str], lasts: timedelta) -> None:
    made = told(*create(url, "--role", "viewer", *words))
    created, expires = (datetime.fromisoformat(made[name]) for name in ("created", "expires"))
    assert expires - created == lasts


def test_people_read_rows(url: str) -> None:
    shown = run("token", *create(url, "--role", "analyst", "--budget", "ada")).stdout
    rows = dict(line.split(maxsplit=1) for line in shown.splitlines())
    assert list(rows) == ["id", "name", "role", "budgets", "expires", "token"]
    assert rows["token"].startswith(f"tb_{rows['id']}_")
    secret = rows["token"].rpartition("_")[2]
    listed = run("token", "list", "--ledger", url).stdout
    header, line = listed.splitlines()
    assert header.split() == ["id", "role", "budgets", "expires", "revoked", "name"]
    assert line.split() == [rows["id"], "analyst", "ada", rows["expires"], "n"]
    ended = run("token", "revoke", rows["id"], "--ledger", url).stdout
    assert ended.splitlines()[-1].startswith("revoked")
    assert secret not in listed + ended
    with tb.Ledger(url) as ledger:
        assert Tokens(ledger).borne_by(rows["token"]) is None


def test_revoking_again_changes_nothing(url: str) -> None:
    made = told(*create(url, "--role", "administrator"))
    ended = told("revoke", made["id"], "--ledger", url)
    assert ended["revoked"] is not None
    assert told("revoke", made["id"], "--ledger", url) == ended
    assert told("list", "--ledger", url) == {"tokens": [ended]}


@pytest.mark.parametrize("expires", ["", "30", "d", "-1d", "1.5d", "1y", "1234567d", "٣d"])
def test_a_time_that_is_none_is_refused(url: str, expires: str) -> None:
    found = refusal("token", *create(url, "--role", "viewer", "--expires", expires))
    assert found.startswith("expires must be a number with m, h or d, such as 30d, got")


def test_refusals_name_what_is_refused(url: str, tmp_path: Path) -> None:
    for words, message in (
        (["--role", "root"], "role must be one of viewer, analyst, administrator, got 'root'"),
        (["--role", "analyst"], "budgets must be named for an analyst"),
        (["--role", "viewer", "--budget", "ada"], "budgets must be named for an analyst"),
        (["--role", "analyst", "--budget", "zoe"], "budget must be the name of a budget"),
        (["--role", "viewer", "--expires", "0d"], "expires must be in more than no time"),
        (["--role", "viewer", "--expires", "9999d"], "at most ten years"),
    ):
        assert message in refusal("token", *create(url, *words))
    assert "id must be that of a token" in refusal("token", "revoke", "0", "--ledger", url)
    nowhere = f"sqlite:///{tmp_path}/none.db"
    for command in (["list"], ["revoke", "0"]):
        assert "there is no ledger" in refusal("token", *command, "--ledger", nowhere, code=6)
    refused = run("token", "revoke", "0", "--ledger", url, "--json")
    assert json.loads(refused.stdout)["error"]["type"] == "ParameterError"
