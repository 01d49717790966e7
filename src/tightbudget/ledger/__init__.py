"""What was promised, durably? Budgets in a database, through crashes and for many analysts.

Needs the extra ``ledger``, where it opens a database.
"""
