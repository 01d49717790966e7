"""Notation of people: what they type for a mechanism, and words in which they read an answer."""
