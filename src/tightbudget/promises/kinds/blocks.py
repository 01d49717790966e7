"""The terms of sets of blocks: which budgets a set has, and by which rule.

Rows are put into blocks by public columns, such as the day and the region of a click, and each
block has a budget of its own, which is made when a run first touches it. Source: Lecuyer, Spahn,
Vodrahalli, Geambasu, Hsu 2019 (Sage); Luo, Pan, Tholoniat, Cidon, Geambasu, Lecuyer 2021
(PrivateKube).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any, Literal

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import positive_count, refuse
from tightbudget.output_dp.amount import Price, exact_positive, exact_probability
from tightbudget.output_dp.pricing import OutputDPRule
from tightbudget.promises.block_names import (
    CALENDAR,
    BlockNames,
    dimensions,
    period,
    set_with_quotas,
    word,
)
from tightbudget.promises.chain import canonical
from tightbudget.promises.kinds.kind import Kind

_LONGEST = 10**6  # days until a block is unlocked: centuries


class _OfASet(Kind):
    """A kind of budget that is opened through its set, on terms that the set writes."""

    def given(self, text: str) -> dict[str, Any]:
        """Reads epsilon and delta; the other terms are the set's."""
        terms = json.loads(text)
        return {name: Fraction(terms[name]) for name in ("epsilon", "delta")}


# A set of blocks, and a budget of the set that is made by rule. Both are charged as `output_dp` is.
BLOCKS = _OfASet(name="blocks", words="blocks", rule=OutputDPRule, by_set=True)
BLOCK = _OfASet(name="block", words="block", rule=OutputDPRule, by_set=True)


