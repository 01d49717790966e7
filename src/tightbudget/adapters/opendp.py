"""OpenDP's measurements: what their privacy maps say, composed with everything else.

``from_opendp`` makes a composition of measurements; ``to_privacy_profile`` gives a composition back
to OpenDP. Needs OpenDP, which comes with the extra ``release``.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from importlib import metadata
from typing import Any

from tightbudget.errors import ExtraError, ParameterError
from tightbudget.mechanisms import ApproximateDP, FromCurve, Mechanism, Neighbouring
from tightbudget.mechanisms.composition import Composable, Composition, compose
from tightbudget.mechanisms.dominating import above_divergences
from tightbudget.numerics.rounding import double_up
from tightbudget.numerics.validate import non_negative, probability, refuse
from tightbudget.theorems.concentrated import Line

try:
    from opendp import measures, mod
except ImportError as error:
    raise ExtraError("measurements need OpenDP: pip install 'tightbudget[release]'") from error

__all__ = ["from_opendp", "to_privacy_profile"]

# Of a profile: these trade tightness for time, and a certified answer stays one for any of them.
_POINTS = 512
_LEAST_DELTA = 1e-15  # up to the epsilon of this delta a profile is followed
_LARGEST = 1e4  # nats

_PURE, _ZCDP, _PROFILE = "MaxDivergence", "ZeroConcentratedDivergence", "SmoothedMaxDivergence"
_BOTH = "Approximate({})"
_KNOWN = (_PURE, _ZCDP, _PROFILE, _BOTH.format(_PURE), _BOTH.format(_ZCDP))
_SCORES = "LInfDistance"  # the metric of the scores that a noisy maximum chooses by
_RIGHT_RHO = (0, 16)  # from this version on its noise is that of rho = epsilon^2 / 8


def from_opendp(
    measurements: Any, d_in: Any, *, relation: Neighbouring | str | None = None
) -> Composition:
    """Converts OpenDP measurements to a composition, by what their privacy maps say at ``d_in``.

    Guarantee: the composition dominates the measurements on all inputs that are ``d_in`` apart, if
    their maps are right and each is run once, on the same data, also adaptively. A map of pure or
    approximate privacy is any mechanism of that (epsilon, delta); those of zero-concentrated
    privacy are added up before they are turned into one privacy curve; a privacy profile is the
    worst mechanism that it allows.

    A measurement does not show what it is made of. So noise is not recognised, and one of
    ``make_population_amplification`` cannot be told from another: its map holds for one release of
    a sample, and composes with nothing. Do not hand one over. The rho of a noisy maximum is a
    quarter of what it must be before OpenDP 0.16, and is refused there if scores are the input.

    Args:
        measurements: an ``opendp`` Measurement, or a list of them with the same input.
        d_in: how far neighbouring inputs are apart, in the measurements' input metric.
        relation: the neighbouring relation that ``d_in`` stands for, if it is to be declared.

    Raises:
        ParameterError: something is no Measurement, its map refuses ``d_in`` or says nothing
            finite, or nothing is proved for its output measure; the message names it.
    """
    listed = measurements if isinstance(measurements, (list, tuple)) else [measurements]
    if not listed:
        raise refuse("measurements", "have at least one measurement", measurements)
    found: list[Mechanism] = []
    rhos: list[float] = []
    for i, measurement in enumerate(listed):
        name = f"measurements[{i}]" if measurements is listed else "measurements"
        mechanisms, rho = _read(measurement, d_in, name)
        found += mechanisms
        rhos += rho
    if rhos:
        total = double_up(sum(map(Fraction, rhos), Fraction(0)))
        if total > 0.0:
            # the curve is declared for no relation, as its d_in is not
            curve = above_divergences(Line(0.0, total), (), Neighbouring.ADD_OR_REMOVE)
            found.append(FromCurve(curve.epsilons, curve.deltas))
    declared = found if relation is None else [m.under(relation) for m in found]
    return compose(declared)


def to_privacy_profile(run: Composable) -> Any:
    """Makes OpenDP's privacy profile of a composition, from its certified upper bounds.

    Guarantee: the profile's delta at an epsilon is at least the exact one. OpenDP's own search for
    an epsilon is in its ``epsilon(delta)``.

    Args:
        run: a mechanism or composition.

    Raises:
        ParameterError: it is none, or OpenDP's features for profiles are not enabled.
    """
    whole = compose([run])
    for feature in ("contrib", "honest-but-curious"):
        try:
            mod.assert_features(feature)
        except Exception as error:
            raise ParameterError(
                "OpenDP's profiles need its features: opendp.prelude.enable_features('contrib', "
                "'honest-but-curious')"
            ) from error

    @functools.lru_cache(maxsize=4096)
    def delta(epsilon: float) -> float:
        return whole.answer(epsilon=epsilon).bounds.upper

    new_profile: Any = measures.new_privacy_profile  # untyped
    return new_profile(delta)


def _version() -> tuple[int, int]:
    """Reads the version of OpenDP that is installed."""
    major, minor, *_ = metadata.version("opendp").split(".")
    return int(major), int(minor)


def _read(given: Any, d_in: Any, name: str) -> tuple[list[Mechanism], list[float]]:
    """Reads a measurement as mechanisms, and as the rho that is to be added to others."""
    if not isinstance(given, mod.Measurement):
        raise refuse(name, "be an OpenDP Measurement", given)
    measurement: Any = given  # OpenDP's methods are untyped
    measure, metric = str(measurement.output_measure), str(measurement.input_metric)
    if measure not in _KNOWN:
        raise ParameterError(
            f"{name} has the output measure {measure}, of which nothing is proved here; known are "
            f"{', '.join(_KNOWN)}"
        )
    if _ZCDP in measure and metric.startswith(_SCORES) and _version() < _RIGHT_RHO:
        raise ParameterError(
            f"{name} chooses by scores ({metric}), of which OpenDP before 0.16 says a rho that is "
            "too small (its issue 2911): make it with max_divergence(), or update OpenDP"
        )
    try:
        said = measurement.map(d_in)
    except Exception as error:  # OpenDP's own, or a type that it does not take
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ParameterError(f"{name}: its map refuses d_in = {d_in!r}: {reason:.200}") from error
    loss, delta = said if measure.startswith("Approximate") else (said, 0.0)
    if measure == _PROFILE:
        return [_of_profile(loss, name)], []
    if loss == math.inf:
        raise refuse(f"{name}.map({d_in!r})", "be finite", loss)
    loss = non_negative(**{f"{name}.map({d_in!r})": loss})
    delta = probability(**{f"the delta of {name}.map({d_in!r})": delta})
    if _ZCDP in measure:
        return ([ApproximateDP(0.0, delta)] if delta else []), [loss]
    return [ApproximateDP(loss, delta)], []


def _of_profile(profile: Any, name: str) -> FromCurve:
    """Makes the worst mechanism that a privacy profile allows, from some of its points."""
    top = float(profile.epsilon(_LEAST_DELTA))
    if not top < math.inf:
        top = float(profile.epsilon(min(1.0, float(profile.delta(_LARGEST)) + _LEAST_DELTA)))
    top = min(top, _LARGEST) if top > 0.0 else 0.0
    # denser at small epsilons, which people ask about
    epsilons = sorted({top * (j / _POINTS) ** 2 for j in range(_POINTS + 1)})
    deltas = [
        probability(**{f"the delta of {name}'s profile at {epsilon!r}": profile.delta(epsilon)})
        for epsilon in epsilons
    ]
    return FromCurve(epsilons, deltas)
