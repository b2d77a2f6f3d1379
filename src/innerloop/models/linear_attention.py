"""Linear attention, computed in Gram space."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.models.weights import LinearAttentionWeights
from innerloop.prompt import Prompt


class LinearAttention(nn.Module):
    """A stack of linear self-attention layers with residual connections (Ahn 2023, Eq. 4).

        z <- z - P_l G_l Q_l z     for every token z = (x, y), the query's being (x_q, 0)

    and the prediction is minus the label slot of the query. G_l is the Gram matrix of the context
    tokens. Whatever a paper's own sign, mask or scaling is, `conventions` converts it to this one.

    Args:
        weights: one of the forms in `innerloop.models.weights`.
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

    def forward(self, prompt: Prompt) -> Float[Tensor, " batch"]:
        if prompt.d != self.d:
            raise ValueError(f"the model reads covariates of dimension {self.d}, got {prompt.d}")
        gram = prompt.gram()
        if not self.masked:
            token = nn.functional.pad(prompt.x_query, (0, 1))  # [batch, d + 1]
            gram = gram + token.unsqueeze(2) * token.unsqueeze(1) / max(prompt.n, 1)
        return self.answer(gram, prompt.x_query.unsqueeze(1)).squeeze(1)

    def answer(
        self, gram: Float[Tensor, "batch token token"], queries: Float[Tensor, "batch queries d"]
    ) -> Float[Tensor, "batch queries"]:
        """Predictions for several queries of one context, from its Gram matrix."""
        return self.weights.answer(gram, queries, self.loops)

    def learning_curve(self, prompt: Prompt) -> Float[Tensor, "batch counts"]:
        """The prediction after each number of examples, 0 to n."""
        return torch.stack([self(prompt.prefix(k)) for k in range(prompt.n + 1)], dim=1)
