# %% [markdown]
# # A ledger for a team
#
# **Two analysts ask the same data, from different programs. One of these dies in the middle of a run.
# How do you know what is spent, and how does an auditor know that you are right?**
#
# A budget in memory is gone when its process ends. A ledger is a file (SQLite) or a PostgreSQL database:
# it holds the price of a run *before* the run starts, and charges what came out of it afterwards.

# %%
import tightbudget as tb

ledger = tb.Ledger("sqlite:///budget.db")
census = ledger.open_budget("census", epsilon=4.0, delta=1e-6)
ada = ledger.open_budget("ada", parent=census, epsilon=1.5, delta=1e-7)
bob = ledger.open_budget("bob", parent=census, epsilon=1.0, delta=1e-7)
print("census has left:", census.left)

# %% [markdown]
# Ada's and Bob's budgets are parts of the census: what they may spend is held there, so that together
# they can never spend more than the census allows.
#
# ## One run, in three steps
#
# Ada's program searches for something. If it finds it, that costs 0.3, if not, 0.1; whoever wrote the
# program has proved that. Reserve under a key, start, run, settle, and only then look at the answer:

# %%
search = tb.OutputDP({"found": 0.3, "not found": 0.1})

run = ada.reserve("search 1", search)
run.start()  # from here on 0.3 are held, whatever happens
run.settle("not found")  # now show the answer
print("ada has left:", ada.left)

# %% tags=["remove-cell"]
assert ada.left.epsilon == 1.4
assert census.left.epsilon == 1.5

# %% [markdown]
# She asks five more times. A reservation takes 0.3 away, and settling gives 0.2 back where nothing was
# found. Accounting that charges the worst case would have nothing left after five searches.

# %%
outcomes = ["not found", "found", "not found", "not found", "not found"]
for number, cell in enumerate(outcomes, 2):
    run = ada.reserve(f"search {number}", search)
    run.start()
    run.settle(cell)
print("ada has left: ", ada.left)
print("ada has saved:", ada.saved)

# %% tags=["remove-cell"]
assert ada.left.epsilon == 0.7
assert ada.saved.epsilon == 1.0

# %% tags=["hide-input"] alt="What Ada has left after each search: 1.5 before, 0.7 after six searches, with a dip of 0.3 while each runs. Charged at the worst case, nothing would be left after five."
import matplotlib.pyplot as plt

plt.rcParams.update(
    {"axes.spines.top": False, "axes.spines.right": False, "font.size": 11}
)
BLUE, RED, GREEN, PALE = "#1f5fa8", "#b3452c", "#3d7a45", "0.6"
left = [statement.left.amount for _, statement in ada.balance_history()]
figure, ax = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
ax.step(
    [k / 3 for k in range(len(left))], left, where="post", color=BLUE, lw=2
)
ax.step([0, *(k + 1 / 3 for k in range(6))], [1.5 - 0.3 * min(k, 5) for k in range(7)], where="post",
        color=RED, lw=1.5, ls=":")  # fmt: skip
ax.text(6.05, 0.68, "0.7 left", color=BLUE)
ax.text(
    0.37,
    1.04,
    "0.3 held\nwhile it runs",
    color=BLUE,
    fontsize=9,
    va="center",
)
ax.text(1.02, 1.43, "0.2 back", color=GREEN, fontsize=9)
ax.text(4.35, 0.06, "charged the worst case", color=RED, ha="right")
ax.set(ylabel="left, ε (nats)", ylim=(-0.02, 1.65), xlim=(-0.1, 7))
ax.set_xticks(
    [k + 0.67 for k in range(6)],
    ["not\nfound", "not\nfound", "found", *["not\nfound"] * 3],
)
ax.tick_params(axis="x", length=0)
ax.set_title("Ada's six searches", loc="left")

# %% [markdown]
# ## What does not fit is refused
#
# Before anything runs, with the amounts, and the refusal is written down, too:

# %%
try:
    bob.reserve("a big question", tb.OutputDP.from_dp(1.2))
except tb.BudgetExceeded as refusal:
    print("asked for:", refusal.requested)
    print("left:     ", refusal.left)

# %% [markdown]
# ## A crash
#
# Bob's program is another process. It reserves, starts, and is killed by the operating system:

# %%
import subprocess
import sys

