"""Questions about whole compositions: enough noise, bounds side by side, plans."""
