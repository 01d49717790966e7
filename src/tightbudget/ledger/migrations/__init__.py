"""How a ledger's tables came about, one step a file; a step that was released never changes."""
