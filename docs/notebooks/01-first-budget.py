# %% [markdown]
# # A first budget
#
# **Every Monday a city publishes how many people slept in its shelters last week, with noise. What
# has it given away about one person after a year, and how long may it go on?**
#
# A person moves each count by at most one. The noise has a Laplace distribution of scale 20: half of
# the published numbers are within 14 of the truth. That is one *mechanism*, and it is a value: it
# holds its parameters and does nothing yet.

# %%
import tightbudget as tb

week = tb.Laplace(scale=20.0)
week

# %% [markdown]
# ## One week, and a year
#
# Somebody who sees the published number becomes more or less sure that a certain person was there. ε
# bounds by how much: the odds change by a factor of at most e^ε. A small δ allows for rare outputs that
# say more ([what exactly it allows](../how-to/what-an-epsilon-means.md)). For one week of this noise ε
# is 1/20, and δ is 0.
#
# `*` repeats a mechanism. A year is 52 weeks:

# %%
year = week * 52
epsilon = year.epsilon(delta=1e-6)
epsilon

# %% [markdown]
# Two numbers, not one. The exact ε of this year lies between them, rounding errors included: that is
# proved, not estimated. Promise the upper one. The lower one tells you that nobody can prove less for
# the same noise, so there is nothing left to search for.
#
# The textbook adds up 52 times 1/20, which is 2.6.

# %%
print(f"added up:  {52 / 20:.3f}")
print(f"certified: {epsilon.upper:.3f}")

# %% tags=["remove-cell"]
assert 1.5099 < epsilon.lower <= epsilon.upper < 1.51
assert epsilon.upper - epsilon.lower < 1e-4 * epsilon.upper

# %% [markdown]
# ## How the price grows
#
# A sum grows in proportion to the weeks. The certified price soon grows like their square root: in
# some weeks the noise makes the person look present, in others absent, and most of that cancels out.
# The longer you go on, the more it matters.

# %% tags=["hide-input"] alt="The privacy loss epsilon over four years of weekly counts. Adding up reaches 10.4, the certified price 3.3. The sum reaches a budget of 2 after 40 weeks, the certified price after 84."
import matplotlib.pyplot as plt

plt.rcParams.update(
    {"axes.spines.top": False, "axes.spines.right": False, "font.size": 11}
)
weeks = [1, 2, 4, 8, 13, 20, 26, 39, 52, 62, 78, 104, 130, 156, 182, 208]
certified = [(week * k).epsilon(delta=1e-6).upper for k in weeks]

figure, ax = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
ax.plot(weeks, [k / 20 for k in weeks], color="#b07d12", lw=2)
ax.plot(weeks, certified, color="#1f5fa8", lw=2.5, marker="o", ms=4)
ax.axhline(2, color="0.55", lw=1, ls=":")
ax.plot([40, 84], [2, 2], "o", color="0.4", ms=5)
ax.text(209, 1.5, "a budget of 2", color="0.4", ha="right")
ax.text(12, 3.2, "40 weeks", color="#b07d12")
ax.text(87, 1.4, "84 weeks", color="#1f5fa8")
ax.text(150, 8.3, "adding up", color="#b07d12", ha="right")
ax.text(150, 3.25, "certified, at δ = 1e-6", color="#1f5fa8", ha="right")
ax.set(
    xlabel="years of weekly counts",
    ylabel="privacy loss ε (nats)",
    xlim=(0, 210),
    ylim=(0, 10.8),
)
ax.set_xticks(range(0, 209, 52), range(5))
ax.set_title("What weekly counts cost", loc="left")

# %% tags=["remove-cell"]
assert 3.31 < certified[-1] < 3.32
assert (
    (week * 84).epsilon(delta=1e-6).upper
    <= 2
    < (week * 85).epsilon(delta=1e-6).lower
)

# %% [markdown]
# ## How long may it go on?
#
# Turn the question round. `calibrate` takes a function from what you look for to a composition, and
# finds the most that meets a target:

# %%
longest = tb.calibrate(
    lambda k: week * k, epsilon=2.0, delta=1e-6, integer=True
)
longest

# %% [markdown]
# 84 weeks, where adding up allows 40. Or keep to one year, and publish with less noise: adding up would
# ask for a scale of 26.

# %%
less_noise = tb.calibrate(
    lambda scale: tb.Laplace(scale=scale) * 52, epsilon=2.0, delta=1e-6
)
print(f"noise of scale {less_noise.value:.2f} is enough for 52 weeks")

# %% tags=["remove-cell"]
assert longest.value == 84
assert 15.4 < less_noise.value < 15.5

# %% [markdown]
# ## What would an attacker make of it?
#
# Say the best possible attacker sees the whole year, and wants to know whether a person was in the
# shelters every week. If she may raise a false alarm in one case of a hundred, how many of those who
# were there does she find?

# %%
risk = year.risk(epsilon=1.0, fpr=0.01)
risk

# %% [markdown]
# At most 2.44 % of them, where guessing finds 1 %. The other rows say the same year in other words.
#
# ## Something else on the side
#
# The city also trains a model to plan its beds, by 500 steps of DP-SGD (Gaussian noise, each step on a
# random hundredth of the records). `+` puts different mechanisms together, at one δ for all:

# %%
training = tb.Gaussian(sigma=1.0).subsampled(rate=0.01) * 500
both = year + training
for name, part in {"counts": year, "model": training, "both": both}.items():
    print(f"{name:7} {part.epsilon(delta=1e-6).upper:.3f}")

# %% tags=["remove-cell"]
alone = [part.epsilon(delta=1e-6) for part in (year, training)]
together = both.epsilon(delta=1e-6)
assert together.upper < sum(b.lower for b in alone)

# %% [markdown]
# Both together cost less than the sum of both. And the whole is not one pair
# (ε, δ) but a curve, of which you may use any point:

# %% alt="The certified curve of delta over epsilon for the counts and the model together: delta falls from 0.2 at epsilon 0 to below 1e-12 at epsilon 4."
curve = both.curve(epsilons=[0.25 * k for k in range(17)])
ax = curve.plot()

# %% [markdown]
# ## Where to go on
#
# - A classifier that may stop training early, and gets change: [the second notebook](02-a-classifier-with-opacus.md).
# - [How much noise each method asks for](06-noise-for-a-target.md) to meet one target.
# - The same in ten minutes, without pictures: [the tutorial](../tutorial.md).
# - What ε says about a person, and what it does not: [what an epsilon
#   means](../how-to/what-an-epsilon-means.md).
