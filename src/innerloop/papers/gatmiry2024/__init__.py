"""Gatmiry, Saunshi, Reddi, Jegelka & Kumar (2024). arXiv:2410.08292."""

from innerloop.papers.gatmiry2024 import forward_pass, loss, moments

__all__ = ["forward_pass", "loss", "moments"]
