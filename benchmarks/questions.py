"""Random questions over all mechanisms and samplers: what is refused, and how long the rest takes.

    python benchmarks/questions.py [--number N] [--seed S] [--jobs N] [--only I ...] [--out FILE]
        [--seconds WALL] [--results FILE --machine WORDS]

Each question asks for eps at a delta or for delta at an eps, with the default gap. Numbers are
drawn evenly on a logarithmic scale, to three digits:

- sigma and other scales .3 to 50 (discrete noise 1 to 500), sensitivity 1 to 3
- sampling rate 1e-9 to 1, runs of a part 1 to 1e7, records of a data set 100 to 1e9
- delta 1e-15 to 1e-2, eps .01 to 20: a delta may be far in the tail

Of ten questions three are about sampled Gaussian steps with one noise (DP-SGD), one is about a
schedule of 2 to 3,000 noises, three are about another sampler or about users, and three are about
a composition of 1 to 4 parts, each a mechanism drawn from all public ones; half of those that can
be are sampled.

Each question is answered in a process of its own, with a limit of 20 CPU seconds and 4 GB. With
``--out`` answers are appended to a file, one line of JSON each, and questions that it has are not
asked again: so a run that was stopped goes on where it was. ``--results`` writes what the page of
speeds shows, in turns of ``--seed`` (each adds to what the file has).
"""

from __future__ import annotations

import argparse
import functools
import inspect
import json
import multiprocessing
import os
import platform
import resource
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import tightbudget as tb
from tightbudget.errors import PrecisionError
from tightbudget.mechanisms import MECHANISMS, Mechanism

SECONDS = 20  # CPU, for one question
MEMORY = 4 * 2**30  # bytes of addresses, for one question
FLOOR = 1e-280  # a delta below has the lower bound 0: doubles end there
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
# of one record that is present or not
OF_PRESENCE = {"allocated", "group"}
# drawn by SAMPLERS
SAMPLED = {"subsampled", "batches", "truncated_poisson", "shuffled"}
# two ends that are apart whatever is drawn, and no sampler
NOT_DRAWN = {"best_of", "shuffled_reports"}


# ---------------------------------------------------------------------------- samplers


@dataclass(frozen=True)
class Drawn:
    """A composition as an expression over ``tb``, what it is, and its sampling rate if it has one.

    Guarantee of the fields: ``kind`` is one of KINDS, ``rate`` is None where parts differ.
    """

    kind: str
    text: str
    rate: float | None = None


def _gaussian(random: Random) -> str:
    return f"tb.Gaussian({_scale(random)})"


def _batch(random: Random) -> tuple[int, int]:
    """The size of a batch and of the data set, at a drawn rate."""
    of = whole(random, 100, 10**9)
    return max(1, round(_rate(random) * of)), of


def _poisson(random: Random) -> tuple[str, float]:
    rate = _rate(random)
    return f"{_gaussian(random)}.subsampled({rate})", rate


def _batches(random: Random) -> tuple[str, float]:
    batch, of = _batch(random)
    return f"{_gaussian(random)}.batches({batch}, {of})", batch / of


def _with_replacement(random: Random) -> tuple[str, float]:
    batch, of = _batch(random)
    return f"{_gaussian(random)}.batches({batch}, {of}, replacement=True)", batch / of


def _cut(random: Random) -> tuple[str, float]:
    """A Poisson sample that is cut, mostly seldom, to a multiple of its mean."""
    batch, of = _batch(random)
    rate, most = float(f"{batch / of:.3g}"), max(1, round(batch * even(random, 0.8, 3.0)))
    return f"{_gaussian(random)}.truncated_poisson({rate}, {most}, {of})", rate


def _steps(random: Random) -> int:
    return whole(random, 1, 100_000)


def _shuffled(random: Random) -> tuple[str, float]:
    steps = _steps(random)
    return f"{_gaussian(random)}.shuffled({steps})", 1 / steps


def _allocated(random: Random) -> tuple[str, float]:
    steps = _steps(random)
    return f"{_gaussian(random)}.allocated({steps})", 1 / steps


