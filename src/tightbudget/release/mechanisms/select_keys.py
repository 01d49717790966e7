"""Publishes keys that are secrets themselves, where enough units have them.

A unit of privacy (a person, say) has at most g keys. For neighbours, one of which has one unit
more, let i keys of that unit have other units, too, and let j keys have no other unit: i + j <= g.

- A key with other units has its noise in both tables: a noisy count against one that moved.
- A key without other units is published in one table with probability d, and in the other never.

No key is both, so that the worst case is a maximum over j = 0, ..., g, and not the sum of the two
worst cases. The proof is in docs/explanation/secret-keys.md.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np

from tightbudget.errors import ParameterError
from tightbudget.mechanisms.integer_noise import DiscreteGaussian, DiscreteLaplace
from tightbudget.numerics.rounding import (
    add_up,
    any_of,
    double_down,
    exp_down,
    exp_up,
    log1p_down,
    mul_up,
    sub_down,
    sub_up,
)
from tightbudget.numerics.search import last_true
from tightbudget.numerics.validate import one_of, plain_numbers, positive_count, refuse
from tightbudget.output_dp.amount import Price, exact_positive, exact_probability
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.noise.coins import bernoulli
from tightbudget.release.noise.noise import Noise, scale_up
from tightbudget.release.release import answered

# Counts are moved into [0, 2^52], so that sums with noise stay within int64.
_LARGEST_COUNT = 2**52
# Probabilities of the rule for keys alone are multiples of 2^-128: a grid far below any delta.
_FINE = 2**128
# The rule for keys alone lists a probability for each count up to the first that is published
# surely: some 2 ln(1 / delta) / epsilon counts.
_LONGEST = 10**5


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class KeyedCounts(MechanismOnData[Mapping[Any, int], dict[Any, int]]):
    """Publishes keys with noisy counts that reach a threshold, where the keys are secrets.

    The data are a dictionary from each key to its count: the number of units that have the key.
    Each count gets discrete noise, and a key is published with its noisy count if that is at
    least :attr:`threshold`. The value of a release is a dictionary, in the order of the keys'
    texts. A key whose count is no integer, or is less than 1, is not published,
    nor is a key that has no text.

    Guarantee: (epsilon, delta)-DP for tables of which one has one unit more; one cell, "value".
    The threshold is the least integer for which this is certified: delta bounds the maximum over
    j = 0, ..., g keys without other units, and not the sum of a delta for the noise and a delta
    for the threshold.
    Source: Korolova, Kenthapadi, Mishra, Ntoulas 2009 (the threshold); Wilson et al. 2020 (several
    keys); docs/explanation/secret-keys.md (the maximum).

    Args:
        epsilon: > 0, nats.
        delta: in (0, 1).
        keys_per_unit: g >= 1, the largest number of keys that one unit has.
        moves: >= 1, the most that one unit adds to the count of one key: 1 where units are counted.
        noise: "laplace", of scale g moves / epsilon; or "gaussian", with the least sigma that is
            enough, to 0.01 %.

    Raises:
        ParameterError: a parameter is refused, or the noise is too wide.
    """

    epsilon: Price
    delta: Price
    keys_per_unit: int = 1
    moves: int = 1
    noise: Literal["laplace", "gaussian"] = "laplace"

    def __post_init__(self) -> None:
        _open(self.delta)
        positive_count(keys_per_unit=self.keys_per_unit)
        positive_count(moves=self.moves)
        one_of(("laplace", "gaussian"), noise=self.noise)
        _ = self.threshold
        super().__post_init__()

    @cached_property
    def guarantee(self) -> OutputDP:
        """One output cell, "value", at the price epsilon, with delta."""
        return OutputDP({"value": exact_positive(epsilon=self.epsilon)}, _open(self.delta))

    @cached_property
    def scale(self) -> float:
        """The scale of the noise; for "gaussian" it is sigma."""
        if self.noise == "gaussian":
            return _least_sigma(self._epsilon, self._delta, self.keys_per_unit, self.moves)
        share = exact_positive(epsilon=self.epsilon) / self.keys_per_unit
        return scale_up(self.moves / share)

    @cached_property
    def threshold(self) -> int:
        """The least noisy count that is published."""
        g, test = self.keys_per_unit, self._laplace_holds
        # A count is noise >= threshold - moves away from the threshold, for a unit's own key.
        if self.noise == "gaussian":
            tails = DiscreteGaussian(self.scale, self.moves).tails_up()
            test = functools.partial(self._gaussian_holds, tails)
        low, high = 0, 1
        while not test(high):
            low, high = high, 2 * high
            if high > _LARGEST_COUNT:
                raise refuse("delta", f"be larger for {g} keys: no threshold is enough", self.delta)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if test(middle) else (middle, high)
        return self.moves + high

    @property
    def _epsilon(self) -> float:
        return double_down(exact_positive(epsilon=self.epsilon))

    @property
    def _delta(self) -> float:
        return double_down(_open(self.delta))

    # Proof: proofs/selection.v, theorem laplace
    def _laplace_holds(self, away: int) -> bool:
        """Decides whether (epsilon, delta) holds for own keys that appear at noise >= ``away``.

        The noise on a key costs epsilon / g. So does a key's absence, if 1 - d >= e^(-epsilon/g):
        then nothing but the appearance of own keys costs delta.
        """
        g = self.keys_per_unit
        appears = DiscreteLaplace(self.scale, self.moves).tail_up(away)
        if not sub_down(1.0, appears) >= exp_up(-self._epsilon / g * (1 - 2.0**-50)):
            return False
        return any_of([(appears, g)], up=True) <= self._delta  # guard: every-key-may-appear

    # Proof: proofs/selection.v, theorems own_keys, maximum, one_key
    def _gaussian_holds(self, tails: Any, away: int) -> bool:
        """Decides whether (epsilon, delta) holds for own keys that appear at noise >= ``away``.

        Args:
            tails: upper bounds of the probability that noise is >= 0, 1, 2, ...
            away: the noise with which a unit's own key appears.
        """
        if away >= len(tails):
            raise refuse("delta", "be larger: the tail of the noise is not listed", self.delta)
        appears, g = float(tails[away]), self.keys_per_unit
        # all keys a unit's own: one of the cases below, and the cheapest to decide
        # guard: own-keys-alone
        if not appears < 0.5 or any_of([(appears, g)], up=True) > self._delta:
            return False
        hidden = -log1p_down(-appears)  # the loss of one own key that does not appear
        pending = [(0, 0), (1, g)]
        while pending:
            first, last = pending.pop()
            # For first <= j <= last own keys at most ``last`` can appear, and at most g - first
            # keys have noise.
            shared = g - first
            shown = any_of([(appears, last)], up=True) if last else 0.0
            noisy = self._noise_delta(shared, self._epsilon)
            one = add_up(shown, mul_up(sub_up(1.0, shown), noisy)) if last else noisy
            less = sub_down(self._epsilon, mul_up(hidden, last)) if last else self._epsilon
            other = self._noise_delta(shared, less)
            if max(one, other) <= self._delta:  # guard: worst-of-all-splits
                continue
            if first == last:
                return False
            middle = (first + last) // 2
            pending += [(first, middle), (middle + 1, last)]
        return True

    def _noise_delta(self, shared: int, epsilon: float) -> float:
        """Returns an upper bound of the delta of the noise on so many keys at once."""
        if not shared:
            return 0.0 if epsilon >= 0 else 1.0
        return _gaussian_delta(self.scale, self.moves, shared, epsilon)

    def _run(self, data: Any, noise: Noise) -> tuple[dict[Any, int], Cell]:
        counts = answered(lambda: _counts(data)) or {}
        draw = noise.laplace if self.noise == "laplace" else noise.gaussian
        draws = np.clip(draw(self.scale, len(counts)), -(2**61), 2**61).tolist()
        noisy = {key: n + z for (key, n), z in zip(counts.items(), draws, strict=True)}
        # guard: threshold-is-reached
        return {key: n for key, n in noisy.items() if n >= self.threshold}, "value"

    def _admitted(self, data: Any) -> Any:
        return _mapping(data)


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class SelectKeys(MechanismOnData[Mapping[Any, int], tuple[Any, ...]]):
    """Publishes keys without counts, each with a probability that its number of units decides.

    The data are a dictionary from each key to the number of units that have it. The value of a
    release is the tuple of the keys published, in the order of their texts. A key whose count is
    no integer, or is less than 1, is not published, nor is a key that has no text.

    Guarantee: (epsilon, delta)-DP for tables of which one has one unit more; one cell, "value".
    For one key per unit and e^epsilon rounded down to a double, no other rule publishes a key with
    a larger probability, but for 2^-128 times the number of units.
    Source: Desfontaines, Voss, Gipson, Mandayam 2022, Theorem 1; g keys share epsilon and delta.

    Args:
        epsilon: > 0, nats.
        delta: in (0, 1).
        keys_per_unit: g >= 1, the largest number of keys that one unit has.

    Raises:
        ParameterError: a parameter is refused, or epsilon and delta are too small.
    """

    epsilon: Price
    delta: Price
    keys_per_unit: int = 1

    def __post_init__(self) -> None:
        _open(self.delta)
        positive_count(keys_per_unit=self.keys_per_unit)
        _ = self.probabilities
        super().__post_init__()

    @cached_property
    def guarantee(self) -> OutputDP:
        """One output cell, "value", at the price epsilon, with delta."""
        return OutputDP({"value": exact_positive(epsilon=self.epsilon)}, _open(self.delta))

    @cached_property
    def probabilities(self) -> tuple[Fraction, ...]:
        """The probabilities with which a key of 0, 1, 2, ... units is published; the last is 1."""
        each = double_down(exact_positive(epsilon=self.epsilon) / self.keys_per_unit)
        # e^epsilon rounded down: the rule has this smaller epsilon exactly
        return optimal_rule(Fraction(exp_down(each)), _open(self.delta) / self.keys_per_unit)

    def _run(self, data: Any, noise: Noise) -> tuple[tuple[Any, ...], Cell]:
        counts = answered(lambda: _counts(data)) or {}
        rule, last = self.probabilities, len(self.probabilities) - 1
        kept = [key for key, n in counts.items() if bernoulli(rule[min(n, last)], noise)]
        return tuple(kept), "value"

    def _admitted(self, data: Any) -> Any:
        return _mapping(data)


# Proof: proofs/selection.v, theorem rule_for_keys
def optimal_rule(factor: Fraction, delta: Fraction) -> tuple[Fraction, ...]:
    """Returns the largest probabilities p_0 = 0, p_1, p_2, ..., 1 that neighbouring counts allow.

    Each is at most factor p + delta and 1 - (1 - p - delta) / factor for its predecessor p, which
    are the two conditions of (ln factor, delta)-DP that bind for a growing sequence. Rounding
    down to a multiple of 2^-128 keeps both, and keeps the sequence from falling, as p is such a
    multiple.

    Raises:
        ParameterError: the sequence does not reach 1 within 100,000 counts.
    """
    growth = float(factor) - 1
    # p_n = delta (factor^n - 1) / (factor - 1) at first: so many counts to 1/2, and as many to 1
    if not growth > 0 or 2 * math.log1p(growth / (2 * delta)) > _LONGEST * math.log1p(growth):
        raise ParameterError(
            "epsilon and delta must be larger for so many keys: "
            f"no key of {_LONGEST} units would be published surely"
        )
    rule = [Fraction(0)]
    while rule[-1] < 1:
        p = rule[-1]
        # guard: both-sides-of-the-rule
        most = min(factor * p + delta, 1 - (1 - p - delta) / factor, Fraction(1))
        rule.append(Fraction(math.floor(most * _FINE), _FINE))
    return tuple(rule)


def _counts(data: Mapping[Any, Any]) -> dict[Any, int]:
    """Returns the integer counts >= 1, in an order that the keys alone decide."""
    found, texts = dict[Any, int](), dict[Any, tuple[str, str]]()
    for key, value in data.items():
        try:
            n, texts[key] = operator.index(value), _text(key)
        except Exception:  # a key or a count that is none must not change what others get
            continue  # guard: odd-keys-alone
        if n >= 1:  # guard: absent-keys-stay-absent
            found[key] = min(n, _LARGEST_COUNT)
    ordered = sorted(found, key=texts.__getitem__)  # guard: order-of-the-keys
    return {key: found[key] for key in ordered}


def _text(key: Hashable) -> tuple[str, str]:
    """Returns the text and the type of a key: the order in which keys are published."""
    return str(key), type(key).__name__


def _mapping(data: Any) -> Any:
    """Returns data that are a dictionary.

    Raises:
        ParameterError: they are something else; the message names the type alone.
    """
    if not isinstance(data, Mapping):
        raise refuse("data", "be a dictionary from keys to counts", type(data).__name__)
    return data


def _open(delta: Price) -> Fraction:
    """Returns a delta in (0, 1), exactly.

    Raises:
        ParameterError: delta is 0 or 1, or no such number.
    """
    found = exact_probability(delta=delta)
    if not 0 < found < 1:
        raise refuse("delta", "be in (0, 1): a secret key cannot be published at 0", delta)
    return found


@functools.lru_cache(maxsize=4096)
def _gaussian_delta(sigma: float, moves: int, keys: int, epsilon: float) -> float:
    """Returns an upper bound of the delta of Gaussian noise on so many keys that all move."""
    if not epsilon >= 0:
        return 1.0
    return (DiscreteGaussian(sigma, moves) * keys).delta(epsilon=epsilon).upper


@functools.lru_cache(maxsize=256)
def _least_sigma(epsilon: float, delta: float, keys: int, moves: int) -> float:
    """Returns a sigma at which noise on so many keys is (epsilon, delta)-DP, the least to 0.01 %.

    Raises:
        ParameterError: the noise is too wide.
    """
    log = -math.log(delta)
    # rho-zCDP has the epsilon rho + 2 sqrt(rho log(1/delta)): this sigma is enough, and a guess
    root = epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))
    guess = math.sqrt(2) * root / (moves * math.sqrt(keys))

    def enough(inverse: float) -> bool:
        return not inverse or _gaussian_delta(1 / inverse, moves, keys, epsilon) <= delta

    found = last_true(enough, guess, 1e3 * guess + 1.0, tolerance=1e-4).last_true
    # 1 / x is the sigma that was tested, the same double
    return 1 / found
