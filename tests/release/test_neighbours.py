"""One record, or one answer, of any kind: it must not be seen but by what is paid for.

A failure that one record can cause is an output. The law: with the same noise a run on what cannot
be read is the run on what it counts as (answer, cell, receipt, draws), and it says nothing beside
that: no error, no warning (they are errors here), nothing printed, nothing logged. What it counts
as has a place in the proofs, as test_grid.py and test_erm.py show.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections import UserList, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from tests.release.cases import SCHEDULE
from tests.release.enumerated import Outcomes, power

import tightbudget as tb
from tightbudget.release.private_number import double


class Seeded:
    """NOT NOISE: the same draws again and again, and who asked for them."""

    batch = 8

    def __init__(self) -> None:
        self.random, self.asked = Random("seed"), list[Any]()

    def laplace(self, scale: Any, size: int) -> Any:
        self.asked.append((scale, size))
        return np.array([self.random.randrange(-2, 3) for _ in range(size)], dtype=np.int64)

    gaussian = laplace

    def coin(self) -> bool:
        self.asked.append("coin")
        return bool(self.random.randrange(2))


@pytest.fixture(autouse=True)
def _says_nothing(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> Iterator[None]:
    yield
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.levelno >= logging.INFO]


def run(release: Callable[..., tb.release.Release[Any]], *given: Any) -> tuple[Any, ...]:
    """All that comes out of a run, with the draws."""
    meter, noise = tb.OutputDPOdometer(), Seeded()
    with warnings.catch_warnings(record=True) as seen:
        # recorded, as one that is raised could be taken for a failure
        warnings.simplefilter("always")
        # since 3.13 of a connection that another test left open, whenever it is collected
        warnings.filterwarnings("ignore", "unclosed database in", ResourceWarning)
        answer = release(*given, meter=meter, noise=noise)
    assert not seen
    return repr(answer.value), answer.cell, answer.receipt, meter.spent, meter.held, noise.asked


# --------------------------------------------------------------------- what queries answer


def raising(error: BaseException) -> Callable[[], Any]:
    def query() -> Any:
        raise error

    return query


class Hostile:
    """Raises whatever it is asked."""

    def __getattr__(self, name: str) -> Any:
        raise SystemExit("secret")

    __len__ = __iter__ = __array__ = __float__ = __int__ = __index__ = __bool__ = (
        lambda self, *_, **__: self.secret
    )


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_: value


def _asking(answer: Callable[[], Any]) -> Callable[..., Any]:
    return lambda *_: answer()


LOW, HIGH = 0, 4
ANSWERS: list[tuple[Callable[[], Any], int]] = [
    *((lambda x=x: x, LOW) for x in (None, math.nan, "7", "x", [], {}, object(), 1j)),
    *((lambda x=x: x, LOW) for x in (Decimal("nan"),)),
    *((lambda x=x: x, LOW) for x in (-math.inf, -(2**63) - 1, -(10**400), np.int8(-9))),
    *((lambda x=x: x, HIGH) for x in (math.inf, 2**63, 2**64, 10**400, np.uint64(2**63), 1e300)),
    *((lambda x=x: x, 3) for x in (3.0, np.float16(3), np.longdouble(3), [3], np.array([[3]]))),
    *(
        (raising(error), LOW)
        for error in (
            ZeroDivisionError(), MemoryError(), SystemExit("secret 42"), GeneratorExit(),
            tb.ParameterError("x"), tb.errors.SettlementError("x"), tb.errors.BudgetError(
                "x", requested=1, left=0, held=0), RecursionError(), StopIteration(),
        )
    ),
    (Hostile, LOW),
]  # fmt: skip

Asked = Callable[[Callable[[Any], Any]], Callable[..., tb.release.Release[Any]]]


def _conversation(step: float | None, adaptive: bool) -> Asked:
    svt = tb.release.SparseVector(1, 3, 4, adaptive=adaptive, step=step, bounds=(LOW, HIGH))

    def asked(query: Callable[[Any], Any]) -> Callable[..., tb.release.Release[Any]]:
        def release(data: Any, *, meter: Any, noise: Any) -> tb.release.Release[Any]:
            with svt.open(data, meter=meter, noise=noise) as run:
                for threshold in (-9, 2, 2, 9):
                    if not run.done:
                        run.ask(query, threshold)
            return run.release()

        return release

    return asked


def _numbers(step: float | None) -> dict[str, Asked]:
    given: dict[str, Any] = {"step": step, "bounds": (LOW, HIGH)}
    return {
        "laplace": lambda query: tb.release.LaplaceRelease(query, 4, 1, **given).release,
        "gaussian": lambda query: tb.release.GaussianRelease(query, 4, 5, 1e-5, **given).release,
        "toy": lambda query: tb.release.ToyRelease(query, 4, 1, **given).release,
        "gradual": lambda query: (
            tb.release.GradualRelease(
                query, 4, (0.5, 1), lambda answers: answers[0] > 5, **given
            ).release
        ),
        "svt": _conversation(step, False),
        "svt-adaptive": _conversation(step, True),
    }


STEPS = pytest.mark.parametrize("step", [None, 0.5])


@pytest.mark.one_in(3)
@STEPS
@pytest.mark.parametrize("name", _numbers(None))
def test_a_number_that_cannot_be_read_is_one_that_can(name: str, step: float | None) -> None:
    mechanism = _numbers(step)[name]
    for answer, counts_as in ANSWERS:
        expected = run(mechanism(_always(counts_as)), 0)
        assert run(mechanism(_asking(answer)), 0) == expected


def _vectors(step: float | None) -> dict[str, Asked]:
    given: dict[str, Any] = {"step": step, "bounds": (LOW, HIGH)}
    svt = tb.release.SparseVector(1, 2, 4, **given)
    three: dict[str, Any] = {**given, "size": 3, "integers": step is None}
    return {
        "laplace": lambda query: tb.release.LaplaceRelease(query, 12, 1, **three).release,
        "gaussian": lambda query: tb.release.GaussianRelease(query, 7, 5, 1e-5, **three).release,
        "top-k": lambda query: tb.release.TopK(query, 3, 2, 1, 1, 4, **given).release,
        "exponential": lambda query: (
            tb.release.ExponentialRelease(query, range(3), 1, 4, bounds=(LOW, HIGH)).release
        ),
        "permute-and-flip": lambda query: (
            tb.release.PermuteAndFlip(query, range(3), 1, 4, bounds=(LOW, HIGH)).release
        ),
        "svt-values": lambda query: tb.release.SparseVectorRelease(query, 3, 1, svt, 1).release,
    }


@pytest.mark.one_in(4)
@STEPS
@pytest.mark.parametrize("name", _vectors(None))
def test_an_entry_that_cannot_be_read_is_one_that_can(name: str, step: float | None) -> None:
    mechanism = _vectors(step)[name]
    for answer, counts_as in ANSWERS:
        try:
            entry = answer()
        except BaseException:
            entry = None
        if isinstance(entry, (list, np.ndarray)):
            continue  # an entry that is a list is no number
        for make in (list, tuple, deque, UserList):
            expected = run(mechanism(_always([3, counts_as, 1])), 0)
            found = run(mechanism(_always(make([3, entry, 1]))), 0)
            assert found == expected
    for answer, counts_as in ANSWERS:
        if counts_as == LOW:  # and where there is no vector at all, every entry is
            expected = run(mechanism(_always([LOW] * 3)), 0)
            assert run(mechanism(_asking(answer)), 0) == expected


TESTED = tb.release.GatedRelease(
    lambda a, _: a, 1, lambda _a, _b: 0, 2, 1, 4, 4, bounds=(LOW, HIGH)
)


def test_an_error_that_cannot_be_read_is_the_largest_one() -> None:
    for answer, counts_as in ANSWERS:
        failed = counts_as == LOW and answer not in [a for a, _ in ANSWERS[9:13]]
        worst = HIGH if failed else counts_as
        expected = run(replace(TESTED, error=_always(worst)).release, (7, 8))
        assert run(replace(TESTED, error=_asking(answer)).release, (7, 8)) == expected


FAIL = [raising(ZeroDivisionError()), raising(SystemExit("secret")), raising(MemoryError())]


@pytest.mark.parametrize("fail", FAIL)
def test_a_mechanism_of_the_caller_that_fails_has_the_output_none(fail: Any) -> None:
    for threshold, cell in ((-99, "bottom"), (99, "value")):
        tested = replace(TESTED, train=lambda *_: fail(), threshold=threshold)
        assert run(tested.release, (7, 8))[:2] == ("None", cell)
    steps = tb.release.Iterative(
        lambda *_: fail(), (2, 4), lambda outputs: outputs[-1] is None, SCHEDULE
    )
    assert run(steps.release, 0)[:2] == ("(None, None)", 2)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "widest"), [("laplace", 6), ("toy", 6), ("svt", 3), ("top-k", 2)])
def test_who_fails_keeps_the_price_exactly(name: str, widest: int) -> None:
    """Output by output, in rationals: a query that fails for one neighbour only."""
    third: dict[str, Any] = {"bounds": (0, 1)}
    makes: dict[str, Callable[[Any], tuple[Any, Callable[..., Any]]]] = {
        "laplace": lambda q: _released(tb.release.LaplaceRelease(q, 1, 0.5, **third)),
        "toy": lambda q: _released(tb.release.ToyRelease(q, 1, 0.5, **third)),
        "top-k": lambda q: _released(tb.release.TopK(q, 2, 1, 1, 0, **third)),
        "svt": lambda q: _asked_once(tb.release.SparseVector(2, 1, adaptive=False, **third), q),
    }
    made = [makes[name](query) for query in (_asking(raising(OSError())), _always([1, 1]))]
    (mechanism, p), (_, q) = ((m, Outcomes.of(run, widest, depth=3)) for m, run in made)
    for x, y in ((p, q), (q, p)):
        for outcome, mass in x.masses.items():
            cell, value = cast(tuple[Any, Any], outcome)
            if type(value) is int and abs(value) > 4:
                continue  # at the end of what is enumerated
            price = power(mechanism.guarantee.price(cell))
            assert mass <= price * (y.masses.get(outcome, Fraction(0)) + y.missing)
    assert p.masses != q.masses


def _released(mechanism: Any) -> tuple[Any, Callable[..., Any]]:
    def run(noise: Any) -> Any:
        answer = mechanism.release(0, meter=tb.OutputDPOdometer(), noise=noise)
        return answer.cell, answer.value

    return mechanism, run


def _asked_once(svt: tb.release.SparseVector, query: Any) -> tuple[Any, Callable[..., Any]]:
    # any scales are sound as long as prices are theirs: these are rational to the base
    svt.__dict__.update(threshold_scale=Fraction(1), scale=Fraction(2), first=Fraction(1))
    del svt.__dict__["guarantee"]  # it is worked out again, from these

    def run(noise: Any) -> Any:
        with svt.open(0, meter=tb.OutputDPOdometer(), noise=noise) as run:
            run.ask(query, 1)
        return run.release().cell, run.release().value

    return svt, run


def test_an_interrupt_is_a_person_s() -> None:
    """It passes, at the worst-case price; nothing else that a query raises does."""
    meter = tb.OutputDPOdometer()
    with pytest.raises(KeyboardInterrupt):
        tb.release.LaplaceRelease(_asking(raising(KeyboardInterrupt())), 1, 1).release(
            0, meter=meter, noise=Seeded()
        )
    assert meter.spent.epsilon == 1


# ------------------------------------------------------------------------- what records are

GIVEN: dict[str, Any] = {"epsilon": 1, "delta": 0.1, "step": 0.5}
STATISTICS = {
    "range": tb.release.InterquartileRange(**GIVEN, pricing=tb.release.Pricing.IN_TURN),
    "median": tb.release.Median(**GIVEN, scale=18),
    "trimmed mean": tb.release.TrimmedMean(**GIVEN, spread=40),
}
NO_NUMBERS: list[Any] = [None, "7", "x", math.nan, [1.0], [], {}, 1j, Hostile(), pd.NA]
COUNTS_AS: list[tuple[Any, float]] = [
    *((x, math.nan) for x in NO_NUMBERS),
    *((x, math.inf) for x in (2**64, 10**400, 1e300, np.longdouble("1e4000"))),
    *((x, -math.inf) for x in (-(10**400), -math.inf)),
    *((x, 5.0) for x in (5, np.int8(5), Decimal(5), np.longdouble(5), np.array(5))),
]  # fmt: skip


class Mine(list[Any]):
    """A list of somebody's own."""


