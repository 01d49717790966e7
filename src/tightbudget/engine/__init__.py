"""What does a composition of pairs cost? Certified answers, by two engines."""
