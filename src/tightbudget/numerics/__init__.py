"""Arithmetic with floating-point numbers that promises a direction, and checks of arguments.

The room answers: what do floating-point numbers promise?
"""
