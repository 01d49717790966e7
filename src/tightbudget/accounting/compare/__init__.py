"""Certified bounds beside published theorems: the table, the facts, the theorems."""
