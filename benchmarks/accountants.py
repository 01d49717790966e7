"""The accountants of Opacus beside each other, per step and per question: ``make bench``.

    python benchmarks/accountants.py [--rounds N]

All are measured in one process and in turns, in CPU time, of which the least of some rounds counts:
so the ratios hold on a machine that is busy, too. A step is what ``accountant.step`` takes; a hook
is what the optimizer calls in each step of training, with ``step`` inside. A question is
``get_epsilon``. Answers of ``tight`` are asked at its default gap, the others' as Opacus asks them.
Needs Opacus (``make adapters`` installs it); without it, a line says so.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

DELTA = 1e-5
NAMES = ("tight", "rdp", "prv", "gdp")
STEPS = 20_000

# (noise multiplier, sample rate, steps): a run, and runs of a noise scheduler, a level an epoch
HISTORIES = {
    "1 noise level": [(1.0, 0.0345, 2900)],
    "10 noise levels": [(1.0 * 0.98**i, 0.0345, 29) for i in range(10)],
    "100 noise levels": [(2.0 - 1.5 * i / 100, 0.0345, 29) for i in range(100)],
    "300 noise levels": [(2.0 - 1.5 * i / 300, 0.0345, 29) for i in range(300)],
}


def seconds(run: Callable[[], object]) -> float:
    """Measures the CPU time of one call."""
    began = time.process_time()
    run()
    return time.process_time() - began


def stepping(name: str) -> Callable[[], float]:
    """Returns a function that measures one step of an accountant."""
    from opacus.accountants import create_accountant

    def measured() -> float:
        accountant = create_accountant(name)

        def steps() -> None:
            for _ in range(STEPS):
                accountant.step(noise_multiplier=1.0, sample_rate=0.0345)

        return seconds(steps) / STEPS

    return measured


def hooked(name: str) -> Callable[[], float]:
    """Returns a function that measures the hook of one step of training, of a small network."""
    import opacus
    import torch

    def measured() -> float:
        torch.manual_seed(0)
        data = torch.utils.data.TensorDataset(torch.randn(6400, 20), torch.randint(0, 2, (6400,)))
        module = torch.nn.Sequential(
            torch.nn.Linear(20, 20), torch.nn.Linear(20, 20), torch.nn.Linear(20, 2)
        )
        model, optimizer, loader = opacus.PrivacyEngine(accountant=name).make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=torch.utils.data.DataLoader(data, batch_size=16),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        x, y = next(iter(loader))
        torch.nn.functional.cross_entropy(model(x), y).backward()
        # 400 batches, so that the hook of tight finds one for each step
        for _ in loader.batch_sampler:
            pass

        def hooks() -> None:
            for _ in range(len(loader)):
                optimizer.step_hook(optimizer)

        return seconds(hooks) / len(loader)

    return measured


def asking(name: str, history: list[tuple[float, float, int]]) -> Callable[[], Any]:
    """Returns a function that measures one question, and keeps its answer."""
    from opacus.accountants import create_accountant

    def measured() -> float:
        accountant = create_accountant(name)
        accountant.history = list(history)
        return seconds(lambda: answers.__setitem__(name, accountant.get_epsilon(DELTA)))

    answers: dict[str, float] = {}
    measured.answers = answers  # type: ignore[attr-defined]
    return measured


def shown(time_taken: float) -> str:
    """Writes a time in the unit that fits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if time_taken >= size:
            return f"{time_taken / size:.3g} {unit}"
    return f"{time_taken / 1e-6:.2g} µs"


def row(title: str, kinds: dict[str, Callable[[], Any]], rounds: int) -> None:
    """Measures all accountants in turns, and prints a row of times, ratios and answers."""
    least = dict.fromkeys(kinds, float("inf"))
    for turn in range(rounds):
        for name, measured in kinds.items():
            if turn and least[name] > 2.0:
                continue  # a second measurement of a long answer says nothing new
            least[name] = min(least[name], measured())
    cells = []
    for name in NAMES:
        if name not in kinds:
            cells.append("–")
            continue
        answer = getattr(kinds[name], "answers", {}).get(name)
        said = "" if answer is None else f"{answer:.5g}; "
        cells.append(f"{said}{shown(least[name])}, {least[name] / least['rdp']:.2g}")
    sys.stdout.write(f"| {title} | {' | '.join(cells)} |\n")
    sys.stdout.flush()


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="measurements, of which the least")
    rounds = parser.parse_args().rounds
    try:
        import tightbudget.adapters.opacus  # noqa: F401 (registers the accountant)
    except ImportError as error:
        sys.stdout.write(f"accountants of Opacus: SKIPPED: {error}\n")
        return
    warnings.simplefilter("ignore")
    sys.stdout.write(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    sys.stdout.write(f"| | {' | '.join(NAMES)} |\n|{' --- |' * (len(NAMES) + 1)}\n")
    row("one step", {name: stepping(name) for name in NAMES}, rounds)
    row("the hook of a step", {name: hooked(name) for name in NAMES}, rounds)
    for title, history in HISTORIES.items():
        # gdp takes one noise level
        names = NAMES if len(history) == 1 else NAMES[:3]
        row(title, {name: asking(name, history) for name in names}, rounds)


if __name__ == "__main__":
    main()
