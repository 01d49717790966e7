"""Checks of printed numbers: laws over drawn runs, known slips, files, and what is refused."""

from __future__ import annotations

import gzip
import json
import math
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.cases import CASES, CORE, Case
from typer.testing import CliRunner

import tightbudget as tb
from tightbudget.cli import app
from tightbudget.evidence import NumberCheck, check, read_claim
from tightbudget.evidence.readings import readings, with_noise
from tightbudget.evidence.training import SAMPLERS, run_of_training, runs_of_training

STEP = tb.Gaussian(1.0).subsampled(0.01)
TRAINING = {
    "noise_multiplier": 0.4869,
    "batch_size": 40,
    "dataset_size": 10_000,
    "epochs": 5,
    "sampler": "shuffle",
}


_LONG = ("allocation", "with replacement")  # seconds at each question


def _drawn(draws: random.Random) -> tb.Composition:
    """A small run of some sampler."""
    sampler = draws.choice([name for name in SAMPLERS if name not in _LONG])
    n = 100
    batch = n if sampler == "all" else n // 5
    table: dict[str, Any] = {
        "noise_multiplier": draws.uniform(0.6, 4.0),
        "batch_size": batch,
        "dataset_size": n,
        "epochs": draws.randint(1, 2),
        "sampler": sampler,
    }
    if sampler == "truncated poisson":
        table["at_most"] = min(n, 2 * batch)
    return run_of_training(table)


def _places(value: float, places: int, *, up: bool) -> str:
    """A number with so many places, rounded outwards."""
    scaled = Fraction(value) * 10**places
    whole = math.ceil(scaled) if up else math.floor(scaled)
    return f"{whole // 10**places}.{whole % 10**places:0{places}d}"


# --------------------------------------------------------------------------------- laws


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.one_in(8)
def test_drawn_runs_below_between_and_above(seed: int) -> None:
    draws = random.Random(seed)
    run, delta, places = _drawn(draws), 10.0 ** draws.uniform(-9, -3), draws.randint(1, 6)
    _keeps_the_law(run, delta, places)


@pytest.mark.parametrize("case", [c for c in CASES if c.name in CORE], ids=lambda case: case.name)
@pytest.mark.one_in(12)
def test_every_mechanism_below_between_and_above(case: Case) -> None:
    _keeps_the_law(case.mechanism * 1, 1e-3, 3)


def _keeps_the_law(run: tb.Composition, delta: float, places: int) -> None:
    bounds = run.epsilon(delta)
    unit = 10.0**-places
    if bounds.upper < math.inf:
        for inside in (bounds.lower, (bounds.lower + bounds.upper) / 2, bounds.upper):
            found = check(run, epsilon=f"{inside:.{places}f}", delta=repr(delta))
            allowed = ("agrees", "open") if bounds.apart else ("agrees",)
            assert found.verdict in allowed
            assert found.epsilon == bounds
        # an upper bound, rounded up, holds: also where the two bounds are apart
        assert check(run, epsilon=_places(bounds.upper, places, up=True), delta=delta).holds
        over = _places(bounds.upper + 2 * unit + 1e-9 * bounds.upper, places, up=True)
        found = check(run, epsilon=over, delta=delta)
        assert (found.verdict, found.holds) == ("too high", True)
    below = min(bounds.lower, 1e6) - 2.5 * unit
    if below > 0.0:
        found = check(run, epsilon=_places(below, places, up=False), delta=delta)
        assert (found.verdict, found.holds) == ("too low", False)


def test_a_number_between_two_bounds_that_are_apart_is_open() -> None:
    run = tb.Gaussian(1.0).shuffled(100) * 10
    bounds = run.epsilon(1e-5)
    found = check(run, epsilon="12.0", delta=1e-5)
    assert bounds.lower < 12.0 < bounds.upper
    assert (found.verdict, found.holds) == ("open", None)
    assert "neither proved nor refuted" in str(found)


@pytest.mark.parametrize(
    ("printed", "holds", "words"),
    [
        ("1.828", False, "it may be the certified value, rounded down: no bound is below 1.82823"),
        ("1", False, "it may be the certified value, rounded down: no bound is below 1.82823"),
        ("1.829", True, "it may be the certified value"),
        ("2", True, "it may be the certified value"),
        ("1.82823666651650", None, "it may be the certified value"),  # between the two bounds
    ],
)
def test_a_number_that_was_rounded_down_is_no_bound(
    printed: str, holds: bool | None, words: str
) -> None:
    found = check(STEP * 1000, epsilon=printed, delta=1e-5)
    assert found.epsilon.lower < 1.8282366665165 < found.epsilon.upper
    assert (found.verdict, found.holds) == ("agrees", holds)
    assert found.rows()["verdict"] == f"agrees: {words}"


