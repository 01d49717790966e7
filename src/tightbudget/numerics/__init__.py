"""What do floating-point numbers promise? Rounding, enclosures, bounds."""
