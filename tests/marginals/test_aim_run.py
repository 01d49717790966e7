"""AIM's rounds beside models that are not mbi's: what is measured, what is paid, what is kept."""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tightbudget as tb
from tightbudget.durable_lines import DurableLines
from tightbudget.errors import ReleaseError
from tightbudget.marginals import aim_run, mbi_fit
from tightbudget.marginals.aim_run import _candidates, _plan, _round
from tightbudget.marginals.domains import domains_of
from tightbudget.marginals.mbi_fit import shares_of_columns

RNG = np.random.default_rng(0)
ROWS = {"a": RNG.integers(0, 2, 900), "b": RNG.integers(0, 3, 900), "who": np.arange(900) // 3}
DOMAINS = {"a": [0, 1], "b": [0, 1, 2]}


@dataclass
class Fitter:
    """A stand-in for the adapter: a product of one-way shares, and the last larger marginal."""

    fits: list[Any] = field(default_factory=list)
    fails: dict[int, BaseException] = field(default_factory=dict)
    finite: bool = True

    def fitted(self, sizes: Any, marginals: Any, iterations: int, warm: Any) -> Any:
        self.fits.append((len(marginals), iterations, warm))
        if len(self.fits) in self.fails:
            raise self.fails[len(self.fits)]
        tables = {}
        for columns, counts, _ in marginals:
            tables[columns] = np.log(np.maximum(counts, 1.0) / np.maximum(counts, 1.0).sum())
        if tables.keys() - {(i,) for i in range(len(sizes))}:
            tables = {c: t for c, t in tables.items() if len(c) > 1}
        return SimpleNamespace(
            total=900.0,
            sizes=tuple(sizes),
            tables=tuple(tables.items()),
            finite=self.finite,
            draw=lambda rows, seed: {
                i: np.random.default_rng(seed + i).integers(0, n, rows) for i, n in enumerate(sizes)
            },
        )

    def megabytes_of(self, sizes: Any, cliques: Any) -> float:
        return max(math.prod(sizes[i] for i in clique) for clique in cliques) / 10.0


@pytest.fixture(name="fitter")
def _fitter(monkeypatch: pytest.MonkeyPatch) -> Fitter:
    fitter = Fitter()
    monkeypatch.setattr(mbi_fit, "adapter", lambda: fitter)
    return fitter


def ran(rows: Any = ROWS, domains: Any = DOMAINS, **given: Any) -> Any:
    meter = tb.OutputDPFilter(1, 1e-6)
    given = {"epsilon": 1.0, "delta": 1e-6, "meter": meter, "rounds": 4, **given}
    return tb.marginals.run_aim(rows, domains, **given)


def test_the_noise_is_that_of_the_plan_and_the_meter_pays_epsilon(fitter: Fitter) -> None:
    meter = tb.OutputDPFilter(1, 1e-6)
    found = ran(meter=meter)
    assert meter.spent == found.receipt.charged
    assert meter.spent.epsilon == 1.0
    assert found.ended is None
    assert tb.marginals.aim(2, found.rho, rounds=4).delta(1.0, rtol=5e-3).upper <= 1e-6
    # .9 units for each column; the selections take a tenth of all other units
    rho = [1.0 / (2.0 * one.sigma**2) for one in found.marginals]
    unit = found.rho / 4
    assert rho[:2] == pytest.approx([0.9 * unit] * 2, rel=1e-8)
    assert sum(rho) == pytest.approx(unit * (1.8 + 0.9 * 2.2), rel=1e-8)
    assert [one.columns for one in found.marginals[:2]] == [("a",), ("b",)]
    # each fit is of all marginals so far, and begins with the model before
    assert [n for n, _, _ in fitter.fits] == list(range(2, len(found.marginals) + 1))
    assert [warm is None for _, _, warm in fitter.fits] == [True] + [False] * (len(rho) - 2)
    assert {iterations for _, iterations, _ in fitter.fits} == {1000}


def test_units_with_several_rows_have_more_noise(fitter: Fitter) -> None:
    one, two = (ran(unit="who", rows_per_unit=k) for k in (1, 2))
    assert two.marginals[0].sigma == pytest.approx(2 * one.marginals[0].sigma, rel=1e-8)
    assert abs(one.marginals[0].counts.sum() - 300) < 10 * one.marginals[0].sigma


def test_penalties_follow_from_the_rows_of_a_unit_that_a_table_declares(
    fitter: Fitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[list[float]] = []
    select = tb.marginals.MarginalRun.select

    def listen(self: Any, models: Any, **given: Any) -> Any:
        told.append(given["penalties"])
        return select(self, models, **given)

    monkeypatch.setattr(tb.marginals.MarginalRun, "select", listen)
    ran(unit="who", rows_per_unit=2)
    of_arrays = told[0]
    told.clear()
    ran(tb.Table(ROWS, unit="who", rows_per_unit=2))
    assert told[0] == of_arrays
    told.clear()
    ran()
    of_rows = [*told[0]]
    assert [2 * penalty for penalty in of_rows] == pytest.approx(of_arrays, rel=1e-12)
    told.clear()
    replaced = ran(relation="replace-one")
    more = math.sqrt(2.0)
    assert [more * penalty for penalty in of_rows] == pytest.approx(told[0], rel=1e-12)
    assert replaced.marginals[0].sigma == pytest.approx(more * ran().marginals[0].sigma, rel=1e-8)


def test_a_round_takes_what_the_plan_of_aim_allows() -> None:
    plan = tb.marginals.aim(3, 0.02).workflow
    # 48 units: 2.7 for the columns, then rounds of 1, of 4 if the noise is halved, of 16 ...
    first = _round(plan, ("round", 1, 0), False, 3, 48)
    assert first.to == ("measure", 1, 0)
    assert first.sigma == pytest.approx(math.sqrt(48 / (2 * 0.9 * 0.02)))
    assert first.share == pytest.approx(3.7 / 48)
    halved = _round(plan, ("round", 1, 1), True, 3, 48)
    assert halved.to == ("measure", 4, 1)
    assert halved.sigma == pytest.approx(first.sigma / 2)
    assert halved.share == pytest.approx(7.7 / 48)
    last = _round(plan, ("round", 16, 21), True, 3, 48)
    assert last.to == ("measure last", 21)
    assert last.sigma == pytest.approx(first.sigma / math.sqrt(48 - 2.7 - 21))
    assert last.share == 1.0


def test_candidates_are_the_parts_of_the_workload_by_how_much_of_it_they_touch() -> None:
    domains = domains_of({name: [0, 1] for name in "abc"})
    pairs = {("a", "b"): 4, ("a", "c"): 4, ("b", "c"): 4, ("a",): 2, ("b",): 2, ("c",): 2}
    assert _candidates(None, domains) == pairs
    some = {("a", "b"): 3, ("b", "c"): 3, ("a",): 1, ("b",): 2, ("c",): 1}
    assert _candidates([["b", "a"], ("b", "c"), ("c", "b")], domains) == some
    assert _candidates(None, domains_of({"a": [0, 1]})) == {("a",): 1}


def test_a_marginal_that_makes_the_model_too_large_is_not_chosen(fitter: Fitter) -> None:
    found = ran(megabytes=0.3)
    assert {len(one.columns) for one in found.marginals} == {1}
    assert ran(megabytes=6.0).ended is None
    with pytest.raises(tb.ParameterError, match=r"megabytes must be at least 0\.3 for single"):
        ran(megabytes=0.2)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("out of memory"), "RuntimeError: out of memory"),
        (KeyboardInterrupt(), "interrupted"),
        (MemoryError(), "MemoryError: "),
    ],
)
@pytest.mark.parametrize("at", [1, 2])
def test_a_fit_that_fails_loses_nothing_that_was_measured(
    fitter: Fitter, error: BaseException, said: str, at: int
) -> None:
    fitter.fails[at] = error
    meter = tb.OutputDPFilter(1, 1e-6)
    found = ran(meter=meter)
    assert found.ended == said
    assert len(found.marginals) == 1 + at
    assert meter.spent.epsilon == found.receipt.charged.epsilon == 1.0
    # and it can be fitted again, for nothing
    assert found.synthesize(size=7, seed=1).size == 7
    assert meter.spent.epsilon == 1.0
    assert f"ended early: {said}" in repr(found)


