"""What does an observed output cost? Guarantees by cell, filters, and the price of stopping."""