def test_what_is_refuted_has_the_delta_that_proves_it() -> None:
    run = STEP * 1000
    found = check(run, epsilon="1.50", delta="1e-5")
    assert found.verdict == "too low"
    assert found.delta_at_printed == run.delta(1.51)
    assert found.delta_at_printed is not None
    assert found.delta_at_printed.lower > 1e-5
    assert "epsilon is at least 1.8282" in str(found)


def test_infinity_is_too_high_where_there_is_an_answer_and_else_right() -> None:
    assert check(STEP * 10, epsilon="inf", delta=1e-15).verdict == "too high"
    lossy = tb.TruncatedGaussian(1.0, bound=3.0) * 100
    assert check(lossy, epsilon="inf", delta=1e-9).verdict == "agrees"
    found = check(lossy, epsilon="1000.0", delta=1e-9)
    assert found.verdict == "too low"
    assert "no epsilon holds at this delta" in str(found)


# ----------------------------------------------------------------------------- readings


def _reasons(found: NumberCheck) -> str:
    return "; ".join(found.explained_by)


def test_a_shuffle_accounted_as_poisson_is_named() -> None:
    found = check(run_of_training(TRAINING), epsilon="8.0", delta=1e-5)
    assert found.verdict == "too low"
    assert f"{found.epsilon:.4g}" == "[29.25, 29.43]"
    assert "Poisson" in _reasons(found)
    (bounds,) = found.explained_by.values()
    poisson = tb.Gaussian(0.4869).subsampled(1 / 250) * 1250
    assert bounds == poisson.answer(delta=1e-5, rtol=1e-3).bounds


@pytest.mark.parametrize(
    ("told", "meant", "words"),
    [
        (STEP * 1, STEP * 500, "the number of runs is left out"),
        (STEP * 5, STEP * 500, "as there are epochs"),
        (tb.Gaussian(4.0) * 10, tb.Gaussian(2.0) * 10, "twice the noise"),
        (STEP * 300, tb.Gaussian(1.0).batches(10, of=1000) * 300, "Poisson samples"),
        (tb.Gaussian(2.0) * 4, tb.Gaussian(1.0) * 4, "twice the noise"),
        (tb.Laplace(1.0) * 4, tb.Laplace(2.0) * 4, "half the noise"),
        (tb.Gaussian(1.0) * 100, STEP * 100, "the sampling is left out"),
    ],
)
def test_a_slip_is_named(told: tb.Composition, meant: tb.Composition, words: str) -> None:
    printed = f"{told.epsilon(1e-5).upper:.5f}"
    found = check(meant, epsilon=printed, delta=1e-5)
    assert found.verdict in ("too low", "too high")
    assert words in _reasons(found)


def test_delta_of_each_run_is_named() -> None:
    run = STEP * 100
    for at in (1e-5 / 100, 1e-5 * 100):
        found = check(run, epsilon=f"{run.epsilon(at).upper:.6f}", delta=1e-5)
        assert "delta" in _reasons(found)


def test_a_number_that_no_reading_has_gets_no_reason() -> None:
    assert check(STEP * 1000, epsilon="0.777", delta=1e-5).explained_by == {}


def test_reasons_hold_the_number_and_are_close() -> None:
    found = check(STEP * 1000, epsilon="1.0", delta=1e-5)
    for bounds in found.explained_by.values():
        assert bounds.relative_gap <= 0.01
        assert bounds.upper >= 0.9
        assert bounds.lower <= 1.1


def test_readings_differ_from_the_run_and_from_each_other() -> None:
    for sampler in ("shuffle", "fixed", "poisson"):
        run = run_of_training({**TRAINING, "sampler": sampler})
        known = [(reading.run, reading.delta) for reading in readings(run)]
        assert len(set(known)) == len(known) >= 5
        assert (run, Fraction(1)) not in known


def test_a_run_without_such_parts_has_no_readings_but_of_delta() -> None:
    run = tb.ApproximateDP(0.1) * 1
    assert list(readings(run)) == []
    assert with_noise(run, 2.0) is None
    assert ["delta" in reading.what for reading in readings(run * 3)] == [False, True, True]


# -------------------------------------------------------------------------------- noise


