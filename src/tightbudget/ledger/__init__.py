"""The ledger: budgets in a database that survive crashes and are shared by many analysts.

Needs the extra ``ledger``, where it opens a database.
"""
