# %% [markdown]
# # A synthetic table of a survey
#
# **A magazine has 6,366 answers of its readers about their marriages, and wants to give them away. Who answered what
# must stay a secret. Can it publish a file with the same columns, in which no row is a person, and say what that tells
# about anybody?**
#
# The answers are real: a survey of the magazine Redbook in 1974, as Ray Fair has published them, which the package
# statsmodels brings. Since they are public, this page may show the truth beside what is published. Nobody may do so
# with a table that is a secret.

# %%
import pandas as pd
from statsmodels.datasets import fair

data = fair.load_pandas().data
survey = pd.DataFrame(
    {
        "age": data.age,
        "years": data.yrs_married,
        "children": data.children.astype(int),
        "religious": data.religious.astype(int),
        "happy": data.rate_marriage.astype(int),
        "affair": data.affairs > 0,
    }
)
survey.to_parquet("survey.parquet")
survey.head(3)

# %% [markdown]
# ## From a file to a file
#
# The domains say which values each column may have. They come from the questionnaire, not from the answers: edges and
# values that were read off private rows would be an answer that nobody has paid for. (Five children are five or more.)

# %%
import tightbudget as tb

domains = {
    "age": tb.marginals.NumericBins([17, 20, 25, 30, 35, 40, 45]),
    "years": tb.marginals.NumericBins([0, 1, 4, 8, 11, 15, 20, 30]),
    "children": [0, 1, 2, 3, 4, 5],
    "religious": [1, 2, 3, 4],
    "happy": [1, 2, 3, 4, 5],
    "affair": [False, True],
}
ledger = tb.Ledger("sqlite:///budget.db", by="ada")
redbook = ledger.open_budget("redbook", epsilon=3, delta=1e-5)
made = tb.marginals.synthesize(
    tb.Table("survey.parquet"),
    domains,
    epsilon=1.0,
    delta=1e-6,
    meter=redbook.keyed("survey 1974"),
    keep="survey.run",
    seed=1,
)
made.frame().to_parquet("synthetic.parquet")
made.frame().head(3)

# %% tags=["remove-cell"]
assert abs(made.size - 6366) < 250
assert redbook.spent.epsilon == 1.0
assert len(made.marginals) == 6 + 5
assert list(pd.read_parquet("synthetic.parquet")) == list(survey)

# %% [markdown]
# That is all. DuckDB has read the file, and counted; what left it are the counts of eleven marginals, with noise:
# first each column alone, then five pairs of columns that were chosen since they depend on each other most. The rows
# are drawn from a model of these noisy counts. They are nobody's, and no row of the survey was looked at again.
#
# Each answer is a person here. Where a person has several rows, `Table(…, unit="person", rows_per_unit=2)` says so, and
# the noise is twice as large.

# %%
pd.DataFrame(
    [(" and ".join(m.columns), m.sigma) for m in made.marginals],
    columns=["marginal", "sigma of the noise of each count"],
).round(1)

# %% [markdown]
# ## Truth, noise and synthetic rows
#
# How happy are the readers, and how old? The noisy counts are what was paid for; the synthetic rows follow them.

# %% tags=["hide-input"] alt="Two groups of bars, how happy the readers are and how old: for each value the true count, the noisy count and the count of the synthetic rows. The three are nearly equal everywhere; they differ by some tens of about a thousand."
import matplotlib.pyplot as plt
import numpy as np

plt.rcParams.update(
    {"axes.spines.top": False, "axes.spines.right": False, "font.size": 11}
)
GREY, BLUE, RED = "#9a9a9a", "#1f5fa8", "#b3452c"
noisy = {m.columns: m for m in made.marginals}
edges = {c: d.edges for c, d in domains.items() if c in ("age", "years")}


def counts(rows, columns):
    """The counts of the cells; the rows are public."""
    cells = [
        pd.cut(rows[c], edges[c], right=False).cat.codes
        if c in edges
        else rows[c].map(domains[c].index)
        for c in columns
    ]
    shape = made.counts(columns).shape
    found = np.zeros(shape, dtype=int)
    np.add.at(found, tuple(cells), 1)
    return found


made_rows = made.frame()
figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
names = {
    "happy": ["very poor", "poor", "fair", "good", "very good"],
    "age": ["–19", "20–24", "25–29", "30–34", "35–39", "40–"],
    "years": ["0", "1–3", "4–7", "8–10", "11–14", "15–19", "20–"],
    "children": ["0", "1", "2", "3", "4", "5–"],
    "religious": ["not", "mildly", "fairly", "strongly"],
    "affair": ["no", "yes"],
}
for ax, column in zip(axes, ("happy", "age")):
    labels = names[column]
    shown = [
        (counts(survey, (column,)), GREY, "truth (public here)"),
        (noisy[column,].counts, BLUE, "noisy, ± 2 sigma"),
        (counts(made_rows, (column,)), RED, "synthetic rows"),
    ]
    for i, (values, colour, label) in enumerate(shown):
        x = np.arange(len(labels)) + 0.27 * (i - 1)
        error = 2 * noisy[column,].sigma if i == 1 else None
        ax.bar(x, values, 0.25, color=colour, yerr=error, label=label)
    ax.set_xticks(range(len(labels)), labels, rotation=30)
    ax.set_title({"happy": "Marriage", "age": "Age"}[column], loc="left")
