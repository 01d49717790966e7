"""``tightbudget ledger``: what every act answers, for programs and for people."""

from __future__ import annotations

import contextlib
import getpass
import json
import math
import re
import sqlite3
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.terminal import refusal, run

import tightbudget as tb
from tightbudget import errors
from tightbudget.cli.ledger import commands
from tightbudget.cli.ledger.holds import cell_of
from tightbudget.cli.ledger.show import _bar, _tree
from tightbudget.cli.output import print_json
from tightbudget.cli.refusals import exit_code
from tightbudget.promises.values import Statement

SEARCH = tb.OutputDP({"found": 0.3, "not found": 0.1, 3: 0.05, ("found", 3): 0.2}, 1e-9)
NOTHING = {"amount": 0.0, "delta": 0.0, "unit": "epsilon"}


@pytest.fixture(autouse=True)
def _census(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger with a budget and a part of it, and a guarantee in a file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIGHTBUDGET_LEDGER", "sqlite:///budget.db")
    with tb.Ledger("sqlite:///budget.db") as ledger:
        ledger.open_budget("census", epsilon=10, delta=1e-6)
        ledger.open_budget("ada", parent="census", epsilon=1, delta=1e-7)
    Path("search.json").write_text(SEARCH.to_json())


def said(*args: object) -> dict[str, Any]:
    """The one object that ``--json`` prints."""
    result = run("ledger", *args, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.count("\n") == 1
    return dict(json.loads(result.stdout))


def shown(*args: object) -> list[list[str]]:
    """What people read, in words; nothing is wrapped or padded at the end of a line."""
    result = run("ledger", *args)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines == [line.rstrip() for line in lines]
    return [line.split() for line in lines]


def amount(epsilon: float, delta: float = 0.0) -> dict[str, Any]:
    return {"amount": epsilon, "delta": delta, "unit": "epsilon"}


RESERVE = ["reserve", "--budget", "ada", "--key", "A1", "--guarantee", "search.json"]
RESERVED = {
    "key": "A1",
    "state": "reserved",
    "charges": {"ada": amount(0.3, 1e-9)},
    "cell": None,
    "told": None,
    "token": None,
    "interactive": False,
    "question": None,
    "guarantee": {
        "tightbudget": 1,
        "output_dp": {
            "cells": [["found", "3/10"], ["not found", "1/10"], [3, "1/20"], [["found", 3], "1/5"]],
            "delta": "1/1000000000",
            "sup": "3/10",
        },
    },
}


# ------------------------------------------------------------------------- the protocol


def test_a_run_in_three_steps_and_each_of_them_twice() -> None:
    assert said(*RESERVE) == said(*RESERVE) == RESERVED
    started = said("start", "A1")
    assert started == RESERVED | {"state": "started", "token": started["token"]}
    settle = ["settle", "A1", "not found", "--token", started["token"]]
    assert (
        said(*settle)
        == said(*settle)
        == started
        | {
            "state": "settled",
            "cell": "not found",
            "charges": {"ada": amount(0.1, 1e-9)},
        }
    )
    assert said("show", "ada")["budgets"] == [
        {
            "name": "ada",
            "kind": "output_dp",
            "parent": "census",
            "closed": False,
            "cap": amount(1.0, 1e-7),
            "spent": amount(0.1, 1e-9),
            "held": NOTHING,
            "left": amount(0.9, 9.9e-8),
            "saved": amount(0.2),
            "spent_in_parts": NOTHING,
        }
    ]


def test_other_ends() -> None:
    said(*RESERVE)
    assert said("void", "A1") == RESERVED | {"state": "void", "charges": {"ada": NOTHING}}
    said("reserve", "--budget", "ada", "--key", "A2", "--epsilon", "0.25")
    said("start", "A2")
    forfeited = said("forfeit", "A2", "--by", "grace", "--reason", "gone")
    assert (forfeited["state"], forfeited["charges"]) == ("forfeited", {"ada": amount(0.25)})
    said("reserve", "--budget", "ada", "--key", "A3", "--epsilon", "0.25")
    expired = said("expire", "A3", "--by", "grace", "--reason", "left")
    assert (expired["state"], expired["charges"]) == ("void", {"ada": NOTHING})
    details = {e["kind"]: e["details"] for e in said("history", "--budget", "ada")["events"]}
    assert details["forfeited"] == {"by": "grace", "reason": "gone"}
    assert details["expired"] == {"by": "grace", "reason": "left"}


def test_several_budgets_pay_at_once() -> None:
    run("ledger", "open", "hospital", "--epsilon", 2, "--delta", 0)
    both = ["reserve", "--budget", "ada", "--budget", "hospital", "--key", "A1", "--epsilon"]
    assert said(*both, "0.5")["charges"] == {"ada": amount(0.5), "hospital": amount(0.5)}
    rows = shown("show")
    assert [
        "A1",
        "reserved",
        getpass.getuser(),
        *["epsilon", "0.5", "of", "ada,", "epsilon", "0.5", "of", "hospital"],
    ] in rows


BLOCKS: list[object] = [
    "blocks", "clicks", "--dimension", "day", "--dimension", "region", "--epsilon", "1/3",
    "--rows-in", 30, "--cap-epsilon", 2, "--quota-epsilon", "1.5", "--unlocking", 2,
]  # fmt: skip
RANGE = ["--blocks", "clicks", "--where", "day=2020-01-01..2020-01-06", "--where", "region=eu,us"]


def test_blocks_are_declared_once_and_a_range_pays() -> None:
    terms = said(*BLOCKS)
    assert said(*BLOCKS) == said("blocks", "clicks") == terms
    assert (terms["by"], terms["rows_in"], terms["unlocking"]) == (["day", "region"], 30, 2)
    assert (terms["block"], terms["cap"]) == (amount(0.333333333333), amount(2))
    assert (terms["quota"], terms["person"]) == (amount(1.5), amount(2))
    assert ["a", "person", "loses", "epsilon", "2.0,", "delta", "0.0", "at", "most"] in shown(
        "blocks", "clicks"
    )
    more = ["--epsilon", "0.25", "--by", "ann", "--budget", "census"]
    held = said("reserve", *RANGE, "--key", "A1", *more)
    assert len(held["charges"]) == 12 + 3
    assert held["charges"]["clicks[analyst ann]"] == held["charges"]["census"] == amount(0.25)
    rows = shown("reserve", *RANGE, "--key", "A1", *more)
    assert rows[2:4] == [
        ["holds", "epsilon", "0.25", "of", "census"],
        ["epsilon", "0.25", "of", "clicks"],
    ]
    assert rows[-1] == ["and", "5", "more"]
    ran = run(
        "ledger", "run", *RANGE, "--where", "region=asia", "--key", "A2", "--epsilon", "0.05",
        "--", sys.executable, "-c", "print(3)",
    )  # fmt: skip
    assert (ran.exit_code, ran.stdout) == (0, "3\n")
    assert ran.stderr.startswith("settled with cell 'ran': epsilon 0.05 of clicks, ")
    assert ran.stderr.endswith(", and 10 more\n")
    found = said("show", "clicks")
    assert len(found["budgets"]) == 1 + 18 + 2
    assert [hold["key"] for hold in found["reservations"]] == ["A1"]
    (block,) = said("show", "clicks[day=2020-01-01, region=eu]")["budgets"]
    assert (block["held"], block["spent"]) == (amount(0.25), amount(0.05))
    message = refusal("ledger", "reserve", *RANGE, "--key", "A3", "--epsilon", "0.1", code=4)
    assert message.startswith("requested epsilon 0.1, delta 0.0 of 'clicks[day=2020-01-01, region")
    assert "12 of 14 budgets have too little left" in message


@pytest.mark.parametrize(
    ("kind", "cap", "asked", "charged"),
    [
        (["zcdp", "--rho", "0.5"], 0.5, ["--amount", "0.02"], 0.02),
        (["renyi", "--order", "16", "--epsilon", "0.4"], 0.4, ["--amount", "0.1"], 0.1),
        (["gaussian_dp", "--mu", "0.5"], 0.25, ["--amount", "0.1"], 0.01),
        (["plan", "--plan", "plan.toml", "--delta", "0"], 0.5, ["--plan", "plan.toml"], 0.0),
    ],
)
def test_other_kinds_of_budgets(
    kind: list[str], cap: float, asked: list[str], charged: float
) -> None:
    tb.write_plan(tb.Laplace(scale=4.0) * 2, "plan.toml")
    budget = said("open", "b", "--kind", *kind)
    assert budget["cap"]["amount"] == pytest.approx(cap, rel=1e-3)
    hold = said("reserve", "--budget", "b", "--key", "K", *asked)
    assert hold["charges"]["b"]["amount"] == charged


def test_numbers_are_what_is_written_also_where_no_double_is() -> None:
    hold = said("reserve", "--budget", "ada", "--key", "A1", "--epsilon", "0.30000000000000000001")
    assert hold["guarantee"]["output_dp"]["sup"] == str(
        Decimal("0.30000000000000000001").as_integer_ratio()
    ).strip("()").replace(", ", "/")
    assert hold["charges"]["ada"]["amount"] == 0.300000000001


# ------------------------------------------------------------------------ administration


def test_a_ledger_is_made_once_and_budgets_open_once() -> None:
    before = said("export-head")
    assert said("init")["head"] == before["head"]
    opened = said("open", "ada", "--parent", "census", "--epsilon", 1, "--delta", "1e-7")
    assert opened["left"] == amount(1.0, 1e-7)
    assert said("export-head") == before
    made = said("init", "--ledger", "sqlite:///new.db")
    assert made["ledger"].endswith("/new.db")
    assert made["head"] == "tightbudget-ledger:1:0:" + "0" * 64


def test_caps_corrections_and_the_end_of_a_budget() -> None:
    who = ["--by", "grace", "--reason", "second wave"]
    raised = said("raise-cap", "ada", "--epsilon", "1.5", "--delta", "1e-7", *who)
    assert raised["cap"] == amount(1.5, 1e-7)
    corrected = said("correct", "ada", "--epsilon", "0.25", *who)
    assert corrected["spent"] == amount(0.25)
    closed = said("close", "ada")
    assert (closed["closed"], closed["left"]) == (True, NOTHING)
    assert said("show", "census")["budgets"][0]["spent"] == amount(0.25, 1e-7)
    assert ["state", "closed"] in shown("close", "ada")
    assert any("(closed)" in row for row in shown("show"))


def test_the_history_is_that_of_python_and_has_pages() -> None:
    said(*RESERVE)
    said("start", "A1")
    with tb.Ledger("sqlite:///budget.db") as ledger:
        events = [vars(event) for event in ledger.events()]
    assert said("history") == {"events": events}
    assert said("history", "--after", 1, "--limit", 2) == {"events": events[1:3]}
    assert said("history", "--key", "A1") == {"events": [e for e in events if e["key"] == "A1"]}
    rows = shown("history", "--key", "A1")
    assert rows[0] == ["number", "at", "what", "key", "budget", "epsilon", "delta", "cell", "by"]
    me = getpass.getuser()
    assert [row[2:] for row in rows[1:]] == [
        ["reserved", "A1", "ada", "0.3", "1e-09", me],
        ["started", "A1", "ada", "0.0", "0.0", me],
    ]


def test_a_head_is_kept_and_compared() -> None:
    kept = run("ledger", "export-head").stdout
    Path("head.txt").write_text(kept)
    said(*RESERVE)
    now = said("export-head")
    assert re.fullmatch(rf"tightbudget-ledger:1:{now['sequence']}:{now['hash']}", now["head"])
    assert said("import-check", "head.txt") == {"kept": kept.strip(), "head": now["head"]}
    Path("head.txt").write_text(now["head"])
    run("ledger", "init", "--ledger", "sqlite:///other.db")
    message = refusal(
        "ledger", "import-check", "head.txt", "--ledger", "sqlite:///other.db", code=7
    )
    assert message.startswith("4 events are missing: this is an earlier state")


def test_a_restored_backup_and_a_used_copy_are_told() -> None:
    with contextlib.closing(sqlite3.connect("budget.db")) as connection:
        connection.execute("VACUUM INTO 'backup.db'")  # as the page for operators says
    said(*RESERVE)
    Path("head.txt").write_text(run("ledger", "export-head").stdout)
    check = ["ledger", "import-check", "head.txt", "--ledger", "sqlite:///backup.db"]
    assert refusal(*check, code=7).startswith("1 event is missing: this is an earlier state")
    assert said("verify", "--ledger", "sqlite:///backup.db")["events"] == 3
    run("ledger", *RESERVE[:-2], "--epsilon", 1, "--ledger", "sqlite:///backup.db")
    assert "are copies of which both were used" in refusal(*check, code=7)


def test_verify_says_what_it_has_seen() -> None:
    said(*RESERVE)
    found = said("verify")
    assert found.pop("seconds") >= 0
    assert found == {
        "events": 4, "budgets": 2, "reservations": 1, "tokens": 0,
        "head": said("export-head")["head"],
    }  # fmt: skip
    assert shown("verify")[:3] == [["events", "4"], ["budgets", "2"], ["reservations", "1"]]


def test_verify_goes_on_from_its_state() -> None:
    said(*RESERVE)
    first = said("verify", "--state", "state.json")
    run("ledger", "void", "A1")
    whole, resumed = said("verify"), said("verify", "--state", "state.json")
    assert first["events"] == 4
    assert whole["events"] == resumed["events"] == 5
    assert {**whole, "seconds": 0} == {**resumed, "seconds": 0}
    assert not Path("state.json.new").exists()
    run("ledger", "init", "--ledger", "sqlite:///other.db")
    other = ["ledger", "verify", "--state", "state.json", "--ledger", "sqlite:///other.db"]
    assert refusal(*other, code=7).startswith("5 events are missing: this is an earlier state")


def test_verify_refuses_a_state_that_is_none() -> None:
    Path("state.json").write_text("{}")
    message = refusal("ledger", "verify", "--state", "state.json")
    assert message.startswith("state.json: a checkpoint must be the whole text that a verification")
    assert refusal("ledger", "verify", "--state", ".").startswith(".: ")
    assert refusal("ledger", "verify", "--state", "nowhere/state.json").startswith("nowhere/state")


def test_a_copy_is_a_move() -> None:
    said(*RESERVE)
    before = said("show")
    found = said("copy", "sqlite:///budget.db", "sqlite:///new.db")
    assert (found["events"], found["reservations"]) == (6, 1)
    after = said("show", "--ledger", "sqlite:///new.db")
    assert [after[name] for name in ("budgets", "reservations")] == [
        before[name] for name in ("budgets", "reservations")
    ]
    message = refusal("ledger", *RESERVE[:-4], "--key", "A2", "--epsilon", 1, code=6)
    assert re.fullmatch(
        r"this ledger was moved to sqlite:////.*/new\.db, and can only be read", message
    )
    again = said("copy", "sqlite:///budget.db", "sqlite:///new.db")
    assert again["head"] == found["head"]


# ----------------------------------------------------------------------------- refusals


REFUSED: dict[str, tuple[list[object], int, str]] = {
    "no ledger": (["show", "--ledger", "sqlite:///none.db"], 6, r"there is no ledger none\.db"),
    "no such database": (["show", "--ledger", "mysql://x"], 2, "url must be one of sqlite or pos"),
    "no URL": (["init", "--ledger", "budget.db"], 2, "url must be a database URL such as sqlite:"),
    "no budget": (["show", "bob"], 2, "budget must be the name of a budget .*, got 'bob'"),
    "no key": (["start", "A9"], 5, "there is no reservation 'A9'"),
    "too much": (
        [*RESERVE[:-2], "--epsilon", "1.5"],
        4,
        "requested epsilon 1.5, delta 0.0 of 'ada'; left epsilon 1.0",
    ),
    "another budget of the name": (
        ["open", "ada", "--epsilon", 3, "--delta", 0],
        5,
        "there is a budget 'ada' already, on other terms",
    ),
    "a whole too small": (
        ["open", "bob", "--parent", "census", "--epsilon", 9.5, "--delta", 0],
        4,
        r"requested epsilon 9\.5, delta 0\.0 of 'census' for 'bob'",
    ),
    "a parameter of another kind": (
        ["open", "bob", "--epsilon", 1, "--delta", 0, "--rho", 1],
        2,
        "a budget of kind output_dp has no rho",
    ),
    "a missing parameter": (["open", "bob"], 2, "a budget of kind output_dp needs epsilon"),
    "no kind": (["open", "bob", "--kind", "dp"], 2, "kind must be one of output_dp, .*'dp'"),
    "nan": (
        ["open", "bob", "--epsilon", "nan", "--delta", 0],
        2,
        "epsilon must be a finite number >= 0, got nan",
    ),
    "below what is held": (
        ["raise-cap", "census", "--epsilon", "0.5", "--delta", "1e-6",
         "--by", "grace", "--reason", "thrift"],
        4,
        "the cap of 'census' cannot be epsilon 0.5, delta 1e-06: spent and held are",
    ),
    "no reason": (["raise-cap", "ada", "--epsilon", 2, "--by", "grace"], 2, "Missing.*--reason"),
    "no guarantee": ([*RESERVE[:-2]], 2, "give one of --guarantee, --epsilon, .*, got none"),
    "no payer": (["reserve", "--key", "A1", "--epsilon", 1], 2, "give --budget or --blocks, got n"),
    "a range of nothing": (
        [*RESERVE, "--where", "day=2026"], 2, "--where belongs to --blocks, got it without"
    ),
    "no dimension": (
        ["reserve", "--key", "A1", "--epsilon", 1, "--blocks", "ada", "--where", "2026"],
        2,
        "name must be the name of a set of blocks, got 'ada'",
    ),
    "a dimension alone": (
        ["blocks", "clicks", "--dimension", "day"],
        2,
        "give --dimension and --epsilon both, or neither for a known set",
    ),
    "a term without the others": (
        ["blocks", "clicks", "--cap-epsilon", 2],
        2,
        "terms of a set must be given with by and epsilon, or none",
    ),
    "two guarantees": (
        [*RESERVE, "--epsilon", 1],
        2,
        "give one of .*, got --guarantee and --epsilon",
    ),
    "a delta alone": (
        [*RESERVE, "--delta", 1],
        2,
        "--delta belongs to --epsilon, got it beside --guarantee",
    ),
    "no such file": ([*RESERVE[:-1], "none.json"], 2, "none.json: no such file or directory"),
    "no guarantee in it": ([*RESERVE[:-1], "budget.db"], 2, "budget.db: not UTF-8 text"),
    "after a word": (["history", "--after", "x"], 2, "after must be an integer >= 0, got 'x'"),
    "less than nothing": (["history", "--limit", -1], 2, "limit must be an integer >= 0, got -1"),
    "no head": (["import-check", "search.json"], 2, "head must be tightbudget-ledger:1:<sequence>"),
    "a copy onto itself": (
        ["copy", "sqlite:///budget.db", "sqlite:///budget.db"],
        2,
        "target must be empty, got a ledger of 3 events",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_one_line_and_a_code(name: str) -> None:
    args, code, message = REFUSED[name]
    head = said("export-head")["sequence"]
    assert re.match(message, refusal("ledger", *args, code=code))
    # a charge that does not fit is written down; nothing else is
    assert said("export-head")["sequence"] == head + (name == "too much")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", 'search.json: no guarantee: expected {"tightbudget": 1, "output_dp": ...}'),
        ("{", "search.json: not JSON: "),
        (SEARCH.to_json().replace("1/20", "x"), "search.json: cells[3] must be a finite number"),
    ],
)
def test_a_bad_guarantee_is_refused_by_its_file(content: str, message: str) -> None:
    Path("search.json").write_text(content)
    assert refusal("ledger", *RESERVE).startswith(message)


def test_states_are_refused_with_code_5() -> None:
    said(*RESERVE)
    assert "is reserved, and cannot be settled" in refusal(
        "ledger", "settle", "A1", "found", "--token", 1, code=5
    )
    assert "was used before, for something else" in refusal(
        "ledger", *RESERVE[:-2], "--epsilon", 1, code=5
    )
    token = said("start", "A1")["token"]
    assert "started once" in refusal("ledger", "start", "A1", code=5)
    assert "only what was not started is freed" in refusal("ledger", "void", "A1", code=5)
    assert "got another" in refusal("ledger", "settle", "A1", "found", "--token", "1", code=5)
    assert token not in refusal("ledger", "settle", "A1", "found", "--token", token[1:], code=5)
    assert "'A1'" in refusal("ledger", "expire", "A1", "--by", "g", "--reason", "r", code=5)


def test_the_token_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a command line every process of the machine sees it."""
    said(*RESERVE)
    monkeypatch.setenv("TIGHTBUDGET_RUN_TOKEN", said("start", "A1")["token"])
    assert said("settle", "A1", "found")["state"] == "settled"


def test_who_does_it_is_written_down() -> None:
    said(*RESERVE, "--by", "ada")
    token = said("start", "A1", "--by", "bob")["token"]
    assert said("show")["reservations"][0]["by"] == "bob"
    said("settle", "A1", "found", "--token", token, "--by", "carl")
    again = [*RESERVE[:-4], "--key", "A2", "--epsilon", "0.1"]
    said(*again, "--by", "dan")
    said("void", "A2", "--by", "eve")
    events = said("history", "--after", 3)["events"]
    assert [e["details"]["by"] for e in events] == ["ada", "bob", "carl", "dan", "eve"]
    assert "by must be a text of 1 to 200" in refusal("ledger", "void", "A2", "--by", "")


def test_tampering_has_code_7() -> None:
    said(*RESERVE)
    with contextlib.closing(sqlite3.connect("budget.db")) as connection, connection:
        wanted = "SELECT sql FROM sqlite_master WHERE name = 'events_stay'"
        (trigger,) = connection.execute(wanted).fetchone()
        connection.execute("DROP TRIGGER events_stay")
        connection.execute("UPDATE events SET epsilon = 1 WHERE kind = 'reserved'")
        connection.execute(trigger)
    assert refusal("ledger", "verify", code=7) == "event 4 was changed"


def test_programs_get_a_refusal_as_an_object() -> None:
    run("ledger", *RESERVE)
    result = run("ledger", *RESERVE[:-4], "--key", "A2", "--epsilon", 0.75, "--json")
    assert result.exit_code == 4
    (line,) = result.stdout.splitlines()
    found = json.loads(line)["error"]
    assert result.stderr == f"error: {found['message']}\n"
    assert found == {
        "type": "BudgetExceeded",
        "message": found["message"],
        "exit_code": 4,
        "requested": amount(0.75),
        "left": amount(0.7, 9.9e-8),
        "held": amount(0.3, 1e-9),
        "budget": "ada",
        "holds": ["A1"],
    }
    result = run("ledger", "show", "--ledger", "sqlite:///none.db", "--json")
    assert json.loads(result.stdout)["error"] == {
        "type": "LedgerError",
        "message": "there is no ledger none.db: tightbudget ledger init makes one",
        "exit_code": 6,
        "unknown": False,
    }


def test_each_refusal_has_its_code() -> None:
    codes = {name: exit_code(_made(getattr(errors, name))) for name in errors.__all__}
    assert codes == {name: 2 for name in errors.__all__} | {
        "PrecisionError": 3,
        "BudgetError": 4,
        "BudgetExceeded": 4,
        "SettlementError": 5,
        "KeyConflictError": 5,
        "FencingError": 5,
        "LedgerError": 6,
        "LedgerCorruptError": 7,
    }


def _made(cls: type[tb.TightBudgetError]) -> tb.TightBudgetError:
    error: tb.TightBudgetError = cls.__new__(cls)
    return error


# ----------------------------------------------------------------------- names of cells


@pytest.mark.parametrize(
    ("text", "cells", "cell"),
    [
        ("found", {"found"}, "found"),
        ("3", {3}, 3),
        ("3", {"3"}, "3"),
        ("3", {3, "3"}, 3),
        ('"3"', {3, "3"}, "3"),
        ('["found", 3]', {("found", 3)}, ("found", 3)),
        ('["found", 3]', {'["found", 3]'}, '["found", 3]'),
        ("-1", {-1}, -1),
        # what no cell has as its name is taken as JSON, if that could be a cell
        ("4", {3}, 4),
        ("true", {1}, "true"),
        ("1.0", {1}, "1.0"),
        ("NaN", {1}, "NaN"),
        ("null", {1}, "null"),
        ("[" * 100_000, {1}, "[" * 100_000),
        ("Found", {"found"}, "Found"),
    ],
)
def test_a_cell_is_named_by_its_text_or_as_json(text: str, cells: set[Any], cell: object) -> None:
    named = cell_of(text, tb.OutputDP(dict.fromkeys(cells, 0.1)))
    assert named == cell
    assert type(named) is type(cell)


CELLS: st.SearchStrategy[Any] = st.recursive(
    st.integers() | st.text(max_size=5), lambda c: st.lists(c, max_size=3).map(tuple)
)


@given(st.sets(CELLS, min_size=1, max_size=5))
def test_every_cell_has_a_name_of_its_own(cells: set[Any]) -> None:
    guarantee = tb.OutputDP(dict.fromkeys(cells, 0.1))
    assert [cell_of(json.dumps(cell), guarantee) for cell in cells] == list(cells)


def test_an_undeclared_cell_costs_the_sup() -> None:
    said(*RESERVE)
    token = said("start", "A1")["token"]
    settled = said("settle", "A1", "7", "--token", token)
    assert (settled["cell"], settled["charges"]) == (7, {"ada": amount(0.3, 1e-9)})


# --------------------------------------------------------------------------------- show


def test_people_see_bars_and_what_is_open() -> None:
    said(*RESERVE)
    token = said("start", "A1")["token"]
    said("settle", "A1", "found", "--token", token)
    said("reserve", "--budget", "ada", "--key", "A2", "--guarantee", "search.json")
    token = said("start", "A2")["token"]
    said("settle", "A2", "3", "--token", token)
    said("reserve", "--budget", "ada", "--key", "A3", "--epsilon", "0.5")
    rows = shown("show")
    assert rows[0] == [
        *("budget", "spent", "held", "spent", "by", "parts", "left", "of", "saved"),
        *("delta", "left"),
    ]
    assert rows[1][:2] == ["census", "▒▒" + "·" * 18]
    assert rows[1][2:5] == ["0.0", "1.0", "0.35"]  # spent, held, and what ada has spent of that
    assert rows[2] == [
        "ada", "█" * 7 + "▒" * 10 + "·" * 3 + "░" * 5,
        *["0.35", "0.5", "0.15", "epsilon", "1.0", "0.25", "9.8e-08", "of", "1e-07"],
    ]  # fmt: skip
    assert rows[3] == ["█", "spent", "▒", "held", "·", "left", "░", "saved", "by", "settlement"]
    assert rows[4:] == [
        [],
        ["reservation", "state", "by", "holds"],
        ["A3", "reserved", getpass.getuser(), "epsilon", "0.5", "of", "ada"],
    ]
    assert [row[0] for row in shown("show", "ada")[1:3]] == ["ada", "█"]


def test_people_read_what_a_run_holds_and_costs() -> None:
    holds = ["holds", "epsilon", "0.3,", "delta", "1e-09", "of", "ada"]
    assert shown(*RESERVE) == [["key", "A1"], ["state", "reserved"], holds]
    started = shown("start", "A1")
    token = started[2][1]
    assert re.fullmatch("[0-9a-f]{32}", token)
    assert started[2:] == [["token", token], holds]
    settled = shown("settle", "A1", "not found", "--token", token)
    assert settled[1:3] == [["state", "settled"], ["cell", "'not", "found'"]]
    assert settled[-1] == ["cost", "epsilon", "0.1,", "delta", "1e-09", "of", "ada"]
    told = shown("reserve", "--budget", "ada", "--key", "A2", "--epsilon", "0.9000000001")
    assert told[-1][:4] == ["note", "granted", "epsilon", "0.9,"]
    Path("head.txt").write_text(run("ledger", "export-head").stdout)
    assert [row[0] for row in shown("import-check", "head.txt")] == ["kept", "head"]


def test_a_column_without_anything_to_say_is_left_out() -> None:
    run("ledger", "open", "clicks", "--kind", "zcdp", "--rho", "0.5")
    rows = shown("show", "clicks")
    assert rows[0] == ["budget", "spent", "held", "left", "of", "saved"]
    assert rows[1][2:] == ["0.0", "0.0", "0.5", "rho", "0.5", "0.0"]
    all_of_them = shown("show")
    assert all_of_them[0][-2:] == ["delta", "left"]
    assert [row[-3:] for row in all_of_them[1:4]] == [
        ["9e-07", "of", "1e-06"], ["1e-07", "of", "1e-07"], ["rho", "0.5", "0.0"],
    ]  # fmt: skip


def test_a_terminal_without_unicode_gets_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tightbudget.cli.ledger.show.speaks_unicode", lambda: False)
    assert shown("show")[1][:2] == ["census", "==" + "." * 18]


def statement(name: str, parent: str | None = None, **amounts: float) -> Statement:
    parts = {"cap": 0.0, "spent": 0.0, "held": 0.0, "left": 0.0, "saved": 0.0} | amounts
    budgets = {part: tb.Amount(value, 0.0, "epsilon") for part, value in parts.items()}
    return Statement(name=name, kind="output_dp", parent=parent, closed=False, **budgets)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**7))
def test_a_bar_never_shows_less_than_is_taken(spent: int, held: int, left: int, saved: int) -> None:
    cap = spent + held + left
    bar = _bar(statement("b", cap=cap, spent=spent, held=held, left=left, saved=saved)).plain
    if not cap:
        assert bar == "·" * 20
        return
    assert bar.count("█") == math.ceil(20 * spent / cap)
    assert bar.count("█") + bar.count("▒") == math.ceil(20 * (spent + held) / cap)
    assert len(bar.rstrip("░")) == 20
    assert bar.count("░") == min(20, math.ceil(20 * saved / cap))


def test_the_blocks_of_a_set_are_listed_where_it_is_asked_for() -> None:
    with tb.Ledger("sqlite:///budget.db") as ledger:
        clicks = ledger.blocks("clicks", by=["day"], epsilon=1, delta=1e-6)
        clicks.where(day="2026-01-01..2026-01-02").reserve("K1", SEARCH)
    blocks = ["clicks[day=2026-01-01]", "clicks[day=2026-01-02]"]
    assert [one["name"] for one in said("show")["budgets"]] == ["census", "ada", "clicks"]
    found = said("show", "clicks")
    assert [one["name"] for one in found["budgets"]] == ["clicks", *blocks]
    assert [one["held"] for one in found["budgets"][1:]] == [amount(0.3, 1e-9)] * 2
    assert [one["key"] for one in found["reservations"]] == ["K1"]
    assert [one["name"] for one in said("show", blocks[0])["budgets"]] == blocks[:1]
    assert [row[0] for row in shown("show", "clicks")[1:4]] == ["clicks", *blocks]


def test_a_block_that_nobody_has_touched_is_corrected() -> None:
    with tb.Ledger("sqlite:///budget.db") as ledger:
        ledger.blocks("clicks", by=["day"], epsilon=1, delta=1e-6)
    block = "clicks[day=2026-01-01]"
    assert [one["spent"] for one in said("show", block)["budgets"]] == [amount(0, 0)]
    found = said("correct", block, "--epsilon", 0.25, "--by", "eve", "--reason", "lost")
    assert found["spent"] == amount(0.25, 0)
    assert [one["spent"] for one in said("show", block)["budgets"]] == [amount(0.25, 0)]


def test_parts_follow_their_whole() -> None:
    found = tuple(
        statement(name, parent)
        for name, parent in [("a", None), ("b", None), ("a1", "a"), ("b1", "b"), ("a11", "a1")]
    )
    assert [(depth, s.name) for depth, s in _tree(found, None)] == [
        (0, "a"), (1, "a1"), (2, "a11"), (0, "b"), (1, "b1"),
    ]  # fmt: skip
    assert [(depth, s.name) for depth, s in _tree(found, "a1")] == [(0, "a1"), (1, "a11")]


# ------------------------------------------------------------------------------- in all


def test_infinity_is_a_number_and_a_text_stays_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"Infinity": math.inf, "x": ['say "Infinity"', -math.inf]})
    assert capsys.readouterr().out == '{"Infinity": 1e999, "x": ["say \\"Infinity\\"", -1e999]}\n'


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.startswith("tightbudget.ledger")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    assert "pip install 'tightbudget[ledger]'" in refusal("ledger", "show")


COMMANDS = ["init", "open", "close", "blocks", "reserve", "start", "settle", "void", "forfeit",
            "run", "show", "history", "verify", "export-head", "import-check", "statement",
            "raise-cap",
            "correct", "expire", "copy"]  # fmt: skip


def test_the_commands_are_these() -> None:
    assert list(typer.main.get_command(commands).commands) == COMMANDS  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    result = run("ledger", command, "--help")
    assert result.exit_code == 0
    assert "For example:" in result.stdout
    assert "--json" in result.stdout