def test_the_noise_that_would_do_meets_the_printed_number() -> None:
    run = STEP * 1000
    found = check(run, epsilon="2.10", delta=1e-5)  # a Renyi accountant's number
    assert found.verdict == "too high"
    assert found.noise is not None
    assert 0.9 < found.noise < 0.95
    less = with_noise(run, found.noise)
    assert less is not None
    assert less.epsilon(1e-5).upper <= 2.10
    assert f"{100 * found.noise:.4g} % of it would do" in str(found)


def test_noise_is_scaled_inside_every_sampler() -> None:
    for run in (STEP * 3, tb.Laplace(2.0).group(2) * 1, tb.Gaussian(1.0).shuffled(5) * 2):
        twice = with_noise(run * 1, 2.0)
        assert twice is not None
        assert twice.epsilon(1e-3).upper < run.epsilon(1e-3).lower


# ----------------------------------------------------------------------------- training


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_training_is_the_run_that_the_page_on_samplers_has(sampler: str) -> None:
    table: dict[str, Any] = {**TRAINING, "noise_multiplier": 2.0, "sampler": sampler}
    step = tb.Gaussian(2.0)
    expected = {
        "poisson": step.subsampled(1 / 250) * 1250,
        "truncated poisson": step.truncated_poisson(1 / 250, 60, 10_000) * 1250,
        "shuffle": step.shuffled(250) * 5,
        "allocation": step.allocated(250) * 5,
        "fixed": step.batches(40, of=10_000) * 1250,
        "with replacement": step.batches(40, of=10_000, replacement=True) * 1250,
        "all": step * 5,
    }[sampler]
    if sampler == "truncated poisson":
        table["at_most"] = 60
    if sampler == "all":
        table["batch_size"] = 10_000
    assert run_of_training(table) == expected
    epochs = table.pop("epochs")
    assert run_of_training({**table, "steps": epochs if sampler == "all" else 1250}) == expected


UNEVEN = {
    **TRAINING,
    "sampler": "poisson",
    "noise_multiplier": 1.0,
    "batch_size": 300,
    "steps": 340,
}
del UNEVEN["epochs"]


def _claimed(folder: Path, table: dict[str, Any], epsilon: str) -> NumberCheck:
    return read_claim(_file(folder, {"epsilon": epsilon, "delta": 1e-5, **table})).check()


def test_a_number_that_is_right_at_the_rate_of_some_stack_is_not_refuted(tmp_path: Path) -> None:
    step = tb.Gaussian(1.0)
    runs = [step.subsampled(rate) * 340 for rate in (0.03, 1 / 34, 1 / 33)]
    assert list(runs_of_training(UNEVEN)) == runs
    for run in runs:
        found = _claimed(tmp_path, UNEVEN, f"{run.epsilon(1e-5).upper:.5f}")
        assert (found.verdict, found.run) == ("agrees", run)
    ends = [run.epsilon(1e-5) for run in runs]
    below, above = ends[1].lower - 0.01, ends[2].upper + 0.01
    assert _claimed(tmp_path, UNEVEN, f"{below:.5f}").verdict == "too low"
    assert _claimed(tmp_path, UNEVEN, f"{below:.5f}").epsilon == ends[1]
    assert _claimed(tmp_path, UNEVEN, f"{above:.5f}").verdict == "too high"
    assert _claimed(tmp_path, UNEVEN, f"{above:.5f}").epsilon == ends[2]
    between = _claimed(tmp_path, UNEVEN, f"{(ends[0].upper + ends[1].lower) / 2:.5f}")
    assert (between.verdict, between.holds) == ("open", None)
    assert "batch_size does not divide dataset_size: say sample_rate" in str(between)
    assert (between.epsilon.lower, between.epsilon.upper) == (ends[1].lower, ends[2].upper)


def test_a_sample_rate_that_is_given_is_the_rate(tmp_path: Path) -> None:
    table = {**UNEVEN, "sample_rate": 1 / 34}
    assert runs_of_training(table) == (tb.Gaussian(1.0).subsampled(1 / 34) * 340,)
    right = (tb.Gaussian(1.0).subsampled(0.03) * 340).epsilon(1e-5).upper
    assert _claimed(tmp_path, UNEVEN, f"{right:.5f}").verdict == "agrees"
    assert _claimed(tmp_path, table, f"{right:.5f}").verdict == "too high"


