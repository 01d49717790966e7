"""The database of a ledger: its tables, transactions, connections and files."""
