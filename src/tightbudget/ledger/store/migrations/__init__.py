"""The steps that made a ledger's tables, one a file; a released step never changes its effect."""
