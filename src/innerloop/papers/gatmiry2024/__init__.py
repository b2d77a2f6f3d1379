"""Gatmiry, Saunshi, Reddi, Jegelka & Kumar (2024), whole. arXiv:2410.08292."""