def test_numbers_that_are_not_finite_are_no_model(fitter: Fitter) -> None:
    fitter.finite = False
    found = ran()
    assert found.ended.startswith("CalibrationError: the model of 2 marginals has not converged")
    with pytest.raises(
        tb.errors.CalibrationError, match="in 50 iterations: its numbers are not finite"
    ):
        found.model(iterations=50)


def test_who_stops_early_gets_the_rest_back(fitter: Fitter) -> None:
    meter = tb.OutputDPFilter(1, 1e-6)
    found = ran(meter=meter, until=lambda model: len(model.marginals) == 3)
    assert found.ended == "until(model) is true"
    assert len(found.marginals) == 3
    assert meter.spent == found.receipt.charged
    assert 0.5 < meter.spent.epsilon < 0.95
    assert found.receipt.returned.epsilon > 0.05


def test_an_until_that_fails_loses_nothing(fitter: Fitter) -> None:
    found = ran(until=lambda model: model.nobody)
    assert found.ended == "AttributeError: 'MbiModel' object has no attribute 'nobody'"
    assert len(found.marginals) == 3
    assert found.model().marginals == found.marginals


def test_prices_by_state_are_at_most_epsilon() -> None:
    rho, plan = _plan(lambda rho: tb.marginals.aim(2, rho, rounds=3), 3.0, 1e-5, until=len)
    assert 0.985 * 3.0 <= max(plan.prices.values()) <= 3.0
    assert plan.delta.upper <= 1e-5
    assert min(plan.prices.values()) < 0.85 * 3.0
    # the noise is larger than where the end has the only price
    assert 0.9 < rho / _plan(functools.partial(tb.marginals.aim, 2, rounds=3), 3, 1e-5, None)[0] < 1


