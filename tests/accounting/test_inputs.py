"""Every public question refuses what it cannot mean, by name and value; nothing slips through."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pytest

import tightbudget as tb

RUN = tb.Gaussian(2.0) * 3 + tb.Laplace(5.0)
NOT_NUMBERS: list[Any] = [math.nan, None, "1", b"1", True, 1j, [1.0], {}]


def refuses(message: str) -> Any:
    return pytest.raises(tb.ParameterError, match="^" + re.escape(message))


# ------------------------------------------------------------------------- questions


@pytest.mark.parametrize("value", [*NOT_NUMBERS, -0.1, 1.1, math.inf, -math.inf])
def test_delta_is_a_probability(value: Any) -> None:
    with refuses("delta must be in [0, 1], got "):
        RUN.epsilon(value)
    with refuses("deltas[1] must be in [0, 1], got "):
        RUN.curve(deltas=[0.5, value])


@pytest.mark.parametrize("value", [*NOT_NUMBERS, -1e-300, -1.0, -math.inf])
def test_epsilon_is_not_negative(value: Any) -> None:
    with refuses("epsilon must be a finite number >= 0, got "):
        RUN.delta(value)
    with refuses("epsilons[0] must be a finite number >= 0, got "):
        RUN.curve(epsilons=[value])


QUESTIONS: dict[str, Any] = {
    "epsilon": lambda rtol: RUN.epsilon(1e-5, rtol),
    "delta": lambda rtol: RUN.delta(1.0, rtol),
    "infinite epsilon": lambda rtol: RUN.delta(math.inf, rtol),
    "total_variation": lambda rtol: RUN.total_variation(rtol),
    "curve": lambda rtol: RUN.curve(epsilons=[1.0], rtol=rtol),
    "tradeoff": lambda rtol: RUN.tradeoff([0.1], rtol),
    "renyi": lambda rtol: RUN.renyi(2.0, rtol),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("value", [*NOT_NUMBERS, 0, 0.0, -1e-4, math.inf, 1, 1.0, 2.0])
def test_a_gap_is_between_0_and_1(question: str, value: Any) -> None:
    with pytest.raises(tb.ParameterError, match=r"^rtol must be .*, got "):
        QUESTIONS[question](value)


def test_extreme_questions_have_their_answers() -> None:
    assert RUN.epsilon(1.0) == tb.Bounds(0.0, 0.0)
    assert RUN.epsilon(0.0) == tb.Bounds(math.inf, math.inf) or RUN.epsilon(0.0).upper == math.inf
    assert RUN.delta(math.inf) == tb.Bounds(0.0, 0.0)
    assert RUN.delta(1e6).upper <= 1e-290
    assert RUN.delta(np.float64(1.0)).overlaps(RUN.delta(1))
    assert RUN.tradeoff([]) == ()
    assert len(RUN.curve(deltas=np.array([0.1]))) == 1


@pytest.mark.parametrize("value", [*NOT_NUMBERS, -0.1, 1.5, math.inf])
def test_false_positive_rates_are_probabilities(value: Any) -> None:
    with refuses("false_positive_rates[1] must be in [0, 1], got "):
        RUN.tradeoff([0.5, value])


@pytest.mark.parametrize("value", [*NOT_NUMBERS, -math.inf])
def test_an_order_is_a_number(value: Any) -> None:
    with refuses("order must be a finite number, got "):
        RUN.renyi(value)


@pytest.mark.parametrize("value", [1.0, 1, 0.5, 0, -3.0])
def test_an_order_is_above_1(value: Any) -> None:
    with refuses(f"order must be > 1, got {value!r}"[:23]):
        RUN.renyi(value)


def test_a_curve_is_over_one_of_both() -> None:
    for given in ({}, {"epsilons": [1.0], "deltas": [0.1]}):
        with refuses(
            "give exactly one of epsilons and deltas, such as deltas=[1e-5, 1e-6]; plot()"
        ):
            RUN.curve(**given)  # type: ignore[arg-type]


# ------------------------------------------------------------------------- composing


@pytest.mark.parametrize("value", [*NOT_NUMBERS, -1, 1.0, 2.5, math.inf, np.float64(2)])
def test_times_is_a_count(value: Any) -> None:
    for composed in (lambda: RUN * value, lambda: tb.Gaussian(1.0) * value, lambda: value * RUN):
        with refuses("times must be an integer >= 0, got "):
            composed()
    with refuses("times must be an integer >= 0, got "):
        tb.Composition(((tb.Gaussian(1.0), value),))


@pytest.mark.parametrize("times", [10**100 + 1, 10**400], ids=["just", "no double"])
def test_times_have_a_limit(times: int) -> None:
    limit = "times must be at most 10^100 in all, got "
    with refuses(limit):
        tb.Gaussian(1.0) * times
    with refuses(limit):
        tb.Gaussian(1.0) * 10**100 + tb.Gaussian(1.0)
    assert (tb.Gaussian(1.0) * 10**100 + tb.Gaussian(2.0)).runs == 10**100 + 1


def test_counts_of_numpy_are_counts() -> None:
    three: Any = np.int64(3)
    assert tb.Gaussian(1.0) * three == tb.Gaussian(1.0) * 3
    assert tb.Gaussian(1.0) * 10**12 == tb.Gaussian(1.0) * (10**12)


@pytest.mark.parametrize("value", [1, None, "gaussian", tb.Gaussian, {"mechanism": "gaussian"}])
def test_only_mechanisms_are_composed(value: Any) -> None:
    with refuses("mechanisms must be a list, such as [mechanism], got Gaussian(sigma=1.0)"):
        tb.compose(tb.Gaussian(1.0))  # type: ignore[arg-type]
    with refuses("mechanisms[1] must be a mechanism or a composition, got "):
        tb.compose([tb.Gaussian(1.0), value])
    with refuses("mechanism must be a tightbudget mechanism, got "):
        tb.Composition(((value, 1),))
    with pytest.raises(TypeError):
        RUN + value


# ------------------------------------------------------------------------------ JSON


def text(steps: Any, version: Any = 1) -> str:
    return json.dumps({"tightbudget": version, "steps": steps})


GAUSSIAN = {"mechanism": "gaussian", "sigma": 1.0}

MALFORMED: list[tuple[Any, type[Exception], str]] = [
    ("", tb.errors.FileError, "not JSON: "),
    ("{", tb.errors.FileError, "not JSON: "),
    (None, tb.errors.FileError, "not JSON: "),
    ("[]", tb.errors.FileError, "no composition: expected "),
    ("3", tb.errors.FileError, "no composition: expected "),
    ("{}", tb.errors.FileError, "no composition: expected "),
    (text([GAUSSIAN], version=2), tb.errors.FileError, "no composition: expected "),
    (text([GAUSSIAN], version="1"), tb.errors.FileError, "no composition: expected "),
    ('{"tightbudget": 1}', tb.errors.FileError, "steps must be a list, got None"),
    (text({"mechanism": "gaussian"}), tb.errors.FileError, "steps must be a list, got "),
    (text(["gaussian"]), tb.errors.FileError, "steps[0] must be a table, got 'gaussian'"),
    (text([{}]), tb.errors.FileError, "steps[0].mechanism must be one of "),
    (text([{"mechanism": "gauss"}]), tb.errors.FileError, "steps[0].mechanism must be one of "),
    (text([{"mechanism": []}]), tb.errors.FileError, "steps[0].mechanism must be one of "),
    (
        text([GAUSSIAN, {"mechanism": "gaussian"}]),
        tb.errors.FileError,
        "steps[1]: gaussian needs sigma",
    ),
    (
        text([{**GAUSSIAN, "sigmas": 2.0}]),
        tb.errors.FileError,
        "steps[0]: gaussian has no parameter 'sigmas' (it has sigma, sensitivity",
    ),
    (
        text([{**GAUSSIAN, "sigma": -1.0}]),
        tb.ParameterError,
        "steps[0]: sigma must be a finite number > 0",
    ),
    (
        text([{**GAUSSIAN, "sigma": "1"}]),
        tb.ParameterError,
        "steps[0]: sigma must be a finite number > 0",
    ),
    (
        text([{**GAUSSIAN, "sigma": None}]),
        tb.ParameterError,
        "steps[0]: sigma must be a finite number > 0",
    ),
    (
        text([{**GAUSSIAN, "sigma": True}]),
        tb.ParameterError,
        "steps[0]: sigma must be a finite number > 0",
    ),
    (
        '{"tightbudget": 1, "steps": [{"mechanism": "gaussian", "sigma": NaN}]}',
        tb.TightBudgetError,
        "",
    ),
    (
        '{"tightbudget": 1, "steps": [{"mechanism": "gaussian", "sigma": Infinity}]}',
        tb.TightBudgetError,
        "",
    ),
    (
        text([{**GAUSSIAN, "times": -1}]),
        tb.ParameterError,
        "steps[0].times must be an integer >= 0, got -1",
    ),
    (
        text([{**GAUSSIAN, "times": 1.5}]),
        tb.ParameterError,
        "steps[0].times must be an integer >= 0, got 1.5",
    ),
    (
        text([{**GAUSSIAN, "times": "3"}]),
        tb.ParameterError,
        "steps[0].times must be an integer >= 0, got '3'",
    ),
    (
        text([{**GAUSSIAN, "rate": 1.5}]),
        tb.ParameterError,
        "steps[0]: rate must be in [0, 1], got 1.5",
    ),
    (
        text([{**GAUSSIAN, "rate": "a"}]),
        tb.ParameterError,
        "steps[0]: rate must be in [0, 1], got 'a'",
    ),
    (
        text([{**GAUSSIAN, "relation": "neighbours"}]),
        tb.errors.FileError,
        "steps[0].relation must be one of ",
    ),
    (
        text([{**GAUSSIAN, "relation": []}]),
        tb.errors.FileError,
        "steps[0].relation must be one of ",
    ),
    (
        text([{"mechanism": "subsampled", "rate": 0.1}]),
        tb.errors.FileError,
        "steps[0]: subsampled needs base (a table)",
    ),
    (
        text([{"mechanism": "subsampled", "rate": 0.1, "base": {"mechanism": "gaussian"}}]),
        tb.errors.FileError,
        "steps[0].base: gaussian needs sigma",
    ),
    (
        text([{**GAUSSIAN, "rate": 0.1, "relation": "replace-one"}]),
        tb.errors.RelationError,
        "steps[0]: Poisson subsampling holds for ",
    ),
    (
        text([{**GAUSSIAN, "rate": 0.1}, {**GAUSSIAN, "relation": "replace-one"}]),
        tb.errors.RelationError,
        "mechanisms declared for ",
    ),
    (
        text([{"mechanism": "histogram", "p": [1, 2], "q": [1]}]),
        tb.ParameterError,
        "steps[0]: q must have as many bins as p (2), got ",
    ),
    (
        text([{"mechanism": "histogram", "p": "12", "q": [1]}]),
        tb.ParameterError,
        "steps[0]: p must be an array of numbers, got '12'",
    ),
]


@pytest.mark.parametrize(("content", "error", "message"), MALFORMED)
def test_malformed_json(content: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        tb.Composition.from_json(content)
    assert str(caught.value).startswith(message)


def test_json_never_writes_what_json_does_not_have() -> None:
    for text_ in (RUN.to_json(), (tb.ApproximateDP(0.0, 1e-300) * 3).to_json()):
        assert "NaN" not in text_
        assert "Infinity" not in text_
        assert json.loads(text_)["tightbudget"] == 1


def test_numbers_survive_json_to_the_last_bit() -> None:
    odd = tb.Gaussian(0.1 + 0.2, sensitivity=1 / 3).subsampled(1e-4 / 3) * (2**60)
    assert tb.Composition.from_json(odd.to_json()) == odd


# ----------------------------------------------------- nothing comes out by accident


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "mechanism",
    [
        tb.Gaussian(1e9),
        tb.Gaussian(1e-3),
        pytest.param(tb.Laplace(1e9), marks=pytest.mark.slow),
        tb.Laplace(1e-2),
        tb.RandomizedResponse(0.5),
        tb.RandomizedResponse(1 - 1e-12),
        tb.RandomizedResponse(1e-12),
        tb.ApproximateDP(0.0),
        tb.ApproximateDP(700.0),
        tb.ApproximateDP(0.0, 1.0),
        tb.ApproximateDP(1e-12, 1e-12),
        pytest.param(tb.Gaussian(1.0).subsampled(1e-12), marks=pytest.mark.slow),
        tb.Gaussian(1.0).subsampled(1 - 1e-12),
        tb.HistogramPair((1.0, 0.0), (0.0, 1.0)),
        tb.HistogramPair((1.0,), (5.0,)),
        tb.HistogramPair((1e-300, 1.0), (1.0, 1e-300)),
    ],
    ids=str,
)
def test_extreme_mechanisms_get_true_or_no_answers(mechanism: tb.Mechanism) -> None:
    # for losses of 1e-12 no gap below a half is reached: fewer are tried after a wide one
    rtol = 0.1 if isinstance(mechanism, tb.Subsampled) and mechanism.rate == 1e-12 else 1e-4
    for times in (1, 3):
        run = mechanism * times
        for ask in (
            lambda r=run: r.epsilon(1e-6),
            lambda r=run: r.epsilon(0.5),
            lambda r=run: r.delta(0.0, rtol),
            lambda r=run: r.delta(1.0, rtol),
            lambda r=run: r.delta(50.0, rtol),
            lambda r=run: r.delta(math.inf),
            lambda r=run: r.tradeoff([0.1])[0],
            lambda r=run: r.renyi(3.0),
        ):
            try:
                bounds = ask()
            except tb.PrecisionError as error:
                bounds = tb.Bounds(error.lower, error.upper)
            assert 0.0 <= bounds.lower <= bounds.upper  # no NaN, nothing negative
        low = run.delta(math.inf).lower
        if low > 1e-6:
            assert run.epsilon(1e-6) == tb.Bounds(math.inf, math.inf)
