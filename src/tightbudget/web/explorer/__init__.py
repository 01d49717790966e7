"""Questions about mechanisms, and their answers: no ledger, no secret, but a limit on the work."""
