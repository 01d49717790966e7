"""The mechanisms on tables, one in a file."""