# -------------------------------------------------------------------- runs that outlive a process


@pytest.fixture(name="ada")
def _ada(tmp_path: Path) -> Iterator[Any]:
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        yield ledger.open_budget("ada", epsilon=3, delta=1e-5)


def keeping(ada: Any, path: Path, key: str = "A1", **given: Any) -> Any:
    return ran(meter=ada.keyed(key), keep=path, **given)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_run_that_was_killed_goes_on_and_pays_once(
    fitter: Fitter, ada: Any, tmp_path: Path, at: int
) -> None:
    fitter.fails[at] = KeyboardInterrupt()
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        keeping(ada, path)
    assert (ada.spent.epsilon, ada.held.epsilon) == (0.0, 1.0)
    fitter.fails.clear()
    before = len(fitter.fits)
    told: list[float] = []
    found = keeping(ada, path, progress=told.append)
    assert (ada.spent.epsilon, ada.held.epsilon) == (1.0, 0.0)
    assert found.ended is None
    assert found.receipt.charged.epsilon == found.receipt.held.epsilon == 1.0
    # the noise of all processes together is that of the plan
    rho = [1.0 / (2.0 * one.sigma**2) for one in found.marginals]
    assert sum(rho) == pytest.approx(found.rho / 4 * (1.8 + 0.9 * 2.2), rel=1e-8)
    # the first fits are of what the other process has measured
    assert [n for n, _, _ in fitter.fits[before:]][-1] == len(found.marginals)
    assert told == sorted(told)
    assert told[-1] == 1.0
    # the same call once more costs nothing, and has the same marginals
    again = keeping(ada, path)
    assert ada.spent.epsilon == again.receipt.charged.epsilon == again.receipt.held.epsilon == 1.0
    for one, other in zip(found.marginals, again.marginals, strict=True):
        assert (one.columns, one.sigma) == (other.columns, other.sigma)
        assert (one.counts == other.counts).all()
    assert again.synthesize(size=5, seed=1).size == 5


