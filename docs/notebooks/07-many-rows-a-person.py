# %% [markdown]
# # Many rows a person
#
# **A taxi office has 120,000 trips of 8,000 riders in a Parquet file, up to dozens of a rider. How many
# trips start in each of twelve zones, how are the fares spread, and in which hours are the taxis busy?
# A rider is to be protected with all trips, from a budget of ε = 1.5.**
#
# DuckDB reads the file. What leaves it is a few integers, and these get noise. The trips are made up, so that we may
# compare with the truth, which in earnest nobody may see.

# %%
import numpy as np
import pandas as pd

import tightbudget as tb

random = np.random.default_rng(7)
zones = [f"zone {i}" for i in range(1, 13)]
weights = 0.8 ** np.arange(12)
frequent = random.gamma(2, 1, 8_000)
trips = pd.DataFrame(
    {
        "rider": random.choice(8_000, 120_000, p=frequent / frequent.sum()),
        "zone": random.choice(zones, 120_000, p=weights / weights.sum()),
        "fare": np.round(random.gamma(4, 5, 120_000), 2),
        "hour": np.floor(random.normal(15, 5, 120_000) % 24).astype(int),
    }
)
trips.to_parquet("trips.parquet")

# %% [markdown]
# ## Say whom you protect
#
# Noise has to hide all that one rider adds, so a table says how much of a rider counts: here 40 trips. Of
# those with more, 40 are chosen at random, others in each answer.

# %%
table = tb.Table(
    "trips.parquet",
    unit="rider",
    rows_per_unit=40,
    domains={"zone": zones},
)
budget = tb.OutputDPFilter(epsilon=1.5)
session = tb.Session(table, budget)

# %% [markdown]
# ## See the questions before you ask
#
# The preview reads no row, and charges nothing. It says how much noise each answer will have.

# %%
edges = tuple(range(0, 64, 4))
by_zone = tb.GroupedCounts(by="zone", epsilon=0.15)
by_fare = tb.HistogramCounts(column="fare", edges=edges, epsilon=0.15)
busy = tb.AboveThreshold(
    questions=tuple((lambda t, h=h: t.hour == h, 7_000) for h in range(24)),
    epsilon=1.2,
    aboves=8,
)
session.what_if([by_zone, by_fare, busy])

# %% [markdown]
# ## Trips in each zone, and fares

# %%
in_zones = session.ask(by_zone)
fares = session.ask(by_fare)
in_zones.frame().head(4)

# %% tags=["remove-cell"]
counted = np.minimum(trips.groupby("rider").size(), 40).sum()
assert 0.95 < counted / len(trips) < 1
true_zones = trips["zone"].value_counts()
assert all(
    abs(value - true_zones[zone]) < 6_000
    for zone, value in in_zones.value.items()
)

# %% tags=["hide-input"] alt="Left: trips in each of twelve zones, as points with short intervals beside the true counts as grey bars. The points follow the ends of the bars, and nearly all intervals reach the truth. Right: a histogram of fares in steps of 4, in which released counts follow the true bars in the same way."
import matplotlib.pyplot as plt

plt.rcParams.update(
    {"axes.spines.top": False, "axes.spines.right": False, "font.size": 11}
)
BLUE, RED, GREY = "#1f5fa8", "#b3452c", "#d9d9d9"
figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4), layout="constrained"
)


def compared(ax, places, truth, answer, width):
    """Draws the truth as bars, and answers with their intervals."""
    pairs = answer.interval(0.95).values()
    half = [(high - low) / 2 for low, high in pairs]
    ax.bar(places, truth, width, color=GREY, label="truth, all trips")
    ax.errorbar(
        places,
        list(answer.value.values()),
        half,
        fmt="o",
        color=BLUE,
        ms=4,
        capsize=3,
        label="released, with 95 % of the noise",
    )
    ax.set(ylabel="trips")


compared(
    left, np.arange(1, 13), [true_zones[z] for z in zones], in_zones, 0.8
)
left.set(xlabel="zone", xticks=range(1, 13))
left.set_title("Trips by zone", loc="left")
left.legend(frameon=False)
true_fares, _ = np.histogram(trips["fare"], edges)
compared(right, np.array(edges[:-1]) + 2, true_fares, fares, 3.6)
right.set(xlabel="fare")
right.set_title("Trips by fare", loc="left")

# %% [markdown]
# The intervals are about the noise alone. Of riders with more than 40 trips some trips do not count, and no
# interval shows that: here it is a fortieth of all trips. A smaller bound has less noise and more of this bias.
# Which bound is better has to be said from what is public.
#
# ## Which hours are busy?
#
# The 24 conditions are counted in one scan. The sparse vector technique then charges for the hours that it
# finds, and the rest comes back. It is wrong now and then about hours near the threshold.

# %%
answer = session.ask(busy)
found = [hour for hour, above in enumerate(answer.value) if above]
print("busy:", found)
answer.receipt

# %% tags=["hide-input"] alt="Bars for the 24 hours of a day, with a dashed line at the threshold of 7,000 trips. The hours that were found are blue and lie around three in the afternoon; the others are grey. The blue bars are above the threshold or near it."
figure, ax = plt.subplots(figsize=(8, 3.4), layout="constrained")
by_hour = trips["hour"].value_counts().reindex(range(24), fill_value=0)
ax.bar(
    range(24),
    by_hour,
    color=[BLUE if hour in found else GREY for hour in range(24)],
)
ax.axhline(7_000, color=RED, ls="--", lw=1)
ax.text(0, 7_150, "threshold", color=RED)
ax.set(xlabel="hour", ylabel="trips (truth)", xticks=range(0, 24, 3))
ax.set_title(
    f"Found: {len(found)} hours, for ε = {answer.receipt.charged.epsilon:.2f}",
    loc="left",
)

# %%
session.left

# %% tags=["remove-cell"]
assert session.left.epsilon >= 0
assert set(found) & {13, 14, 15, 16}  # far above the threshold

# %% [markdown]
# ## Where to go on
#
# - Every question, and when to ask it: [answer from tables](../how-to/answer-from-tables.md).
# - What is protected, and what is trusted: [units of privacy](../explanation/units-of-privacy.md).
# - A budget that lasts, and its page in the browser: [publish a table](../how-to/publish-a-table.md).
# - Mechanisms on arrays, one record a person: [tables from data](04-tables-from-data.md).
