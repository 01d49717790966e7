# %% [markdown]
# # Monthly tables of a survey
#
# **A health survey has 20,190 answers of 4,038 persons in a Parquet file. How many people of each plan and state
# of health answer each month, and how often do they see a doctor? A table appears every month, and what all tables
# of a year tell about a person is to cost ε = 9 at most.**
#
# The answers are real: the RAND Health Insurance Experiment, in the public domain, as the package statsmodels
# brings it. It names no persons and no days, so both are made up here: five rows in a row are a person, who answers
# in five months of the year.

# %%
import numpy as np
import pandas as pd
from statsmodels.datasets import randhie

random = np.random.default_rng(7)
rand = randhie.load_pandas().data
year = np.tile(np.arange(1, 13), (len(rand) // 5, 1))
month = random.permuted(year, axis=1)[:, :5].ravel()
day = random.integers(1, 29, len(rand))
health = ["excellent", "good", "fair", "poor"]
stated = np.select(
    [rand.hlthg == 1, rand.hlthf == 1, rand.hlthp == 1],
    health[1:],
    health[0],
)
survey = pd.DataFrame(
    {
        "person": np.arange(len(rand)) // 5,
        "day": pd.to_datetime({"year": 2026, "month": month, "day": day}),
        "plan": np.where(rand.lncoins == 0, "free", "shared"),
        "health": stated,
        "visits": rand.mdvis.to_numpy(),
    }
)
survey.to_parquet("survey.parquet")

# %% [markdown]
# ## The first number
#
# DuckDB reads the file; what leaves it is a few integers, and these get noise. A table says whom it protects, and
# how many rows of a person count in an answer: one, which is what a person has in a month. (Of those with more, one is
# chosen at random.)

# %%
import tightbudget as tb

table = tb.Table(
    "survey.parquet",
    unit="person",
    rows_per_unit=1,
    domains={"plan": ["free", "shared"], "health": health},
)
session = tb.Session(table, tb.OutputDPFilter(epsilon=0.1))
persons = session.ask(tb.Count(of="units", epsilon=0.1))
persons.frame()

# %% tags=["remove-cell"]
low, high = persons.interval(1 - 1e-9)
assert low <= 4038 <= high

# %% [markdown]
# That is the first correct number, with its interval: ten lines, and five seconds after `import`. (Somebody who met this library for the first time, with this survey and without this page, had it after
# three minutes.)
#
# ## A budget for each month, and a cap for the year
#
# A ledger keeps what was spent. A set of blocks has a budget for each month, and each answer is charged to its month
# *and* to the year:

# %%
ledger = tb.Ledger("sqlite:///budget.db", by="ada")
months = ledger.blocks(
    "survey 2026", by=["month"], epsilon=1, rows_in=12, cap_epsilon=9
)
QUESTIONS = [
    tb.Count(epsilon=0.0625),
    tb.GroupedCounts(by=("plan", "health"), epsilon=0.1875),
    tb.GroupedMeans(
        by="plan", column="visits", bounds=(0, 20), epsilon=0.25
    ),
    tb.Quantiles(
        column="visits",
        probabilities=[0.25, 0.5, 0.75],
        bounds=(0, 80),
        step=1,
        epsilon=0.25,
    ),
]


def session_of(month):
    """A session that reads the rows of a month alone, and remembers."""
    return tb.Session(
        table,
        months.where(month=month).keyed(f"survey {month}"),
        columns={"month": "day"},
        answers=f"{month}.txt",
    )


session_of("2026-01").what_if(QUESTIONS)

# %% [markdown]
# That read no row, and was free. It shows what each question costs and how far its answer will be off, before
# anything is spent.
#
# ## January


# %%
def published(month):
    """Answers the questions of a month, and returns one table."""
    session = session_of(month)
    frames = [session.ask(question).frame() for question in QUESTIONS]
    for frame, what in zip(frames, ["all", "people", "mean", "quartile"]):
        frame.insert(0, "what", what)
    whole = pd.concat(frames, ignore_index=True)
    whole.insert(0, "month", month)
    names = ["month", "what", "plan", "health", "probability"]
    return whole[[*names, "value", "low", "high", "mostly_noise"]]


january = published("2026-01")
january

# %% tags=["remove-cell"]
assert len(january) == 14
assert not january.value.isna().any()
assert not january.low.isna().any()
assert months.where(month="2026-01").left.epsilon == 0.25

# %% [markdown]
# `mostly_noise` marks the rows where the noise may be as large as the number: of each plan some ten or twenty people
# are in poor health. It is computed from the noisy answers, so it tells nothing more about anybody. The intervals of
# the quartiles come from the noisy number of all rows, which was asked first.
#
# ## Was the job killed? Run it again
#
# What was answered comes from the file, the same to the last digit, at no cost; the job goes on at the first question
# that was not:

# %%
again = published("2026-01")
print(again.equals(january), months.where(month="2026-01").left)

# %% [markdown]
# ## The other eleven months

# %%
year = pd.concat(
    [january] + [published(f"2026-{month:02}") for month in range(2, 13)]
)
year.to_csv("survey.csv", index=False)
print(len(year), "rows;", ledger.budget("survey 2026").spent, "spent")

# %% tags=["remove-cell"]
assert len(year) == 168
assert ledger.budget("survey 2026").left.epsilon == 0
truth = survey.assign(month=survey.day.dt.strftime("%Y-%m"))
means = year[year.what == "mean"]
real = (
    truth.assign(visits=truth.visits.clip(0, 20))
    .groupby(["plan", "month"])
    .visits.mean()
)
inside = [
    row.low <= real[row.plan, row.month] <= row.high
    for row in means.itertuples()
]
assert sum(inside) >= 16  # of 24, each with 95 %

# %% tags=["hide-input"] alt="Mean visits to a doctor in each month of the year, for the free plan and the shared one. Released points with intervals of about a visit lie around the true means, drawn as lines: about 3 for the free plan and 2.5 for the shared one."
import matplotlib.pyplot as plt

plt.rcParams.update(
    {"axes.spines.top": False, "axes.spines.right": False, "font.size": 11}
)
BLUE, RED = "#1f5fa8", "#b3452c"
names = [f"{pd.Timestamp(2026, k, 1):%b}" for k in range(1, 13)]
figure, ax = plt.subplots(figsize=(8, 3.8), layout="constrained")
for plan, colour, shift in (("free", BLUE, -0.08), ("shared", RED, 0.08)):
    of_plan = means[means.plan == plan]
    ax.plot(range(12), real[plan], color=colour, lw=1, alpha=0.6)
    ax.errorbar(
        np.arange(12) + shift,
        of_plan.value,
        [of_plan.value - of_plan.low, of_plan.high - of_plan.value],
        fmt="o",
        color=colour,
        ms=4,
        capsize=3,
        label=f"{plan} plan: released, 95 %; line: truth",
    )
ax.set(ylabel="mean visits", ylim=(0, None))
ax.set_xticks(range(12), names)
ax.set_title("Visits to a doctor, each month", loc="left")
ax.legend(frameon=False, loc="lower left")

# %% [markdown]
# The truth is drawn because the survey is public; visits beyond 20 count as 20 in both. The intervals are about the
# noise alone.
#
# ## The year is spent
#
# December's own budget has some left, and the cap has not:

# %%
more = tb.Session(
    table, months.where(month="2026-12"), columns={"month": "day"}
)
try:
    more.ask(tb.Count(epsilon=0.1))
except tb.BudgetExceeded as refusal:
    print(refusal)

# %% tags=["hide-input"] alt="Twelve bars, one for each month: 0.75 of its epsilon of 1 is spent. A line adds them up and ends in December at 9, the cap of the year."
figure, ax = plt.subplots(figsize=(8, 3.2), layout="constrained")
spent = [
    1 - months.where(month=f"2026-{k:02}").left.epsilon
    for k in range(1, 13)
]
ax.bar(range(12), [1] * 12, color="#e6e6e6", label="a month's budget")
ax.bar(range(12), spent, color=BLUE, label="spent in the month")
ax.plot(
    range(12),
    np.cumsum(spent),
    color=RED,
    marker="o",
    ms=4,
    label="spent in the year",
)
ax.axhline(9, color=RED, lw=1, ls=":")
ax.text(0, 8.4, "cap of the year", color=RED)
ax.set(ylabel="ε (nats)", ylim=(0, 10))
ax.set_xticks(range(12), names)
ax.legend(frameon=False, loc="center left")

# %%
event = list(ledger.events(key="survey 2026-03#2"))[-1]
print(event.kind, event.question, sep=": ")
print(ledger.verify().head.sequence, "events, all as they should be")

# %% [markdown]
# The ledger says of each run which question it was.
#
# ## Where to go on
#
# - The same as a job, what happens at each kind of crash, and rows in PostgreSQL: [publish a table every
#   month](../how-to/publish-every-month.md).
# - Every question, and when to ask it: [answer from tables](../how-to/answer-from-tables.md).
# - What is protected, and what is trusted: [units of privacy](../explanation/units-of-privacy.md).
# - Colleagues who spend from budgets of their own: [a ledger for a team](03-a-ledger-for-a-team.md).
# - Mechanisms on arrays, one record a person: [tables from data](04-tables-from-data.md).