def test_whether_the_noise_is_halved_does_not_depend_on_a_kill(
    fitter: Fitter, ada: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []
    taken = aim_run._settled

    def listen(*given: Any) -> bool:
        told.append(taken(*given))
        return told[-1]

    monkeypatch.setattr(aim_run, "_settled", listen)
    fitter.fails[3] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        keeping(ada, tmp_path / "run", rounds=12)
    assert len(told) == 1
    before = fitter.fits[-1]
    fitter.fails.clear()
    keeping(ada, tmp_path / "run", rounds=12)
    # the model before the last marginal, and then that of all marginals, which starts from it
    first, second = fitter.fits[3:5]
    assert (first[0], second[0]) == (before[0] - 1, before[0])
    assert second[2] is not None
    assert len(told) >= 2


def test_of_a_run_that_stops_early_the_rest_goes_back_after_a_kill(
    fitter: Fitter, ada: Any, tmp_path: Path
) -> None:
    def until(model: Any) -> bool:
        return len(model.marginals) == 3

    fitter.fails[2] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        keeping(ada, tmp_path / "run", until=until)
    fitter.fails.clear()
    found = keeping(ada, tmp_path / "run", until=until)
    assert found.ended == "until(model) is true"
    assert len(found.marginals) == 3
    assert found.receipt.returned.epsilon > 0.05
    assert ada.spent.epsilon == found.receipt.charged.epsilon < 0.95
    again = keeping(ada, tmp_path / "run", until=until)
    assert (again.ended, len(again.marginals)) == ("until(model) is true", 3)
    assert ada.spent.epsilon == found.receipt.charged.epsilon


def test_a_fit_that_fails_ends_a_kept_run_and_can_be_repeated_in_another_process(
    fitter: Fitter, ada: Any, tmp_path: Path
) -> None:
    fitter.fails[2] = RuntimeError("out of memory")
    assert keeping(ada, tmp_path / "run").ended == "RuntimeError: out of memory"
    again = keeping(ada, tmp_path / "run")
    assert again.ended == "RuntimeError: out of memory"
    assert len(again.marginals) == 3
    assert again.model(iterations=100).marginals == again.marginals
    assert ada.spent.epsilon == 1.0


def killed_in(ada: Any, path: Path, name: str, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    """Kills a run as its nth selection, or measurement, has begun."""
    calls = itertools.count(1)
    taken = getattr(tb.marginals.MarginalRun, name)

    def dies(self: Any, *given: Any, **more: Any) -> Any:
        found = taken(self, *given, **more)
        if next(calls) == nth:
            raise KeyboardInterrupt
        return found

    with monkeypatch.context() as patch:
        patch.setattr(tb.marginals.MarginalRun, name, dies)
        with pytest.raises(KeyboardInterrupt):
            keeping(ada, path)


def test_a_kill_in_a_selection_ends_the_run_and_keeps_what_was_measured(
    fitter: Fitter, ada: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_in(ada, tmp_path / "run", "select", monkeypatch, 1)
    found = keeping(ada, tmp_path / "run")
    assert found.ended == "an earlier process ended while it selected a marginal"
    assert [one.columns for one in found.marginals] == [("a",), ("b",)]
    assert (ada.spent.epsilon, ada.held.epsilon) == (1.0, 0.0)
    assert keeping(ada, tmp_path / "run").ended == found.ended


def test_a_measurement_that_was_not_kept_is_lost_and_never_repeated(
    fitter: Fitter, ada: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_in(ada, tmp_path / "run", "measure", monkeypatch, 2)
    found = keeping(ada, tmp_path / "run")
    rho = sum(1.0 / (2.0 * one.sigma**2) for one in found.marginals)
    # one unit of the first round is missing
    assert rho == pytest.approx(found.rho / 4 * (1.8 + 0.9 * 1.2), rel=1e-8)
    assert ada.spent.epsilon == 1.0


def test_a_kill_before_anything_was_kept_is_paid_and_said(
    fitter: Fitter, ada: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_in(ada, tmp_path / "run", "measure", monkeypatch, 1)
    for _ in range(2):
        with pytest.raises(ReleaseError, match="died before it had kept a marginal; the run is"):
            keeping(ada, tmp_path / "run")
        assert (ada.spent.epsilon, ada.held.epsilon) == (1.0, 0.0)


def test_an_end_is_kept_before_it_is_paid(
    fitter: Fitter, ada: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitter.fails[2] = RuntimeError("out of memory")

    def dies(*given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tb.marginals.MarginalRun, "__exit__", dies)
        with pytest.raises(KeyboardInterrupt):
            keeping(ada, tmp_path / "run")
    assert ada.held.epsilon == 1.0
    found = keeping(ada, tmp_path / "run")
    assert found.ended == "RuntimeError: out of memory"
    assert len(fitter.fits) == 2
    assert (ada.spent.epsilon, ada.held.epsilon) == (1.0, 0.0)


def test_a_disk_that_is_full_ends_the_rounds_and_loses_nothing(
    fitter: Fitter, ada: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Any, line: bytes) -> None:
        if b'{"marginal"' in line or b'{"ended"' in line:
            raise OSError(28, "No space left on device")
        taken(self, line)

    taken = DurableLines._write
    monkeypatch.setattr(DurableLines, "_write", full)
    found = keeping(ada, tmp_path / "run")
    assert found.ended.endswith("run: no space left on device")
    assert len(found.marginals) == 2
    assert ada.spent.epsilon == 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": 0.9}, "run is of one with another epsilon"),
        ({"delta": 1e-7}, "run is of one with another delta"),
        ({"rounds": 5}, "run is of one with another rounds"),
        ({"domains": {"b": [0, 1, 2], "a": [0, 1]}}, "run is of one with another domains"),
        ({"workload": [["a"]]}, "run is of one with another workload"),
        ({"unit": "who", "rows_per_unit": 1}, "run is of one with another unit"),
        ({"until": len}, "run is of one with another until"),
        ({"relation": "replace-one"}, "run is of one with another relation"),
        ({"key": "A2"}, "meter must be a budget with the key of .*run, 'A1', got 'A2'"),
    ],
)
def test_the_file_of_another_run_is_refused(
    fitter: Fitter, ada: Any, tmp_path: Path, given: Any, message: str
) -> None:
    fitter.fails[1] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        keeping(ada, tmp_path / "run")
    with pytest.raises(tb.ParameterError, match=message):
        keeping(ada, tmp_path / "run", **given)
    assert (ada.spent.epsilon, ada.held.epsilon) == (0.0, 1.0)


def test_a_second_run_on_one_key_is_refused_by_name(
    fitter: Fitter, ada: Any, tmp_path: Path
) -> None:
    keeping(ada, tmp_path / "one")
    with pytest.raises(tb.errors.SettlementError, match="'A1' is settled"):
        keeping(ada, tmp_path / "two")
    fitter.fails[len(fitter.fits) + 1] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        keeping(ada, tmp_path / "three", key="A3")
    with pytest.raises(tb.errors.SettlementError, match="'A3' "):
        keeping(ada, tmp_path / "four", key="A3")


def test_a_run_of_another_ledger_under_the_same_key_is_refused(
    fitter: Fitter, ada: Any, tmp_path: Path
) -> None:
    fitter.fails[1] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        keeping(ada, tmp_path / "one")
    with tb.Ledger(f"sqlite:///{tmp_path}/other.db") as ledger:
        other = ledger.open_budget("ada", epsilon=3, delta=1e-5)
        with pytest.raises(tb.errors.SettlementError, match="A1"):
            keeping(other, tmp_path / "one")
        keeping(other, tmp_path / "two")
        with pytest.raises(tb.errors.FencingError, match="is of another run than that of 'A1'"):
            keeping(other, tmp_path / "one")


def test_a_file_that_is_damaged_or_of_another_kind_is_refused(
    fitter: Fitter, ada: Any, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(tb.errors.FileError, match="run: not a file of the marginals of a run"):
        keeping(ada, path)
    assert path.read_text(encoding="utf-8") == "a,b\n1,2\n"
    path.unlink()
    keeping(ada, path)
    head, first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([head, first.replace(b"rho", b"rhp"), *rest]))
    with pytest.raises(tb.errors.FileError, match="the line that says which run this is of is"):
        keeping(ada, path)
    with pytest.raises(tb.errors.FileError, match="no such file or directory"):
        keeping(ada, tmp_path / "no" / "run", key="A2")
    assert ada.spent.epsilon == 1.0


def test_a_kept_run_needs_a_ledger(fitter: Fitter, tmp_path: Path) -> None:
    meter = tb.OutputDPFilter(1, 1e-6)
    with pytest.raises(tb.ParameterError, match="meter must be a budget of a ledger with a key"):
        ran(meter=meter, keep=tmp_path / "run")
    assert meter.spent.epsilon == 0


def test_progress_is_told_the_share_that_is_spent(fitter: Fitter) -> None:
    told: list[float] = []
    found = ran(progress=told.append)
    assert told[0] == pytest.approx(1.8 / 4)
    assert told == sorted(told)
    assert (told[-1], len(told)) == (1.0, len(found.marginals) - 1)
    # and if it fails, nothing is lost
    found = ran(progress=lambda share: 1 / 0)
    assert found.ended == "ZeroDivisionError: division by zero"
    assert len(found.marginals) == 2


# -------------------------------------------------------------------------------- the model


def brute(tables: Any, wanted: Any, sizes: Any) -> Any:
    total = np.zeros(sizes)
    for cell in itertools.product(*map(range, sizes)):
        logs = sum(table[tuple(cell[i] for i in columns)] for columns, table in tables)
        total[cell] = math.exp(logs)
    out = tuple(i for i in range(len(sizes)) if i not in wanted)
    kept = sorted(wanted)
    summed = total.sum(axis=out)
    return np.transpose(summed, [kept.index(i) for i in wanted]) / total.sum()


@pytest.mark.parametrize("wanted", [(0,), (2, 0), (1, 3), (3, 2, 1), (0, 1, 2, 3)])
@pytest.mark.parametrize(
    "cliques", [[(0, 1), (1, 2), (2, 3)], [(0, 1), (1, 2), (0, 2)], [(3,)], [(0, 3), (1, 2, 3)]]
)
def test_a_product_of_tables_is_summed_as_by_hand(cliques: Any, wanted: Any) -> None:
    rng, sizes = np.random.default_rng(1), (2, 3, 2, 4)
    tables = [(c, rng.normal(size=[sizes[i] for i in c]) * 3) for c in cliques]
    found = shares_of_columns(tables, wanted, sizes)
    assert found == pytest.approx(brute(tables, wanted, sizes))
    # whatever the scale of the tables
    large = [(c, table + 2000.0) for c, table in tables]
    assert shares_of_columns(large, wanted, sizes) == pytest.approx(found)


def test_a_model_has_the_columns_as_they_are_named(fitter: Fitter) -> None:
    counts = np.array([[10.0, 20.0], [30.0, 40.0], [50.0, 60.0]])
    one = tb.marginals.NoisyMarginal(("b", "a"), counts, 1.0)
    model = tb.marginals.mbi_model([one], DOMAINS)
    assert model.cliques == (("a", "b"),)
    assert model.expected(("b", "a")) == pytest.approx(counts * 900 / 210)
    assert model.expected(["a"]) == pytest.approx(counts.sum(0) * 900 / 210)
    assert repr(model) == "<MbiModel: 2 columns, 1 marginals, 900 rows>"
    drawn = model.draw(50, seed=3)
    assert drawn == model.draw(50, seed=3) != model.draw(50, seed=4)
    assert list(drawn) == ["a", "b"]
    assert {len(values) for values in drawn.values()} == {50}
    assert len(model.draw()["a"]) == 900
    assert model.draw(0) == {"a": [], "b": []}
    for columns, said in (((), "columns must be one or more"), (("a", "a"), "columns must be one")):
        with pytest.raises(tb.ParameterError, match=said):
            model.expected(columns)
    with pytest.raises(tb.ParameterError, match="column 'who' has no domain"):
        model.expected(["who"])
    with pytest.raises(tb.ParameterError, match="size must be"):
        model.draw(-1)


MARGINAL = tb.marginals.NoisyMarginal(("a",), np.array([1.0, 2.0]), 1.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"marginals": []}, "marginals must be one or more marginals that were measured"),
        ({"marginals": [1]}, "marginals must be one or more marginals that were measured"),
        ({"domains": {"a": [0]}}, r"marginals\[0\]\.counts must have the shape \(1,\), got \(2,\)"),
        ({"domains": {"b": [0]}}, "column 'a' has no domain"),
        ({"iterations": 0}, "iterations must be"),
        ({"megabytes": 0.0}, "megabytes must be"),
        ({"megabytes": 0.1}, r"megabytes must be at least 0\.2 for a model of these marginals"),
    ],
)
def test_what_is_no_model_is_refused(fitter: Fitter, given: Any, message: str) -> None:
    given = {"marginals": [MARGINAL], "domains": {"a": [0, 1]}, **given}
    with pytest.raises(tb.ParameterError, match=message):
        tb.marginals.mbi_model(given.pop("marginals"), given.pop("domains"), **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"epsilon": 0.0, "until": len}, "epsilon must be"),
        ({"delta": 1.0}, "delta must be"),
        ({"rounds": 1}, "rounds must be more than"),
        ({"iterations": 0}, "iterations must be"),
        ({"megabytes": -1}, "megabytes must be"),
        ({"until": 3}, "until must say of a model whether to stop"),
        ({"progress": 3}, "progress must take the share of rho that is spent, got 3"),
        ({"rows_per_unit": 2}, "rows_per_unit must be 1 where each row is a unit"),
        ({"domains": {"size": [1]}}, r"domains\['size'\] must be a column of the rows"),
        ({"workload": "ab"}, "workload must be a list of marginals"),
        ({"workload": []}, "workload must be at least one marginal"),
        ({"workload": ["a"]}, r"workload\[0\] must be a list of columns"),
        ({"workload": [["a", "c"]]}, r"column 'c' of workload\[0\] has no domain"),
        ({"workload": [["a", "a"]]}, r"workload\[0\] must be one or more different columns"),
        (
            {"workload": [["a", "b"]], "domains": {"a": range(4000), "b": range(3000)}},
            r"workload\[0\] must have at most 4,194,304 cells: .* has 12,000,000",
        ),
    ],
)
def test_what_is_refused_charges_nothing(fitter: Fitter, given: Any, message: str) -> None:
    meter = tb.OutputDPFilter(1, 1e-6)
    with pytest.raises(tb.ParameterError, match=message):
        ran(**{"meter": meter, **given})
    assert meter.spent.epsilon == 0


def test_a_budget_that_is_too_small_is_not_touched(fitter: Fitter) -> None:
    meter = tb.OutputDPFilter(0.9, 1e-6)
    with pytest.raises(tb.errors.BudgetError):
        ran(meter=meter)
    assert meter.spent.epsilon == 0
    assert not fitter.fits


def test_without_mbi_nothing_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tightbudget.adapters.mbi", raising=False)
    monkeypatch.setitem(sys.modules, "mbi", None)
    meter = tb.OutputDPFilter(1, 1e-6)
    with pytest.raises(tb.errors.ExtraError, match="the model needs mbi: pip install"):
        ran(meter=meter)
    assert meter.spent.epsilon == 0
