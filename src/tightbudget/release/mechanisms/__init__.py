"""Mechanisms on data, one in each file."""
