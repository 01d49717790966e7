"""Acts on a ledger: each is one transaction, and writes its events."""
