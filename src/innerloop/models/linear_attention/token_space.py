"""Linear attention as the papers write it: on the matrix of tokens.

The readable reference that Gram space is tested against, and the baseline it is timed against.
Z is [batch, d + 1, n + queries], tokens are columns, the queries last.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.prompt import Prompt


def attention_matrix_forward(
    p: Float[Tensor, "layers token token"], q: Float[Tensor, "layers token token"], prompt: Prompt
) -> Float[Tensor, "batch queries"]:
    """Z <- Z - (1/n) P Z M (Z^T Q Z), with the attention matrix of all tokens written out.

    M = diag(1, ..., 1, 0, ..., 0) masks the queries. Cost per layer: O(n^2 d).
    """
    z = prompt.token_matrix()
    mask = torch.ones(z.shape[-1]).to(z)
    mask[prompt.n :] = 0
    for p_layer, q_layer in zip(p, q, strict=True):
        attention = z.mT @ q_layer @ z
        z = z - (p_layer @ z * mask) @ attention / max(prompt.n, 1)
    return -z[:, -1, prompt.n :]


def associative_forward(
    p: Float[Tensor, "layers token token"], q: Float[Tensor, "layers token token"], prompt: Prompt
) -> Float[Tensor, "batch queries"]:
    """The same, multiplied in the other order: Z <- Z - P (1/n Z M Z^T) Q Z, O(n d^2) per layer."""
    z = prompt.token_matrix()
    for p_layer, q_layer in zip(p, q, strict=True):
        context = z[:, :, : prompt.n]
        gram = context @ context.mT / max(prompt.n, 1)
        z = z - p_layer @ (gram @ q_layer) @ z
    return -z[:, -1, prompt.n :]