def _objects(values: list[Any]) -> Any:
    array = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        array[i] = value
    return array


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize(
    "make",
    [list, tuple, _objects, lambda v: pd.Series(_objects(v), dtype=object), deque, UserList, Mine],
)
def test_a_record_that_cannot_be_read_is_one_that_can(name: str, make: Any) -> None:
    others = [float(x % 37) for x in range(60)]
    for record, counts_as in COUNTS_AS:
        expected = run(STATISTICS[name].release, np.array([*others, counts_as]))
        assert run(STATISTICS[name].release, make([*others, record])) == expected


ANGLES = np.arange(40) * 2.0


def test_a_loss_that_fails_gives_the_model_0_with_noise() -> None:
    def raising(z: Any) -> Any:
        raise SystemExit("secret")

    data = np.full((9, 2), 0.5), np.ones(9)
    models = [
        tb.release.OutputPerturbation(
            1.0, 1.0, 9, 2, tb.release.Loss("mine", slope, lambda z: z, 1.0)
        )
        for slope in (raising, lambda z: z * 0 - 0.0)
    ]
    failed, flat = (run(model.release, data) for model in models)
    assert failed == flat  # where the slope is 0, the minimum is at 0


ROWS, SIGNS = np.column_stack([np.cos(ANGLES), np.sin(ANGLES)]) * 0.99, np.sign(np.cos(ANGLES))
BAD_ROWS: list[Any] = [
    *([x, 0.5] for x, _ in COUNTS_AS if not math.isfinite(double(x))),
    [0.5], [0.5, 0.5, 0.5], "ab", None, 7, Hostile(), [],
]  # fmt: skip
MODEL = tb.release.OutputPerturbation(1.0, 0.1, 41, 2)


