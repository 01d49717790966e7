"""A number of any type is a plain number at the door: the same object, the same answer.

The parameters are found by inspection: whatever a public class or function says is a number must
have an example here, or in one of the two lists of cases. Each is then given as NumPy's integers
and floats, as Fraction, Decimal and bool, and as subclasses of int and float that compute wrongly.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests import cases
from tests.guards.mutants import Without, each, lose_a_truth
from tests.release import cases as release_cases
from tests.tables import cases as table_cases

import tightbudget as tb
from tightbudget import theorems
from tightbudget.adapters.sklearn import PrivateAccuracy
from tightbudget.output_dp import amount
from tightbudget.release.noise.lattice import LatticeNoise


def wrong(*_: Any) -> Any:
    return 666


OPERATIONS = "add radd sub rsub mul rmul truediv rtruediv floordiv mod pow rpow neg abs"
WRONG = {f"__{name}__": wrong for name in OPERATIONS.split()} | {
    f"__{name}__": lambda *_: True for name in ("lt", "le", "gt", "ge")
}
WrongInt: Any = type("WrongInt", (int,), {**WRONG, "__int__": wrong, "__float__": wrong})
WrongFloat: Any = type("WrongFloat", (float,), {**WRONG, "__float__": lambda _: 0.75})
INTEGERS = [np.dtype(f"{sign}int{bits}").type for sign in ("", "u") for bits in (8, 16, 32, 64)]


def forms(value: Any) -> Iterator[tuple[Any, Any]]:
    """Numbers of other types, and the plain number of the same exact value."""
    yield True, None
    if isinstance(value, float) and not math.isfinite(value):
        return
    if value == int(value):
        n = int(value)
        for kind in INTEGERS:
            if np.iinfo(kind).min <= n <= np.iinfo(kind).max:
                yield kind(n), n
        yield WrongInt(n), n
        parts: Any = np.int64(n), np.int64(1)
        yield Fraction(*parts), Fraction(n)
        yield Decimal(n), Fraction(n)
    x = float(value)
    yield np.float64(x), x
    yield WrongFloat(x), x
    yield Fraction(x), Fraction(x)
    yield Decimal(x), Fraction(x)
    with np.errstate(all="ignore"):
        for short in (np.float16, np.float32):
            near = short(x)
            if np.isfinite(near) and bool(near) == bool(x):
                yield near, Fraction(*float(near).as_integer_ratio())
    yield np.longdouble(x), Fraction(x)


# --------------------------------------------------------------------- what is compared


def meaning(thing: Any) -> Any:
    """All that an object is made of, numbers by their value; each must be a plain one."""
    if isinstance(thing, (bool, str)):
        return thing
    if isinstance(thing, (int, float, Fraction, Decimal, np.generic)):
        number: Any = thing
        assert type(thing) in (int, float, Fraction, Decimal), f"{thing!r} is a {type(thing)}"
        if isinstance(thing, float):
            return repr(thing) if not math.isfinite(thing) else Fraction(repr(thing))
        return Fraction(number)
    if isinstance(thing, np.ndarray):
        return thing.dtype.str, thing.tolist()
    if isinstance(thing, Mapping):
        return {repr(meaning(key)): meaning(value) for key, value in thing.items()}
    if isinstance(thing, (tuple, list)):
        return [meaning(part) for part in thing]
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return {
            field.name: meaning(getattr(thing, field.name)) for field in dataclasses.fields(thing)
        }
    if isinstance(thing, tb.Account):
        return type(thing).__name__, meaning(thing.cap)
    assert thing is None or callable(thing) or isinstance(thing, Enum), f"what is {thing!r}?"
    return re.sub(
        r" at 0x[0-9a-f]+", "", repr(thing)
    )  # a function made anew is elsewhere in memory


# ---------------------------------------------------------------------------- examples


def told(data: str) -> tb.release.Release[str]:
    """A release that draws no noise."""
    nothing = amount.Amount(0.0, 0.0, "epsilon")
    return tb.release.Release(data, data, tb.release.Receipt(nothing, nothing))


LABELS = np.arange(12) % 2  # zeros and ones may be bools, too


@dataclass(frozen=True)
class Example:
    """A call with plain numbers, every parameter by name."""

    call: Callable[..., Any]
    given: dict[str, Any]


def of_case(mechanism: Any) -> Example:
    """The call that makes a mechanism anew."""
    names = [field.name for field in dataclasses.fields(mechanism) if field.init]
    return Example(type(mechanism), {name: getattr(mechanism, name) for name in names})


RUN = tb.Gaussian(20.0) * 3
HALF = {"a": 0.5}
TABLE = theorems.renyi.RenyiTable((2.0, 3.0, math.inf), (0.25, 0.375, 0.5))
BUCKETS = tb.privacy_buckets.Buckets.of(tb.Laplace(8.0), n=8)


def divergence(order: float) -> tb.Bounds:
    return theorems.renyi.gaussian(order, 2.0)


CASES: list[Any] = [*cases.CASES, *release_cases.CASES]
EXAMPLES: list[Example] = [
    *(of_case(case.mechanism) for case in CASES),
    of_case(release_cases.MODEL),
    *(of_case(case.mechanism) for case in table_cases.CASES),
    of_case(
        tb.Quantiles(column="x", probabilities=(0.25, 0.5), bounds=(-2.0, 3.0), epsilon=1, step=0.5)
    ),
    of_case(
        tb.tables.GroupedQuantiles(
            by="k", column="x", probabilities=(0.25, 0.5), bounds=(-2.0, 3.0), epsilon=1, step=0.5
        )
    ),
    of_case(table_cases.BINS),
    of_case(tb.SelectedCounts(by="k", epsilon=0.5, delta=1e-6)),
    of_case(tb.SelectedKeys(by="k", epsilon=0.5, delta=1e-6)),
    Example(
        tb.Table,
        {"data": {"u": np.array(["p", "q"])}, "unit": "u", "rows_per_unit": 2}
        | {"groups_per_unit": 3, "units": 5},
    ),
    of_case(tb.release.LaplaceRelease(len, 0.5, 0.25, 3, 0.5, (-2.0, 3.0))),
    of_case(tb.release.GaussianRelease(len, 0.5, 4.0, 1e-6, 3, 0.5, (-2.0, 3.0))),
    of_case(replace(tb.release.Loss.LOGISTIC, curvature=0.5)),
    of_case(tb.release.SparseVector(0.5, 3, 2.0, step=0.5, bounds=(-2.0, 3.0))),
    of_case(tb.release.TopK(len, 8, 2, 0.5, 3.0, 2.0, step=0.5, bounds=(-2.0, 3.0))),
    of_case(tb.release.ExponentialRelease(len, (1, 2), 0.5, 2.0, True, (-2.0, 3.0))),
    of_case(tb.release.PermuteAndFlip(len, (1, 2), 0.5, 2.0, True, (-2.0, 3.0))),
    of_case(tb.release.ToyRelease(len, 2.0, 0.5, step=0.5, bounds=(-2.0, 3.0))),
    of_case(tb.release.GradualRelease(len, 0.5, (0.25, 0.5), bool, step=0.5, bounds=(-2.0, 3.0))),
    of_case(tb.release.GatedRelease(max, 0.25, max, 0.5, 0.25, 0.25, 0.5)),
    of_case(LatticeNoise(2, 3, 0.5)),
    of_case(PrivateAccuracy(0.5, tb.OutputDPFilter(1))),
    Example(
        tb.Additive,
        {
            "distribution": "gamma",
            "args": (2.0,),
            "kwds": {"scale": 4.0},
            "sensitivity": 1.0,
            "accuracy": 2.0**-40,
        },
    ),
    Example(
        tb.HistogramPair,
        {
            "p": (3.0, 2.0),
            "q": (2.0, 3.0),
            "smoothing": 0.5,
            "noise": ("gaussian", 0.5),
            "bin_width": 2.0,
        },
    ),
    Example(
        tb.either,
        {"probability": 0.25, "first": tb.Gaussian(1.0), "second": tb.Laplace(2.0)},
    ),
    Example(tb.Staircase, {"epsilon": 0.5, "sensitivity": 2.0, "gamma": 0.25}),
    Example(tb.Bounds, {"lower": 0.25, "upper": 0.75}),
    Example(tb.Estimate, {"value": 0.3, "method": "a guess"}),
    Example(tb.OutputDP, {"cells": HALF, "delta": 0.125, "sup": 0.75, "rho": 0.5}),
    Example(tb.OutputDP.from_dp, {"epsilon": 0.3, "delta": 0.1}),
    Example(tb.OutputDP.from_subset_dp, {"cells": {"a": (0.3, 0.1)}}),
    Example(tb.OutputDP.rising, {"first": 0.3, "rise": 0.5, "steps": 3, "delta": 0.1}),
    Example(tb.OutputDP.family, {"price": lambda _: 0.1, "size": 3, "delta": 0.1, "sup": 0.5}),
    Example(tb.OutputDPFilter, {"epsilon": 0.3, "delta": 0.1}),
    Example(tb.AdvancedFilter, {"epsilon": 0.3, "delta": 0.1, "slack": 0.05}),
    Example(tb.ZCDPFilter, {"rho": 0.3}),
    Example(tb.RenyiFilter, {"order": 2.5, "epsilon": 0.3}),
    Example(tb.GaussianDPFilter, {"mu": 0.3}),
    Example(tb.Composition, {"parts": ((tb.Gaussian(20.0), 3),)}),
    Example(lambda times: tb.Gaussian(20.0) * times, {"times": 3}),
    Example(
        lambda epsilon, delta: tb.OutputDPFilter(5, 1).sub(epsilon, delta),
        {"epsilon": 0.3, "delta": 0.1},
    ),
    Example(RUN.epsilon, {"delta": 1e-3, "rtol": 0.0625}),
    Example(RUN.delta, {"epsilon": 0.5, "rtol": 0.0625}),
    Example(RUN.renyi, {"order": 2.5, "rtol": 0.0625}),
    Example(RUN.tradeoff, {"false_positive_rates": [0.25]}),
    Example(tb.Gaussian(20.0).subsampled, {"rate": 0.25}),
    Example(tb.compare, {"composition": RUN, "delta": 1e-3, "rtol": 0.0625}),
    Example(tb.compare, {"composition": RUN, "epsilon": 0.25, "rtol": 0.0625}),
    Example(
        tb.calibrate,
        {
            "function": tb.Gaussian,
            "epsilon": 0.5,
            "delta": 1e-3,
            "between": (1.0, 64.0),
            "rtol": 0.0625,
        },
    ),
    Example(tb.calibrate, {"function": tb.Gaussian, "advantage": 0.25, "rtol": 0.0625}),
    Example(tb.calibrate, {"function": tb.Gaussian, "tpr": 0.25, "fpr": 0.125, "rtol": 0.0625}),
    Example(
        tb.early_stopping,
        {
            "step": tb.Gaussian(20.0),
            "stops": (1, 2),
            "delta": 1e-3,
            "weights": (0.5, 1.0),
            "rtol": 0.125,
        },
    ),
    Example(
        tb.stopping_delta,
        {"step": tb.Gaussian(20.0), "stops": (1, 2), "epsilons": (0.25, 0.5), "rtol": 0.125},
    ),
    Example(
        tb.workflows.priced,
        {
            "workflow": tb.workflows.Workflow.chain(tb.Gaussian(20.0), [1, 2]),
            "delta": 1e-3,
            "weights": {1: 0.5, 2: 1.0},
            "rtol": 0.125,
        },
    ),
    Example(
        tb.workflows.residue_filter,
        {"items": {"a": tb.Gaussian(20.0)}, "epsilon": 0.25, "delta": 1e-3},
    ),
    Example(
        tb.optimal_delta,
        {
            "parameters": [(0.25, 0.0), (0.25, 0.0)],
            "stops": (1, 2),
            "epsilons": (0.25, 0.5),
            "rtol": 0.125,
        },
    ),
    Example(
        tb.release.logistic_with_test,
        {
            "perturbation": release_cases.MODEL,
            "test_records": 40,
            "threshold": 1.0,
            "test_epsilon": 0.1,
        },
    ),
    *(
        Example(
            module.epsilon, {"step_epsilon": 0.25, "step_delta": 1e-4, "runs": 3, "delta": 0.125}
        )
        for module in (theorems.kov, theorems.advanced)
    ),
    *(
        Example(module.delta, {"step_epsilon": 0.25, "step_delta": 1e-4, "runs": 3, "epsilon": 0.5})
        for module in (theorems.kov, theorems.advanced)
    ),
    Example(theorems.in_advance.epsilon, {"step_epsilon": 0.25, "runs": 3, "delta": 1e-3}),
    Example(theorems.in_advance.delta, {"step_epsilon": 0.25, "runs": 3, "epsilon": 0.5}),
    Example(theorems.kov.points, {"step_epsilon": 0.25, "step_delta": 1e-4, "runs": 3}),
    Example(theorems.naive.total, {"steps": [(0.25, 1e-4, 3)]}),
    Example(theorems.renyi.epsilon, {"divergence": divergence, "delta": 0.125, "runs": 3}),
    Example(theorems.renyi.delta, {"divergence": divergence, "epsilon": 0.5, "runs": 3}),
    Example(theorems.renyi.orders, {"largest_loss": 0.5}),
    Example(theorems.kov.grid, {"largest": 0.5}),
    *(
        Example(line, {"table": TABLE, "runs": 3, "delta": 1e-3})
        for line in (theorems.concentrated.best_line, theorems.concentrated.mean_line)
    ),
    *(
        Example(line, {"table": TABLE, "epsilon": 0.5})
        for line in (theorems.concentrated.best_line, theorems.concentrated.mean_line)
    ),
    Example(tb.privacy_buckets.r_fold, {"buckets": BUCKETS, "runs": 3, "free_infty_budget": 0.25}),
    Example(
        tb.privacy_buckets.delta,
        {
            "composition": tb.Laplace(8.0) * 3,
            "epsilon": 0.5,
            "factor": 1.25,
            "n": 8,
            "free_infty_budget": 0.25,
        },
    ),
    Example(theorems.concentrated.Line, {"xi": 0.25, "rho": 0.5}),
    Example(theorems.best_of_many.Repetitions, {"mean": 8.0, "shape": 0.5}),
    Example(
        theorems.best_of_many.BestOfMany,
        {
            "one": divergence,
            "repetitions": theorems.best_of_many.Repetitions(mean=8.0, shape=0.5),
            "orders": (2.0, 3.0, math.inf),
        },
    ),
    Example(theorems.sampling.without_replacement, {"epsilon": 0.25, "delta": 1e-5, "rate": 0.125}),
    Example(theorems.gaussian_dp.Normal, {"mean": 0.25, "variance": 0.5}),
    Example(theorems.renyi.RenyiTable, {"orders": (2.0, 3.0), "divergences": (0.25, 0.5)}),
    Example(theorems.kov.Front, {"epsilons": (0.25, 0.5), "deltas": (0.125, 0.0625), "runs": 3}),
    Example(theorems.naive.adaptive, {"steps": [(0.25, 1e-4, 3)]}),
    Example(theorems.renyi.gaussian, {"order": 2.5, "sigma": 2.0, "sensitivity": 1.5}),
    Example(theorems.renyi.laplace, {"order": 2.5, "scale": 2.0, "sensitivity": 1.5}),
    Example(theorems.renyi.randomized_response, {"order": 2.5, "p": 0.75}),
    Example(
        theorems.renyi.subsampled_gaussian,
        {"order": 3, "sigma": 2.0, "rate": 0.25, "sensitivity": 1.5},
    ),
    Example(
        theorems.gaussian_dp.mu_of_sampling,
        {"sigma": 2.0, "rate": 0.25, "runs": 3, "sensitivity": 1.5},
    ),
    Example(theorems.gaussian_dp.delta, {"mu": 0.5, "epsilon": 0.25}),
    Example(theorems.gaussian_dp.epsilon, {"mu": 0.5, "delta": 0.125}),
    Example(
        tb.audit.one_run,
        {
            "scores": [float(x) for x in range(12)],
            "included": LABELS,
            "delta": 0.125,
            "claim": (0.5, 0.25),
            "confidence": 0.75,
            "shares": [(0.25, 0.25)],
            "seed": 3,
        },
    ),
    Example(
        tb.audit.many_runs,
        {
            "scores": [float(x) for x in range(12)],
            "included": LABELS,
            "delta": 0.125,
            "confidence": 0.75,
            "rates": [0.25],
            "seed": 3,
        },
    ),
    Example(
        tb.audit.sequential,
        {"guesses": LABELS, "included": LABELS, "delta": 0.125, "confidence": 0.75},
    ),
    Example(
        tb.audit.search,
        {
            "function": str,
            "make_neighbours": lambda i: (0, i),
            "claim": (0.5, 0.25),
            "delta": 0.125,
            "runs": 80,
            "pairs": 2,
            "confidence": 0.75,
            "seed": 3,
        },
    ),
    Example(
        tb.audit.release,
        {
            "mechanism": told,
            "data": "yes",
            "neighbour": "no",
            "claim": (0.5, 0.25),
            "delta": 0.125,
            "runs": 40,
            "confidence": 0.75,
            "seed": 3,
        },
    ),
    Example(
        tb.audit.histograms,
        {
            "p_counts": 2 * LABELS,
            "q_counts": 2 * LABELS,
            "delta": 0.125,
            "confidence": 0.75,
            "seed": 3,
        },
    ),
    Example(
        tb.audit.one_run_of_guesses,
        {"guesses": LABELS, "included": LABELS, "delta": 0.125, "confidence": 0.75},
    ),
]
# public names that take numbers, and have no example: why
OTHERS = {
    "Answer": "a result", "Amount": "a result", "Audit": "a result",
    "Calibration": "a result", "Comparison": "a result",
    "Risk": "a result", "TableAnswer": "a result",
    "BlockTerms": "a result", "Event": "a result", "Verification": "a result",
    "Explanation": "a result",
    "tightbudget.privacy_buckets.Buckets": "made by its own constructors",
    "FixedNoise": "for tests alone", "Hold": "made by reserve",
    "RemoteLedger": "a time limit alone",
    "PrivateLogisticRegression": "keeps its parameters as scikit-learn wants it, and hands them to"
    " OutputPerturbation and logistic_with_test", "sweep": "a number of processes alone",
    "Subsampled": "made by subsampled", "StoppingSchedule": "a result",
    "QuestionPreview": "a result", "AboveThresholdRun": "made by open",
    "Proposal": "made while a mechanism runs, from private data",
}  # fmt: skip
# what a function answers is not given; a noise is tried with its own example
NOT_GIVEN = re.compile(r"Callable\[\[.*?\], .*?\]|str \| .*\[str, float\].*")
NUMERIC = re.compile(r"\b(int|float|Price|Fraction|Decimal)\b")


def numeric_parameters(thing: Any) -> set[str]:
    """The parameters that say that they are numbers, or hold some."""
    found = set()
    for parameter in inspect.signature(thing).parameters.values():
        plain = re.sub(
            r"Callable\[\[.*?\], .*?\]|str \| .*\[str, float\].*", "", str(parameter.annotation)
        )
        if NUMERIC.search(plain):
            found.add(parameter.name)
    return found


ROOMS = [tb.privacy_buckets, *(getattr(theorems, name) for name in theorems.__all__)]


def title(call: Any) -> str:
    """The name that a class or function is public by."""
    name, room = getattr(call, "__name__", ""), getattr(call, "__module__", "")
    theirs = room in [module.__name__ for module in ROOMS]
    return f"{room}.{name}" if theirs else name


def public() -> dict[str, set[str]]:
    """Each public class and function with its numbers."""
    found = {}
    faces = (tb, tb.audit, tb.client, tb.ledger, tb.mechanisms, tb.release, tb.sweeps, tb.tables)
    theirs = [(module, name) for module in (*ROOMS, *faces) for name in module.__all__]
    for module, name in theirs:
        thing = getattr(module, name)
        name = name if module in faces else f"{module.__name__}.{name}"
        if inspect.isfunction(thing) or inspect.isclass(thing):
            if inspect.isclass(thing) and issubclass(thing, (BaseException, Enum)):
                continue
            if numbers := numeric_parameters(thing):
                found[name] = numbers
    return found


def test_each_number_of_a_public_name_has_an_example() -> None:
    covered: dict[str, set[str]] = {}
    for example in EXAMPLES:
        given = {name for name, value in example.given.items() if list(numbers_in(value))}
        covered.setdefault(title(example.call), set()).update(given)
    missing = {
        name: left
        for name, numbers in public().items()
        if name not in OTHERS and (left := numbers - covered.get(name, set()))
    }
    assert missing == {}
    # a test that hides SQLAlchemy may have loaded the room of the ledger anew, without its names
    hidden = {"Verification"} - {*tb.ledger.__all__}
    assert OTHERS.keys() - public().keys() == hidden


# ------------------------------------------------------------------------------ the law


def numbers_in(value: Any) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
    """Each number in a value, and how the value is made with another in its place."""
    if isinstance(value, (int, float, Fraction)) and not isinstance(value, (bool, Enum)):
        yield value, lambda x: x
    elif isinstance(value, (tuple, list)):
        for i, part in enumerate(value):
            for number, put in numbers_in(part):
                yield number, partial(among, value, i, put)
    elif isinstance(value, dict):
        for key, part in value.items():
            for number, put in numbers_in(part):
                yield number, partial(under, value, key, put)


def among(value: Any, i: int, put: Callable[[Any], Any], x: Any) -> Any:
    return type(value)([*value[:i], put(x), *value[i + 1 :]])


def under(value: Any, key: Any, put: Callable[[Any], Any], x: Any) -> Any:
    return {**value, key: put(x)}


def distinct() -> list[tuple[str, Example, str]]:
    """Each parameter of each call once."""
    seen, found = set(), []
    for example in EXAMPLES:
        for name, value in example.given.items():
            if not list(numbers_in(value)):
                continue
            kinds = tuple(type(number).__name__ for number, _ in numbers_in(value))
            title = getattr(example.call, "__qualname__", repr(example.call))
            if (title, name, kinds[:1]) not in seen:
                seen.add((title, name, kinds[:1]))
                found.append((f"{title}-{name}-{kinds[0]}", example, name))
    return found


SLOW = (
    "calibrate",
    "early_stopping",
    "priced",
    "compare",
    "optimal_delta",
    "stopping_delta",
)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("example", "name"),
    [
        pytest.param(example, name, id=title,
                     marks=[pytest.mark.slow] if title.startswith(SLOW) else [])
        for title, example, name in distinct()
    ],
)  # fmt: skip
def test_a_number_of_any_type_is_the_plain_one_or_refused(example: Example, name: str) -> None:
    assert every_form(example, name) > 0


def every_form(example: Example, name: str) -> int:
    """How many other forms of a parameter were taken for what they are."""
    taken = 0
    number, put = next(iter(numbers_in(example.given[name])))
    for form, plain in forms(number):
        said = asked(example, name, put(form))
        if plain is None:
            assert said is None, f"{form!r} is no number"
            continue
        wanted = asked(example, name, put(plain))
        if wanted is None and isinstance(plain, Fraction):  # where a float is wanted
            wanted = asked(example, name, put(float(plain)))
        # a count may refuse whatever is no integer
        integral = isinstance(number, int) and not isinstance(form, (int, np.integer))
        assert said == wanted or (said is None and integral), f"{form!r} is not {plain!r}"
        taken += said is not None
    return taken


def asked(example: Example, name: str, value: Any) -> Any:
    """The meaning of the answer; None if it was refused by name."""
    try:
        return meaning(example.call(**{**example.given, name: value}))
    except (tb.ParameterError, TypeError) as error:  # a TypeError of Bounds alone
        if re.match(
            "(lower|upper) must" if isinstance(error, TypeError) else ".* must", str(error)
        ):
            return None
        raise


# ------------------------------------------------------------------------- what went wrong


@pytest.mark.parametrize("kind", [*INTEGERS, WrongInt])
def test_noise_does_not_wrap_around(kind: Any) -> None:
    scales = {tb.release.SparseVector(1.0, aboves=number).scale for number in (100, kind(100))}
    assert scales == {tb.release.SparseVector(1.0, aboves=100).scale}


def test_the_noise_of_a_short_integer_is_that_of_the_integer() -> None:
    small: Any = np.uint8(130)
    assert float(tb.release.SparseVector(1.0, aboves=small).scale) == pytest.approx(266.4, abs=0.1)
    small = np.uint8(13)
    assert tb.release.SparseVector(
        1.0, aboves=small, sensitivity=20, adaptive=False
    ) == tb.release.SparseVector(1.0, aboves=13, sensitivity=20, adaptive=False)
    tries: Any = np.uint8(255)
    propose = tb.release.ProposeTestRelease(lambda _: [], 1, 0.1, tries)
    assert propose == replace(propose, tries=255)


@pytest.mark.parametrize("value", [0.3, 0.7, 0.1, 1e-3, 12.34])
@pytest.mark.parametrize("short", [np.float16, np.float32, np.longdouble])
def test_a_short_float_is_not_taken_for_less_than_it_is(value: float, short: Any) -> None:
    exact = Fraction(*short(value).as_integer_ratio())
    assert tb.OutputDP({"a": short(value)}).sup == exact
    noisy = tb.release.LaplaceRelease(
        lambda x: x, sensitivity=short(value), epsilon=1, step=2.0**-20
    )
    assert noisy.scale >= exact * 2**20


@pytest.mark.parametrize("numerator", [130, 200])
def test_a_fraction_of_short_integers_does_not_wrap_around(numerator: int) -> None:
    parts: Any = np.uint8(numerator), np.uint8(7)
    odd = Fraction(*parts)
    assert tb.OutputDP({"a": odd}).sup * 100 == Fraction(100 * numerator, 7)


def test_an_end_that_no_float_holds_is_moved_outwards() -> None:
    third: Any = Fraction(1, 3)
    ends: Any = tb.Bounds(third, third), tb.Bounds(-third, -third), tb.Bounds(2**60 + 1, 2**60 + 1)
    for bounds, exact in zip(ends, (third, -third, Fraction(2**60 + 1)), strict=True):
        assert Fraction(bounds.lower) < exact < Fraction(bounds.upper)
    factor: Any = third
    for bounds in (tb.Bounds(1.0, 2.0), tb.Bounds(-2.0, -1.0), tb.Bounds(-1.0, 1.0)):
        times = bounds * factor
        assert Fraction(times.lower) <= Fraction(bounds.lower) / 3
        assert Fraction(times.upper) >= Fraction(bounds.upper) / 3


def same(example: Example, name: str) -> bool:
    try:
        return every_form(example, name) > 0
    except (AssertionError, RuntimeWarning):
        return False


def doubled(*parts: Any) -> Fraction:
    with np.errstate(over="ignore"):
        return amount.exact(a=Fraction(*parts)) * 2


SVT = of_case(tb.release.SparseVector(0.5, 100))
MUTATIONS = [
    Without("integers are plain", {"integers-plain": "return value"}, lambda: same(SVT, "aboves")),
    Without(
        "floats are plain",
        {"floats-plain": "return value"},
        lambda: same(of_case(tb.Gaussian(2.0)), "sigma"),
    ),
    Without(
        "short floats are exact",
        {"short-floats-exact": "return near if math.isfinite(near) else exact"},
        lambda: same(of_case(tb.release.LaplaceRelease(len, 0.3, 0.5)), "sensitivity"),
    ),
    Without(
        "a fraction's parts are plain",
        {"fraction-parts-plain": "return value"},
        lambda: doubled(np.uint8(200), np.uint8(7)) == Fraction(400, 7),
    ),
]


@each(MUTATIONS)
def test_without_the_guard_a_number_is_another(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)
