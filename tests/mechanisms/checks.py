"""What every atomic pair is held to, whatever its mechanism."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
from flint import arb

from tightbudget.mechanisms import MECHANISMS, Mechanism
from tightbudget.pairs.direction import Direction

REMOVE, ADD = Direction.REMOVE, Direction.ADD


def ball(x) -> arb:
    """An exact double, an exact rational, or a ball as it is."""
    if isinstance(x, Fraction):
        return arb(x.numerator) / arb(x.denominator)
    return x if isinstance(x, arb) else arb(x)


def assert_holds(lower, upper, truth, width=1e-12, tiny=1e-290):
    """lower <= truth <= upper entry by entry, and both within ``width`` of each other.

    The width is relative; what is below ``tiny`` may be [0, tiny].
    """
    assert len(lower) == len(upper) == len(truth)
    for low, high, exact in zip(lower.tolist(), upper.tolist(), map(ball, truth), strict=True):
        assert not arb(low) > exact, (low, high, exact)
        assert not arb(high) < exact, (low, high, exact)
        assert exact.rel_accuracy_bits() > 100 or exact == 0  # the truth is known well enough
        assert high - low <= width * max(abs(low), abs(high)) or 0 <= low <= high <= tiny


def assert_atoms(pair, p, q, losses, width=1e-12, loss_slack=1e-12):
    """The atoms, in order, have these masses and losses (nats, absolute slack near 0)."""
    atoms = pair.atoms()
    assert_holds(atoms.p.lower, atoms.p.upper, p, width)
    assert_holds(atoms.q.lower, atoms.q.upper, q, width)
    for low, high, exact in zip(atoms.loss_lower, atoms.loss_upper, map(ball, losses), strict=True):
        assert not arb(float(low)) > exact, (low, exact)
        assert not arb(float(high)) < exact, (high, exact)
        assert high - low <= loss_slack * max(1.0, abs(high))


def delta(pair, epsilon: float) -> float:
    """delta(eps) from the upper ends of the atoms."""
    atoms = pair.atoms()
    with np.errstate(over="ignore"):
        gain = -np.expm1(np.minimum(0.0, epsilon - atoms.loss_upper))
    return float(pair.p_only().upper[0] + np.dot(atoms.p.upper, gain))


def assert_consistent(mechanism: Mechanism):
    """delta_{Q||P}(eps) = 1 - e^eps + e^eps delta_{P||Q}(-eps), and masses sum to 1."""
    remove, add = mechanism.pair(REMOVE), mechanism.pair(ADD)
    for pair in (remove, add):
        atoms = pair.atoms()
        assert np.all(atoms.loss_lower <= atoms.loss_upper)
        for side, alone in ((atoms.p, pair.p_only()), (atoms.q, pair.q_only())):
            assert np.all((side.lower >= 0) & (side.lower <= side.upper))
            assert np.sum(side.lower) + alone.lower[0] <= 1 + 1e-13
            assert np.sum(side.upper) + alone.upper[0] >= 1 - 1e-13
            assert np.sum(side.upper - side.lower) + alone.upper[0] - alone.lower[0] < 1e-11
        # the masses and the losses say the same: q = p e^-loss
        seen = (atoms.p.lower > 0) & (atoms.q.lower > 0)
        p, q = atoms.p[seen], atoms.q[seen]
        assert np.all(np.log(p.lower / 2) - np.log(q.upper) < atoms.loss_upper[seen])
        assert np.allclose(
            np.log(p.upper) - np.log(q.upper), atoms.loss_upper[seen], rtol=1e-11, atol=1e-11
        )
    for epsilon in (-3.0, -0.7, 0.0, 0.3, 1.0, 4.0):
        e = np.exp(epsilon)
        other = 1 - e + e * delta(remove, -epsilon)
        assert abs(delta(add, epsilon) - other) < 1e-12 * (1 + e)
    if mechanism.is_symmetric():
        assert abs(delta(remove, 0.5) - delta(add, 0.5)) < 1e-13


def assert_comes_back(mechanism: Mechanism):
    """What JSON keeps of it is enough to build it again; and it is a value."""
    kept = json.loads(json.dumps(mechanism.parameters()))
    again = MECHANISMS[mechanism.kind](**kept)
    assert again == mechanism
    assert hash(again) == hash(mechanism)
