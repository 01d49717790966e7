"""What the rooms' tests stand on, for the guards of those rooms."""

from tests.ledger.conftest import actor, mortal, postgres, url
from tests.web.conftest import client, ledger, ledger_url, served, token

__all__ = [
    "actor",
    "client",
    "ledger",
    "ledger_url",
    "mortal",
    "postgres",
    "served",
    "token",
    "url",
]
