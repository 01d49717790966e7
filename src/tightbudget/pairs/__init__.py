"""Pairs of distributions: a protocol that an engine asks, without any mechanism."""
