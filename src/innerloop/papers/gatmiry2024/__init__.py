"""Gatmiry, Saunshi, Reddi, Jegelka & Kumar (2024), whole. arXiv:2410.08292."""

from innerloop.papers.gatmiry2024 import convergence, figures, longer_loops

__all__ = ["convergence", "figures", "longer_loops"]
