"""The six commands of the README, their JSON, and what people read."""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from tests.cli.terminal import answer, refusal, run

import tightbudget as tb

STEP = tb.Gaussian(sigma=1.0).subsampled(rate=0.01)
PLAN = """
tightbudget = 1
[[steps]]
mechanism = "gaussian"
sigma = 1.0
rate = 0.01
times = 100
[[steps]]
mechanism = "laplace"
scale = 20.0
times = 5
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def both(bounds: tb.Bounds) -> dict[str, float]:
    return {"lower": bounds.lower, "upper": bounds.upper}


# ------------------------------------------------------------------ epsilon and delta


DP_SGD = ["gaussian", "--sigma", 1, "--rate", 0.01, "--times", 1000]


def test_epsilon_in_json_is_what_python_answers() -> None:
    bounds = (STEP * 1000).epsilon(1e-5)
    assert answer("epsilon", *DP_SGD, "--delta", "1e-5") == {"epsilon": both(bounds), "delta": 1e-5}


def test_delta_in_json_is_what_python_answers() -> None:
    bounds = (tb.Laplace(scale=20.0) * 100).delta(1.0)
    got = answer("delta", "laplace", "--scale", 20, "--times", 100, "--epsilon", 1)
    assert got == {"delta": both(bounds), "epsilon": 1}


@pytest.mark.slow
def test_a_plan_file_with_a_closer_gap(plan: Path) -> None:
    got = answer("epsilon", plan, "--delta", "1e-5", "--rtol", "1e-6")
    lower, upper = got["epsilon"]["lower"], got["epsilon"]["upper"]
    assert 0 < lower <= upper <= lower * (1 + 1.1e-6)
    assert got["epsilon"] == both(tb.read_plan(plan).epsilon(1e-5, rtol=1e-6))


def test_a_gzipped_plan_is_the_same_plan_and_steps_repeat_it(plan: Path, tmp_path: Path) -> None:
    zipped = tmp_path / "plan.toml.gz"
    zipped.write_bytes(gzip.compress(plan.read_bytes()))
    twice = answer("epsilon", zipped, "--delta", "1e-3", "--times", 2)
    assert twice["epsilon"] == both((tb.read_plan(plan) * 2).epsilon(1e-3))


def test_people_read_certified_digits_and_seconds() -> None:
    result = run("epsilon", *DP_SGD, "--delta", "1e-5")
    bounds = (STEP * 1000).epsilon(1e-5)
    lines = [line.split(None, 1) for line in result.stdout.splitlines()]
    assert lines[0] == ["what", "gaussian sigma=1.0 rate=0.01, 1000 times"]
    assert lines[1] == ["epsilon", str(bounds)]
    assert lines[2] == ["at", "delta  1e-05"]
    assert re.fullmatch(r"seconds +\d+\.\d\d", result.stdout.splitlines()[-1])
    digits = re.findall(r"\d+\.\d+", lines[1][1])
    assert float(digits[0]) <= bounds.lower
    assert bounds.upper <= float(digits[1])
    assert not any(line != line.rstrip() for line in result.stdout.splitlines())


def test_an_infinite_epsilon_says_why_and_is_a_number_in_json() -> None:
    worst = ["worst-case", "--step-epsilon", 0.1, "--step-delta", "1e-3"]
    shown = run("epsilon", *worst, "--delta", "1e-5").stdout
    assert "[inf, inf]" in shown
    assert re.search(r"because +delta is in \[0\.001, 0\.001\] however large epsilon is", shown)
    raw = run("epsilon", *worst, "--delta", "1e-5", "--json").stdout
    assert '"upper": 1e999' in raw
    assert json.loads(raw)["epsilon"] == {"lower": math.inf, "upper": math.inf}


def test_nothing_run_costs_nothing() -> None:
    nothing = answer("epsilon", "gaussian", "--sigma", 1, "--times", 0, "--delta", 0)
    assert nothing["epsilon"] == {"lower": 0.0, "upper": 0.0}


def test_long_plans_are_listed_in_part(tmp_path: Path) -> None:
    tb.write_plan(tb.compose([tb.Gaussian(s + 5.0) for s in range(7)]), tmp_path / "plan.toml")
    shown = run("delta", tmp_path / "plan.toml", "--epsilon", 1).stdout
    assert "sigma=9.0, 1 time\n" in shown
    assert "and 2 more, 7 times in all" in shown
    assert "sigma=10.0" not in shown


# -------------------------------------------------------------------------- compare


def test_compare_in_json_is_what_python_answers() -> None:
    found = tb.compare(tb.RandomizedResponse(0.6) * 20, epsilon=1.0)
    got = answer("compare", "randomized-response", "--p", 0.6, "--times", 20, "--epsilon", 1)
    assert got == json.loads(found.to_json())
    assert got["answered"] == "delta"
    assert [row["name"] for row in got["rows"]] == [row.name for row in found.rows]


def test_people_compare_in_a_table() -> None:
    result = run("compare", "randomized-response", "--p", 0.6, "--times", 20, "--delta", "1e-2")
    lines = result.stdout.splitlines()
    assert lines[0].split(None, 1) == ["what", "randomized_response p=0.6, 20 times"]
    assert "\n".join(lines[1:-1]) == str(tb.compare(tb.RandomizedResponse(0.6) * 20, delta=0.01))
    assert lines[-1].startswith("seconds")


def test_compare_wants_one_question() -> None:
    for question in ([], ["--delta", "1e-5", "--epsilon", 1]):
        said = refusal("compare", "laplace", "--scale", 2, *question)
        assert said == "give exactly one of delta and epsilon"


# ------------------------------------------------------------------------------ curve


@pytest.mark.slow
def test_a_curve_as_picture_and_csv(plan: Path, tmp_path: Path) -> None:
    picture, table = tmp_path / "curve.png", tmp_path / "curve.csv"
    args = ["--out", picture, "--csv", table, "--deltas", "1e-2,1e-3"]
    shown = run("curve", plan, *args).stdout
    assert str(picture) in shown
    assert str(table) in shown
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["delta"] for row in rows] == ["0.01", "0.001"]
    curve = tb.read_plan(plan).curve(deltas=[1e-2, 1e-3])
    assert float(rows[1]["epsilon_lower"]) == curve[1].lower
    assert float(rows[1]["epsilon_upper"]) == curve[1].upper


def test_a_curve_has_defaults() -> None:
    got = answer("curve", "gaussian", "--sigma", 2)
    deltas = got["delta"]
    assert (deltas[0], deltas[-1], len(deltas)) == (1e-2, 1e-12, 21)
    assert deltas == sorted(deltas, reverse=True)
    assert got["epsilon"]["upper"] == sorted(got["epsilon"]["upper"])


@pytest.mark.parametrize(
    ("option", "text", "points"),
    [
        ("epsilons", "0:1:3", [0.0, 0.5, 1.0]),
        ("epsilons", "0.5,2", [0.5, 2.0]),
        ("deltas", "1e-2:1e-4:3", [1e-2, 1e-3, 1e-4]),
        ("deltas", "1e-3", [1e-3]),
    ],
)
def test_points_are_asked_for(option: str, text: str, points: list[float]) -> None:
    got = answer("curve", "gaussian", "--sigma", 2, f"--{option}", text)
    given: dict[str, Any] = {option: points}
    assert got == tb.compose([tb.Gaussian(2.0)]).curve(**given).to_dict()


def test_a_curve_is_a_table_of_certified_digits() -> None:
    lines = run("curve", "gaussian", "--sigma", 2, "--epsilons", "0,1").stdout.splitlines()
    assert lines[0].split() == ["epsilon", "delta"]
    curve = tb.compose([tb.Gaussian(2.0)]).curve(epsilons=[0.0, 1.0])
    assert lines[1].split(None, 1) == ["0.0", str(curve[0])]
    assert lines[3].startswith("what ")


def test_a_gzipped_csv_is_a_csv(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv.gz"
    run("curve", "gaussian", "--sigma", 2, "--epsilons", "0,1", "--csv", path)
    assert gzip.decompress(path.read_bytes()).startswith(b"epsilon,delta_lower,delta_upper\n0.0,")


# -------------------------------------------------------------------------- calibrate


def test_the_missing_noise_is_found() -> None:
    got = answer("calibrate", "gaussian", "--epsilon", 1, "--delta", "1e-6", "--times", 10)
    assert set(got) == {"value", "epsilon", "delta"}
    assert got["delta"] == 1e-6
    run_at = tb.Gaussian(got["value"]) * 10
    assert run_at.delta(1.0, rtol=1e-6).upper <= 1e-6
    assert (tb.Gaussian(got["value"] * (1 - 1e-4)) * 10).delta(1.0, rtol=1e-6).lower > 1e-6
    assert got["epsilon"]["lower"] <= got["epsilon"]["upper"] <= 1


@pytest.mark.slow
def test_the_largest_number_of_steps_is_found() -> None:
    args = ["--parameter", "times", "--epsilon", 1, "--delta", "1e-3"]
    got = answer("calibrate", "laplace", "--scale", 30, *args)
    assert isinstance(got["value"], int)
    assert (tb.Laplace(30.0) * got["value"]).delta(1.0, rtol=1e-6).upper <= 1e-3
    assert (tb.Laplace(30.0) * (got["value"] + 1)).delta(1.0, rtol=1e-6).upper > 1e-3


def test_a_parameter_is_found_where_it_is_looked_for() -> None:
    args = ["--epsilon", 1, "--delta", "1e-3", "--times", 10, "--between", "0.501:0.999"]
    got = answer("calibrate", "randomized-response", *args)
    assert (tb.RandomizedResponse(got["value"]) * 10).epsilon(1e-3).upper <= 1


def test_people_read_the_value_in_full() -> None:
    args = ["gaussian", "--epsilon", 1, "--delta", "1e-3"]
    shown, value = run("calibrate", *args).stdout, answer("calibrate", *args)["value"]
    assert re.search(rf"^sigma +{value!r}$", shown, re.MULTILINE)
    assert re.search(r"^epsilon +\[.*\]  \(target 1\)$", shown, re.MULTILINE)


# -------------------------------------------------------------------------- histogram


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    active, passive = tmp_path / "active.csv.gz", tmp_path / "passive.csv"
    active.write_bytes(gzip.compress(b"delay\n1.5\n2.5\n2.25\n\n400\n"))
    passive.write_text("1.5\n1.75\n3.25\n2.5")
    return active, passive


def test_two_files_of_measurements(files: tuple[Path, Path]) -> None:
    args = ["--bin-width", 1, "--keep-below", 300, "--add-noise", "uniform:20", "--times", 3]
    pair = tb.HistogramPair.from_samples(
        [1.5, 2.5, 2.25], [1.5, 1.75, 3.25, 2.5], bin_width=1.0, keep_below=300, noise="uniform:20"
    )
    got = answer("histogram", *files, *args, "--epsilon", 0.5)
    assert got == {"delta": both((pair * 3).delta(0.5)), "epsilon": 0.5}
    got = answer("histogram", *files, *args, "--delta", 0.2)
    assert got == {"epsilon": both((pair * 3).epsilon(0.2)), "delta": 0.2}
    shown = run("histogram", *files, *args, "--delta", 0.2).stdout
    assert "active.csv.gz against " in shown
    assert "bins of 1, 3 times" in shown


def test_gaussian_noise_and_smoothing(files: tuple[Path, Path]) -> None:
    args = ["--keep-below", 300, "--add-noise", "gaussian:2", "--smoothing", 0.5]
    got = answer("histogram", *files, *args, "--epsilon", 0)
    assert 0 < got["delta"]["lower"] <= got["delta"]["upper"] < 0.5


def test_measured_delays(shared: Path) -> None:
    folder = shared / "data" / "coverup"
    if not folder.is_dir():
        pytest.skip("no measured delays in 'shared': the histogram of real data is not checked")
    files = [folder / "active.csv.gz", folder / "passive.csv.gz"]
    args = ["--bin-width", 1, "--keep-below", 300, "--add-noise", "uniform:200", "--times", 512]
    got = answer("histogram", *files, *args, "--delta", "1e-2")
    lower, upper = got["epsilon"]["lower"], got["epsilon"]["upper"]
    assert 0 < lower <= upper <= lower * (1 + 1.1e-4)