@pytest.mark.parametrize("part", ["alone", "training", "test"])
def test_a_row_or_label_that_cannot_be_read_is_a_row_of_zeros(part: str) -> None:
    tested = tb.release.logistic_with_test(MODEL, 41, 1.0, 0.1)
    good = np.vstack([ROWS, [[0.5, 0.5]]]), np.append(SIGNS, 1.0)

    def released(rows: Any, labels: Any) -> tuple[Any, ...]:
        if part == "alone":
            return run(MODEL.release, (rows, labels))
        parts = [good, good]
        parts[part == "test"] = (rows, labels)
        return run(tested.release, tuple(parts))

    zeros = released(np.vstack([ROWS, [[0.0, 0.0]]]), np.append(SIGNS, 1.0))
    for row in BAD_ROWS:
        assert released([*ROWS.tolist(), row], [*SIGNS.tolist(), -1]) == zeros
    for label in (None, "7", 0, math.nan, 2**64, 10**400, [1], Hostile(), 1.5):
        assert released([*ROWS.tolist(), [0.5, 0.5]], [*SIGNS.tolist(), label]) == zeros
    long = [released([*ROWS.tolist(), [x, x]], good[1]) for x in (4.0, 1e300, 2**64)]
    assert long[1:] == long[:1] * 2


