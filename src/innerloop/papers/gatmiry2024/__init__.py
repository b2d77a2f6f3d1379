"""Gatmiry, Saunshi, Reddi, Jegelka & Kumar (2024), whole. arXiv:2410.08292."""

# isort: off
# The report follows this order, which is that of the figures.
from innerloop.papers.gatmiry2024 import figures, longer_loops, convergence
# isort: on

__all__ = ["convergence", "figures", "longer_loops"]