def _several(random: Random) -> tuple[str, float]:
    """Each record is in several steps of an epoch."""
    steps = max(2, _steps(random))
    k = min(steps, whole(random, 2, 20))
    return f"{_gaussian(random)}.allocated({steps}, {k})", k / steps


def _part_of_an_epoch(random: Random) -> tuple[str, float]:
    """An epoch of a sample of the records."""
    steps, rate, way = _steps(random), _rate(random), either(random, "allocated", "shuffled")
    return f"{_gaussian(random)}.{way}({steps}).subsampled({rate})", rate / steps


def _user(random: Random) -> tuple[str, float]:
    """A user with several records."""
    rate, size = _rate(random), whole(random, 2, 30)
    return f"{_gaussian(random)}.subsampled({rate}).group({size})", rate


def _user_in_batches(random: Random) -> tuple[str, float]:
    batch, of = _batch(random)
    size = min(whole(random, 2, 30), of - batch)
    if size < 2:
        return _user(random)
    again = either(random, "", ", replacement=True")
    return f"{_gaussian(random)}.batches({batch}, {of}{again}).group({size})", batch / of


def _sampled_mixture(random: Random) -> tuple[str, float]:
    rate = _rate(random)
    return f"{_mixture(random)}.subsampled({rate})", rate


# how each sampler is drawn: an expression of one step or epoch, and its rate
SAMPLERS: dict[str, Callable[[Random], tuple[str, float]]] = {
    "Poisson": _poisson,
    "fixed batches": _batches,
    "with replacement": _with_replacement,
    "cut batches": _cut,
    "shuffles": _shuffled,
    "allocation": _allocated,
    "several of the steps": _several,
    "a sample's epoch": _part_of_an_epoch,
    "users": _user,
    "users in batches": _user_in_batches,
    "mixtures": _sampled_mixture,
}
SCHEDULES, COMPOSITIONS = "schedules", "compositions"
KINDS = (*SAMPLERS, SCHEDULES, COMPOSITIONS)
# samplers for neighbours of which a record is present or not, replaced, and zeroed
WORLDS = (
    ("Poisson", "Poisson", "Poisson", "cut batches", "allocation", "users"),
    ("fixed batches", "with replacement", "users in batches"),
    ("shuffles",),
)


def _runs(random: Random) -> int:
    return whole(random, 1, 10_000_000)


def step(random: Random, sampler: str) -> Drawn:
    """Steps of one sampler with one noise."""
    text, rate = SAMPLERS[sampler](random)
    return Drawn(sampler, f"{text} * {_runs(random)}", rate)


def schedule(random: Random) -> Drawn:
    """Sampled Gaussian steps with many noises, evenly apart."""
    rate, steps = _rate(random), _runs(random)
    n, first, last = whole(random, 2, 3000), _scale(random), _scale(random)
    noise = f"{first} + {last - first:.6g} * i / {n - 1}"
    one = f"tb.Gaussian({noise}).subsampled({rate}) * {max(1, steps // n)}"
    return Drawn(SCHEDULES, f"tb.compose([{one} for i in range({n})])", rate)


def composition(random: Random) -> Drawn:
    """One to four parts that hold for the same neighbours."""
    world = WORLDS[int(random.choice(len(WORLDS), p=[0.7, 0.2, 0.1]))]
    parts = [part(random, world) for _ in range(int(random.integers(1, 5)))]
    return Drawn(COMPOSITIONS, " + ".join(parts))


def missing() -> str:
    """Says what to write here for mechanisms that are not drawn; nothing if there are none."""
    kinds = sorted(set(MECHANISMS) - set(DRAWN) - SAMPLED - NOT_DRAWN)
    if not kinds:
        return ""
    return (
        f"not drawn: {', '.join(kinds)}; a mechanism that needs more than a sigma or a scale has a "
        "line in DRAWN of benchmarks/questions.py that draws its parameters"
    )


