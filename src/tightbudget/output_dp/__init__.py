"""The price of an observed output: guarantees by cell, price rules, filters, early stopping."""
