"""A plugin of pytest that `peers/run.py` loads: it writes the outcome of each test to a file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from run import matches

LEFT_OUT = json.loads(os.environ["PEERS_LEFT_OUT"])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the tests that the list leaves out."""
    left = [item for item in items if any(matches(item.nodeid, test) for test in LEFT_OUT)]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


class Outcomes:
    """The outcome of each test: the worst of its setup, call, teardown and parts."""

    def __init__(self) -> None:
        self.of: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes one report."""
        before = self.of.get(report.nodeid, "passed")
        self.of[report.nodeid] = before if report.outcome == "passed" else report.outcome
        if before == "failed":
            self.of[report.nodeid] = before

    def pytest_sessionfinish(self) -> None:
        """Writes the outcomes, sorted by id."""
        path = Path(os.environ["PEERS_OUTCOMES"])
        path.write_text(json.dumps(dict(sorted(self.of.items())), indent=1), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the collector in the one process that hears of every test."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcomes())
