# %% [markdown]
# # A classifier with Opacus
#
# **1,347 handwritten digits, one of each person, and a promise: ε = 3 at δ = 1e-5. How much noise does the training
# need, what has it cost in the end, and must you pay for epochs that never ran?**
#
# <!-- needs: opacus -->
#
# The digits are real: scikit-learn brings them. Another 450 count as public, to look at the model.

# %%
import warnings

import torch
from opacus import PrivacyEngine
from opacus.accountants.utils import get_noise_multiplier
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import tightbudget as tb
from tightbudget.adapters.opacus import dp_sgd_step
from tightbudget.release.stopping import StoppingCallback

warnings.filterwarnings("ignore", message="Secure RNG turned off")
warnings.filterwarnings("ignore", message="Full backward hook")

DELTA, BATCH = 1e-5, 64
images, labels = load_digits(return_X_y=True)
x = torch.tensor(images / 16, dtype=torch.float32)
y = torch.tensor(labels)
private = TensorDataset(x[:1347], y[:1347])
public_x, public_y = x[1347:], y[1347:]

# %% [markdown]
# ## Noise for a target
#
# Importing the adapter has registered the accountant `tight` with Opacus. So Opacus's own function finds the least noise
# for 20 epochs:

# %%
sigma = get_noise_multiplier(
    target_epsilon=3,
    target_delta=DELTA,
    sample_rate=1 / 22,  # 22 batches an epoch
    epochs=20,
    accountant="tight",
    epsilon_tolerance=1e-3,
)
run = dp_sgd_step(sigma, 1 / 22) * 440
print(f"sigma {sigma:.3f}, epsilon {run.epsilon(DELTA)}")

# %% tags=["remove-cell"]
assert 1.55 < sigma < 1.57
assert 2.99 < run.epsilon(DELTA).upper <= 3

# %% [markdown]
# That is the first correct number, before any training: 28 lines, and some ten seconds after `import`, of which PyTorch
# and Opacus take nearly all. (Somebody who met this library for the first time, without this page, had it after four
# minutes.)
#
# ## Training


# %%
def start(seed):
    """A fresh engine, model, optimizer and loader."""
    torch.manual_seed(seed)  # see the note below
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10)
    )
    engine = PrivacyEngine(accountant="tight")
    return engine, *engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        data_loader=DataLoader(private, batch_size=BATCH),
        noise_multiplier=sigma,
        max_grad_norm=1.0,
    )


def epoch(model, optimizer, loader):
    """Trains for one epoch, and returns the accuracy on public digits."""
    for inputs, targets in loader:
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    with torch.no_grad():
        found = model(public_x).argmax(dim=1)
    return float((found == public_y).float().mean())


engine, model, optimizer, loader = start(seed=5)
accuracy = [epoch(model, optimizer, loader) for _ in range(20)]
print(f"accuracy {accuracy[-1]:.1%}")
engine.accountant.bounds(DELTA)

# %% tags=["remove-cell"]
spent = engine.accountant.bounds(DELTA)
assert spent.upper == run.epsilon(DELTA).upper
assert accuracy[-1] > 0.8
assert engine.accountant.history == [(sigma, 1 / 22, 440)]

# %% [markdown]
# The accountant has counted what the optimizer did, and agrees with the plan. *The noise has a seed here*, so that you see
# the numbers that the text speaks of. In earnest it must not, and takes `secure_mode=True`: whoever knows the seed subtracts
# the noise.
#
# ## Go on another day
#
# A checkpoint has the accountant's history. Five more epochs, in a new engine, are counted with the twenty:

# %%
engine.save_checkpoint(path="digits.pt", module=model, optimizer=optimizer)

engine, model, optimizer, loader = start(seed=6)
engine.load_checkpoint(path="digits.pt", module=model, optimizer=optimizer)
for _ in range(5):
    last = epoch(model, optimizer, loader)
print(f"accuracy {last:.1%}")
engine.accountant.bounds(DELTA)

# %% tags=["remove-cell"]
longer = engine.accountant.bounds(DELTA)
assert 3.37 < longer.lower <= longer.upper < 3.38

# %% [markdown]
# The promise of 3 is broken: nobody stopped us. A *budget* does, and gives change as well.
#
# ## Stop early, with change
#
# A schedule says what the run costs if it stops after 1, 2, ..., 20 epochs, with one δ for all of these:

# %%
one_epoch = dp_sgd_step(sigma, 1 / 22) * 22
schedule = tb.early_stopping(one_epoch, stops=range(1, 21), delta=DELTA)
print(f"all 20 epochs: {schedule.epsilons[-1]:.3f}")
print(f"10 epochs:     {schedule.epsilons[9]:.3f}")

# %% tags=["remove-cell"]
assert 3.134 < schedule.epsilons[-1] < 3.135
assert schedule.delta.upper <= DELTA

# %% alt="Prices over the epochs run before stopping, from 1 to 20. The schedule's price climbs from 0.9 to 3.13. Accounting each stop separately is above it at every stop, by 0.4 at the last; a Rényi filter, which has to fix no stops, begins at 1.6 and ends at 3.3."
ax = schedule.plot()
ax.set_xlabel("epochs run before stopping")

