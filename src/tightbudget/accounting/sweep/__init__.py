"""Thousands of questions at once: grids, executors, a journal and a table."""
