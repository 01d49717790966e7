"""Sources of noise for releases, and the grids of integers that they are exact on."""
