"""Random numbers of trials: how often a search runs before its best trial is released.

The number is drawn before the search, from a law that everybody may know; the number itself stays a
secret. What a search then costs, ``run.best_of(trials=...)`` says.
"""

from __future__ import annotations

import dataclasses
import decimal
import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from tightbudget.errors import FileError, ParameterError
from tightbudget.numerics.enclosure import Enclosure, exact
from tightbudget.numerics.rounding import (
    EXP,
    EXPM1,
    LOG1P,
    TINY,
    double_down,
    double_up,
    scale_down,
    scale_up,
)
from tightbudget.numerics.validate import (
    number,
    plain_numbers,
    positive_count,
    probability,
    refuse,
)

__all__ = ["Binomial", "NegativeBinomial", "Poisson", "Trials"]

Between = tuple[Fraction, Fraction]  # a lower and an upper bound

_MOST = 1e12  # trials on average
_LEAST_SHAPE, _MOST_SHAPE = 1e-6, 1e6
_DIGITS = 60  # of a decimal
_MORE = 30  # digits of the search for a parameter, of whose equation so many may cancel
_LARGE = 1e300  # a lower bound of a logarithm may be no infinity


@dataclass(frozen=True)
class Trials:
    """The law of a random number of trials, of which the best one is released.

    Frozen, compared and hashed by content. With the generating function phi(x) = E x^K of the
    number K, and for a trial whose score is exceeded with probability ``above``, the best of K
    trials is that one with phi'(1 - above) times its density.
    """

    law: ClassVar[str] = ""  # the name in JSON and plan files

    def density(self, above: Enclosure) -> Enclosure:
        """Bounds phi'(1 - above), for each entry in [0, 1]; it falls, and is convex."""
        raise NotImplementedError

    def best_in(self, start: Enclosure, width: Enclosure) -> Enclosure:
        """Bounds phi(1 - start) - phi(1 - start - width), for entries that sum to at most 1.

        That is the chance that the score of the best is exceeded by a trial's with a probability
        between ``start`` and ``start + width``.
        """
        raise NotImplementedError

    def none(self) -> Enclosure:
        """Bounds the probability that there is no trial at all."""
        return exact(np.zeros(1))

    def expected(self) -> float:
        """Returns the mean number of trials, rounded."""
        raise NotImplementedError

    def once(self) -> bool:
        """Says whether there is exactly one trial."""
        return False

    def chances(self, digits: int) -> Iterator[Between]:
        """Yields bounds of the probability of 0, 1, 2, ... trials.

        Args:
            digits: >= 30; so many digits, but for 25 of them, are right.
        """
        raise NotImplementedError

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__repr__ = Trials.__repr__  # type: ignore[method-assign]  # dataclass would write one

    def __repr__(self) -> str:
        given = [f"{name}={value!r}" for name, value in self.to_dict().items() if name != "law"]
        return f"trials.{type(self).__name__}({', '.join(given)})"

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON values: ``{"law": law, parameters...}``."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {"law": self.law, **given}

    @staticmethod
    def from_dict(table: Any, where: str = "trials") -> Trials:
        """Makes the law that :meth:`to_dict` wrote.

        Args:
            table: its name and its parameters.
            where: what a refusal calls the table.

        Raises:
            FileError: no table, no or an unknown law, an unknown or missing parameter.
            ParameterError: a parameter's value is refused.
        """
        if not isinstance(table, Mapping):
            raise FileError(f'{where} must be a table such as {{"law": "poisson", "mean": 20}}')
        given = dict(table)
        law = given.pop("law", None)
        if not isinstance(law, str) or law not in _LAWS:
            raise FileError(f"{where}.law must be one of {', '.join(sorted(_LAWS))}, got {law!r}")
        fields = {field.name: field for field in dataclasses.fields(_LAWS[law])}
        for name in given:
            if name not in fields:
                raise FileError(f"{where}: {law} has no {name!r} (it has {', '.join(fields)})")
        for name, field in fields.items():
            if name not in given and field.default is dataclasses.MISSING:
                raise FileError(f"{where}: {law} needs {name}")
        return _LAWS[law](**given)