def part(random: Random, world: tuple[str, ...]) -> str:
    """One mechanism, perhaps sampled, and its number of runs."""
    if random.random() < 0.25:
        return step(random, either(random, *world)).text
    present = "Poisson" in world
    kinds = sorted(kind for kind in DRAWN if present or kind not in OF_PRESENCE)
    mechanism = DRAWN[either(random, *kinds)](random)
    if present and random.random() < 0.5:
        mechanism += f".subsampled({_rate(random)})"
    return f"{mechanism} * {_runs(random)}"


def drawn(seed: int, i: int) -> Drawn:
    """The i-th composition and what is asked of it."""
    random = np.random.default_rng([seed, i])
    share = random.random()
    if share < 0.3:
        found = step(random, "Poisson")
    elif share < 0.4:
        found = schedule(random)
    elif share < 0.7:
        found = step(random, either(random, *(kind for kind in SAMPLERS if kind != "Poisson")))
    else:
        found = composition(random)
    if random.random() < 0.5:
        asks = f"epsilon({even(random, 1e-15, 1e-2)})"
    else:
        asks = f"delta({even(random, 0.01, 20.0)})"
    return replace(found, text=f"({found.text}).{asks}")


def question(seed: int, i: int) -> str:
    """The i-th question as an expression over ``tb``."""
    return drawn(seed, i).text


