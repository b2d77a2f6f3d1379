"""Exact expectations of anything that is a polynomial in a Wishart matrix, by quadrature.

`words` expands a polynomial that is known in symbols. Here it may be a black box, such as the loss
of a forward pass as a function of the context: it is evaluated at nodes and averaged.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from scipy.special import roots_genlaguerre, roots_hermitenorm
from torch import Tensor

from innerloop.theory.checks import TooLargeError, require_count

POINTS = 1_000_000
"""More nodes than this are refused."""
LARGEST_DEGREE = 400
"""Of the polynomials; the rules in one direction are known to be precise up to there."""
LARGEST_FREEDOM = 342
"""Of n: the weight of a Gauss-Laguerre rule is a gamma function, which overflows beyond."""


def wishart_nodes(
    n: int, d: int, degree: int
) -> tuple[Float[Tensor, "nodes d d"], Float[Tensor, " nodes"]]:
    """T and weights with sum_i weights_i f(T_i T_i^T) = E f(W) for polynomials f of this degree.

    Bartlett: W = T T^T, T lower triangular, T_ii^2 ~ chi^2_{n-i}, standard normals below. f is even
    in every column of T, so a Gauss-Laguerre rule for every T_ii^2 and a Gauss-Hermite rule for
    every normal integrate it exactly. The number of nodes grows as a power of d^2: for small d,
    d <= n <= 342.
    """
    n, d = require_count("n", n), require_count("d", d)
    degree = require_count(
        "degree", degree, least=0, most=LARGEST_DEGREE, why="theory.wishart.sample_wishart samples"
    )
    if n < d:
        raise ValueError(f"n must be at least d, and d at least 1, got n = {n}, d = {d}")
    if n > LARGEST_FREEDOM:
        raise TooLargeError(
            f"n must be at most {LARGEST_FREEDOM}, where the weights of the nodes overflow, got "
            f"{n}; use theory.wishart.sample_wishart"
        )
    if d > 20:  # before the power below has more digits than can be printed
        raise TooLargeError(f"d must be small, as nodes number a power of d^2, got d = {d}")
    below = d * (d - 1) // 2
    count = (degree // 2 + 1) ** d * (degree + 1) ** below
    if count > POINTS:
        raise TooLargeError(
            f"{count} nodes are needed for degree {degree} at d = {d}, more than {POINTS}; "
            "use a smaller d or degree, or theory.wishart.sample_wishart"
        )
    rules = []
    for i in range(d):
        nodes, weights = roots_genlaguerre(degree // 2 + 1, (n - i) / 2 - 1)
        rules.append(((2 * nodes) ** 0.5, weights / weights.sum()))
    nodes, weights = roots_hermitenorm(degree + 1)
    rules += [(nodes, weights / weights.sum())] * below
    points, products = (
        torch.cartesian_prod(*(torch.as_tensor(rule[part], dtype=torch.float64) for rule in rules))
        for part in (0, 1)
    )
    points, products = points.view(-1, len(rules)), products.view(-1, len(rules))
    factors = torch.diag_embed(points[:, :d])
    row, column = torch.tril_indices(d, d, -1)
    factors[:, row, column] = points[:, d:]
    return factors, products.prod(-1)
