"""Random numbers for releases, exact on a grid."""