program = """
import os, signal
import tightbudget as tb

bob = tb.Ledger("sqlite:///budget.db").budget("bob")
run = bob.reserve("search 7", tb.OutputDP({"found": 0.3, "not found": 0.1}))
run.start()
os.kill(os.getpid(), signal.SIGKILL)
"""
ended = subprocess.run([sys.executable, "-c", program])
print("killed by signal", -ended.returncode)
print("bob has left:", bob.left)
print("bob holds:   ", bob.held)

# %% [markdown]
# Nothing is lost. Nobody knows what the program had shown before it died, so the worst case stays held.
# Somebody who has looked into it charges it; giving it back is not possible, for anybody:

# %%
try:
    ledger.hold("search 7").void()
except tb.errors.SettlementError as refusal:
    print(refusal)
ledger.hold("search 7").forfeit(by="grace", reason="killed: out of memory")
print("bob has left:", bob.left)

# %% tags=["remove-cell"]
assert bob.left.epsilon == 0.7
assert bob.held.epsilon == 0.0

# %% [markdown]
# ## The whole team at a glance
#
# In a notebook, `ledger` alone shows this as a table, and `tightbudget ledger show` in a shell.

# %% tags=["hide-input"] alt="Bars of three budgets. The census of 4: 2.5 held for its parts, 1.5 left. Ada of 1.5: 0.8 spent, 0.7 left, and 1.0 saved by settlement. Bob of 1.0: 0.3 spent, 0.7 left."
figure, ax = plt.subplots(figsize=(7.5, 3.2), layout="constrained")
colours = {"spent": BLUE, "held": "#e0b04c", "left": "#dcdcdc"}
for row, budget in enumerate([census, ada, bob]):
    start = 0.0
    for word, colour in colours.items():
        width = getattr(budget, word).amount
        if width:
            ax.barh(
                row,
                width,
                left=start,
                color=colour,
                height=0.75,
                edgecolor="white",
            )
            ink = "white" if word == "spent" else "black"
            word = "held for its parts" if word == "held" else word
            ax.text(
                start + width / 2,
                row,
                f"{width:g}\n{word}",
                color=ink,
                ha="center",
                va="center",
            )
            start += width
    if budget.saved.amount:
        saved = f"{budget.saved.amount:.1f} saved by settlement"
        ax.text(start + 0.05, row, saved, color=GREEN, va="center")
ax.set_yticks(range(3), ["census", "ada", "bob"])
ax.invert_yaxis()
ax.set(xlabel="ε (nats)", xlim=(0, 4.02))
ax.spines["left"].set_visible(False)
ax.tick_params(axis="y", length=0)

# %% [markdown]
# ## For the auditor
#
# Each act is an event, and each event carries the hash of the one before. `verify` plays the whole
# history again and compares it with every balance that is stored:

# %%
for event in list(ledger.events())[-4:]:
    why = event.details.get("reason", "")
    print(event.sequence, event.budget, event.kind, repr(event.key), why)

found = ledger.verify()
print(
    f"{found.head.sequence} events, {found.budgets} budgets: all as it should be"
)

# %% [markdown]
# *The times and hashes differ each time that you run this.* One line, the head, stands for the whole
# history. Keep it elsewhere, in a mail, say. Then nobody can set the ledger back to an earlier state,
# not even by restoring a backup that is flawless in itself:

# %%
import shutil

ledger.close()
shutil.copy("budget.db", "backup.db")
with tb.Ledger("sqlite:///budget.db") as ledger:
    ledger.budget("ada").reserve("search 8", search)
    ledger.budget("bob").reserve("search 9", search)
    head = str(ledger.head())  # keep this line elsewhere

with tb.Ledger("sqlite:///backup.db") as restored:
    restored.verify()  # flawless
    try:
        restored.check(head)
    except tb.errors.LedgerCorruptError as refusal:
        print(*str(refusal).split(": "), sep=":\n")

# %% [markdown]
# ## Where to go on
#
# - All of it from a shell, and around programs in any language: [charge a
#   ledger](../how-to/charge-a-ledger.md).
# - In a browser, and from other machines: [serve a ledger](../how-to/serve-a-ledger.md).
# - Backups, corrections, other databases: [operate a ledger](../how-to/operate-a-ledger.md).
# - [Why a crash costs the worst case](../explanation/why-a-crash-costs-the-worst-case.md).
# - Mechanisms that charge a budget by themselves: [tables from data](04-tables-from-data.md).
