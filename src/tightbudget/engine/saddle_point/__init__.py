"""The saddle-point engine: delta as an integral along a line in the complex plane."""
