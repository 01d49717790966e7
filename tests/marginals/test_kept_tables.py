"""MST whose process is killed: what is paid, what goes on, what is lost, and said."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tightbudget as tb
from tightbudget.durable_lines import DurableLines
from tightbudget.errors import BudgetError, FileError, ReleaseError, SettlementError
from tightbudget.ledger.hold import LedgerHold
from tightbudget.marginals import kept_marginals
from tightbudget.promises.keyed import Keyed

RNG = np.random.default_rng(0)
N = 600
A = RNG.integers(0, 2, N)
ROWS: dict[str, Any] = {"a": A, "b": (A + RNG.integers(0, 2, N)) % 3, "c": RNG.random(N) < 0.5}
DOMAINS: dict[str, Any] = {"a": [0, 1], "b": [0, 1, 2], "c": [True, False]}
SINGLES = [("a",), ("b",), ("c",)]
CHOOSING = "an earlier process ended while it selected a marginal"
MEASURING = "an earlier process ended while it measured marginals"


@pytest.fixture(name="ada")
def _ada(tmp_path: Path) -> Iterator[Any]:
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        yield ledger.open_budget("ada", epsilon=3, delta=1e-5)


def made(ada: Any, path: Path, key: str = "A1", **given: Any) -> Any:
    given = {"epsilon": 1.0, "delta": 1e-6, "seed": 1, **given}
    rows, domains = given.pop("rows", ROWS), given.pop("domains", DOMAINS)
    return tb.marginals.synthesize(rows, domains, meter=ada.keyed(key), keep=path, **given)


def columns(table: Any) -> list[Any]:
    return [one.columns for one in table.marginals]


def killed(ada: Any, path: Path, name: str, nth: int, *, after: bool) -> None:
    """Kills a run at its nth call of a method of MarginalRun: as it begins, or after it."""
    calls = itertools.count(1)
    taken = getattr(tb.marginals.MarginalRun, name)

    def dies(self: Any, *given: Any, **more: Any) -> Any:
        number = next(calls)
        if number == nth and not after:
            raise KeyboardInterrupt
        found = taken(self, *given, **more)
        if number == nth:
            raise KeyboardInterrupt
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tb.marginals.MarginalRun, name, dies)
        with pytest.raises(KeyboardInterrupt):
            made(ada, path)
    assert (ada.spent.epsilon, ada.held.epsilon) == (0.0, 1.0)


def test_a_run_that_is_over_draws_rows_again_for_nothing(ada: Any, tmp_path: Path) -> None:
    first = made(ada, tmp_path / "run", seed=1)
    again, other = (made(ada, tmp_path / "run", seed=seed, size=9) for seed in (1, 2))
    assert first.ended is again.ended is None
    assert columns(again) == columns(first)
    for one, same in zip(first.marginals, again.marginals, strict=True):
        assert (one.counts == same.counts).all()
    assert again.columns != other.columns
    assert ada.spent.epsilon == again.receipt.charged.epsilon == 1.0
    assert made(ada, tmp_path / "run", seed=1).columns == first.columns


@pytest.mark.parametrize(
    ("name", "nth", "after", "ended"),
    [
        # as it begins: nothing of the move is done
        ("measure", 1, False, None),
        ("select", 1, False, None),
        ("measure", 2, False, CHOOSING),
        # after it, when nothing of it is kept
        ("select", 1, True, CHOOSING),
        ("select", 2, True, CHOOSING),
        ("measure", 2, True, MEASURING),
    ],
)
def test_a_run_that_was_killed_goes_on_or_ends_and_is_charged_once(
    ada: Any, tmp_path: Path, name: str, nth: int, after: bool, ended: str | None
) -> None:
    killed(ada, tmp_path / "run", name, nth, after=after)
    for _ in range(2):
        table = made(ada, tmp_path / "run")
        assert table.ended == ended
        assert columns(table)[:3] == SINGLES
        assert len(table.pairs) == (2 if ended is None else 0)
        assert table.size == pytest.approx(N, abs=200)
        assert set(table.columns) == set(DOMAINS)
        assert (ada.spent.epsilon, ada.held.epsilon) == (1.0, 0.0)
    rho = sum(0.5 / one.sigma**2 for one in table.marginals)
    assert rho == pytest.approx(table.rho * (2 if ended is None else 1) / 3, rel=1e-8)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("of", "name"),
    [(Keyed, "reserve"), (kept_marginals.KeptMarginals, "begin"), (LedgerHold, "start")],
)
def test_a_run_that_was_killed_before_it_measured_goes_on(
    ada: Any, tmp_path: Path, of: type, name: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = getattr(of, name)

    def dies(*given: Any, **more: Any) -> None:
        if after:
            taken(*given, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(of, name, dies)
        with pytest.raises(KeyboardInterrupt):
            made(ada, tmp_path / "run")
    assert ada.spent.epsilon == 0.0
    table = made(ada, tmp_path / "run")
    assert (table.ended, len(table.marginals)) == (None, 5)
    assert (ada.spent.epsilon, ada.held.epsilon) == (1.0, 0.0)


def test_a_run_that_goes_on_merges_the_cells_that_its_kept_marginals_show_to_be_rare(
    ada: Any, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"rows": {**ROWS, "a": A * 9}, "domains": {**DOMAINS, "a": range(30)}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tb.marginals.MarginalRun, "select", _dies)
        with pytest.raises(KeyboardInterrupt):
            made(ada, tmp_path / "run", **given)
    kept = (tmp_path / "run").read_bytes()
    first = made(ada, tmp_path / "run", **given)
    again = made(ada, tmp_path / "run", **given)
    assert (tmp_path / "run").read_bytes().startswith(kept)
    own = first.marginals[0]
    rare = tuple(np.flatnonzero(own.counts < 3 * own.sigma).tolist())
    assert len(rare) >= 28 - 1
    of = [one for one in first.marginals if one.columns[0] == "a" and len(one.columns) == 2]
    assert of
    assert {one.merged["a"] for one in of} == {rare}
    for one, same in zip(first.marginals, again.marginals, strict=True):
        assert one.merged == same.merged
        assert (one.counts == same.counts).all()
    assert again.columns == first.columns
    assert ada.spent.epsilon == 1.0


def _dies(self: Any, *given: Any, **more: Any) -> Any:
    raise KeyboardInterrupt


def test_what_was_measured_and_not_kept_is_paid_and_said(ada: Any, tmp_path: Path) -> None:
    killed(ada, tmp_path / "run", "measure", 1, after=True)
    for _ in range(2):
        with pytest.raises(ReleaseError, match="died before it had kept a marginal; the run is"):
            made(ada, tmp_path / "run")
        assert (ada.spent.epsilon, ada.held.epsilon) == (1.0, 0.0)


@pytest.mark.parametrize("line", range(3))
def test_a_measurement_is_kept_whole_or_not_at_all(
    ada: Any, tmp_path: Path, line: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = itertools.count(1)
    taken = DurableLines._write

    def dies(self: Any, content: bytes) -> None:
        kept = b'{"marginal"' in content or b'{"measured"' in content
        if kept and next(lines) > 4 + line:  # those of the columns are there, and some pairs
            raise KeyboardInterrupt
        taken(self, content)

    with monkeypatch.context() as patch:
        patch.setattr(DurableLines, "_write", dies)
        with pytest.raises(KeyboardInterrupt):
            made(ada, tmp_path / "run")
    table = made(ada, tmp_path / "run")
    assert (table.ended, columns(table)) == (MEASURING, SINGLES)


def test_a_measurement_of_which_a_line_is_damaged_is_left_out(ada: Any, tmp_path: Path) -> None:
    made(ada, tmp_path / "run")
    lines = (tmp_path / "run").read_bytes().splitlines(keepends=True)
    assert b'{"measured": 2}' in lines[-1]
    lines[-2] = lines[-2].replace(b"sigma", b"sigmb")
    (tmp_path / "run").write_bytes(b"".join(lines))
    table = made(ada, tmp_path / "run")
    assert columns(table) == SINGLES
    assert table.ended.endswith("run has not all marginals")
    assert ada.spent.epsilon == 1.0


def test_a_disk_that_is_full_ends_the_run_and_loses_nothing(
    ada: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Any, line: bytes) -> None:
        if b'{"marginal"' in line:
            raise OSError(28, "No space left on device")
        taken(self, line)

    taken = DurableLines._write
    monkeypatch.setattr(DurableLines, "_write", full)
    table = made(ada, tmp_path / "run")
    assert table.ended.endswith("run: no space left on device")
    assert columns(table) == SINGLES
    assert ada.spent.epsilon == 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": 0.9}, "run is of one with another epsilon"),
        ({"delta": 1e-7}, "run is of one with another delta"),
        ({"domains": {**DOMAINS, "c": [True]}}, "run is of one with another domains"),
        ({"unit": "b", "rows_per_unit": 1}, "run is of one with another unit"),
        ({"key": "A2"}, "meter must be a budget with the key of .*run, 'A1', got 'A2'"),
    ],
)
def test_the_file_of_another_run_is_refused(
    ada: Any, tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    killed(ada, tmp_path / "run", "select", 1, after=False)
    with pytest.raises(tb.ParameterError, match=message):
        made(ada, tmp_path / "run", **given)
    assert (ada.spent.epsilon, ada.held.epsilon) == (0.0, 1.0)


def test_a_second_run_on_one_key_and_a_meter_without_a_ledger_are_refused(
    ada: Any, tmp_path: Path
) -> None:
    made(ada, tmp_path / "one")
    with pytest.raises(SettlementError, match="'A1' is settled"):
        made(ada, tmp_path / "two")
    meter = tb.OutputDPFilter(1, 1e-6)
    with pytest.raises(tb.ParameterError, match="meter must be a budget of a ledger with a key"):
        tb.marginals.synthesize(
            ROWS, DOMAINS, epsilon=1.0, delta=1e-6, meter=meter, keep=tmp_path / "three"
        )
    assert meter.spent.epsilon == 0
    with pytest.raises(FileError, match="no such file or directory"):
        made(ada, tmp_path / "no" / "run", key="A3")
    assert ada.spent.epsilon == 1.0


def test_a_file_has_begun_with_its_run_alone(ada: Any, tmp_path: Path) -> None:
    with pytest.raises(BudgetError):
        made(ada, tmp_path / "run", epsilon=4.0)
    assert not kept_marginals.has_begun(tmp_path / "run")
    made(ada, tmp_path / "run", key="A2")
    assert kept_marginals.has_begun(tmp_path / "run")


PROGRAM = """
import sys
import numpy as np
import tightbudget as tb
from tests.marginals.test_kept_tables import DOMAINS, ROWS, made
with tb.Ledger(f"sqlite:///{sys.argv[1]}/budget.db") as ledger:
    print("begun", flush=True)
    table = made(ledger.budget("ada"), f"{sys.argv[1]}/run")
    print(table.ended, len(table.marginals), table.size, flush=True)
"""


@pytest.mark.slow
def test_processes_that_are_killed_at_drawn_moments_are_charged_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    seen = set()
    for trial in range(6):
        folder = tmp_path / str(trial)
        folder.mkdir()
        with tb.Ledger(f"sqlite:///{folder}/budget.db") as ledger:
            ada = ledger.open_budget("ada", epsilon=3, delta=1e-5)
            for _ in range(3):
                with subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, str(folder)], stdout=subprocess.PIPE
                ) as child:
                    assert child.stdout is not None
                    child.stdout.readline()
                    time.sleep(rng.uniform(0, 1.5))
                    child.send_signal(signal.SIGKILL)
                assert ada.spent.epsilon + ada.held.epsilon <= 1.0
            try:
                table = made(ada, folder / "run")
            except ReleaseError:
                seen.add("lost")
            else:
                assert columns(table)[:3] == SINGLES
                assert (table.ended is None) == (len(table.pairs) == 2)
                seen.add(str(table.ended))
            assert (ada.spent.epsilon, ada.held.epsilon) == (1.0, 0.0)
        with tb.Ledger(f"sqlite:///{folder}/budget.db") as ledger:
            ledger.verify()
    assert "None" in seen
