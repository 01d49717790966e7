"""At home where people already work: each module speaks one neighbour's language.

A neighbour is an optional extra, and is loaded by its own module alone.
"""