# %% [markdown]
# A ledger holds the price of the last stop before training begins. At each stop a rule of yours is asked; it may look at all
# that was released, such as the model on public digits, and *not* at the training loss. Here a machine is taken away in the
# third epoch, and the next one goes on from the checkpoint:

# %%
ledger = tb.Ledger("sqlite:///budget.db")
ada = ledger.open_budget("ada", epsilon=4, delta=2 * DELTA)
seen = {}  # accuracy after each epoch


def good_enough(reached):
    return reached >= 0.85


def train(seed, resume, taken_away_in=None):
    """Trains until it is good enough, from a checkpoint or anew."""
    engine, model, optimizer, loader = start(seed)
    stopping = StoppingCallback(
        schedule, ada.keyed("digits"), good_enough, resumable=True
    )
    files = {"path": "run.pt", "module": model, "optimizer": optimizer}
    if resume:
        found = engine.load_checkpoint(**files)
        stopping.load_state_dict(found["stopping"])
    with stopping:
        engine.accountant.report_to(stopping)
        while not stopping.over:
            engine.save_checkpoint(
                **files,
                checkpoint_dict={"stopping": stopping.state_dict()},
            )
            stop = stopping.next_stop
            if stop == taken_away_in:
                raise SystemExit  # stands for a kill, unseen
            seen[stop] = epoch(model, optimizer, loader)
            stopping.should_stop(stop, seen[stop])
    return stopping.receipt


try:
    train(seed=7, resume=False, taken_away_in=3)
except SystemExit:
    print("taken away; held:", ada.held)
receipt = train(seed=8, resume=True)
print(f"stopped after {max(seen)} epochs, {seen[max(seen)]:.1%}")
receipt

# %% tags=["remove-cell"]
stopped = max(seen)
assert 3 < stopped < 20
assert abs(receipt.held.epsilon - schedule.epsilons[-1]) < 1e-9
assert abs(receipt.charged.epsilon - schedule.epsilons[stopped - 1]) < 1e-9
assert seen[stopped] >= 0.85

# %% tags=["hide-input"] alt="Two panels over the epochs of training. Above, the accuracy on public digits climbs past 85 percent after five epochs, where training stops; the third, lost one has no point. Below, the price of stopping climbs with each epoch; what lies between the price at the stop and that of all 20 epochs comes back."
import matplotlib.pyplot as plt

BLUE, RED, GREEN = "#1f5fa8", "#b3452c", "#3d7a45"
plt.rcParams.update(
    {"axes.spines.top": False, "axes.spines.right": False, "font.size": 11}
)
figure, (above, below) = plt.subplots(
    2, 1, figsize=(7.5, 6), sharex=True, layout="constrained"
)
above.plot(
    list(seen), [100 * a for a in seen.values()], "o-", color=BLUE, ms=5
)
above.axhline(85, color="0.5", lw=1, ls=":")
above.text(20, 82, "good enough", color="0.4", ha="right")
above.set(ylabel="accuracy on public digits, %", ylim=(0, 100))
above.set_title(f"Training stops after {stopped} epochs ...", loc="left")
paid, most = schedule.epsilons[stopped - 1], schedule.epsilons[-1]
below.plot(schedule.stops, schedule.epsilons, "o-", color="0.75", ms=4)
below.plot(
    schedule.stops[:stopped],
    schedule.epsilons[:stopped],
    "o-",
    color=BLUE,
    ms=4,
)
below.axhline(most, color=RED, lw=1, ls=":")
below.annotate(
    "",
    (stopped, most),
    (stopped, paid),
    arrowprops={"arrowstyle": "<->", "color": GREEN, "lw": 1.5},
)
below.text(
    stopped + 0.3, (paid + most) / 2, f"{most - paid:.2f} back", color=GREEN
)
below.text(1, most + 0.06, f"{most:.2f} held", color=RED)
below.text(stopped + 0.3, paid - 0.25, f"{paid:.2f} paid", color=BLUE)
below.set(xlabel="epochs", ylabel="price ε (nats)", ylim=(0, 3.5))
below.set_xticks(range(0, 21, 5))
below.set_title("... and pays for these, and the right to stop", loc="left")

# %%
print("left:", ada.left)
print(ledger.verify().head.sequence, "events, all as they should be")

# %% [markdown]
# Whoever declares twenty stops and uses none pays 3.13, where 440 steps without any choice cost 3.00: that is the
# whole price of being allowed to stop. δ does not come back: it was the price of the choice.
#
# ## Where to go on
#
# - What the accountant counts for which loader, and what it refuses: [use it with
#   Opacus](../how-to/use-with-opacus.md).
# - The kill in all its places: [train on spot machines](../how-to/train-on-spot-machines.md).
# - Weights that make early stops cheaper, loops without Opacus, Keras: [stop training
#   early](../how-to/stop-early.md).
# - Why one δ covers all stops: [early stopping is a Bermudan option](../explanation/early-stopping.md).
# - The same budgets with colleagues: [a ledger for a team](03-a-ledger-for-a-team.md).
