"""Writes contour.json: delta(eps) of sampled Gaussian steps as balls of Arb, some 17 digits.

    python -m tests.reference.make_contour

Some twenty minutes on one core, most of them for few rare large losses. The method is in
``tests/integrals.py``; an eps is where Laplace's approximation puts the wanted size of delta,
rounded to six digits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flint import arb, ctx
from tests.integrals import Integral, Saddle, Step, Steps

FILE = Path(__file__).with_name("contour.json")
BITS = 220
LOG_GOAL = 42.0  # each error is e^-42 of delta, or less

Parts = tuple[tuple[float, float, int], ...]  # sigma, q, runs

TWELVE: Parts = tuple((1.5 + 0.3 * i, 0.01 * (i + 1), 20 * (i + 1)) for i in range(12))
BOTH: list[tuple[Parts, tuple[float, ...]]] = [
    (((4.0, 0.01, 65_536),), (0.3, 1e-5, 1e-15, 1e-100)),
    (((2.0, 0.25, 200),), (0.3, 1e-5, 1e-30, 1e-100)),
    (((3.0, 0.5, 40),), (0.3, 1e-10)),
    (((20.0, 0.999, 300),), (0.3, 1e-20)),
    (((100.0, 0.001, 10**6),), (1e-3, 1e-12, 1e-60)),
    (((500.0, 1e-6, 10**9),), (1e-6, 1e-20, 1e-100)),
    (((0.3, 0.5, 10**9),), (0.3, 1e-100)),
    (((10.0, 0.001, 10**6),), (1e-6, 1e-30)),
    (((1.0, 0.01, 1000),), (0.1, 1e-5)),
    (((0.8, 0.001, 10_000),), (0.01, 1e-5)),
    (((1.5, 1e-4, 10**7),), (0.1, 1e-5, 1e-10)),
    (((1.5, 1e-4, 10**6),), (1e-3, 1e-8)),
    (((1.0, 0.3, 7),), (0.1, 1e-6)),
    (((2.0, 0.05, 3000), (1.0, 0.2, 10)), (0.3, 1e-8)),
    (((4.0, 0.01, 5000), (6.0, 1.0, 4), (1.2, 0.001, 300)), (1e-2, 1e-20)),
    (TWELVE, (1e-5, 1e-50)),
]
# where few large losses decide, the direction that has them: dear
REMOVE: list[tuple[Parts, tuple[float, ...]]] = [
    (((0.8, 0.001, 10_000),), (1e-15,)),
    (((1.5, 1e-4, 10**7),), (1e-30,)),
]


def steps_of(parts: Parts, direction: str) -> Steps:
    return [(Step.of(sigma, q, direction == "remove"), k) for sigma, q, k in parts]


def questions() -> Iterator[tuple[Parts, str, float]]:
    for parts, sizes in BOTH:
        for direction in ("remove", "add"):
            for size in sizes:
                yield parts, direction, size
    for parts, sizes in REMOVE:
        for size in sizes:
            yield parts, "remove", size


def reference(parts: Parts, direction: str, size: float) -> dict[str, Any]:
    """delta(eps) at an eps where it is about so large."""
    steps = steps_of(parts, direction)
    found = Saddle.near(steps, math.log(size))
    epsilon = max(0.0, float(f"{found.epsilon:.6g}"))
    with ctx.workprec(BITS):
        (delta,) = Integral.of(steps, found, LOG_GOAL).deltas([epsilon])
        assert delta.rel_accuracy_bits() > 50, (parts, direction, size, delta)
        text = delta.str(22)
        assert arb(text).contains(delta)
    return {"steps": parts, "direction": direction, "epsilon": epsilon, "delta": text}


def main() -> None:
    values = [reference(*question) for question in questions()]
    content = {
        "script": "tests/reference/make_contour.py",
        "method": "a line integral of numerical integrals in ball arithmetic (python-flint)",
        "bits": BITS,
        "values": values,
    }
    FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
