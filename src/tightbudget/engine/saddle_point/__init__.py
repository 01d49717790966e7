"""The saddle-point engine computes delta as an integral along a line in the complex plane."""
