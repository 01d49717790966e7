"""How do losses add up? From pairs to certified bounds on delta(eps)."""
