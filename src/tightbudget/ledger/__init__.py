"""What was promised, durably? Budgets in a database, through crashes and for many analysts.

Needs the extra ``ledger``.
"""

from tightbudget.errors import ExtraError

try:
    import sqlalchemy  # noqa: F401
except ImportError as error:
    raise ExtraError("a ledger needs SQLAlchemy: pip install 'tightbudget[ledger]'") from error
