"""Noise from scipy.stats: against closed forms, and against the mechanisms that have a file."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from scipy import stats
from tests.balls import ball, bins_of, mass

from tightbudget.errors import ParameterError
from tightbudget.mechanisms import Additive, Neighbouring
from tightbudget.pairs.direction import Direction

REMOVE, ADD = Direction.REMOVE, Direction.ADD


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 600
    yield
    ctx.prec = before


def tail_test(pair, edges, above):
    """The masses of all bins above an edge hold P(L > x), and Q's, up to the edge's rounding.

    The pair may cut a hair (1e-9) above or below the edge.
    """
    bins = bins_of(pair, edges)
    only = pair.p_only()
    with np.errstate(over="ignore"):
        unit = np.exp(-np.append(edges, edges[-1]))
    for i in range(edges.size):
        p = [
            float(np.sum(end[i + 1 :])) + float(lost[0])
            for end, lost in ((bins.p.lower, only.lower), (bins.p.upper, only.upper))
        ]
        q = [float(np.sum((end * unit)[i + 1 :])) for end in (bins.q.lower, bins.q.upper)]
        fuzz = 1e-8 * (1 + abs(edges[i]))
        for (lower, upper), which in ((p, 0), (q, 1)):
            # a little lower an edge, a little more mass
            most = float(above(arb(float(edges[i] - fuzz)))[which])
            least = float(above(arb(float(edges[i] + fuzz)))[which])
            assert least - 1e-13 <= upper
            assert lower <= most + 1e-13
            assert upper - lower < 1e-6


def test_logistic_noise():
    s, d = ball(Fraction(3)), arb(1)

    def above(loss):
        # f(x) ~ e^(-x/s) / (1 + e^(-x/s))^2: e^L = e^(-d/s) ((e^(d/s) + y) / (1 + y))^2 with
        # y = e^(x/s)
        root, c = (loss / 2).exp() * (d / s / 2).exp(), (d / s).exp()
        if not root > 1:
            return arb(1), arb(1)
        if not root < c:
            return arb(0), arb(0)
        y = (c - root) / (root - 1)
        return y / (1 + y), y / (c + y)

    pair = Additive(stats.logistic(scale=3.0)).pair(REMOVE)
    tail_test(pair, np.linspace(-0.33, 0.33, 23), above)


@pytest.mark.parametrize("direction", [REMOVE, ADD])
def test_normal_noise(direction):
    m = arb(1) / 2

    def above(loss):
        return mass(loss / m - m / 2, None), mass(loss / m + m / 2, None)

    pair = Additive(stats.norm(scale=2.0)).pair(direction)
    tail_test(pair, np.linspace(-4.0, 4.0, 33), above)


def test_exponential_noise_is_one_loss_and_a_certain_rest():
    # f against f shifted: 1 - e^(-1/4) below the shift is P's alone, else L = -1/4
    pair = Additive("expon", kwds={"scale": 4.0}).pair(REMOVE)
    alone = 1 - float((-arb(1) / 4).exp())
    assert pair.p_only().lower[0] <= alone <= pair.p_only().upper[0]
    bins = bins_of(pair, np.array([-0.25 - 1e-6, -0.25 + 1e-6]))
    assert bins.p.lower[1] <= 1 - alone <= bins.p.upper[1]
    assert bins.p.upper[1] - bins.p.lower[1] < 1e-10
    assert bins.p.upper[0] < 1e-10
    assert bins.p.upper[2] < 1e-10


@pytest.mark.parametrize("direction", [REMOVE, ADD])
@pytest.mark.parametrize("edge", [0.5, -0.5, 0.5 + 1e-13, 0.2])
def test_the_constant_losses_of_laplace_noise_go_to_one_cell(direction, edge):
    # an edge exactly where half the mass sits: it is counted once, above the edge
    pair = Additive("laplace", kwds={"scale": 2.0}).pair(direction)
    edges = np.unique([-0.7, -0.5, edge, 0.5, 0.6, 0.7])
    bins = bins_of(pair, edges)
    assert np.sum(bins.p.upper) < 1 + 1e-8
    assert np.sum(bins.p.lower) > 1 - 1e-8
    top = int(np.searchsorted(edges, 0.6))
    assert bins.p.lower[top] + bins.p.lower[top - 1] > 0.5 - 1e-8
    assert bins.p.upper[-1] < 1e-15


def test_mirrored_noise_is_the_other_direction():
    edges = np.linspace(-0.3, 0.3, 13)
    right = bins_of(Additive("gumbel_r", kwds={"scale": 5.0}).pair(REMOVE), edges)
    left = bins_of(Additive("gumbel_l", kwds={"scale": 5.0}).pair(ADD), edges)
    assert np.all(right.p.lower <= left.p.upper)
    assert np.all(left.p.lower <= right.p.upper)
    assert not Additive("gumbel_r").is_symmetric()
    assert Additive("logistic").is_symmetric()


@pytest.mark.parametrize("accuracy", [1e-6, 1e-9])
def test_what_is_granted_to_scipy_is_in_the_enclosures(accuracy):
    bins = bins_of(Additive("norm", accuracy=accuracy).pair(REMOVE), np.array([0.5]))
    for part in (bins.p, bins.q):
        width = (part.upper - part.lower) / part.upper
        assert np.all(width > 0.5 * accuracy)
        assert np.all(width < 20 * accuracy)


def test_a_distribution_far_from_0_only_gets_wider():
    # x - shift rounds there, and the enclosures say so
    edges = np.linspace(-1.0, 1.0, 9)
    far = bins_of(Additive(stats.norm(2.0**30, 1.0)).pair(REMOVE), edges)
    near = bins_of(Additive(stats.norm(0.0, 1.0)).pair(REMOVE), edges)
    assert np.all(far.p.lower <= near.p.upper)
    assert np.all(near.p.lower <= far.p.upper)
    assert np.max(far.p.upper - far.p.lower) < 1e-5


@pytest.mark.parametrize(
    "law",
    [
        stats.norm(1.0, 2.0),
        stats.logistic(scale=3),
        stats.gumbel_r(),
        stats.uniform(0, 3),
        stats.beta(2, 3, scale=4),
        stats.gamma(2.5),
        stats.hypsecant(),
    ],
    ids=lambda law: law.dist.name,
)
def test_parameters_are_json_and_rebuild_the_mechanism(law):
    mechanism = Additive(law, sensitivity=0.5)
    again = Additive(**json.loads(json.dumps(mechanism.parameters())))
    assert again == mechanism
    assert hash(again) == hash(mechanism)
    declared = mechanism.under(Neighbouring.ADD_OR_REMOVE)
    assert declared.parameters() == mechanism.parameters()


@pytest.mark.parametrize(
    ("law", "where"),
    [
        (stats.cauchy(), "cauchy"),
        (stats.t(3), "t"),
        (stats.lognorm(1.0), "lognorm"),
        (stats.beta(0.5, 0.5, scale=9.0), "beta"),
        (stats.gamma(0.5), "gamma"),
        (stats.pareto(3.0), "pareto"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_density_that_is_not_log_concave_is_refused(law, where):
    message = (
        rf"distribution must have a log-concave density \(it has none near .*\), got '{where}'"
    )
    with pytest.raises(ParameterError, match=message):
        Additive(law)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"distribution": 3}, "distribution must be a frozen continuous distribution .*, got 3"),
        ({"distribution": "nope"}, "distribution must be a frozen .* or its name, got 'nope'"),
        ({"distribution": stats.poisson(3)}, "distribution must be a frozen continuous"),
        ({"distribution": "poisson", "args": [3]}, "distribution must be a frozen continuous"),
        ({"distribution": "norm", "sensitivity": 0}, "sensitivity must be a finite number > 0"),
        ({"distribution": "norm", "accuracy": 0.1}, r"accuracy must be in \(0, 1e-3\], got 0.1"),
        ({"distribution": "norm", "accuracy": np.nan}, "accuracy must be a finite number > 0"),
        ({"distribution": "norm", "kwds": {"scale": np.nan}}, "scale must be a finite number"),
        ({"distribution": "norm", "kwds": {"scale": -1.0}}, "args, kwds must be parameters of"),
        ({"distribution": "norm", "kwds": {"width": 1.0}}, "args, kwds must be parameters of"),
        ({"distribution": "norm", "args": 3.0}, "args must be a list of numbers, got 3.0"),
        ({"distribution": "norm", "args": "ab"}, "args must be a list of numbers, got 'ab'"),
        ({"distribution": "norm", "kwds": 3.0}, "kwds must hold numbers by their names, got 3.0"),
        ({"distribution": "norm", "kwds": [1, 2]}, "kwds must hold numbers by their names, got"),
        ({"distribution": "norm", "kwds": "ab"}, "kwds must hold numbers by their names, got"),
        ({"distribution": "norm", "kwds": {1: 2.0}}, "kwds must hold numbers by their names, got"),
        ({"distribution": "gamma"}, "args, kwds must be parameters of scipy.stats.gamma"),
        (
            {"distribution": "uniform"},
            r"sensitivity must be < 1.0 \(otherwise every output gives the input away\), got 1.0",
        ),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ParameterError, match=message):
        Additive(**arguments)
