"""``risk``, and ``calibrate`` for attacks: the same answers as in Python, either way."""

from __future__ import annotations

import pytest
from tests.cli.terminal import answer, refusal, run

import tightbudget as tb

STEP = tb.Gaussian(sigma=1.0).subsampled(rate=0.01)
DP_SGD = ["gaussian", "--sigma", 1, "--rate", 0.01, "--times", 1000]


def test_risk_in_json_is_what_python_answers() -> None:
    assert answer("risk", *DP_SGD, "--epsilon", 2) == (STEP * 1000).risk(2.0).to_dict()
    options = ["--fpr", 0.1, "--prior", 0.2, "--slack", 1e-6, "--rtol", 1e-3]
    risk = (STEP * 1000).risk(2.0, fpr=0.1, prior=0.2, slack=1e-6, rtol=1e-3)
    assert answer("risk", *DP_SGD, "--epsilon", 2, *options) == risk.to_dict()


def test_what_no_gaussian_bounds_is_infinite_in_json() -> None:
    got = answer("risk", "worst-case", "--step-epsilon", 1, "--step-delta", 1e-3, "--epsilon", 0.5)
    assert got["mu"] == {"lower": float("inf"), "upper": float("inf")}


def test_people_read_the_same() -> None:
    result = run("risk", *DP_SGD, "--epsilon", 2)
    assert result.exit_code == 0
    what, *rows, seconds = result.stdout.splitlines()
    assert what.split(None, 1) == ["what", "gaussian sigma=1.0 rate=0.01, 1000 times"]
    assert rows == str((STEP * 1000).risk(2.0)).splitlines()
    assert seconds.startswith("seconds")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epsilon", -1], "epsilon must be a finite number >= 0, got -1"),
        (["--epsilon", 1, "--fpr", 2], "fpr must be in [0, 1], got 2"),
        (["--epsilon", 1, "--prior", 1], "prior must be in (0, 1), got 1"),
        (["--epsilon", 1, "--slack", "some"], "slack must be in [0, 1], got 'some'"),
        ([], "Missing option '--epsilon'."),
    ],
)
def test_refused_questions(options: list[object], message: str) -> None:
    assert refusal("risk", *DP_SGD, *options) == message


SAMPLED = ["gaussian", "--rate", 0.01, "--times", 1000]


def test_noise_for_an_advantage() -> None:
    found = tb.calibrate(lambda s: tb.Gaussian(s).subsampled(0.01) * 1000, advantage=0.05)
    got = answer("calibrate", *SAMPLED, "--advantage", 0.05)
    assert got == {"value": found.value, "advantage": found.met.to_dict()}
    rows = run("calibrate", *SAMPLED, "--advantage", 0.05).stdout.splitlines()
    assert rows[0].split() == ["sigma", repr(found.value)]
    assert rows[2].split(None, 1) == ["advantage", f"{found.met}  (target 0.05)"]


@pytest.mark.slow
def test_noise_for_a_true_positive_rate() -> None:
    found = tb.calibrate(lambda s: tb.Gaussian(s).subsampled(0.01) * 1000, tpr=0.02, fpr=0.01)
    got = answer("calibrate", *SAMPLED, "--tpr", 0.02, "--fpr", 0.01)
    assert got == {"value": found.value, "tpr": found.met.to_dict(), "fpr": 0.01}
    rows = run("calibrate", *SAMPLED, "--tpr", 0.02, "--fpr", 0.01).stdout.splitlines()
    assert rows[2].split(None, 1) == ["tpr", f"{found.met}  (target 0.02)"]
    assert rows[3].split() == ["at", "fpr", "0.01"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give exactly one target: epsilon and delta, or advantage, or tpr and fpr; got none"),
        (["--epsilon", 1], "delta is missing: give epsilon and delta together"),
        (["--tpr", 0.1, "--fpr", 0.2], "tpr must be > fpr = 0.2, got 0.1"),
        (["--advantage", "much"], "advantage must be in (0, 1), got 'much'"),
        (
            ["--advantage", 0.1, "--tpr", 0.1],
            "give exactly one target: epsilon and delta, or advantage, or tpr and fpr; "
            "got advantage, tpr",
        ),
    ],
)
def test_refused_targets(options: list[object], message: str) -> None:
    assert refusal("calibrate", *SAMPLED, *options) == message