def test_an_epoch_has_as_many_steps_as_its_rate_says() -> None:
    table = {name: value for name, value in UNEVEN.items() if name != "steps"} | {"epochs": 3}
    step = tb.Gaussian(1.0)
    expected = [step.subsampled(0.03) * 100, step.subsampled(1 / 34) * 102]
    assert list(runs_of_training(table)) == [*expected, step.subsampled(1 / 33) * 99]
    cut = {**UNEVEN, "sampler": "truncated poisson", "at_most": 400}
    assert len(runs_of_training(cut)) == 3
    assert len(runs_of_training({**UNEVEN, "batch_size": 400, "steps": 10})) == 1


def test_a_smaller_last_batch_of_a_shuffle_is_a_batch() -> None:
    run = run_of_training({**TRAINING, "batch_size": 39})
    assert run == tb.Gaussian(0.4869).shuffled(257, smaller=1) * 5  # and 16 left


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"sampler": "buffer"},
            "sampler must be one that can be accounted (poisson, truncated poisson, shuffle, "
            "allocation, fixed, with replacement, all), got 'buffer': of other ways to draw "
            "batches no upper bound is known here",
        ),
        ({"sampler": ["poisson"]}, "sampler must be one that can be accounted"),
        ({"sampler": None}, "a training needs sampler"),
        ({"noise_multiplier": None}, "a training needs noise_multiplier"),
        ({"noise_multiplier": 0}, "noise_multiplier must be a finite number > 0, got 0"),
        ({"batch_size": 0}, "batch_size must be an integer >= 1, got 0"),
        ({"batch_size": 20_000}, "batch_size must be at most dataset_size (10000), got 20000"),
        ({"epochs": None}, "a training needs exactly one of epochs and steps"),
        ({"steps": 1250}, "a training needs exactly one of epochs and steps"),
        ({"epoch": 5}, "got 'epoch' (did you mean epochs?)"),
        ({"epochs": None, "steps": 7}, "steps must be whole epochs of 250 batches, got 7"),
        (
            {"sampler": "poisson", "batch_size": 37},
            "epochs x dataset_size / batch_size must be an integer, got 1351.35: give steps",
        ),
        (
            {"sampler": "allocation", "batch_size": 37},
            "must be an integer with the sampler allocation, got 270.27",
        ),
        (
            {"sampler": "poisson", "epochs": 10**400, "batch_size": 37},
            "epochs x dataset_size / batch_size must be an integer, got inf",
        ),
        ({"sampler": "poisson", "epochs": 10**400}, "times must be at most 10^100 in all"),
        (
            {"sampler": "allocation", "dataset_size": 10**400 + 1},
            "must be an integer with the sampler allocation, got inf",
        ),
        (
            {"sample_rate": 0.004},
            "sample_rate goes with the samplers poisson and",
        ),
        (
            {"sampler": "poisson", "sample_rate": 0.04},
            "sample_rate must fit batch_size and dataset_size: be at least 0.004 and at most "
            "0.004, got 0.04",
        ),
        ({"sampler": "poisson", "sample_rate": "x"}, "sample_rate must be"),
        ({"sampler": "all"}, "batch_size must be dataset_size (10000) with the sampler all"),
        ({"at_most": 60}, "goes with the sampler truncated poisson alone"),
        ({"sampler": "truncated poisson"}, "at_most, the largest batch, goes with the sampler"),
    ],
)
def test_a_training_that_cannot_be_read_is_refused(change: dict[str, Any], message: str) -> None:
    table = {name: v for name, v in {**TRAINING, **change}.items() if v is not None}
    with pytest.raises(tb.TightBudgetError) as refused:
        run_of_training(table)
    assert message in str(refused.value)


# -------------------------------------------------------------------------------- files


