"""Random questions over all mechanisms: how many are refused, how long and how large the worst is.

    python benchmarks/questions.py [--number N] [--seed S] [--only I ...] [--out FILE]

Each question is asked for eps at a delta or for delta at an eps with the default gap. Of three
questions one is about sampled Gaussian steps, with one noise (DP-SGD) or a schedule of up to a
hundred. The others are compositions of 1 to 4 parts, each a mechanism drawn from all public ones;
half of those that can be are Poisson-sampled. Numbers are drawn evenly on a logarithmic scale, to
three digits:

- sigma and other scales .3 to 50 (discrete noise 1 to 500), sensitivity 1 to 3
- sampling rate 1e-9 to 1, runs of a part 1 to 1e7
- delta 1e-15 to 1e-2, eps .01 to 20

Left out, since they have limits of their own: more than a hundred different mechanisms in one
composition, and samplers whose two ends are apart.

Each question is answered in a process of its own, with a limit of 20 CPU seconds and 4 GB. With
``--out`` answers are appended to a file, one line of JSON each, and questions that it has are not
asked again: so a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tightbudget as tb
from tightbudget.errors import PrecisionError
from tightbudget.mechanisms import MECHANISMS, Mechanism

SECONDS = 20  # CPU, for one question
MEMORY = 4 * 2**30  # bytes of addresses, for one question
SLOW, LARGE = 5.0, 1000.0  # CPU seconds and MB that no question should exceed

Random = np.random.Generator


def even(random: Random, low: float, high: float) -> float:
    """Evenly on a logarithmic scale, to three digits."""
    drawn = float(np.exp(random.uniform(np.log(low), np.log(high))))
    return float(f"{min(high, max(low, drawn)):.3g}")


def whole(random: Random, low: int, high: int) -> int:
    return round(even(random, low, high))


def either(random: Random, *values: Any) -> Any:
    return values[int(random.integers(len(values)))]


def masses(random: Random, n: int) -> list[float]:
    """n masses that sum to 1 within rounding."""
    drawn = random.dirichlet(np.ones(n)).round(4) + 1e-4
    return [float(f"{m:.6g}") for m in drawn / drawn.sum()]


def _scale(random: Random) -> float:
    return even(random, 0.3, 50.0)


def _rate(random: Random) -> float:
    return even(random, 1e-9, 1.0)


def _additive(random: Random) -> str:
    names = ("norm", "laplace", "logistic", "gumbel_r", "expon")
    return f"tb.Additive({either(random, *names)!r}, kwds={{'scale': {_scale(random)}}})"


def _clipped_noise(random: Random) -> str:
    scale = even(random, 1.0, 50.0)
    mean, shift = float(f"{scale * even(random, 1.0, 12.0):.3g}"), whole(random, 1, 3)
    noise, reading = either(random, "laplace", "gaussian"), either(random, "shifted", "clipped")
    return f"tb.ClippedNoise({mean}, {scale}, {noise!r}, {shift}, {reading!r})"


def _clipped_sum(random: Random) -> str:
    one, other = even(random, 1.0, 20.0), even(random, 1.0, 20.0)
    mean, far = even(random, 1.0, 100.0), even(random, 1.0, 100.0)
    noise, reading = either(random, "laplace", "gaussian"), either(random, "shifted", "clipped")
    return f"tb.ClippedSum({mean}, {one}, {far}, {other}, {noise!r}, reading={reading!r})"


def _curve(random: Random) -> str:
    n = int(random.integers(1, 6))
    epsilons = sorted({even(random, 0.01, 5.0) for _ in range(n)})
    deltas = sorted((even(random, 1e-9, 0.3) for _ in epsilons), reverse=True)
    return f"tb.FromCurve({epsilons}, {deltas})"


def _histogram(random: Random) -> str:
    n = int(random.integers(2, 12))
    p, q = (random.integers(0, 1000, n).tolist() for _ in range(2))
    return f"tb.HistogramPair({p}, {q}, smoothing={either(random, 0.5, 1.0)})"


def _loss_table(random: Random) -> str:
    n, step = int(random.integers(2, 30)), even(random, 1e-3, 0.3)
    table = (-n // 2, masses(random, n), 0.0)
    return f"tb.LossTable({step}, {table})"


def _mixture(random: Random) -> str:
    n = int(random.integers(1, 4))
    sizes = [0.0, *(even(random, 0.3, 3.0) for _ in range(n))]
    return f"tb.MixtureOfGaussians({_scale(random)}, {sizes}, {masses(random, n + 1)})"


def _truncated(name: str) -> Callable[[Random], str]:
    def draw(random: Random) -> str:
        scale = _scale(random)
        bound = float(f"{max(0.6, scale * even(random, 1.0, 12.0)):.3g}")
        return f"tb.{name}({scale}, {bound})"

    return draw


def _by_scale(name: str) -> Callable[[Random], str]:
    return lambda r: f"tb.{name}({_scale(r)})"


def by_scale(mechanism: type[Mechanism]) -> bool:
    """Whether all that a mechanism needs is a scale of real noise: then it needs no line below."""
    parameters = inspect.signature(mechanism).parameters.values()
    needed = [one.name for one in parameters if one.default is one.empty]
    return needed in (["sigma"], ["scale"])


# how each kind of mechanism is drawn
DRAWN: dict[str, Callable[[Random], str]] = {
    **{
        kind: _by_scale(mechanism.__name__)
        for kind, mechanism in MECHANISMS.items()
        if by_scale(mechanism)
    },
    "additive": _additive,
    "allocated": lambda r: f"tb.Gaussian({even(r, 0.5, 5)}).allocated({whole(r, 1, 1000)})",
    "clipped_noise": _clipped_noise,
    "clipped_sum": _clipped_sum,
    "curve": _curve,
    "discrete_gaussian": lambda r: f"tb.DiscreteGaussian({even(r, 1, 500)}, {whole(r, 1, 3)})",
    "discrete_laplace": lambda r: f"tb.DiscreteLaplace({even(r, 1, 500)}, {whole(r, 1, 3)})",
    "either": lambda r: (
        f"tb.either({even(r, 0.01, 0.99)}, tb.Laplace({_scale(r)}), tb.Gaussian({_scale(r)}))"
    ),
    "exponential": lambda r: f"tb.ExponentialMechanism({even(r, 0.001, 2)})",
    "group": lambda r: (
        f"tb.Gaussian({_scale(r)}).subsampled({even(r, 1e-4, 0.1)}).group({whole(r, 1, 8)})"
    ),
    "histogram": _histogram,
    "loss_table": _loss_table,
    "mixture_of_gaussians": _mixture,
    "randomized_response": lambda r: (
        f"tb.RandomizedResponse({round(r.uniform(0.3, 0.99), 3)}, {whole(r, 2, 20)})"
    ),
    "staircase": lambda r: f"tb.Staircase({even(r, 0.05, 3)})",
    "truncated_gaussian": _truncated("TruncatedGaussian"),
    "truncated_laplace": _truncated("TruncatedLaplace"),
    "worst_case": lambda r: f"tb.ApproximateDP({even(r, 0.001, 3)}, {even(r, 1e-12, 1e-6)})",
}
# sampled steps are drawn by part(); the others have two ends, or a relation of their own
NOT_DRAWN = {
    "best_of",
    "shuffled_reports",
    "subsampled",
    "shuffled",
    "batches",
    "truncated_poisson",
}


def missing() -> str:
    """Says what to write here for mechanisms that are not drawn; nothing if there are none."""
    kinds = sorted(set(MECHANISMS) - set(DRAWN) - NOT_DRAWN)
    if not kinds:
        return ""
    return (
        f"not drawn: {', '.join(kinds)}; a mechanism that needs more than a sigma or a scale has a "
        "line in DRAWN of benchmarks/questions.py that draws its parameters"
    )


def part(random: Random) -> str:
    """One mechanism, perhaps sampled, and its number of runs."""
    mechanism = DRAWN[either(random, *sorted(DRAWN))](random)
    if random.random() < 0.5:
        mechanism += f".subsampled({_rate(random)})"
    return f"{mechanism} * {whole(random, 1, 10_000_000)}"


def training(random: Random) -> str:
    """Sampled Gaussian steps: one noise multiplier, or a schedule of them."""
    rate, steps = _rate(random), whole(random, 1, 10_000_000)
    if random.random() < 0.7:
        return f"tb.Gaussian({_scale(random)}).subsampled({rate}) * {steps}"
    n, first, last = whole(random, 2, 100), _scale(random), _scale(random)
    noise = f"{first} + {last - first:.6g} * i / {n - 1}"
    step = f"tb.Gaussian({noise}).subsampled({rate}) * {max(1, steps // n)}"
    return f"tb.compose([{step} for i in range({n})])"


def question(seed: int, i: int) -> str:
    """The i-th question as an expression over ``tb``."""
    random = np.random.default_rng([seed, i])
    if random.random() < 1 / 3:
        parts = training(random)
    else:
        parts = " + ".join(part(random) for _ in range(int(random.integers(1, 5))))
    if random.random() < 0.5:
        return f"({parts}).epsilon({even(random, 1e-15, 1e-2)})"
    return f"({parts}).delta({even(random, 0.01, 20.0)})"


def asked(text: str) -> dict[str, Any]:
    """One answer with its CPU seconds and its megabytes, made in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            signal.signal(signal.SIGXCPU, signal.SIG_DFL)
            os.write(writer, json.dumps(_answer(text)).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found = pipe.read()
    _, status, used = os.wait4(child, 0)
    answer = json.loads(found) if found else {"refused": f"ended with status {status}"}
    return {
        "question": text,
        **answer,
        "seconds": round(used.ru_utime + used.ru_stime, 3),
        "mb": round(used.ru_maxrss / 1024, 1),
    }


def _answer(text: str) -> dict[str, Any]:
    try:
        bounds = eval(text, {"tb": tb})
    except (PrecisionError, MemoryError) as error:
        return {"refused": str(error) or "not enough memory"}
    return {"lower": bounds.lower, "upper": bounds.upper}


def remembered(out: Path | None) -> dict[str, dict[str, Any]]:
    """The answers that an earlier run left."""
    if out is None or not out.exists():
        return {}
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return {row["question"]: row for row in rows}


def report(rows: list[dict[str, Any]]) -> str:
    """The share that was refused, the worst of each kind, and every offender."""
    refused = [row for row in rows if "refused" in row]
    slowest = max(rows, key=lambda row: row["seconds"])
    largest = max(rows, key=lambda row: row["mb"])
    lines = []
    for row in rows:
        why = [str(row["refused"])] if "refused" in row else []
        why += ["slow"] if row["seconds"] > SLOW else []
        why += ["large"] if row["mb"] > LARGE else []
        if why:
            lines += [f"{row['seconds']} s, {row['mb']} MB, {'; '.join(why)}", row["question"]]
    seconds = sorted(row["seconds"] for row in rows)
    lines += [
        f"{len(rows)} questions: {len(refused)} refused ({len(refused) / len(rows):.2%})",
        f"median {seconds[len(rows) // 2]} s, slowest {slowest['seconds']} s, "
        f"largest {largest['mb']} MB",
        f"above {SLOW:g} s: {sum(s > SLOW for s in seconds)}, "
        f"above {LARGE:g} MB: {sum(row['mb'] > LARGE for row in rows)}",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="+", help="ask these numbers alone")
    parser.add_argument("--out", type=Path, help="append answers here, and go on from there")
    arguments = parser.parse_args()
    if missing():
        parser.error(missing())
    known, rows = remembered(arguments.out), []
    for i in arguments.only or range(arguments.number):
        text = question(arguments.seed, i)
        row = known.get(text) or asked(text)
        rows.append(row)
        if arguments.out is not None and text not in known:
            with arguments.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print(report(rows))


if __name__ == "__main__":
    main()