def alone(
    ask: Callable[[], dict[str, Any]], seconds: int, memory: int
) -> tuple[dict[str, Any] | None, int, resource.struct_rusage]:
    """What a function says in a process of its own, its exit status and what it used.

    Args:
        ask: the function; what it returns can be written as JSON.
        seconds: of CPU, after which it is stopped and has said nothing.
        memory: bytes of addresses that it may have.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            signal.signal(signal.SIGXCPU, signal.SIG_DFL)
            os.write(writer, json.dumps(ask()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found = pipe.read()
    _, status, used = os.wait4(child, 0)
    return json.loads(found) if found else None, status, used


def asked(text: str) -> dict[str, Any]:
    """One answer with its CPU seconds and its megabytes, made in a process of its own."""
    found, status, used = alone(lambda: _answer(text), SECONDS, MEMORY)
    answer = _ended(status) if found is None else found
    return {
        "question": text,
        **answer,
        "seconds": round(used.ru_utime + used.ru_stime, 3),
        "mb": round(used.ru_maxrss / 1024, 1),
    }


def split(text: str) -> tuple[str, str, str]:
    """The composition of a question, the name of what is asked, and where."""
    composition, asked_of_it = text.rsplit(").", 1)
    asks, _, value = asked_of_it.removesuffix(")").partition("(")
    return f"{composition})", asks, value


def _ended(status: int) -> dict[str, Any]:
    """Why a process ended without an answer."""
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return {"refused": f"stopped after {SECONDS} s", "stopped": True}
    return {"refused": f"ended with status {status}"}


def _answer(text: str) -> dict[str, Any]:
    composition, asks, value = split(text)
    try:
        whole = eval(composition, {"tb": tb}) * 1
        bounds = eval(f"whole.{asks}({value})", {"whole": whole})
    except (PrecisionError, MemoryError) as error:
        return {"refused": str(error) or "not enough memory"}
    found = {
        "lower": bounds.lower,
        "upper": bounds.upper,
        "gap": float(f"{bounds.relative_gap:.2g}"),
    }
    return found | ({"apart": whole.apart} if whole.apart else {})


def numbered(i: int, seed: int) -> dict[str, Any]:
    """Asks the i-th question; its row has its kind and rate, too."""
    one = drawn(seed, i)
    return {"i": i, "kind": one.kind, "rate": one.rate, **asked(one.text)}


def answered(numbers: list[int], seed: int, jobs: int, until: float) -> Iterator[dict[str, Any]]:
    """Asks several questions at once, as each is ready; stops at the time ``until``."""
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        found = pool.imap_unordered(functools.partial(numbered, seed=seed), numbers)
        for _ in numbers:
            try:
                yield found.next(timeout=max(0.0, until - time.monotonic()))
            except multiprocessing.TimeoutError:
                return


def remembered(out: Path | None) -> dict[str, dict[str, Any]]:
    """The answers that an earlier run left."""
    if out is None or not out.exists():
        return {}
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return {row["question"]: row for row in rows}


def report(rows: list[dict[str, Any]]) -> str:
    """The share that was refused, the worst of each kind, and every offender."""
    lines = []
    for row in rows:
        why = [str(row["refused"])] if "refused" in row else []
        why += ["slow"] if row["seconds"] > SLOW else []
        why += ["large"] if row["mb"] > LARGE else []
        if why:
            lines += [f"{row['seconds']} s, {row['mb']} MB, {'; '.join(why)}", row["question"]]
    for kind in (*KINDS, None):
        some = [row for row in rows if kind in (None, row["kind"])]
        if some:
            lines.append(f"{kind or 'all'}: {summed(some)}")
    return "\n".join(lines)


def shares(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts and quantiles of some answers."""
    seconds = sorted(row["seconds"] for row in rows)
    met = sorted(row["gap"] for row in rows if row.get("upper", 0.0) > FLOOR and "apart" not in row)
    apart = sorted(row["gap"] for row in rows if "gap" in row and "apart" in row)
    stopped = [row for row in rows if "stopped" in row]
    return {
        "questions": len(rows),
        "refused": sum("refused" in row for row in rows) - len(stopped),
        "stopped": len(stopped),
        "median": seconds[len(rows) // 2],
        "p99": seconds[-(-99 * len(rows) // 100) - 1],
        "slowest": seconds[-1],
        **{f"above {limit:g} s": sum(s > limit for s in seconds) for limit in (1.0, 3.0)},
        "mb": max(row["mb"] for row in rows),
        "gap": met[-1] if met else None,
        "apart": apart[len(apart) // 2] if apart else None,
    }


def summed(rows: list[dict[str, Any]]) -> str:
    """The counts and quantiles of some answers in a line."""
    return ", ".join(f"{name} {value}" for name, value in shares(rows).items() if value is not None)


def results(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the page of speeds shows of the answers to the questions of one seed."""
    kinds = {kind: [row for row in rows if row["kind"] == kind] for kind in KINDS}
    return {
        "all": shares(rows),
        "kinds": {kind: shares(some) for kind, some in kinds.items() if some},
        "points": [_point(row) for row in rows if row["rate"] is not None],
    }


def _point(row: dict[str, Any]) -> list[float | None]:
    """Rate, delta and seconds; None where there is no delta, and in place of seconds if refused."""
    _, asks, value = split(row["question"])
    delta = float(value) if asks == "epsilon" else row.get("upper")
    return [row["rate"], delta, None if "refused" in row else row["seconds"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="questions at the same time")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this time")
    parser.add_argument("--only", type=int, nargs="+", help="ask these numbers alone")
    parser.add_argument("--out", type=Path, help="append answers here, and go on from there")
    parser.add_argument("--results", type=Path, help="write what the page shows here")
    parser.add_argument("--machine", default=f"{os.cpu_count()} cores", help="the machine in words")
    arguments = parser.parse_args()
    until = time.monotonic() + arguments.seconds
    if missing():
        parser.error(missing())
    known, rows, left = remembered(arguments.out), [], []
    for i in arguments.only or range(arguments.number):
        text = question(arguments.seed, i)
        if text in known:
            rows.append(known[text])
        else:
            left.append(i)
    for row in answered(left, arguments.seed, arguments.jobs, until):
        rows.append(row)
        if arguments.out is not None:
            with arguments.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print(report(rows))
    if arguments.results:
        path = arguments.results
        written = json.loads(path.read_text()) if path.exists() else {"seeds": {}}
        written |= {
            "machine": f"{arguments.machine}, Python {platform.python_version()}",
            "date": date.today().isoformat(),
            "limit": SECONDS,
        }
        written["seeds"][str(arguments.seed)] = results(sorted(rows, key=lambda row: row["i"]))
        path.write_text(json.dumps(written) + "\n")


if __name__ == "__main__":
    main()