def _file(folder: Path, content: Any, name: str = "claim.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


PLAN = {"steps": (STEP * 1000).to_dict()["steps"]}


@pytest.mark.parametrize("number", ["1.83", '"1.83"'])
def test_digits_count_as_they_stand_in_the_file(tmp_path: Path, number: str) -> None:
    steps = json.dumps(PLAN)[1:-1]
    claim = read_claim(_file(tmp_path, f'{{"epsilon": {number}, "delta": 1e-5, {steps}}}'))
    assert (claim.epsilon, claim.delta, claim.run) == ("1.83", "1e-5", STEP * 1000)
    assert claim.check().verdict == "agrees"
    rounded = read_claim(_file(tmp_path, f'{{"epsilon": 1.830, "delta": 1e-5, {steps}}}'))
    assert rounded.check().verdict == "too high"


def test_a_plan_in_toml_json_and_gzip_is_the_same_claim(tmp_path: Path) -> None:
    toml = 'epsilon = 1.83\ndelta = "1e-5"\n[[steps]]\nmechanism = "gaussian"\nsigma = 1.0\n'
    toml += "rate = 0.01\ntimes = 1000\n"
    first = read_claim(_file(tmp_path, toml, "claim.toml"))
    assert first == read_claim(_file(tmp_path, {"epsilon": 1.83, "delta": "1e-5", **PLAN}))
    (tmp_path / "claim.toml.gz").write_bytes(gzip.compress(toml.encode()))
    assert read_claim(tmp_path / "claim.toml.gz") == first


def test_a_training_may_stand_at_the_top_or_in_a_table(tmp_path: Path) -> None:
    top = read_claim(_file(tmp_path, {"epsilon": "8.0", "delta": 1e-5, **TRAINING}))
    table = {"tightbudget": 1, "epsilon": "8.0", "delta": 1e-5, "training": TRAINING}
    assert read_claim(_file(tmp_path, table)) == top


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "claim.json: not JSON: "),
        ("[]", "claim.json: must have a table, with epsilon, delta and a run"),
        ('{"epsilon": 1, "epsilon": 2}', "not JSON: 'epsilon' is there twice"),
        ({"delta": 1e-5, **PLAN}, "claim.json: a claim needs epsilon, as it was printed"),
        ({"epsilon": 1.0, **PLAN}, "a claim needs delta, as it was printed"),
        ({"epsilon": True, "delta": 1e-5, **PLAN}, "epsilon must be a number as printed"),
        ({"epsilon": "1,83", "delta": 1e-5, **PLAN}, "epsilon must be a number >= 0 as printed"),
        ({"epsilon": None, "delta": 1e-5, **PLAN}, "epsilon must be a number >= 0 as printed"),
        ({"epsilon": 1.0, "delta": 2, **PLAN}, "delta must be in [0, 1], got 2.0"),
        ({"epsilon": 1.0, "delta": 1e-5}, "a claim needs a run: steps (of a plan), training or"),
        ({"epsilon": 1.0, "delta": 1e-5, **PLAN, "rho": 1}, "epsilon, delta, steps only, got"),
        ({"tightbudget": 2, "epsilon": 1.0, "delta": 1e-5, **PLAN}, "must be 1, got 2"),
        ({"epsilon": 1.0, "delta": 1e-5, "training": [1]}, "training must be a table, got [1]"),
        ({"epsilon": 1.0, "delta": 1e-5, "steps": [{"mechanism": "x"}]}, "steps[0].mechanism"),
        ({"epsilon": 1.0, "delta": 1e-5, **TRAINING, "sampler": "bag"}, "got 'bag'"),
    ],
)
def test_a_file_that_is_no_claim_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(tb.TightBudgetError) as refused:
        read_claim(_file(tmp_path, content))
    assert message in str(refused.value)
    assert "claim.json" in str(refused.value)


def test_a_toml_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tb.TightBudgetError, match="not TOML"):
        read_claim(_file(tmp_path, "epsilon = ", "claim.toml"))


# ----------------------------------------------------------------- events and the program


def _event(name: str, **fields: Any) -> dict[str, Any]:
    return {"class_name": name, **fields}


RESPONSES = {
    "neighboring_relation": "REPLACE_ONE",
    "event": _event(
        "SelfComposedDpEvent",
        count=100,
        event=_event("RandomizedResponseDpEvent", noise_parameter=0.9, num_buckets=2),
    ),
}