axes[0].set(ylabel="readers")
axes[0].legend(frameon=False, loc="upper left")

# %% tags=["remove-cell"]
for column in ("happy", "age"):
    truth, drawn = (counts(r, (column,)) for r in (survey, made_rows))
    assert np.abs(drawn - truth).max() < 200

# %% [markdown]
# Two columns together: of the pairs that were chosen, the one with the most cells.

# %% tags=["hide-input"] alt="Three maps of the same pair of columns, side by side: the true counts, the noisy counts, and those of the synthetic rows. The dark cells are the same in all three; cells that are empty in truth have small counts of noise in the second, and few rows in the third."
pair = max(made.pairs, key=lambda p: made.counts(p).size)
figure, axes = plt.subplots(
    1, 3, figsize=(8, 3.2), sharey=True, layout="constrained"
)
panels = {
    "truth (public here)": counts(survey, pair),
    "noisy": made.counts(pair),
    "synthetic rows": counts(made_rows, pair),
}
most = panels["truth (public here)"].max()
for ax, (title, values) in zip(axes, panels.items()):
    image = ax.imshow(
        values, cmap="Blues", vmin=0, vmax=most, aspect="auto"
    )
    ax.set_title(title, loc="left")
    ax.set_xlabel(pair[1])
    ax.set_xticks(range(values.shape[1]), names[pair[1]], rotation=45)
axes[0].set_ylabel(pair[0])
axes[0].set_yticks(range(values.shape[0]), names[pair[0]])
figure.colorbar(image, ax=axes, label="readers")

# %% tags=["remove-cell"]
truth, drawn = counts(survey, pair), counts(made_rows, pair)
assert np.abs(truth - drawn).sum() / 2 / len(survey) < 0.1

# %% [markdown]
# ## Is it any good?
#
# `report` compares with the noisy marginals, which costs nothing. Of rows that are public it may say more: how far all
# marginals of one, two and three columns are from the true ones, as total variation distances (0 is equal, 1 is as far
# as can be).

# %%
report = made.report(public_rows=survey)
report

# %% tags=["hide-input"] alt="Points, one for each marginal, over its number of columns: distances from the public rows of less than one percent for most single columns, of some percent for pairs, and of more for three columns."
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
report.plot(ax=ax)

# %% tags=["remove-cell"]
means = [
    np.mean([e for c, e in report.errors.items() if len(c) == k])
    for k in (1, 2, 3)
]
assert means[0] < 0.03 < means[2] < 0.3
assert means[0] < means[1] < means[2]

# %% [markdown]
# Pairs that were not chosen are linked through others alone, and three columns are worse than two: a tree of pairs
# knows no more. [AIM](../how-to/use-with-mbi.md) chooses as many marginals as the budget allows, with a model of mbi.
#
# A question that somebody may have of the file: is an unhappy marriage a reason to look elsewhere?

# %%
pd.DataFrame(
    {
        "truth (public here)": survey.groupby("happy").affair.mean(),
        "synthetic": made_rows.groupby("happy").affair.mean(),
    }
).round(2)

# %% [markdown]
# ## What it tells about a person
#
# ε is 1 and δ is 10⁻⁶ for everything in the file, whatever somebody knows or does with it. Both bounds of the plan are
# certified, so no accounting finds a much smaller δ for this noise, nor a larger one:

# %%
plan = tb.marginals.mst(attributes=6, rho=made.rho)
print(plan.delta(epsilon=1.0, rtol=5e-3))
print(made.receipt.charged, "of", redbook.left, "left")

# %% tags=["remove-cell"]
bounds = plan.delta(epsilon=1.0, rtol=5e-3)
assert 0.98e-6 < bounds.lower <= bounds.upper <= 1e-6

# %% [markdown]
# With the arithmetic of zero-concentrated DP, which the other packages use, the same (ε, δ) allows a smaller ρ: all
# noise would be 7 % larger. Where a reader may also be *replaced* by another one, `relation="replace-one"` has √2 times
# the noise.
#
# ## Draw again, or go on after a crash
#
# The noisy marginals are in `survey.run`. The same call has them from there, and costs nothing: it draws other rows, or
# goes on where a process was killed.

# %%
again = tb.marginals.synthesize(
    tb.Table("survey.parquet"),
    domains,
    epsilon=1.0,
    delta=1e-6,
    meter=redbook.keyed("survey 1974"),
    keep="survey.run",
    size=1000,
    seed=2,
)
print(len(again.frame()), "rows;", redbook.spent, "spent, as before")

# %% tags=["remove-cell"]
assert again.size == 1000
assert redbook.spent.epsilon == 1.0
assert [m.sigma for m in again.marginals] == [
    m.sigma for m in made.marginals
]

# %% [markdown]
# ## Where to go on
#
# - All arguments, the command at a terminal, and how to defend the number: [I publish a synthetic
#   table](../problems/synthetic-tables.md).
# - AIM with mbi, beside mbi's own scripts, OpenDP and dpmm: [use it with mbi](../how-to/use-with-mbi.md).
# - A few numbers in place of a table are more exact: [monthly tables of a survey](07-monthly-tables-of-a-survey.md).
# - A statement of what was spent, for an auditor: [show an auditor](../problems/show-an-auditor.md).
