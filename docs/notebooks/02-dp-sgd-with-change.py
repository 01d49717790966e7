# %% [markdown]
# # DP-SGD with change
#
# **You planned 1,000 steps of private training, and after 400 the model is good enough. Must you pay
# for the 600 steps that never ran?**
#
# If you declare beforehand where the run may stop, no: the steps that did not run are given back, and
# the decision to stop is paid for as well. Here it is done in a training loop of thirty lines of NumPy;
# a loop of [Opacus](../how-to/use-with-opacus.md) or of any other library looks the same.
#
# The records are made up: 20,000 of them to train on, and 20,000 that are public, to look at the model.

# %%
import numpy as np

import tightbudget as tb
from tightbudget.release.stopping import StoppingCallback

random = np.random.default_rng(11)
scale = np.geomspace(1, 0.15, 10)  # the weak features take long to learn
truth = 3 * random.normal(size=10) / scale
x = scale * random.normal(size=(40_000, 10))
y = random.random(40_000) < 1 / (1 + np.exp(-x @ truth))
private, public = slice(0, 20_000), slice(20_000, None)

# %% [markdown]
# ## The price list
#
# Each step takes a random hundredth of the records, clips each record's gradient to length 1, and adds
# Gaussian noise of standard deviation 1 to their sum. A schedule says what the run costs if it stops after 100, 200,
# ..., 1,000 steps, with one δ for all of these:

# %%
step = tb.Gaussian(sigma=1.0).subsampled(rate=0.01)
schedule = tb.early_stopping(step, stops=range(100, 1001, 100), delta=1e-5)
schedule

# %% [markdown]
# Look at the last line first: who declares ten stops and uses none pays 1.885, where 1,000 steps
# without any choice cost 1.828. That is the whole price of being allowed to stop. The picture shows
# what you would pay by a Rényi filter, and what if each stop had a δ of its own.

# %% tags=["remove-cell"]
plain = (step * 1000).epsilon(delta=1e-5)
assert 1.828 < plain.lower <= plain.upper < 1.829
assert 1.8849 < schedule.epsilons[-1] < 1.885
assert schedule.delta.upper <= 1e-5

# %% alt="Prices over the steps run before stopping. The schedule's price is lowest at every stop, from 0.92 after 100 steps to 1.88 after 1,000; the Rényi filter starts at 1.35; accounting each stop separately ends highest, at 2.12."
ax = schedule.plot()

# %% [markdown]
# ## Training
#
# `StoppingCallback` does the booking. Entered, it holds the price of the last stop. At each stop it asks
# a rule of yours; left, it charges the stop. If the loop fails, it charges the worst-case price: nobody can
# say any more what was seen.
#
# The rule may look at anything that was released, such as the noisy model on public records. It may
# *not* look at the loss of the training batches.

# %%
accuracy = []  # of the model on public records, after each step


def train(budget, enough, seed):
    """Trains until it is enough; returns the steps and the receipt."""
    noise = np.random.default_rng(seed)  # see the note below
    weights = np.zeros(10)

    def rule(reached):
        return reached >= enough

    with StoppingCallback(schedule, budget, rule) as stopping:
        for k in range(1, 1001):
            drawn = noise.random(20_000) < 0.01
            inputs, labels = x[private][drawn], y[private][drawn]
            errors = 1 / (1 + np.exp(-inputs @ weights)) - labels
            gradients = errors[:, None] * inputs
            lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
            clipped = gradients / np.maximum(1, lengths)
            weights -= (
                clipped.sum(axis=0) + noise.normal(0, 1.0, 10)
            ) / 200
            accuracy.append(np.mean((x[public] @ weights > 0) == y[public]))
            if stopping.should_stop(k, accuracy[-1]):
                break
    return k, stopping.receipt


budget = tb.OutputDPFilter(epsilon=3.4, delta=2e-5)
steps, receipt = train(budget, enough=0.9, seed=5)
print(f"stopped after {steps} steps; accuracy {accuracy[-1]:.1%}")
receipt

# %% [markdown]
# *The noise has a seed here*, so that you see the numbers that the text speaks of. In earnest it must
# not: whoever knows the seed subtracts the noise. Nor is NumPy's generator made for secrets.