@dataclass(frozen=True, kw_only=True)
class BlockSet(BlockNames):
    """The terms of a set of blocks, as they are declared once.

    Attributes:
        epsilon: of each block, nats.
        delta: of each block.
        rows_in: the largest number of blocks that have rows of one person.
        cap_epsilon: the most that all blocks together are charged for; None for no such cap.
        cap_delta: the delta beside it.
        quota_epsilon: of each analyst, beside the blocks; None for no quota.
        quota_delta: the delta beside it.
        unlocking: the number of days over which the budget of a block is unlocked; None for all
            at once.
    """

    epsilon: Fraction
    delta: Fraction
    rows_in: int
    cap_epsilon: Fraction | None
    cap_delta: Fraction
    quota_epsilon: Fraction | None
    quota_delta: Fraction
    unlocking: int | None

    @staticmethod
    def of(
        name: str,
        *,
        by: Sequence[str],
        epsilon: Price,
        delta: Price,
        rows_in: int | Literal["one block"],
        cap_epsilon: Price | None,
        cap_delta: Price,
        quota_epsilon: Price | None,
        quota_delta: Price,
        unlocking: int | None,
    ) -> BlockSet:
        """Checks the terms of a set.

        Raises:
            ParameterError: one of them is refused.
        """
        one = BlockSet(
            name=word(name=name) if quota_epsilon is None else set_with_quotas(name=name),
            by=dimensions(by),
            epsilon=exact_positive(epsilon=epsilon),
            delta=exact_probability(delta=delta),
            rows_in=1 if rows_in == "one block" else positive_count(rows_in=rows_in),
            cap_epsilon=None if cap_epsilon is None else exact_positive(cap_epsilon=cap_epsilon),
            cap_delta=exact_probability(cap_delta=cap_delta),
            quota_epsilon=(
                None if quota_epsilon is None else exact_positive(quota_epsilon=quota_epsilon)
            ),
            quota_delta=exact_probability(quota_delta=quota_delta),
            unlocking=None if unlocking is None else positive_count(unlocking=unlocking),
        )
        for which, most in (("cap", one.cap_epsilon), ("quota", one.quota_epsilon)):
            if most is None and getattr(one, f"{which}_delta"):
                raise ParameterError(f"{which}_delta needs {which}_epsilon beside it")
        if one.unlocking is not None and one.clock is None:
            known = ", ".join(map(repr, CALENDAR))
            raise refuse("unlocking", f"be None unless a dimension is one of {known}", unlocking)
        if one.unlocking is not None and one.unlocking > _LONGEST:
            raise ParameterError(f"unlocking must be at most {_LONGEST} days, got more")
        return one

    @property
    def clock(self) -> str | None:
        """The finest dimension of the calendar, by which blocks unlock; None if there is none."""
        known = [name for name in self.by if name in CALENDAR]
        return max(known, key=lambda name: CALENDAR[name], default=None)

    @property
    def has_cap(self) -> bool:
        """True if each run is charged to the set, too."""
        return self.cap_epsilon is not None

    # ---------------------------------------------------------------------- as it is stored

    @property
    def in_blocks(self) -> tuple[Fraction, Fraction]:
        """The most that the blocks of one person are charged for together."""
        return self.rows_in * self.epsilon, min(Fraction(1), self.rows_in * self.delta)

    @property
    def person(self) -> tuple[Fraction, Fraction]:
        """The epsilon and the delta of all that is ever released about one person."""
        epsilon, delta = self.in_blocks
        if self.cap_epsilon is None:
            return epsilon, delta
        return min(epsilon, self.cap_epsilon), min(delta, self.cap_delta)

    @property
    def text(self) -> str:
        """The parameters of the set's own budget: its cap, or without one what a person's is."""
        epsilon, delta = self.in_blocks
        if self.cap_epsilon is not None:
            epsilon, delta = self.cap_epsilon, self.cap_delta
        return canonical(
            {
                "epsilon": str(epsilon),
                "delta": str(delta),
                "by": self.by,
                "block": [str(self.epsilon), str(self.delta)],
                "rows_in": self.rows_in,
                "has_cap": self.has_cap,
                "quota": (
                    None
                    if self.quota_epsilon is None
                    else [str(self.quota_epsilon), str(self.quota_delta)]
                ),
                "unlocking": self.unlocking,
            }
        )

    @staticmethod
    def of_text(name: str, text: str) -> BlockSet:
        """Reads the terms that :attr:`text` wrote."""
        said = json.loads(text)
        epsilon, delta = map(Fraction, said["block"])
        quota = said["quota"]
        return BlockSet(
            name=name,
            by=tuple(said["by"]),
            epsilon=epsilon,
            delta=delta,
            rows_in=said["rows_in"],
            cap_epsilon=Fraction(said["epsilon"]) if said["has_cap"] else None,
            cap_delta=Fraction(said["delta"]) if said["has_cap"] else Fraction(0),
            quota_epsilon=None if quota is None else Fraction(quota[0]),
            quota_delta=Fraction(0) if quota is None else Fraction(quota[1]),
            unlocking=said["unlocking"],
        )

    def parameters_of(self, name: str) -> str:
        """The parameters of the budget of a block or of an analyst's quota, by its name."""
        return self._block_text if self.is_block(name) else self._quota_text

    @functools.cached_property
    def _block_text(self) -> str:
        """The parameters of the budget of each block."""
        return _made(self.name, self.epsilon, self.delta)

    @functools.cached_property
    def _quota_text(self) -> str:
        """The parameters of the budget of each analyst."""
        assert self.quota_epsilon is not None
        return _made(self.name, self.quota_epsilon, self.quota_delta)

    def unlocked(self, name: str, today: date) -> Fraction:
        """The share of the budget of a block that may be used on a day; 1 for a quota.

        The share grows in proportion to the days since the block's year, month or day began.
        """
        values = self.values(name)
        if self.unlocking is None or self.clock is None or values is None:
            return Fraction(1)
        began = period(values[self.by.index(self.clock)])[0]
        days = min(self.unlocking, max(0, (today - began).days))
        return Fraction(days, self.unlocking)


def _made(of: str, epsilon: Fraction, delta: Fraction) -> str:
    """The parameters of a budget that is made by the rule of a set."""
    return canonical({"blocks": of, "delta": str(delta), "epsilon": str(epsilon)})
