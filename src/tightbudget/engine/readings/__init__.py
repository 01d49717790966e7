"""Readings of a composition: trade-off, Renyi, Gaussian DP, probabilistic DP."""
