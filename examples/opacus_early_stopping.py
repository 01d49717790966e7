"""Handwritten digits, learnt with Opacus, that stop early and get change back.

Run by ``make adapters``, or alone: ``.venv/bin/python examples/opacus_early_stopping.py``.
"""

from __future__ import annotations

import warnings

import torch
from opacus import PrivacyEngine
from opacus.accountants import create_accountant
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import tightbudget as tb
from tightbudget.adapters.opacus import dp_sgd_step
from tightbudget.release.stopping import StoppingCallback

EPOCHS = 30
NOISE = 1.5
DELTA = 1e-5
GOOD_ENOUGH = 0.85

# "Secure RNG": noise for production needs PrivacyEngine(secure_mode=True)
warnings.filterwarnings("ignore", message="Secure RNG turned off")
warnings.filterwarnings("ignore", message="Full backward hook is firing")


def main() -> None:
    private, public = digits()
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))
    engine = PrivacyEngine(accountant="tight")
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        data_loader=DataLoader(private, batch_size=100),
        noise_multiplier=NOISE,
        max_grad_norm=1.0,
    )
    one_epoch = dp_sgd_step(NOISE, 1 / len(loader)) * len(loader)
    schedule = tb.early_stopping(one_epoch, range(1, EPOCHS + 1), DELTA)
    budget = tb.OutputDPFilter(epsilon=6, delta=DELTA)

    print(f"{len(private):,} private images; {EPOCHS} epochs of {len(loader)} steps at most")
    print(f"{'epoch':>5}  {'accuracy':>8}  {'price of stopping here':>22}")
    with StoppingCallback(schedule, budget, good_enough) as stopping:
        engine.accountant.report_to(stopping)
        for epoch in range(1, EPOCHS + 1):
            for images, labels in loader:
                optimizer.zero_grad()
                cross_entropy(model(images), labels).backward()
                optimizer.step()
            seen = accuracy(model, public)
            print(f"{epoch:>5}  {seen:>8.1%}  {schedule.epsilons[epoch - 1]:>22.4f}")
            if stopping.should_stop(epoch, seen):
                break

    receipt = stopping.receipt
    print(f"\nheld    {receipt.held}\ncharged {receipt.charged}\nback    {receipt.returned}")
    print(f"left    {budget.left}")
    print(f"\nepsilon of {epoch} epochs, had that number been fixed beforehand:")
    print(f"  tight {engine.accountant.bounds(DELTA)}")
    for name in ("prv", "rdp"):
        other = create_accountant(name)
        other.history = engine.accountant.history
        print(f"  {name:<5} {other.get_epsilon(DELTA):.4f}")
    print(f"and where it may stop, of a Renyi filter: {schedule.renyi_filter()[epoch - 1]:.4f}")


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Private images to learn from, and images that count as public to judge by."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    return TensorDataset(x[:1500], y[:1500]), TensorDataset(x[1500:], y[1500:])


def accuracy(model: torch.nn.Module, data: TensorDataset) -> float:
    images, labels = data.tensors
    with torch.no_grad():
        return float((model(images).argmax(dim=1) == labels).float().mean())


def good_enough(seen: float) -> bool:
    """The rule: it knows the noisy model by public images, and nothing else."""
    return seen >= GOOD_ENOUGH


if __name__ == "__main__":
    main()