@plain_numbers
@dataclass(frozen=True)
class Poisson(Trials):
    """Is a Poisson number of trials, which may be 0: then nothing is released.

    phi'(1 - above) = mean e^(-mean above).

    Args:
        mean: in (0, 1e12].

    Raises:
        ParameterError: ``mean`` is refused.
    """

    mean: float

    law: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        mean = number(mean=self.mean)
        if not 0 < mean <= _MOST:
            raise refuse("mean", "be in (0, 1e12]", self.mean)
        object.__setattr__(self, "mean", mean)

    def expected(self) -> float:
        """Returns the mean number of trials."""
        return self.mean

    def density(self, above: Enclosure) -> Enclosure:
        """Bounds phi'(1 - above): see :meth:`Trials.density`."""
        return _exp_minus(above.scaled(self.mean)).scaled(self.mean)

    def best_in(self, start: Enclosure, width: Enclosure) -> Enclosure:
        """Bounds phi(1 - start) - phi(1 - start - width): see :meth:`Trials.best_in`."""
        return _exp_minus(start.scaled(self.mean)) * _lost(width.scaled(self.mean))

    def none(self) -> Enclosure:
        """Bounds the probability that there is no trial at all."""
        return _exp_minus(exact(np.array([self.mean])))

    def chances(self, digits: int) -> Iterator[Between]:
        """Yields bounds of the probability of 0, 1, 2, ... trials: see :meth:`Trials.chances`."""
        mean, off = Fraction(self.mean), Fraction(1, 10 ** (digits - 25))
        with _decimals(digits):
            chance = (-_decimal(mean)).exp()
        for k in itertools.count(1):
            yield _around(chance, off)
            with _decimals(digits):
                chance = chance * _decimal(mean) / k


@plain_numbers
@dataclass(frozen=True)
class NegativeBinomial(Trials):
    """Is a truncated negative binomial number of trials: geometric for the shape 1, at least 1.

    It is logarithmic for the shape 0. With kappa = (1 - gamma) / gamma of the paper's gamma, the
    mean is kappa shape / (1 - (1 + kappa)^-shape), kappa / ln(1 + kappa) for the shape 0, and
    phi'(1 - above) = mean (1 + kappa above)^-(1 + shape).
    Source: Papernot, Steinke 2022, "Hyperparameter tuning with Renyi differential privacy",
    Definition 1.

    Args:
        mean: in [1, 1e12].
        shape: 0, or in [1e-6, 1e6]; 1 stops after each trial with the probability 1 / mean.

    Raises:
        ParameterError: an argument is refused.
    """

    mean: float
    shape: float = 1.0

    law: ClassVar[str] = "negative-binomial"

    def __post_init__(self) -> None:
        mean, shape = number(mean=self.mean), number(shape=self.shape)
        if not 1 <= mean <= _MOST:
            raise refuse("mean", "be in [1, 1e12]", self.mean)
        if not (shape == 0 or _LEAST_SHAPE <= shape <= _MOST_SHAPE):
            raise refuse("shape", "be 0 or in [1e-6, 1e6]", self.shape)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "shape", shape)

    def expected(self) -> float:
        """Returns the mean number of trials."""
        return self.mean

    def once(self) -> bool:
        """Says whether there is exactly one trial."""
        return self.mean == 1

    @property
    def _kappas(self) -> Enclosure:
        low, high = _kappa(self.mean, self.shape)
        return Enclosure(np.array([double_down(low)]), np.array([double_up(high)]))

    def density(self, above: Enclosure) -> Enclosure:
        """Bounds phi'(1 - above): see :meth:`Trials.density`."""
        power = exact(self.shape) + exact(1.0)
        return _exp_minus(_log1p(above * self._kappas) * power).scaled(self.mean)

    def best_in(self, start: Enclosure, width: Enclosure) -> Enclosure:
        """Bounds phi(1 - start) - phi(1 - start - width): see :meth:`Trials.best_in`."""
        if self.once():
            return width
        before = start * self._kappas + exact(1.0)
        grown = _log1p(width * self._kappas / before)
        whole = _log1p(self._kappas)
        if self.shape == 0:
            return (grown / whole).clipped(0.0, 1.0)
        left = _exp_minus(_log1p(start * self._kappas).scaled(self.shape))
        part = left * _lost(grown.scaled(self.shape)) / _lost(whole.scaled(self.shape))
        return part.clipped(0.0, 1.0)

    def chances(self, digits: int) -> Iterator[Between]:
        """Yields bounds of the probability of 0, 1, 2, ... trials: see :meth:`Trials.chances`."""
        shape, off = Fraction(self.shape), Fraction(1, 10 ** (digits - 25))
        yield Fraction(0), Fraction(0)
        if self.once():
            yield Fraction(1), Fraction(1)
            yield from itertools.repeat((Fraction(0), Fraction(0)))
        low, high = _kappa(self.mean, self.shape, digits)
        kappa = (low + high) / 2
        stay = kappa / (1 + kappa)  # 1 - gamma
        # one trial has phi'(0) = mean gamma^(1 + shape)
        with _decimals(digits):
            power = _decimal(1 + shape) * _decimal(1 + kappa).ln()
            chance = _decimal(Fraction(self.mean)) * (-power).exp()
        for k in itertools.count(1):
            yield _around(chance, off)
            with _decimals(digits):
                chance = chance * _decimal(stay * (shape + k) / (k + 1))


