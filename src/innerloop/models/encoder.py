"""The standard transformer encoder on a dictionary of tokens with labels.

In shapes, `position` is a token of the dictionary.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.algorithms.learner import dictionary_curve, example_by_example
from innerloop.models.blocks import BlockShape, unset_linear
from innerloop.models.decoder import Stack
from innerloop.prompt import Prompt


class DictionaryEncoder(nn.Module):
    """Encoder layers that read a dictionary with some labels shown, and predict all of them.

    Token k enters as (v_k, y_k, 1) if its label is shown and as (v_k, 0, 0) if not, through one
    linear map to `width` coordinates; after the layers another linear map reads its prediction.
    There are no positions: a token is known by its v_k. Queries that are no dictionary, the
    examples first, are answered each as if it were alone. Yang 2024, section 4, trains "a standard
    4-layer transformer" with width 256 and hidden 512 and does not say how labels enter or where
    predictions are read; this is our choice. Unlike `DictionaryAttention`, it is not linear in the
    labels.

    Matrices start uniform with Glorot's variance 2 / (rows + columns), biases at 0. The prompt must
    have the dtype of the weights: float32 unless told otherwise, two to three times as fast.

    Args:
        d: the dimension of the tokens.
        heads: of every layer; a divisor of `width`.
        generator: the only source of the initial weights.
    """

    def __init__(
        self,
        d: int,
        heads: int,
        *,
        layers: int = 4,
        width: int = 256,
        hidden: int = 512,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if d < 1:
            raise ValueError(f"d must be at least 1, got {d}")
        # The layer of Vaswani et al. (2017), section 3.1, without dropout.
        shape = BlockShape(width, heads, hidden, norm="post", activation="relu")
        self.embed = unset_linear(d + 2, width, dtype)
        self.layers = Stack(layers, shape, dtype=dtype)
        self.read = unset_linear(width, 1, dtype)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, generator=generator)
                nn.init.zeros_(module.bias)

    def forward(self, prompt: Prompt) -> Float[Tensor, "batch queries"]:
        self._require(prompt)
        if _is_dictionary(prompt):
            return self._read(prompt.x_query, prompt.y)  # examples enter once, as examples
        each = prompt.each_query()
        parts = (t.expand(len(each), -1, -1) for t in (each.x, each.x_query))
        return self._read(torch.cat(list(parts), dim=1), each.y)[:, -1].view_as(prompt.y_query)

    def learning_curve(self, prompt: Prompt) -> Float[Tensor, "batch counts"]:
        """Of a dictionary, all tokens are asked for at every length, as in training."""
        if _is_dictionary(prompt):
            return dictionary_curve(self, prompt)
        return example_by_example(self, prompt)

    def _read(
        self, tokens: Float[Tensor, "#batch position d"], labels: Float[Tensor, "batch n"]
    ) -> Float[Tensor, "batch position"]:
        """The prediction for every token, from (v, label, 1) of the first n and (v, 0, 0) of the
        others."""
        given = torch.stack([labels, torch.ones_like(labels)], dim=-1)  # [batch, n, 2]
        given = nn.functional.pad(given, (0, 0, 0, tokens.shape[1] - labels.shape[1]))
        inputs = torch.cat([tokens.expand(len(labels), -1, -1), given], dim=-1)
        return self.read(self.layers(self.embed(inputs), causal=False)).squeeze(-1)

    def _require(self, prompt: Prompt) -> None:
        expected, dtype = self.embed.in_features - 2, self.embed.weight.dtype
        if prompt.d != expected:
            raise ValueError(
                f"tokens must have the {expected} coordinates that the encoder was made for, got "
                f"{prompt.d}"
            )
        if prompt.y.dtype != dtype:
            raise ValueError(
                f"the prompt must have the dtype {dtype} of the encoder, got {prompt.y.dtype}"
            )


def _is_dictionary(prompt: Prompt) -> bool:
    """Whether the first queries are the examples; without examples, no query is one of them."""
    x, asked, n = prompt.x, prompt.x_query, prompt.n
    return n > 0 and len(x) == len(asked) and torch.equal(asked[:, :n], x)
