"""OpenDP's context on a budget: each query that it releases is charged before it runs.

OpenDP's own contexts end their budget with the process. :func:`context_on_budget` makes a context
whose queries a ledger pays for, or another budget. Needs OpenDP 0.16, which comes with the extra
``release``; frames of Polars need the version of Polars that ``opendp[polars]`` names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from importlib import metadata
from typing import Any

from tightbudget.adapters.opendp import from_opendp
from tightbudget.errors import ExtraError, ParameterError
from tightbudget.numerics.rounding import double_down, next_up
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.amount import Amount, Price, exact, exact_probability
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.release import Meter
from tightbudget.release.release import checked_meter, guarded, started

try:
    from opendp import combinators, domains, measures, mod
    from opendp.context import Context, domain_of
except ImportError as error:
    raise ExtraError("contexts need OpenDP: pip install 'tightbudget[release]'") from error

__all__ = ["context_on_budget"]

_PURE, _ZCDP = "MaxDivergence", "ZeroConcentratedDivergence"
_KNOWN = (_PURE, f"Approximate({_PURE})", _ZCDP)
_CELL = "ran"


def context_on_budget(
    data: Any,
    *,
    privacy_unit: tuple[Any, Any],
    meter: Meter,
    measure: Any = None,
    delta: Price | None = None,
    domain: Any = None,
    margins: Sequence[Any] | None = None,
) -> Context:
    """Makes an OpenDP context whose queries are paid for by a budget, of a ledger or in memory.

    Each release is a run of its own: its price is held before OpenDP runs it, and settled before
    the answer is returned. The price is what the measurement's privacy map says at the distance of
    the privacy unit, so that the columns of one query are composed by OpenDP, and queries by the
    budget. A number that is given as a price is the decimal that Python prints for it.

    Guarantee: what the context has released cost at most what the budget was charged, if OpenDP's
    maps are right and a frame is collected once. A release that fails is charged all the same.

    Args:
        data: what OpenDP asks: a LazyFrame of Polars, or a value of ``domain``.
        privacy_unit: the unit of privacy, of ``opendp.prelude.unit_of``.
        meter: the budget that pays; for a ledger, ``budget.keyed("A7")``, whose runs have the keys
            A7, A7#2, ...: a program that is started again is refused where it has asked before.
        measure: what queries are priced in: ``max_divergence()`` (if None), its ``approximate``, or
            ``zero_concentrated_divergence()``, of OpenDP.
        delta: for queries at a rho: the delta of each, at which a budget that counts epsilon is
            charged the epsilon of the worst mechanism of this rho. Budgets that count rho, or a
            Rényi divergence, charge the rho, and need none.
        domain: what is public about the data; found in the types of ``data`` if None.
        margins: OpenDP's descriptions of grouped data.

    Raises:
        ParameterError: the meter is no budget or has no key, nothing is proved for the measure, or
            another argument is refused.
        ExtraError: OpenDP cannot read frames of the version of Polars that is installed.
    """
    said = measures.max_divergence() if measure is None else measure
    if str(said) not in _KNOWN:
        raise refuse("measure", f"be one of {', '.join(_KNOWN)}, of OpenDP", measure)
    checked_meter(meter)
    at = _delta(str(said), delta, meter)
    _check_polars(data)
    space = domain_of(data, infer=True) if domain is None else domain
    for margin in margins or ():
        space = domains.with_margin(space, margin)
    metric, d_in = privacy_unit
    accountant = combinators.make_fully_adaptive_composition(space, metric, said)
    return _BudgetContext(accountant, accountant(data), d_in, meter, at)


class _BudgetContext(Context):
    """OpenDP's context, whose place for measurements holds and settles a price around each."""

    def __init__(
        self, accountant: Any, queryable: Any, d_in: Any, meter: Meter, delta: Fraction | None
    ) -> None:
        super().__init__(accountant, queryable, d_in)
        self._meter, self._delta = meter, delta

    def __call__(self, query: Any) -> Any:
        """Pays for a measurement, and runs it.

        Raises:
            BudgetError: the price does not fit; the data was not touched.
            ParameterError: the query is refused, and nothing is charged; or it answers more than
                once, which is known when it has run, and is charged.
            ReleaseError: OpenDP failed after the start; the price is charged.
        """
        guarantee = self._price(query)
        ask = super().__call__
        with started(self._meter, guarantee, None) as run:
            answer = guarded(lambda: ask(query))
            if isinstance(answer, (mod.Queryable, mod.OdometerQueryable)):
                raise ParameterError(
                    "query answers more than once: its answers would be seen between those of "
                    "other runs of the budget. Ask its parts one by one, or make a context of its "
                    "own; its price is charged, and nothing is released"
                )
            run.cell = _CELL
        return answer

    def query(self, **kwargs: Any) -> Any:
        """Starts a query at this price (``epsilon``, ``delta``, ``rho``), as OpenDP's does."""
        down = {name: double_down(exact(**{name: price})) for name, price in kwargs.items()}
        return super().query(**down)

    def remaining_privacy_loss(self) -> Amount:
        """Returns what the budget has left."""
        return self._meter.left

    def _price(self, query: Any) -> OutputDP:
        """Reads the price of a measurement that fits the context.

        Raises:
            ParameterError: it does not, or its map says nothing finite.
        """
        if not isinstance(query, mod.Measurement):
            raise refuse("query", "be an OpenDP Measurement", query)
        measurement: Any = query  # OpenDP's methods are untyped
        for part in ("input_domain", "input_metric", "output_measure"):
            theirs, ours = getattr(query, part), getattr(self.accountant, part)
            if theirs != ours:
                raise refuse(f"{part} of the query", f"be that of the context, {ours}", theirs)
        run = from_opendp(query, self.d_in)
        said = measurement.map(self.d_in)
        if str(query.output_measure) != _ZCDP:
            loss, delta = said if isinstance(said, tuple) else (said, 0.0)
            return OutputDP({_CELL: _decimal_above(loss)}, min(Fraction(1), _decimal_above(delta)))
        rho = _decimal_above(said)
        if self._delta is None:
            # everything is (0, 1)-private: what counts no rho pays all, or refuses
            return OutputDP({_CELL: 0}, 1, rho=rho)
        epsilon = run.answer(delta=double_down(self._delta)).bounds.upper
        return OutputDP({_CELL: Fraction(epsilon)}, self._delta, rho=rho)


