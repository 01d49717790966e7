"""The benchmarks of the ledger: their tables, and each of their jobs at a small size."""

from __future__ import annotations

import copy
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def module(name: str) -> ModuleType:
    """Imports a file of the benchmarks, which are no package."""
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def tables(text: str) -> list[list[str]]:
    """The tables of a page, each as its lines."""
    found = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [table.splitlines() for table in found]


@pytest.mark.parametrize("name", ["ledger", "web"])
@pytest.mark.parametrize("earlier", [True, False])
def test_tables_are_made_of_the_stored_results(name: str, earlier: bool) -> None:
    results = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    if earlier and results["before"] is None:
        pytest.skip("the results were measured without an earlier version")
    if not earlier:
        results = without_before(results)
    text = getattr(module("report"), name)(results)
    assert len(tables(text)) == 3
    for table in tables(text):
        assert len({line.count("|") for line in table}) == 1
        assert len(table) > 2
    assert (", before" in text) == (", now" in text) == earlier


def without_before(results: dict[str, Any]) -> dict[str, Any]:
    """The results as they are when no earlier commit was measured."""

    def cut(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: cut(inner) for name, inner in value.items() if name != "before"}
        return value

    return {**cut(copy.deepcopy(results)), "before": None}


def test_a_client_that_starves_is_seen() -> None:
    found = module("report")
    rows = found._clients(
        {"2": {"bare": {"per_s": 100}, "now": dict(
            per_s=10, p50=1.0, p95=2.0, max=3000, least=1, most=25, of_bare=0.1
        )}}, "SQLite", 3,
    )  # fmt: skip
    assert rows == [["SQLite", "2", "100", "", "30", "", "30%", "", "1 / 2 / 3,000", "", "1 to 25"]]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Any:
    versions = module("versions")
    with versions.Worker(versions.NOW) as worker:
        yield worker


@pytest.mark.slow
def test_clients_take_turns_with_a_bare_table(url: str, worker: Any) -> None:
    worker.does("opened", url=url, names=["data"])
    worker.does("bare", url=url)
    for what in ("rows", "runs"):
        for processes, threads in ((2, 1), (1, 2)):
            name = f"{what} {processes}"
            took, answers = worker.does(
                "clients", what=what, url=url, name=name, processes=processes, threads=threads,
                seconds=0.2,
            )  # fmt: skip
            assert took >= 0.2
            assert len(answers) == 2
            assert all(answers)
    found = worker.does("verified", url=url)
    assert found["events"] >= 1 + 3 * 4
    assert found["peak_mb"] >= found["idle_mb"] > 0


@pytest.mark.slow
def test_runs_on_many_budgets_are_counted(url: str, worker: Any) -> None:
    names = [f"budget {number}" for number in range(30)]
    worker.does("opened", url=url, names=["data", *names])
    row = worker.does("run_on", url=url, names=names, key="run")
    for act in ("reserve", "start", "settle", "hold"):
        assert row[act]["statements"] >= 2
        assert row[act]["seconds"] > 0
    assert row["worst_wait"] > 0
    row = worker.does("run_on_blocks", url=url, blocks=30, key="blocks", small=2)
    assert row["worst_wait"] > 0
    worker.does("verified", url=url)


@pytest.mark.slow
def test_a_history_that_was_written_at_once_verifies(url: str, worker: Any) -> None:
    worker.does("history", url=url, size=600)
    assert worker.does("verified", url=url)["events"] == 600


@pytest.mark.slow
def test_requests_are_measured_beside_a_bare_endpoint(worker: Any, tmp_path: Path) -> None:
    versions = module("versions")
    url, bare = f"sqlite:///{tmp_path}/budget.db", f"sqlite:///{tmp_path}/bare.db"
    worker.does("opened", url=url, names=["data", "more"])
    worker.does("bare", url=bare)
    secret = worker.does("token", url=url)
    words = ["-m", "tightbudget", "serve", "--ledger", url, "--port", "0"]
    bare_words = [str(FOLDER / "bare_server.py"), bare]
    with (
        versions.serving(words, versions.NOW, tmp_path / "log") as place,
        versions.serving(bare_words, versions.NOW, tmp_path / "log") as bare_place,
    ):
        shape = {"processes": 1, "threads": 2, "seconds": 0.2, "name": "run"}
        for what, where in (("requests", f"{place}#{secret}"), ("bare requests", bare_place)):
            _, answers = worker.does("clients", what=what, url=where, **shape)
            assert all(answers)
        row = worker.does("request_on", url=f"{place}#{secret}", names=["data", "more"], key="a")
        assert set(row) == {"reserve", "start", "settle"}
        row = worker.does("request_on", url=f"{place}#{secret}", names=["nobody"], key="b")
        assert row == {"refused": "refused (404)"}
    worker.does("verified", url=url)
