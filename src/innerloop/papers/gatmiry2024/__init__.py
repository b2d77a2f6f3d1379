"""Gatmiry, Saunshi, Reddi, Jegelka & Kumar (2024). arXiv:2410.08292."""

from innerloop.papers.gatmiry2024 import (
    flow,
    forward_pass,
    global_minimum,
    gradient_dominance,
    long_prompts,
    loss,
    moments,
    near_minimum,
    out_of_distribution,
    residual_moments,
)

__all__ = [
    "flow",
    "forward_pass",
    "global_minimum",
    "gradient_dominance",
    "long_prompts",
    "loss",
    "moments",
    "near_minimum",
    "out_of_distribution",
    "residual_moments",
]
