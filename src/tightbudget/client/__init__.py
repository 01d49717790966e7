"""The ledger of a server, used from afar."""