def _delta(measure: str, delta: Price | None, meter: Meter) -> Fraction | None:
    """Checks the delta of queries at a rho."""
    counted = meter.left.unit
    if measure != _ZCDP:
        if delta is not None:
            raise refuse("delta", f"be None beside {measure}: each query says its own", delta)
        return None
    if delta is None:
        if counted == "epsilon":
            must = "be given beside a rho, as the budget counts epsilon, say delta=1e-9"
            raise refuse("delta", must, delta)
        return None
    known = exact_probability(delta=delta)
    if not double_down(known) > 0.0:
        raise refuse("delta", "be > 0", delta)
    return known


def _decimal_above(price: float) -> Fraction:
    """Returns a decimal that is at least a double, and less than two doubles above it.

    Guarantee: the result is >= price. Of the decimals that Python prints for the double and the
    next one, that are not below the double, it is the shorter.
    """
    printed = [repr(x) for x in (price, next_up(price))]
    return Fraction(min((x for x in printed if Fraction(x) >= Fraction(price)), key=len))


def _check_polars(data: Any) -> None:
    """Refuses a frame that OpenDP cannot read: it reads those of one version of Polars."""
    if not type(data).__module__.startswith("polars"):
        return
    needed = [
        found[1]
        for line in metadata.requires("opendp") or ()
        if (found := re.match(r"polars *==([\d.]+)", line))
    ]
    here = metadata.version("polars")
    if needed and here not in needed:
        raise ExtraError(
            f"OpenDP {metadata.version('opendp')} reads frames of Polars {needed[0]}, and {here} "
            "is installed: pip install 'opendp[polars]'"
        )