@plain_numbers
@dataclass(frozen=True)
class Binomial(Trials):
    """Is a binomial number of trials: each of ``n`` is made with a probability; it may be 0.

    phi'(1 - above) = n p (1 - p above)^(n - 1). With the probability 1 there are exactly n trials.

    Args:
        n: the largest number of trials, in 1 ... 10^12.
        probability: of each, in (0, 1].

    Raises:
        ParameterError: an argument is refused.
    """

    n: int
    probability: float = 1.0

    law: ClassVar[str] = "binomial"

    def __post_init__(self) -> None:
        n, chance = positive_count(n=self.n), probability(probability=self.probability)
        if n > _MOST:
            raise refuse("n", "be at most 10^12", self.n)
        if not chance > 0:
            raise refuse("probability", "be in (0, 1]", self.probability)
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "probability", chance)

    def expected(self) -> float:
        """Returns the mean number of trials, rounded."""
        return self.n * self.probability

    def once(self) -> bool:
        """Says whether there is exactly one trial."""
        return self.n == 1 and self.probability == 1

    def density(self, above: Enclosure) -> Enclosure:
        """Bounds phi'(1 - above): see :meth:`Trials.density`."""
        found = exact(1.0)
        if self.n > 1:
            found = _exp_minus(_minus_log1m(above.scaled(self.probability)).scaled(self.n - 1.0))
        return found.scaled(float(self.n)).scaled(self.probability)

    def best_in(self, start: Enclosure, width: Enclosure) -> Enclosure:
        """Bounds phi(1 - start) - phi(1 - start - width): see :meth:`Trials.best_in`."""
        spent = start.scaled(self.probability)
        left = exact(1.0) - spent
        gone = (width.scaled(self.probability) / left).clipped(0.0, 1.0)
        before = _exp_minus(_minus_log1m(spent).scaled(float(self.n)))
        return before * _lost(_minus_log1m(gone).scaled(float(self.n)))

    def none(self) -> Enclosure:
        """Bounds the probability that there is no trial at all."""
        spent = exact(np.array([self.probability]))
        return _exp_minus(_minus_log1m(spent).scaled(float(self.n)))

    def chances(self, digits: int) -> Iterator[Between]:
        """Yields bounds of the probability of 0, 1, 2, ... trials: see :meth:`Trials.chances`."""
        p, off = Fraction(self.probability), Fraction(1, 10 ** (digits - 25))
        if p == 1:
            for k in itertools.count():
                yield Fraction(k == self.n), Fraction(k == self.n)
        with _decimals(digits):
            chance = _power(1 - p, self.n)
        for k in itertools.count(1):
            yield _around(chance, off)
            with _decimals(digits):
                chance = chance * _decimal(p / (1 - p) * max(0, self.n - k + 1) / k)


_LAWS: dict[str, type[Trials]] = {law.law: law for law in (Poisson, NegativeBinomial, Binomial)}


