"""What does an observed output cost? Guarantees by cell, and the filters they are charged to."""
