"""What the server's tests stand on, for its clients."""

from tests.web.conftest import client, ledger, ledger_url, served, token

__all__ = ["client", "ledger", "ledger_url", "served", "token"]