# %% tags=["remove-cell"]
assert steps == 400
assert abs(receipt.held.epsilon - schedule.epsilons[-1]) < 1e-9
assert abs(receipt.charged.epsilon - schedule.epsilons[3]) < 1e-9

# %% tags=["remove-cell"]
# what would have come of the other 600 steps, for the picture
until_here = list(accuracy)
accuracy.clear()
train(tb.OutputDPFilter(epsilon=3.4, delta=2e-5), enough=2.0, seed=5)
full, accuracy = list(accuracy), until_here
assert full[:400] == accuracy

# %% tags=["hide-input"] alt="Two panels over the steps of training. Above, the accuracy on public records climbs past 90 percent before step 400, where training stops; going on would have brought it to 92 percent. Below, the price climbs from 0.92 to 1.88; at step 400 it is 1.42, and the 0.46 up to the price of the whole run comes back."
import matplotlib.pyplot as plt

BLUE, RED, GREEN = "#1f5fa8", "#b3452c", "#3d7a45"
plt.rcParams.update(
    {"axes.spines.top": False, "axes.spines.right": False, "font.size": 11}
)
figure, (above, below) = plt.subplots(
    2, 1, figsize=(7.5, 6), sharex=True, layout="constrained"
)
above.plot(
    range(400, 1001), [100 * a for a in full[399:]], color="0.75", lw=1.5
)
above.plot(range(1, 401), [100 * a for a in accuracy], color=BLUE, lw=1.5)
above.axhline(90, color="0.5", lw=1, ls=":")
above.text(1000, 88.6, "good enough", color="0.4", ha="right")
above.text(1000, 93.4, "not run", color="0.5", ha="right")
above.plot([400], [100 * accuracy[-1]], "o", color=BLUE, ms=7)
above.set(ylabel="accuracy on\npublic records, %", ylim=(70, 96))
above.set_title("Training stops after 400 steps ...", loc="left")
paid, most = schedule.epsilons[3], schedule.epsilons[-1]
below.plot(
    schedule.stops,
    schedule.epsilons,
    color="0.75",
    lw=1.5,
    marker="o",
    ms=4,
)
below.plot(
    schedule.stops[:4],
    schedule.epsilons[:4],
    color=BLUE,
    lw=1.5,
    marker="o",
    ms=4,
)
below.plot([400], [paid], "o", color=BLUE, ms=7)
below.axhline(most, color=RED, lw=1, ls=":")
below.annotate(
    "",
    (400, most),
    (400, paid),
    arrowprops={"arrowstyle": "<->", "color": GREEN, "lw": 1.5},
)
below.text(415, 1.62, f"{most - paid:.2f} back", color=GREEN)
below.text(420, paid - 0.16, f"{paid:.2f} paid", color=BLUE)
below.text(0, most + 0.06, f"{most:.2f} held", color=RED)
below.set(
    xlabel="steps", ylabel="price ε (nats)", ylim=(0, 2.2), xlim=(-10, 1010)
)
below.set_title(
    "... and pays for 400 steps and the right to stop", loc="left"
)

# %% [markdown]
# ## What the change buys
#
# The budget had 3.4. A second training run must be able to hold 1.885. Accounting that charges what was
# planned has 1.515 left and refuses. Here the change makes it fit. This model need not be as good:

# %%
print(f"left: {budget.left.epsilon:.3f}")
print(f"left by plain accounting: {3.4 - receipt.held.epsilon:.3f}")
steps, receipt = train(budget, enough=0.85, seed=6)
print(f"the second run: {steps} steps, {receipt.charged.epsilon:.3f} paid")
budget

# %% tags=["remove-cell"]
assert 3.4 - schedule.epsilons[-1] < schedule.epsilons[-1]
assert steps < 400

# %% [markdown]
# δ does not come back: it was the price of the choice, and 1e-5 of it went with each run.
#
# ## Where to go on
#
# - Weights that make early stops cheaper, prices of your own, Keras: [stop training
#   early](../how-to/stop-early.md).
# - [The same with Opacus](../how-to/use-with-opacus.md#stop-early), whose accountant then refuses steps
#   that the schedule has not.
# - Why one δ covers all stops: [early stopping is a Bermudan option](../explanation/early-stopping.md).
# - A budget that outlives the process: [a ledger for a team](03-a-ledger-for-a-team.md).