@pytest.mark.parametrize("threshold", [None, 1.0])
def test_a_record_that_cannot_be_read_trains_as_a_row_of_zeros(threshold: float | None) -> None:
    model = tb.release.PrivateLogisticRegression(
        1.0, 0.1, threshold=threshold, classes=("no", "yes")
    )
    labels = ["no" if sign < 0 else "yes" for sign in SIGNS]

    def fitted(rows: Any, y: Any) -> tuple[Any, ...]:
        return run(lambda **given: model.fit(rows, y, **given).release_)

    # the label of a row of zeros is of no account in training, but in the test
    zeros = fitted(np.vstack([ROWS, [[0.0, 0.0]]]), [*labels, "yes"])
    for row in BAD_ROWS:
        assert fitted([*ROWS.tolist(), row], [*labels, "yes"]) == zeros
    for row in ([math.nan, 0.5], ["x", 0.5], ["0.5", 0.5], [None, 0.5]):
        table = _objects([x for record in [*ROWS.tolist(), row] for x in record]).reshape(-1, 2)
        assert fitted(table, [*labels, "yes"]) == zeros
        assert fitted(pd.DataFrame(table), [*labels, "yes"]) == zeros
        assert list(model.classes_) == ["no", "yes"]
    for label in (None, "maybe", 0, math.nan, "", [1], Hostile()):
        assert fitted([*ROWS.tolist(), [0.5, 0.5]], [*labels, label]) == zeros
        assert fitted(np.vstack([ROWS, [[0.5, 0.5]]]), _objects([*labels, label])) == zeros
    # nor is it seen that a class is not there at all
    assert fitted(ROWS, ["yes"] * 40)[1] in ("value", "bottom")
