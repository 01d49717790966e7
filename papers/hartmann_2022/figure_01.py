"""Figure 1: noise on the large entries of a vector, with and without what the search gives back.

A vector of 100 entries of 0 or 1,000; a sparse vector finds those above 500, at most 20, for
epsilon = 1/2. The other half goes to the values found. By the price of what was found (output
DP) the values also get what the search did not spend, and share it only among themselves.
Beside the bound on the expected noise, by Chebyshev's inequality as in the paper, is the expected
noise itself: the search is enumerated, not sampled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers.finding import Finding, Verdict
from papers.hartmann_2022.search import EPSILON, Found, chebyshev, noise_on_values
from papers.look import BLUE, OCHRE, RED, picture

import tightbudget as tb

__all__ = ["CLAIM", "MOVES", "draw", "finding", "numbers"]

CLAIM = "By output DP the values found get less noise, the less the fewer there are."
MOVES = 1e-6  # sums of doubles
LARGE, VALUE = range(1, 21), 1000
SEARCH = tb.release.SparseVector(EPSILON, 20, adaptive=False)


def numbers() -> dict[str, Any]:
    """Scales of the Laplace noise on each value, by number of large entries."""
    whole = noise_on_values(SEARCH, SEARCH.units, SEARCH.units)
    found = {}
    for large in LARGE:
        expected = Found.of(SEARCH, large, VALUE).expected(
            lambda entries, cell: noise_on_values(SEARCH, entries, cell)
        )
        found[str(large)] = {
            "without": whole,
            "bound": chebyshev(SEARCH, large),
            "expected": expected,
        }
    return found


def draw(numbers: dict[str, Any], path: Path) -> None:
    """The scale by the number of large entries."""
    with picture(path) as (ax,):
        for name, label, colour in (
            ("without", "without output DP", RED),
            ("bound", "with output DP, at most (Chebyshev)", OCHRE),
            ("expected", "with output DP, expected", BLUE),
        ):
            scales = [numbers[str(large)][name] for large in LARGE]
            ax.plot(LARGE, scales, color=colour, lw=1.6, marker="o", ms=3, label=label)
        ax.set(xlabel="large entries", ylabel="scale of the noise on a value", xlim=(0, 20.5))
        ax.set_ylim(bottom=0.0)
        ax.set_xticks(range(0, 21, 5))
        ax.legend(frameon=False, fontsize=9)


def finding(numbers: dict[str, Any]) -> Finding:
    """How much less noise."""
    factor = {large: n["without"] / n["expected"] for large, n in numbers.items()}
    bounds = [n["bound"] / n["expected"] for n in numbers.values()]
    ascending = all(
        numbers[str(k)]["expected"] < numbers[str(k + 1)]["expected"] for k in LARGE[:-1]
    )
    holds = ascending and all(n["expected"] <= n["without"] for n in numbers.values())
    return Finding(
        f"The noise is {factor['1']:.1f} times smaller with 1 large entry, {factor['5']:.1f} times "
        f"with 5, {factor['10']:.1f} times with 10 and {factor['20']:.2f} times with 20. The bound "
        f"by Chebyshev's inequality is up to {max(bounds):.1f} times what is expected.",
        Verdict.of(holds and min(bounds) >= 1),
    )
