"""Table 1: how many 0.1-DP mechanisms it takes until advanced composition helps.

The paper's words: the minimum number I of 0.1-DP mechanisms whose optimal composition (Kairouz,
Oh, Viswanath 2017, Theorem 3.3) has a delta of at most the given one and a smaller epsilon than
I * 0.1, which needs "i at least 1" in that theorem. Its numbers can be read in two ways:

* by the theorem: the fewest I with delta_1(I) <= delta, where delta_1(I), the theorem's delta
  for i = 1, is the delta of I mechanisms at epsilon = (I - 2) * 0.1;
* as printed: the fewest I with delta_1(I - 1) <= delta, one mechanism more. All eight numbers
  of the paper are this; no sentence in it asks for the additional mechanism.

By the theorem's own curve the words say less than either. Between its points (I - 2) * 0.1 and
I * 0.1 the optimal delta falls continuously to 0, so that some smaller epsilon is to be had at
any delta > 0, and from one mechanism on: the last column, with epsilon any real number.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from papers.finding import Finding, Verdict

import tightbudget as tb

__all__ = ["CLAIM", "finding", "numbers", "table"]

CLAIM = "Advanced composition of 0.1-DP mechanisms helps from 17 (delta = 1e-5) to 42 (1e-12) on."

STEP = tb.ApproximateDP(epsilon=0.1, delta=0.0)  # any 0.1-DP mechanism, also adaptively chosen
PUBLISHED = {
    1e-5: 17, 1e-6: 20, 1e-7: 24, 1e-8: 27, 1e-9: 31, 1e-10: 35, 1e-11: 38, 1e-12: 42,
}  # fmt: skip


def numbers() -> dict[str, Any]:
    """By delta: what the paper prints, both readings, and what certifies them."""
    found = {}
    for delta, published in PUBLISHED.items():
        enough = fewest(delta)
        found[f"{delta:g}"] = {
            "published": published,
            "by the theorem": enough,
            "as printed": enough + 1,
            "any smaller epsilon": fewest_for_any_gain(delta),
            "delta_1 of that many": delta_1(enough).to_dict(),
            "delta_1 of one fewer": delta_1(enough - 1).to_dict(),
        }
    return found


def delta_1(n: int) -> tb.Bounds:
    """The theorem's delta for i = 1: that of n mechanisms at epsilon = (n - 2) * 0.1."""
    _, delta = tb.theorems.kov.points(STEP.epsilon, STEP.delta, n)[1]
    return delta


def fewest(delta: float) -> int:
    """The least n with delta_1(n) <= delta, certified on both sides; i = 1 needs n >= 2."""
    n = 2
    while (bounds := delta_1(n)).upper > delta:
        if bounds.lower <= delta:
            raise tb.PrecisionError(f"delta_1({n}) is too close to {delta:g} to tell")
        n += 1
    return n


def fewest_for_any_gain(delta: float) -> int:
    """The least n whose epsilon at delta is certainly below n * 0.1."""
    return next(n for n in count(1) if (STEP * n).epsilon(delta, 1e-12).upper < n * STEP.epsilon)


def table(numbers: dict[str, Any]) -> str:
    """Each published number beside both readings."""
    lines = [f"{'delta':>6}  {'published':>9}  {'by the theorem':>16}  "
             f"{'as printed':>12}  {'any smaller epsilon':>19}"]  # fmt: skip
    for delta, cells in numbers.items():
        printed = cells["published"]
        by, as_ = (
            f"{cells[reading]} {'matches' if cells[reading] == printed else 'differs'}"
            for reading in ("by the theorem", "as printed")
        )
        any_ = cells["any smaller epsilon"]
        lines.append(f"{delta:>6}  {printed:>9}  {by:>16}  {as_:>12}  {any_:>19}")
    first, cells = next(iter(numbers.items()))
    enough = cells["by the theorem"]
    lines += [
        "by the theorem: fewest I with delta_1(I) <= delta; as printed: with delta_1(I - 1) <= "
        "delta.",
        f"Differs by one mechanism: at {first}, {enough} are enough, as delta_1({enough}) is in "
        f"{tb.Bounds(**cells['delta_1 of that many'])} and epsilon {(enough - 2) / 10:g} < "
        f"{enough / 10:g}.",
        "any smaller epsilon: with real numbers between the theorem's points, one mechanism is "
        "enough.",
    ]
    return "\n".join(lines)


def finding(numbers: dict[str, Any]) -> Finding:
    """Which reading of the words gives what is printed."""
    same = {
        reading: sum(cells[reading] == cells["published"] for cells in numbers.values())
        for reading in ("by the theorem", "as printed")
    }
    text = "; ".join(f"{reading}: {n} of {len(numbers)} agree" for reading, n in same.items())
    if same["by the theorem"] == len(numbers):
        return Finding(f"{text}.", Verdict.MATCHES)
    return Finding(
        f"{text}. What is printed is the fewest I for which I - 1 mechanisms suffice.",
        Verdict.IN_PART if same["as printed"] == len(numbers) else Verdict.DIFFERS,
    )