def trials_of(given: Any) -> Trials:
    """Returns a law, also from its table.

    Raises:
        ParameterError: it is no law.
        FileError: it is a table that writes none.
    """
    if isinstance(given, Mapping):
        return Trials.from_dict(given)
    if not isinstance(given, tuple(_LAWS.values())):
        hint = "be a law of tb.trials, such as tb.trials.Poisson(mean=20)"
        raise ParameterError(f"trials must {hint}, got {given!r}")
    assert isinstance(given, Trials)
    return given


# ------------------------------------------------------------------------------- arithmetic


def _decimals(digits: int) -> Any:
    """A context of decimals with so many digits, in which small numbers become 0."""
    traps = [decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow]
    least, most = decimal.MIN_EMIN, decimal.MAX_EMAX
    return decimal.localcontext(decimal.Context(prec=digits, traps=traps, Emin=least, Emax=most))


def _decimal(x: Fraction) -> Decimal:
    """The decimal nearest to x, in the context of the caller."""
    return Decimal(x.numerator) / Decimal(x.denominator)


def _log1p(x: Enclosure) -> Enclosure:
    """ln(1 + x) of each entry."""
    return Enclosure(scale_down(np.log1p(x.lower), LOG1P), scale_up(np.log1p(x.upper), LOG1P))


def _minus_log1m(x: Enclosure) -> Enclosure:
    """-ln(1 - x) of each entry in [0, 1]; inf for 1."""
    with np.errstate(divide="ignore"):
        low, high = -np.log1p(-x.lower), -np.log1p(-np.minimum(x.upper, 1.0))
    return Enclosure(np.minimum(scale_down(low, LOG1P), _LARGE), np.asarray(scale_up(high, LOG1P)))


def _exp_minus(x: Enclosure) -> Enclosure:
    """e^-x of each entry; below TINY it is known to be in [0, TINY]."""
    low, high = np.exp(-x.upper), np.exp(-x.lower)
    low = np.where(low < TINY, 0.0, scale_down(low, EXP))
    return Enclosure(np.asarray(low), np.minimum(np.maximum(scale_up(high, EXP), TINY), 1.0))


def _lost(x: Enclosure) -> Enclosure:
    """1 - e^-x of each entry."""
    low, high = -np.expm1(-x.lower), -np.expm1(-x.upper)
    return Enclosure(scale_down(low, EXPM1), np.minimum(scale_up(high, EXPM1), 1.0))


def _power(base: Fraction, n: int) -> Decimal:
    """The n-th power of a number >= 0, in the context of the caller."""
    if n == 0:
        return Decimal(1)
    return (n * _decimal(base).ln()).exp() if base else Decimal(0)


def _around(x: Decimal, off: Fraction) -> Between:
    """Bounds of a number >= 0 that is known up to a relative error ``off``."""
    # below this a fraction would have more digits than fit into memory
    if x.adjusted() < -2000:
        return Fraction(0), Fraction(1, 10**2000)
    found = Fraction(x)
    return found * (1 - off), found * (1 + off)


@functools.lru_cache(maxsize=64)
def _kappa(mean: float, shape: float, digits: int = _DIGITS) -> Between:
    """Bounds (1 - gamma) / gamma of a truncated negative binomial number, from its mean."""
    if shape == 1 or mean == 1:  # 1 + kappa is the mean
        return Fraction(mean) - 1, Fraction(mean) - 1
    with _decimals(digits + _MORE):
        wanted, eta = Decimal(mean), Decimal(shape)

        def mean_of(kappa: Decimal) -> Decimal:
            log = (1 + kappa).ln()
            return kappa / log if not eta else kappa * eta / (1 - (-eta * log).exp())

        # the mean is at least 1 + kappa / 2 for small kappa, and above kappa / ln(1 + kappa)
        low, high = Decimal("1e-30"), Decimal("1e15")
        # each round halves the exponent's range of ln(1e45)
        for _ in range(4 * digits):
            middle = (low * high).sqrt()
            low, high = (low, middle) if mean_of(middle) >= wanted else (middle, high)
    # a mean near 1 has cancelled 16 digits of its equation, and a small shape 6 more
    off = Fraction(1, 10 ** (digits - 15))
    return Fraction(low) * (1 - off), Fraction(high) * (1 + off)
