"""What an engine may ask of two distributions: the protocol alone, no mechanism."""
