# %% [markdown]
# # Tables from data
#
# **A health office has one record of each of 40,000 patients: the district, and the minutes that they
# waited. Which of the 200 districts are crowded, how many patients has each, and what is the median
# wait? All of it from one budget of ε = 4.**
#
# Here the mechanisms see the data themselves: they hold their worst-case price, draw the noise, and
# charge what came out. The records are made up, so that we may compare with the truth, which in earnest
# nobody may see. The noise comes from the operating system and cannot be repeated, on purpose: when you
# run this notebook, other noisy values appear. The prices are the same.

# %%
import numpy as np

import tightbudget as tb

random = np.random.default_rng(20)
share = np.ones(200)
share[[17, 42, 58, 91, 120, 133, 164, 188]] = 60  # crowded
district = random.choice(200, size=40_000, p=share / share.sum())
waited = random.gamma(4, 9, size=40_000)

budget = tb.OutputDPFilter(epsilon=4.0, delta=1e-5)


def patients(district):
    """The number of patients in each district."""
    return np.bincount(district, minlength=200)


# %% [markdown]
# Two data sets are neighbours here if the record of one person is replaced by any other. Then one district
# loses a patient and another gains one: each count moves by at most 1, and all of them together by at
# most 2. You declare this; nobody can check it for you.
#
# ## Rehearse first
#
# On private data a mistake in a query stays hidden: the error would tell something of a record. You would
# pay, and get nothing but noise. So make your mistakes on data that are not private:

# %%
made_up = np.arange(1000) % 200
table = tb.release.LaplaceRelease(
    lambda d: np.bincont(d), 2, 0.5, size=200, integers=True
)
try:
    table.rehearse(made_up)
except AttributeError as error:
    print("a typing mistake:", error)

# %%
table = tb.release.LaplaceRelease(
    patients, sensitivity=2, epsilon=0.5, size=200, integers=True
)
print("would cost:", table.rehearse(made_up).cost)
print("left:      ", budget.left)

# %% tags=["remove-cell"]
assert budget.left.epsilon == 4.0

# %% [markdown]
# ## Which districts are crowded?
#
# The sparse vector technique asks 200 questions and charges only for those that are answered "above".
# It holds 1.0, enough for twenty crowded districts:

# %%
search = tb.release.SparseVector(epsilon=1.0, aboves=20)
with search.open(district, meter=budget) as run:
    crowded = [
        k
        for k in range(200)
        if run.ask(lambda d, k=k: int(patients(d)[k]), threshold=1800)
    ]
found = run.release().receipt
print("crowded:", crowded)
found

# %% tags=["remove-cell"]
assert crowded == [17, 42, 58, 91, 120, 133, 164, 188]
assert found.charged.epsilon < 0.3
paid = {"which are crowded": found}

# %% [markdown]
# Eight were found, all of them clear cases, which cost half. The rest came back.
#
# ## How many patients?
#
# All 200 counts in one release. The price does not grow with the number of districts, because a person
# is in one of them only. The noise has scale 4: in 95 of 100 districts it is below 12.

# %%
answer = table.release(district, meter=budget)
answer.receipt

# %% tags=["remove-cell"]
counts = answer.value
paid["how many patients"] = answer.receipt
assert np.max(np.abs(counts - patients(district))) < 200

# %% tags=["hide-input"] alt="Released counts of 200 districts over the true counts. They lie along the diagonal: eight crowded districts with about 3,600 patients on the left, the others with about 60 on the right. Nearly all lie within 12 of the truth."
import matplotlib.pyplot as plt

plt.rcParams.update(
    {"axes.spines.top": False, "axes.spines.right": False, "font.size": 11}
)
BLUE, RED, GREEN = "#1f5fa8", "#b3452c", "#3d7a45"
truth = patients(district)
figure, (left, right) = plt.subplots(
    1, 2, figsize=(9, 3.9), layout="constrained"
)
for ax, marked in ((left, truth > 1800), (right, truth < 1800)):
    ends = np.array([truth[marked].min() - 25, truth[marked].max() + 25])
    ax.fill_between(ends, ends - 12, ends + 12, color="0.9", lw=0)
    ax.plot(ends, ends, color="0.6", lw=1)
    ax.plot(
        truth[marked],
        answer.value[marked],
        "o",
        color=BLUE,
        ms=4,
        alpha=0.8,
    )
    ax.set(
        xlabel="true number of patients",
        ylabel="released",
        xlim=ends,
        ylim=ends,
    )
left.set_title("The crowded districts", loc="left")
right.set_title("All others", loc="left")
right.text(
    ends[1],
    ends[0] + 4,
    "grey: 12 more or less,\nwhere 95 of 100 lie",
    color="0.4",
    ha="right",
)

# %% [markdown]
# ## The median wait
#
# A median has no useful sensitivity: in unlucky data one record can move it far. So the mechanism first
# tests, privately, that the data are not of that kind. It wants to know how spread out they are, and
# that is one more question:

# %%
spread = tb.release.InterquartileRange(
    epsilon=0.6, delta=1e-6, step=2.0**-4
)
scale = spread.release(waited, meter=budget)
middle = tb.release.Median(
    epsilon=0.4, delta=1e-6, step=2.0**-4, scale=scale.value
)
median = middle.release(waited, meter=budget)
print(f"released {median.value:.0f} minutes, true {np.median(waited):.0f}")

# %% tags=["remove-cell"]
paid["how spread out"] = scale.receipt
paid["the median wait"] = median.receipt
assert abs(median.value - np.median(waited)) < 60
assert sum(receipt.held.epsilon for receipt in paid.values()) > 4.0
held, charged = (
    sum(getattr(r, what).epsilon for r in paid.values())
    for what in ("held", "charged")
)

# %% [markdown]
# ## Where the budget went
#
# Accounting that charges what was held would have refused the last question. The change of the search
# has paid for it:

# %% tags=["hide-input"] alt="One bar for each question. Which are crowded: 1.0 held, 0.26 charged, 0.74 came back. How many patients: 0.5 charged. How spread out: 1.8. The median wait: 1.2. Together 4.5 were held, and less than the budget of 4 was charged."
figure, ax = plt.subplots(figsize=(7.5, 3.2), layout="constrained")
for row, receipt in enumerate(paid.values()):
    cost, back = receipt.charged.epsilon, receipt.returned.epsilon
    ax.barh(row, cost, color=BLUE, height=0.62)
    ax.barh(row, back, left=cost, color="#cfe3d2", height=0.62)
    ax.text(
        cost / 2,
        row,
        f"{cost:.2f}",
        color="white",
        ha="center",
        va="center",
    )
    if back > 0.05:
        ax.text(
            cost + back / 2,
            row,
            f"{back:.2f} back",
            color=GREEN,
            ha="center",
            va="center",
        )
ax.set_yticks(range(len(paid)), paid)
ax.invert_yaxis()
ax.set(xlabel="ε (nats)", xlim=(0, 1.9))
ax.set_title(
    f"A budget of 4: held {held:.1f} in all, charged {charged:.2f}",
    loc="left",
)
ax.tick_params(axis="y", length=0)

# %%
budget

# %% [markdown]
# ## Where to go on
#
# - Every mechanism on data, what happens when a query fails, and what is not hidden: [answer from
#   data](../how-to/answer-from-data.md).
# - [Release statistics and a model](../how-to/release-a-model.md), with scikit-learn.
# - [Pay for what came out](../explanation/pay-for-what-came-out.md): why the change is real.
# - [Propose, test, release](../explanation/propose-test-release.md): how the median works.
# - The same mechanisms on a budget that lasts: [a ledger for a team](03-a-ledger-for-a-team.md).
