"""Random allocation: exact values, exact rationals, and laws of an average of ratios."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from tests.exact import exp_ends

import tightbudget as tb
from tightbudget.engine.engine import Engine
from tightbudget.engine.question import DeltaAt
from tightbudget.errors import FileError, ParameterError, RelationError
from tightbudget.mechanisms import MECHANISMS, Allocated, Direction
from tightbudget.mechanisms.allocated_above import Spread
from tightbudget.mechanisms.allocated_below import Merged, Sums
from tightbudget.mechanisms.allocated_plan import LogLabels

# (sigma, steps, epochs, epsilon): delta of a removed and of an added record. One epoch by vertical
# lines, two by quadrature of lines, each with two sets of parameters that agree to 14 digits.
EXACT = [
    (1.0, 1000, 1, 0.1, 1.48206902727411e-4, 9.28339204910396e-5),
    (1.0, 1000, 1, 0.5, 1.72748248018721e-10, None),
    (1.0, 1000, 1, 1.0, 2.26975976030216e-13, None),
    (1.0, 1000, 1, 2.0, 7.53409609908851e-18, None),
    (0.5, 1000, 1, 0.1, 4.21554252514396e-2, 3.19287465001870e-2),
    (0.5, 1000, 1, 0.5, 5.94321706060277e-3, 9.19788639516078e-6),
    (0.5, 1000, 1, 2.0, 1.24904234597915e-4, None),
    (2.0, 100, 1, 0.1, 6.73717984269443e-4, 6.38451005089043e-4),
    (1.0, 10000, 1, 0.1, 1.08448496707899e-11, 4.81370819265476e-18),
    (1.0, 10000, 1, 2.0, 1.84531679944761e-27, None),
    (0.7, 200, 1, 0.1, 3.37606466382197e-2, 2.90283688638718e-2),
    (0.7, 200, 1, 0.5, 1.49710207632816e-3, 2.10023862454737e-5),
    (1.0, 1000, 2, 0.2, 9.03743692171311e-6, None),
    (1.0, 100, 2, 0.5, 4.65670468101601e-4, None),
    (2.0, 100, 2, 0.2, 1.06722882484759e-4, None),
]
BASES = [
    tb.Gaussian(2.0),
    tb.Laplace(1.0),
    tb.RandomizedResponse(0.8),
    tb.DiscreteGaussian(2.0),
    tb.ApproximateDP(1.0, 1e-3),
    tb.LossTable(0.5, (-1, (0.2, 0.2, 0.6), 0.0), (0, (0.6, 0.4), 0.0)),
    tb.TruncatedGaussian(1.0, bound=3.0),
    tb.HistogramPair((3.0, 2.0, 1.0, 0.5), (1.0, 2.0, 3.0, 0.0)),
    tb.Gaussian(1.0).subsampled(0.2),
]
bases = pytest.mark.parametrize("base", BASES, ids=lambda base: base.kind)
directions = pytest.mark.parametrize("direction", Direction, ids=str)


def _by_masses(mechanism: tb.Mechanism, direction: Direction, epsilon: float) -> tb.Bounds:
    """The lower bound of the pair below and the upper bound of the pair above, without formulas."""
    instance = mechanism.instance()
    assert instance is not None
    ends = []
    for one in (instance, mechanism):
        ((pair, _),) = one.pairs(direction)
        pair = getattr(pair, "masses", pair)
        answer = Engine.of({direction: ((pair, 1),)}).answer(DeltaAt(epsilon), 1e-5)
        ends.append(answer.bounds)
    return tb.Bounds(ends[0].lower, ends[1].upper)


# ---------------------------------------------------------------------------- exact values


@pytest.mark.parametrize("row", EXACT, ids=lambda row: f"{row[0]:g}-{row[1]}-{row[2]}-{row[3]:g}")
@pytest.mark.slow
def test_the_delta_of_epochs_is_that_of_the_reference(row: tuple[float, ...]) -> None:
    sigma, steps, epochs, epsilon, removed, added = row
    epoch = tb.Gaussian(sigma).allocated(int(steps))
    exact = max(removed, added or 0.0)
    found = (epoch * int(epochs)).delta(epsilon, rtol=1e-8 if epochs == 1 else 1e-4)
    # the reference has 14 digits of the exact value
    assert found.lower * (1 - 1e-13) <= exact <= found.upper * (1 + 1e-13)
    assert found.relative_gap < (1e-8 if epochs == 1 else 3e-4)


@pytest.mark.slow
def test_the_masses_of_one_epoch_hold_the_reference_in_both_directions() -> None:
    for sigma, steps, epochs, epsilon, removed, added in EXACT:
        for direction, exact in ((Direction.REMOVE, removed), (Direction.ADD, added)):
            if epochs == 1 and exact is not None and exact > 1e-15:
                epoch = tb.Gaussian(sigma).allocated(steps)
                found = _by_masses(epoch, direction, epsilon)
                assert found.lower <= exact <= found.upper
                assert found.relative_gap < 4e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epochs", "delta", "exact"),
    [
        (1, 1e-6, 0.1717287),
        (1, 1e-10, 0.5342),
        (10, 1e-5, 0.46446),
        (10, 1e-6, 0.54005),
        (10, 1e-8, 0.67390),
        (100, 1e-5, 1.62415),
        (100, 1e-8, 2.22696),
    ],
)
def test_epochs_have_the_epsilons_of_an_uncertified_quadrature(
    epochs: int, delta: float, exact: float
) -> None:
    # the digits of these values are those of plain doubles at two resolutions
    found = (tb.Gaussian(1.0).allocated(1000) * epochs).epsilon(delta)
    assert found.upper >= exact * (1 - 1e-4)
    assert found.lower <= exact * (1 + 1e-4)
    assert found.relative_gap < 1.5e-4


@pytest.mark.slow
def test_a_search_in_the_formula_finds_eight_digits() -> None:
    epoch = tb.Gaussian(1.0).allocated(1000)
    found = epoch.answer(delta=1e-6, rtol=1e-8)
    assert found.reached
    assert found.bounds.relative_gap <= 1e-8
    assert found.bounds.lower <= 0.1717287 + 5e-8
    assert found.bounds.upper >= 0.1717287 - 5e-8


def _response_deltas(p: Fraction, steps: int, times: int, epsilon: float) -> list[Fraction]:
    """Lower bounds of the exact deltas of randomised response, removed and added, k of t."""
    # a step says 1 with chance p with the record, and 1 - p without it
    x = {1: p / (1 - p), 0: (1 - p) / p}
    e = exp_ends(epsilon)[1]
    removed = added = Fraction(0)
    sets = list(itertools.combinations(range(steps), times))
    for said in itertools.product((0, 1), repeat=steps):
        q = math.prod((1 - p) if one else p for one in said)
        ratio = Fraction(sum(math.prod(x[said[i]] for i in chosen) for chosen in sets)) / len(sets)
        removed += q * max(Fraction(0), ratio - e)
        added += q * max(Fraction(0), 1 - e * ratio)
    return [removed, added]


@pytest.mark.parametrize(("steps", "times"), [(2, 1), (5, 1), (4, 2), (5, 2), (6, 5)])
def test_randomised_response_is_enumerated_exactly(steps: int, times: int) -> None:
    mechanism = tb.RandomizedResponse(0.75).allocated(steps, times)
    for epsilon in (0.0, 0.2, 0.7):
        exact = max(_response_deltas(Fraction(3, 4), steps, times, epsilon))
        found = mechanism.delta(epsilon)
        assert Fraction(found.lower) <= exact * (1 + Fraction(1, 10**14))
        assert Fraction(found.upper) >= exact * (1 - Fraction(1, 10**14))
        assert found.relative_gap < (1e-9 if times == 1 else 0.5)


@directions
def test_both_directions_of_randomised_response_are_enumerated_exactly(
    direction: Direction,
) -> None:
    found = _by_masses(tb.RandomizedResponse(0.75).allocated(3), direction, 0.3)
    exact = _response_deltas(Fraction(3, 4), 3, 1, 0.3)[direction is Direction.ADD]
    assert found.lower <= exact <= found.upper
    assert found.relative_gap < 1e-9


# ------------------------------------------------------------------------------------ laws


@bases
def test_one_step_is_the_step_itself(base: tb.Mechanism) -> None:
    assert (base.allocated(1) * 1).delta(0.3) == (base * 1).delta(0.3)


@pytest.mark.one_in(8)
@bases
@directions
def test_the_pair_above_is_above_the_pair_below(base: tb.Mechanism, direction: Direction) -> None:
    for steps in (2, 7):
        for epsilon in (-0.3, 0.0, 0.1, 0.4, 1.5):
            found = _by_masses(base.allocated(steps), direction, epsilon)
            assert found.upper - found.lower <= 1e-4 * found.upper + 1e-12


@pytest.mark.one_in(6)
@bases
def test_delta_falls_as_there_are_more_steps(base: tb.Mechanism) -> None:
    deltas = [base.allocated(steps).delta(0.2) for steps in (1, 2, 4, 12)]
    for few, many in itertools.pairwise(deltas):
        assert many.lower <= few.upper


@pytest.mark.one_in(6)
@bases
@directions
@pytest.mark.parametrize("steps", [3, 20])
def test_no_mass_is_lost_above_and_none_is_won_below(
    base: tb.Mechanism, direction: Direction, steps: int
) -> None:
    pair = base.pair(direction)
    above = Spread.of(pair, direction, steps)
    total = sum(float(piece.rows.sum()) for piece in above.law.pieces)
    assert total * (1 + above.law.error) + above.law.lost[0] >= 1.0 - 1e-13
    assert total <= 1.0 + 1e-7
    below = Merged.of(pair, direction, steps)
    for row in (0, 1):
        total = sum(float(piece.rows[row].sum()) for piece in below.law.pieces)
        assert total <= 1.0 + below.law.error


@pytest.mark.one_in(4)
@bases
def test_several_steps_a_record_lie_between_their_ends(base: tb.Mechanism) -> None:
    found = base.allocated(6, each_in=2).delta(0.2)
    assert found.lower > 0
    # more steps with the record reveal more, all of them most
    assert base.allocated(6).delta(0.2).lower <= found.upper
    assert found.lower <= (base * 6).delta(0.2).upper


@bases
def test_all_steps_are_the_steps_composed(base: tb.Mechanism) -> None:
    assert base.allocated(3, each_in=3).delta(0.4) == (base * 3).delta(0.4)


def test_several_steps_a_record_are_dominated_by_blocks() -> None:
    one = tb.Gaussian(2.0)
    blocks = one.allocated(3) * 2 + one.allocated(4)
    several = one.allocated(10, each_in=3)
    assert dict(several.pairs(Direction.REMOVE)) == dict(blocks.pairs(Direction.REMOVE))
    assert several.epsilon(1e-5).upper == pytest.approx(blocks.epsilon(1e-5).upper, rel=1e-4)


@pytest.mark.slow
def test_two_hundred_of_ten_thousand_steps() -> None:
    found = tb.Gaussian(1.42).allocated(10_000, each_in=205).epsilon(1e-5)
    assert found.upper == pytest.approx(7.8517, abs=2e-3)
    assert found.lower > 7.7
    poisson = (tb.Gaussian(1.42).subsampled(205 / 10_000) * 10_000).epsilon(1e-5)
    assert found.upper < poisson.lower


def test_labels_of_sums_are_those_of_any_order() -> None:
    """The law of a sum of labels, of which the first ones have the record, is symmetric."""
    pair = tb.Laplace(1.0).pair(Direction.REMOVE)
    law = Sums.of(pair, Direction.REMOVE, 6, 2, LogLabels(0.5, far=False))
    assert law.rows.shape[0] == 2
    assert np.all(np.sum(law.rows, axis=1) <= 1.0 + law.error)
    assert np.all(np.sum(law.rows, axis=1) >= 1.0 - 1e-6)


@pytest.mark.parametrize(("steps", "each_in"), [(4, 2), (7, 2), (7, 5), (12, 3)])
def test_the_sum_of_logs_tells_next_to_all(steps: int, each_in: int) -> None:
    """Where a step has two outputs, a sum of labels tells how often each one came: all there is."""
    p = Fraction(3, 4)  # of the true output
    laws = []
    for known in (0, each_in):  # how many steps have the record
        law = [Fraction(1)]  # of the number of outputs that say so
        for chance in [p] * known + [1 - p] * (steps - known):
            law = [
                (law[n] if n < len(law) else 0) * (1 - chance) + (law[n - 1] if n else 0) * chance
                for n in range(len(law) + 1)
            ]
        laws.append(law)
    low, high = exp_ends(0.3)
    exact = [
        max(
            sum(max(Fraction(0), x - e * y) for x, y in zip(one, other, strict=True))
            for one, other in itertools.permutations(laws)
        )
        for e in (high, low)
    ]
    found = tb.RandomizedResponse(0.75).allocated(steps, each_in=each_in).delta(0.3)
    assert Fraction(1 - 1e-6) * exact[0] <= found.lower <= exact[1]
    assert exact[0] <= found.upper


@pytest.mark.parametrize(
    ("sigma", "steps", "each_in", "exact"),
    # epsilon at 1e-5, by the exact ratio of 10^5 random outputs, to 1 %
    [(0.5, 1000, 2, 4.211)],
)
@pytest.mark.slow
def test_most_of_what_several_steps_tell_is_seen(
    sigma: float, steps: int, each_in: int, exact: float
) -> None:
    found = tb.Gaussian(sigma).allocated(steps, each_in=each_in).epsilon(1e-5)
    assert 0.99 * exact <= found.lower <= 1.01 * exact <= found.upper


@pytest.mark.slow
@pytest.mark.parametrize("each_in", [1, 2])
def test_losses_that_hardly_ever_come_leave_the_range_of_doubles_unseen(each_in: int) -> None:
    found = tb.Additive("gumbel_r", kwds={"scale": 0.72}).allocated(9, each_in=each_in).delta(0.5)
    assert 0.0 < found.lower <= found.upper < 1.0


@pytest.mark.slow
def test_a_step_of_next_to_no_noise_is_bounded_by_the_step() -> None:
    found = tb.Gaussian(0.02).allocated(100).delta(1.0)
    assert found.upper == 1.0
    assert (tb.Gaussian(0.1).allocated(100) * 2).delta(1.0).lower > 0.999


@pytest.mark.slow
def test_epochs_compose_with_anything() -> None:
    epoch = tb.Gaussian(1.0).allocated(100)
    alone = (epoch * 10).epsilon(1e-5)
    mixed = (epoch * 10 + tb.Laplace(20.0).allocated(5) + tb.Gaussian(30.0)).epsilon(1e-5)
    assert alone.upper < mixed.lower
    assert mixed.relative_gap < 3e-4
    risk = (epoch * 10).risk(1.0)
    assert risk.advantage.relative_gap < 3e-4
    (fnr,) = (epoch * 10).tradeoff([0.01])
    assert fnr.width < 2e-4


@pytest.mark.slow
def test_noise_is_calibrated_for_epochs() -> None:
    found = tb.calibrate(
        lambda sigma: tb.Gaussian(sigma).allocated(50) * 4, epsilon=2.0, delta=1e-5, rtol=1e-3
    )
    assert (tb.Gaussian(found.value).allocated(50) * 4).delta(2.0).upper <= 1e-5
    assert (tb.Gaussian(0.99 * found.value).allocated(50) * 4).delta(2.0).lower > 1e-5


@pytest.mark.slow
def test_a_run_may_stop_between_epochs() -> None:
    epoch = tb.Gaussian(2.0).allocated(20)
    schedule = tb.early_stopping(epoch, [2, 4, 8], 1e-5)
    whole = (epoch * 8).epsilon(1e-5)
    assert whole.lower <= schedule.epsilons[-1]


# ------------------------------------------------------------------- refusals and stored values


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 0}, "steps must be an integer >= 1, got 0"),
        ({"steps": 2.5}, r"steps must be an integer >= 1, got 2\.5"),
        ({"steps": 10**8 + 1}, r"steps must be at most 10\^8, got 100000001"),
        ({"steps": 5, "times": 2}, "^times is each_in now$"),
        ({"steps": 5, "each_in": 0}, "each_in must be an integer >= 1, got 0"),
        ({"steps": 5, "each_in": 6}, r"each_in must be at most steps \(5\), got 6"),
    ],
)
def test_numbers_of_steps_are_refused_by_name(given: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        tb.Gaussian(1.0).allocated(**given)  # type: ignore[arg-type]


def test_a_base_for_another_relation_is_refused() -> None:
    replaced = tb.Gaussian(1.0, relation=tb.Neighbouring.REPLACE_ONE)
    with pytest.raises(RelationError, match="random allocation holds for"):
        replaced.allocated(10)
    with pytest.raises(ParameterError, match="base must be a mechanism"):
        Allocated("gaussian", 10)  # type: ignore[arg-type]


def test_a_zeroed_record_may_stand_for_an_absent_one() -> None:
    zeroed = tb.Gaussian(1.0, relation=tb.Neighbouring.ZERO_OUT).allocated(10)
    assert zeroed.relation is tb.Neighbouring.ZERO_OUT
    assert tb.Gaussian(1.0).allocated(10).relation is tb.Neighbouring.ADD_OR_REMOVE


@pytest.mark.parametrize(
    ("mechanism", "table"),
    [
        (
            tb.Gaussian(2.0).allocated(10),
            {"mechanism": "gaussian", "sigma": 2.0, "allocated": 10},
        ),
        (
            tb.Gaussian(2.0).allocated(10, each_in=3),
            {"mechanism": "gaussian", "sigma": 2.0, "allocated": {"steps": 10, "times": 3}},
        ),
        (
            tb.Gaussian(2.0).subsampled(0.5).allocated(10),
            {
                "mechanism": "allocated",
                "base": {"mechanism": "gaussian", "sigma": 2.0, "rate": 0.5},
                "allocated": 10,
            },
        ),
    ],
)
def test_a_table_says_it_by_one_key(mechanism: Allocated, table: dict[str, object]) -> None:
    written = mechanism.to_dict()
    assert tb.Mechanism.from_dict(written) == mechanism
    assert tb.Mechanism.from_dict(dict(table)) == mechanism
    assert MECHANISMS["allocated"] is Allocated


def test_a_table_may_name_the_parameter_itself() -> None:
    table = {"mechanism": "gaussian", "sigma": 2.0, "allocated": {"steps": 10, "each_in": 3}}
    assert tb.Mechanism.from_dict(table) == tb.Gaussian(2.0).allocated(10, 3)
    with pytest.raises(ParameterError, match="in how many steps each record is, each_in says now"):
        Allocated(tb.Gaussian(2.0), 10, times=3)  # type: ignore[call-arg]
    twice = {**table, "allocated": {"steps": 10, "each_in": 3, "times": 3}}
    with pytest.raises(FileError, match=r"^step\.allocated: each_in is given twice$"):
        tb.Mechanism.from_dict(twice)


def test_a_table_without_steps_is_refused() -> None:
    with pytest.raises(FileError, match="allocated needs steps"):
        tb.Mechanism.from_dict({"mechanism": "gaussian", "sigma": 1.0, "allocated": {"times": 3}})


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0455, 1e-12), (0.3, 1e-6), (0.002, 1e-12)])
def test_steps_that_rarely_show_that_they_have_no_record_end_in_a_second(
    epsilon: float, delta: float
) -> None:
    """A ratio of 0 is far from all others on a lattice that resolves those."""
    high = (1.0 - delta) / (1.0 + math.exp(-epsilon))
    step = [
        (math.exp(epsilon), high * math.exp(-epsilon)),
        (math.exp(-epsilon), high),
        (0.0, delta),
    ]
    epoch = [((x + y) / 2.0, a * b) for x, a in step for y, b in step]
    exact = sum(a * b * max(0.0, x * y - 1.0) for x, a in epoch for y, b in epoch)
    exact += 1.0 - (1.0 - delta) ** 2
    found = (tb.ApproximateDP(epsilon, delta).allocated(2) * 2).delta(0.0)
    assert found.lower * (1 - 1e-9) <= exact <= found.upper * (1 + 1e-9)
    assert found.relative_gap <= 1e-4


def test_losses_below_what_a_lattice_resolves_are_refused_in_a_second() -> None:
    with pytest.raises(
        tb.PrecisionError, match=r"delta at epsilon = 0 is in \[2\..*e-09, 3\..*e-09\]"
    ):
        (tb.ApproximateDP(1e-9, 1e-9).allocated(3) * 2).delta(0.0)


@pytest.mark.parametrize("epsilon", [0.05, 0.2])
def test_a_sample_of_an_epoch_is_attained_where_other_records_contribute_nothing(
    epsilon: float,
) -> None:
    # randomised response: present, the step's bit is 1 with chance 3/4, absent with 1/4; the record
    # is in one of two steps, and in the epoch with chance 1/2
    present, absent, rate = (Fraction(1, 4), Fraction(3, 4)), (Fraction(3, 4), Fraction(1, 4)), 0.5
    outputs = list(itertools.product((0, 1), repeat=2))
    q = [absent[a] * absent[b] for a, b in outputs]
    inside = [(present[a] * absent[b] + absent[a] * present[b]) / 2 for a, b in outputs]
    p = [Fraction(rate) * x + (1 - Fraction(rate)) * y for x, y in zip(inside, q, strict=True)]
    level = Fraction(math.exp(epsilon))
    exact = max(
        float(sum(max(x - level * y, Fraction(0)) for x, y in zip(one, other, strict=True)))
        for one, other in ((p, q), (q, p))
    )
    found = tb.RandomizedResponse(0.75, 2).allocated(2).subsampled(rate).delta(epsilon)
    assert found.lower <= exact * (1 + 1e-12)
    assert exact * (1 - 1e-3) <= found.lower
    assert exact <= found.upper * (1 + 1e-12)


@pytest.mark.slow
def test_a_sample_of_an_epoch_has_two_close_bounds() -> None:
    run = tb.Gaussian(1.0).allocated(10).subsampled(0.1) * 5
    found = run.epsilon(1e-5)
    assert 0.5732 < found.lower < found.upper < 0.5734
    several = (tb.Gaussian(1.0).allocated(10, each_in=3).subsampled(0.5) * 2).epsilon(1e-5)
    assert 4.5 < several.lower < several.upper
