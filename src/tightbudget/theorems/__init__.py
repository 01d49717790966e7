"""What do other people's theorems say? One published bound a file, each with its source.

What a theorem needs to know of a mechanism is handed in: points of its delta(eps), its
Renyi divergence, its largest loss. What is proved is answered with :class:`Bounds`, whose
upper end is the theorem's and whose lower end is 0 unless the theorem has one; what is not
proved, with an :class:`Estimate`.
"""

from tightbudget.theorems import advanced, concentrated, gaussian_dp, kov, naive, renyi

__all__ = ["advanced", "concentrated", "gaussian_dp", "kov", "naive", "renyi"]
