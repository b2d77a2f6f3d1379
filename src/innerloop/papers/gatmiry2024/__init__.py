"""Gatmiry, Saunshi, Reddi, Jegelka & Kumar (2024): theorems, lemmas, figures. arXiv:2410.08292."""

# isort: off
# The report follows this order: what the model computes, its loss, the minimum, the way to it.
from innerloop.papers.gatmiry2024 import (
    forward_pass,
    loss,
    moments,
    residual_moments,
    global_minimum,
    asymmetric,
    long_prompts,
    near_minimum,
    gradient_dominance,
    flow,
    out_of_distribution,
    figures,
    loss_curves,
    longer_loops,
    convergence,
)
# isort: on

__all__ = [
    "asymmetric",
    "convergence",
    "figures",
    "flow",
    "forward_pass",
    "global_minimum",
    "gradient_dominance",
    "long_prompts",
    "longer_loops",
    "loss",
    "loss_curves",
    "moments",
    "near_minimum",
    "out_of_distribution",
    "residual_moments",
]
