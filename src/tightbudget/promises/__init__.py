"""Values of a ledger that need no database: amounts, texts, events, prices, replay."""
