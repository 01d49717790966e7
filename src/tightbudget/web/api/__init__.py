"""The routes under ``/api/v1``, one file a group; bodies and answers as on the command line.

Names and keys may hold any printable character: they travel in queries and bodies, never in paths.
"""
