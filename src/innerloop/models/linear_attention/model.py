"""Linear attention, computed in Gram space."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.models.linear_attention.weights import LinearAttentionWeights
from innerloop.prompt import Prompt
from innerloop.tasks import Task, gaussian_linear


class LinearAttention(nn.Module):
    """A stack of linear self-attention layers with residual connections (Ahn 2023, Eq. 4).

        z <- z - P_l G_l Q_l z     for every token z = (x, y), the query's being (x_q, 0)

    and the prediction is minus the label slot of the query. G_l is the Gram matrix of the context
    tokens. Whatever a paper's own sign, mask or scaling is, `conventions` converts it to this one.

    `model.compile()` works, and is not worth its minute: the backward pass written by hand is twice
    as fast as what the compiler makes (`innerloop bench linear`).

    Args:
        weights: one of the forms in `innerloop.models.linear_attention`.
        loops: how often the whole stack is applied; one layer with loops = L is a looped model.
        masked: whether the query's own token is kept out of the Gram matrix.
    """

    def __init__(
        self, weights: LinearAttentionWeights, loops: int = 1, *, masked: bool = True
    ) -> None:
        super().__init__()
        if loops < 1:
            raise ValueError(f"loops must be at least 1, got {loops}")
        self.weights = weights
        self.loops = loops
        self.masked = masked

    @property
    def d(self) -> int:
        return self.weights.d

    def forward(self, prompt: Prompt) -> Float[Tensor, "batch queries"]:
        if prompt.d != self.d:
            raise ValueError(f"the model reads covariates of dimension {self.d}, got {prompt.d}")
        dtype = next((p.dtype for p in self.parameters()), prompt.y.dtype)
        if prompt.y.dtype != dtype:
            raise ValueError(
                f"the prompt must have the dtype {dtype} of the weights, got {prompt.y.dtype}"
            )
        if self.masked:
            return self.weights.predictions(prompt, self.loops)
        # Every query attends to itself, and so has a Gram matrix of its own.
        each = prompt.each_query()
        token = nn.functional.pad(each.x_query, (0, 1))  # [batch * queries, 1, d + 1]
        gram = each.gram() + token.mT * token / max(prompt.n, 1)
        return self.answer(gram, each.x_query).view_as(prompt.y_query)

    def after_loops(
        self, prompt: Prompt, counts: Sequence[int]
    ) -> Float[Tensor, "counts batch queries"]:
        """The predictions after each of these numbers of loops."""
        looped = (LinearAttention(self.weights, k, masked=self.masked) for k in counts)
        return torch.stack([model(prompt) for model in looped])

    def answer(
        self, gram: Float[Tensor, "batch token token"], queries: Float[Tensor, "batch queries d"]
    ) -> Float[Tensor, "batch queries"]:
        """Predictions for several queries of one context, from its Gram matrix."""
        return self.weights.answer(gram, queries, self.loops)

    def risk(self, task: Task) -> Float[Tensor, ""]:
        """The exact expected loss, differentiable in the weights.

        Raises NoClosedForm, with the reason, for tasks and weights of which none is known.
        """
        return self.weights.risk(gaussian_linear(task), self.loops, masked=self.masked)
