"""What was promised, durably? Budgets in a database, through crashes and for many analysts.

Needs the extra ``ledger``. The public names load it when they are first used.
"""
