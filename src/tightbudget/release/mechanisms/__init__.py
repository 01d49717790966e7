"""Mechanisms on data, one a file."""
