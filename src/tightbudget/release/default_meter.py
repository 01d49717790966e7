"""The meter that pays in a ``with`` block for each fit or score that is not handed a meter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tightbudget.errors import ParameterError
from tightbudget.release.meter import Meter
from tightbudget.release.release import checked_meter

# a new thread starts without a value, so that no thread spends the budget of another one's block
_DEFAULT: ContextVar[Meter | None] = ContextVar("default_meter", default=None)


@contextmanager
def default_meter(meter: Meter) -> Iterator[None]:
    """Lets a meter pay, in a ``with`` block, for each fit or score that is not handed a meter.

    It is for code that calls ``fit(X, y)`` and cannot pass a meter on. The innermost block counts.
    Other threads and new processes do not see the meter, and a fit there is refused. A process that
    is forked in the block sees it: a budget in memory refuses to pay there, and a ledger pays.

    Args:
        meter: the budget that pays; for a ledger, ``budget.keyed(...)``.

    Raises:
        ParameterError: the meter is no budget.
    """
    before = _DEFAULT.set(checked_meter(meter))
    try:
        yield
    finally:
        _DEFAULT.reset(before)


def meter_or_default(meter: Meter | None) -> Meter:
    """Returns the meter, or the one of the innermost block of :func:`default_meter` if None.

    Raises:
        ParameterError: there is neither.
    """
    pays = _DEFAULT.get() if meter is None else meter
    if pays is None:
        raise ParameterError(
            "meter must be a budget that pays, got None: pass meter=budget, or use `with "
            "default_meter(budget):` of tightbudget.adapters.sklearn, which another thread or "
            "process does not see"
        )
    return pays
