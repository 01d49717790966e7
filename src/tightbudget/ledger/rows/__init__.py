"""Rows of the tables as values, and the queries that read them."""
