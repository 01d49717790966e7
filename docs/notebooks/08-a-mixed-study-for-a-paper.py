# %% [markdown]
# # A mixed study for a paper
#
# **A study trains a model for 80 steps, publishes 60 counts with Laplace noise, asks each person 40 questions
# by randomised response, and adds discrete Gaussian noise to 20 more tables. What may the paper say that all
# of it costs together, and how does a reader check it?**
#
# The first correct number comes after six lines of code, and three seconds after `import`. (Somebody who met this
# library for the first time, with such a study and without this page, had it after one minute.) Noise is in units of
# what one person's record adds: each table has a sensitivity of 1.

# %%
import tightbudget as tb

training = tb.Gaussian(sigma=1.0).subsampled(rate=0.02) * 80
counts = tb.Laplace(scale=25) * 60
answers = tb.RandomizedResponse(p=0.54) * 40
tables = tb.DiscreteGaussian(sigma=8) * 20
study = training + counts + answers + tables
study.epsilon(delta=1e-6)

# %% tags=["remove-cell"]
whole = study.epsilon(delta=1e-6)
assert 5.994 < whole.lower <= whole.upper < 5.9943
assert whole.upper - whole.lower < 2e-4

# %% [markdown]
# The exact ε lies between these two numbers, every rounding included: the paper may say "ε = 5.995 at δ = 10⁻⁶".
# It is far less than the sum of the four parts, and each of these is a question of its own:

# %%
parts = {
    "training": training,
    "counts": counts,
    "answers": answers,
    "tables": tables,
}
for name, part in parts.items():
    print(f"{name:9} {part.epsilon(delta=1e-6)}")

# %% tags=["remove-cell"]
alone = {name: part.epsilon(delta=1e-6) for name, part in parts.items()}
assert 10.2 < sum(bounds.lower for bounds in alone.values()) < 10.21
assert max(alone, key=lambda name: alone[name].upper) == "answers"

# %% [markdown]
# The sum is 10.2. The randomised answers alone cost 4.7 of it: who wants to spend less begins there.
#
# ## Beside another library
#
# dp-accounting rounds the privacy loss up to a grid. The finer the grid, the nearer it comes, from above, to the
# interval, and never into what the lower bound excludes:

# %%
from dp_accounting.pld import privacy_loss_distribution as pld


def other(grid):
    """The epsilon of the same study, by dp-accounting."""
    step = {"value_discretization_interval": grid}
    whole = pld.identity(**step)
    for one, times in (
        (pld.from_gaussian_mechanism(1, sampling_prob=0.02, **step), 80),
        (pld.from_laplace_mechanism(25, **step), 60),
        (pld.from_randomized_response(0.92, 2, **step), 40),
        (pld.from_discrete_gaussian_mechanism(8, **step), 20),
    ):
        whole = whole.compose(one.self_compose(times))
    return whole.get_epsilon_for_delta(1e-6)


for grid in (1e-2, 1e-3, 1e-4):
    print(f"grid {grid:g}: {other(grid):.4f}")

# %% tags=["remove-cell"]
coarse, fine = other(1e-3), other(1e-4)
assert whole.upper < fine < coarse
assert 6.02 < coarse < 6.04
assert fine < 6.0

# %% [markdown]
# (Its randomised response replaces the true answer, with probability 0.92, by one of the two at random: that is
# the true one with probability 0.54.)
#
# ## What other theorems say
#
# A referee will ask about Rényi accounting. Here it is, among all that apply, with their sources:

# %%
found = tb.compare(study, delta=1e-6)
found

# %% tags=["remove-cell"]
assert 6.368 < found["Renyi"].answer.upper < 6.369
assert all(
    row.answer.upper > whole.lower
    for row in found
    if row.proved and row.answer is not None
)

# %% [markdown]
# ## Tables for the paper
#
# A study is not one pair (ε, δ) but a curve. As a frame it has the exact doubles; as LaTeX, lower bounds are
# rounded down and upper bounds up, so that the printed interval holds as well:

# %%
curve = study.curve(deltas=[1e-5, 1e-6, 1e-7, 1e-8])
curve.frame()

# %%
print(curve.to_latex(digits=5))

# %% tags=["remove-cell"]
assert "$5.9941$ & $5.9943$" in curve.to_latex(digits=5)

# %% [markdown]
# ## The picture
#
# `plot` picks its own points. Between them the line of the upper bounds is certified, too; that of the lower bounds
# only joins its points, and the legend says so.

# %% alt="Delta over epsilon on a logarithmic axis, for the whole study and for the study without the randomised answers. At delta 1e-6 the whole needs an epsilon of 6.0, the rest 3.3. Both curves fall to 1e-12, and lower and upper bounds cannot be told apart."
ax = study.plot(label="all")
ax = (training + counts + tables).plot(ax=ax, label="without answers")
ax.legend(loc="upper left", bbox_to_anchor=(0, -0.15), frameon=False)

# %% [markdown]
# ## A target that cannot be met
#
# Could more noise in the training bring the study to ε = 3? No, and the refusal says why, with the number:

# %%
try:
    tb.calibrate(
        lambda sigma: (
            tb.Gaussian(sigma).subsampled(rate=0.02) * 80
            + counts
            + answers
            + tables
        ),
        epsilon=3,
        delta=1e-6,
    )
except tb.errors.CalibrationError as refusal:
    print(refusal)

# %% tags=["remove-cell"]
rest = (counts + answers + tables).epsilon(delta=1e-6)
assert 5.82 < rest.lower <= rest.upper < 5.84

# %% [markdown]
# ## Where to go on
#
# - Each theorem, its source, and when it is not applicable: [compare with other
#   bounds](../how-to/compare-with-other-bounds.md).
# - [What an epsilon means](../how-to/what-an-epsilon-means.md), in sentences that a paper may print.
# - Your events of dp-accounting, without typing anything anew: [use it with
#   dp-accounting](../how-to/use-with-dp-accounting.md).
# - How the claims of others hold up: [reading a paper's claim](05-reading-a-papers-claim.md), and [reproduce
#   papers](../how-to/reproduce-papers.md).
