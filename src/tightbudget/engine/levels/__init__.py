"""Buckets on several grids at once: rare large losses beside common small ones."""