def test_a_count_that_an_accountant_drops_is_named(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    path = _file(tmp_path, {"epsilon": 0.20070, "delta": 1e-6, **RESPONSES})
    found = read_claim(path).check()
    assert found.verdict == "too low"
    assert f"{found.epsilon:.6g}" == "[10.7182, 10.7183]"
    assert "the number of runs is left out" in _reasons(found)


def test_an_event_of_which_an_upper_bound_is_known_refutes_nothing(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    event = _event("ComposedDpEvent", events=[_event("ZCDpEvent", rho=0.5, xi=0.0)])
    found = {}
    for epsilon in ("0.001", "100.0"):
        path = _file(tmp_path, {"epsilon": epsilon, "delta": 1e-5, "event": event})
        found[epsilon] = read_claim(path).check()
        assert found[epsilon].epsilon.lower == 0.0
    assert found["100.0"].verdict == "too high"
    assert found["0.001"].verdict == "open"
    assert "apart (an event of which an upper bound is known)" in str(found["0.001"])


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (3, "event must be a table with class_name, got 3"),
        ({"count": 3}, "event must be a table with class_name, got {'count': 3}"),
        (_event("NoSuchEvent"), "event: dp-accounting has no 'NoSuchEvent'"),
        (_event("attr"), "event: dp-accounting has no 'attr'"),
        (_event("NoOpDpEvent", sigma=1), "event: NoOpDpEvent has no 'sigma' (it has no fields)"),
        (_event("GaussianDpEvent", sigma=1), "GaussianDpEvent has no 'sigma' (it has noise_mult"),
        (_event("GaussianDpEvent"), "event: GaussianDpEvent: "),
        (_event("ComposedDpEvent", events=[{"sigma": 1}]), "event must be a table with class_name"),
        (_event("GaussianDpEvent", noise_multiplier=-1), "noise_multiplier must be a finite"),
        (_event("GaussianDpEvent", noise_multiplier="1"), "noise_multiplier must be a finite"),
        (_event("SelfComposedDpEvent", event=3, count=1), "no mechanism for this type of event"),
    ],
)
def test_an_event_that_cannot_be_read_is_refused(tmp_path: Path, event: Any, message: str) -> None:
    pytest.importorskip("dp_accounting")
    with pytest.raises(tb.TightBudgetError) as refused:
        read_claim(_file(tmp_path, {"epsilon": 1.0, "delta": 1e-5, "event": event}))
    assert message in str(refused.value)


def test_an_unknown_relation_of_events_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    claim = {"epsilon": 1.0, "delta": 1e-5, **RESPONSES, "neighboring_relation": "SWAP"}
    with pytest.raises(tb.TightBudgetError, match=r"neighboring_relation must be one of .*'SWAP'"):
        read_claim(_file(tmp_path, claim))


def test_the_names_of_named_tuples_are_those_of_files() -> None:
    dpa = pytest.importorskip("dp_accounting")
    adapter = pytest.importorskip("tightbudget.adapters.dp_accounting")

    def plain(value: Any) -> Any:
        if hasattr(value, "_asdict"):
            return {name: plain(entry) for name, entry in value._asdict().items()}
        return [plain(entry) for entry in value] if isinstance(value, list) else value

    step = dpa.PoissonSampledDpEvent(0.01, dpa.GaussianDpEvent(1.0))
    event = dpa.ComposedDpEvent([dpa.SelfComposedDpEvent(step, 1000), dpa.NoOpDpEvent()])
    table = json.loads(json.dumps(plain(event.to_named_tuple())))
    assert adapter.event_from_dict(table) == event


def _refuted(tmp_path: Path) -> Path:
    return _file(tmp_path, {"epsilon": "8.0", "delta": 1e-5, **TRAINING})


def test_the_program_says_why_and_has_an_exit_code_for_what_is_refuted(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["check", str(_refuted(tmp_path))])
    assert result.exit_code == 8
    assert "too low: epsilon is at least 29.25" in result.stdout
    assert "what Poisson samples of the same rate cost: [7.998" in result.stdout
    assert result.stderr == ""


def test_the_program_answers_in_json(tmp_path: Path) -> None:
    path = _refuted(tmp_path)
    result = CliRunner().invoke(app, ["check", str(path), "--json"])
    content = json.loads(result.stdout)
    assert result.exit_code == 8
    found = read_claim(path).check()
    assert {name: content[name] for name in found.to_dict()} == found.to_dict()
    assert content["asked"] == {"claim": str(path), "rtol": 1e-4}


@pytest.mark.parametrize(("epsilon", "verdict"), [("1.83", "agrees"), ("2.10", "too high")])
def test_the_program_ends_well_where_the_number_holds(
    tmp_path: Path, epsilon: str, verdict: str
) -> None:
    path = _file(tmp_path, {"epsilon": epsilon, "delta": 1e-5, **PLAN})
    result = CliRunner().invoke(app, ["check", str(path)])
    assert result.exit_code == 0
    assert verdict in result.stdout


def test_the_program_refuses_a_sampler_that_nobody_can_account(tmp_path: Path) -> None:
    path = _file(tmp_path, {"epsilon": 8, "delta": 1e-5, **TRAINING, "sampler": "sorted"})
    result = CliRunner().invoke(app, ["check", str(path)])
    assert result.exit_code == 2
    assert "sampler must be one that can be accounted (poisson, " in result.stderr
    assert result.stdout == ""
