"""The standard transformer encoder on a dictionary of tokens with labels.

In shapes, `position` is a token of the dictionary, `width` is d_model and `hidden` is d_ff.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.algorithms.learner import dictionary_curve, example_by_example
from innerloop.prompt import Prompt


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network, each added to its input and normalised.

        x <- norm(x + attention(x)),   x <- norm(x + W_2 relu(W_1 x + b_1) + b_2)

    Vaswani et al. (2017), section 3.1, without dropout. Every position attends to every position,
    with `heads` heads of width / heads coordinates each.
    """

    def __init__(self, width: int, hidden: int, heads: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = _linear(width, 3 * width, dtype)
        self.merge = _linear(width, width, dtype)
        self.after_attention = nn.LayerNorm(width, dtype=dtype)
        self.feed_forward = nn.Sequential(
            _linear(width, hidden, dtype), nn.ReLU(), _linear(hidden, width, dtype)
        )
        self.after_feed_forward = nn.LayerNorm(width, dtype=dtype)

    def attention(
        self, x: Float[Tensor, "batch position width"]
    ) -> Float[Tensor, "batch position width"]:
        """softmax(q k^T / sqrt(width / heads)) v of every head, merged by one matrix."""
        parts = self.query_key_value(x).unflatten(-1, (3, self.heads, -1))
        q, k, v = parts.permute(2, 0, 3, 1, 4)  # [batch, heads, position, width / heads] each
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.merge(mixed.transpose(1, 2).flatten(2))

    def forward(
        self, x: Float[Tensor, "batch position width"]
    ) -> Float[Tensor, "batch position width"]:
        x = self.after_attention(x + self.attention(x))
        return self.after_feed_forward(x + self.feed_forward(x))


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
        sizes = {"d": d, "heads": heads, "layers": layers, "width": width, "hidden": hidden}
        for name, value in sizes.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if width % heads:
            raise ValueError(
                f"heads must divide the width {width} into equal parts, got {heads}; possible are "
                + ", ".join(str(h) for h in range(1, width + 1) if width % h == 0)
            )
        self.embed = _linear(d + 2, width, dtype)
        self.layers = nn.Sequential(
            *(EncoderLayer(width, hidden, heads, dtype) for _ in range(layers))
        )
        self.read = _linear(width, 1, dtype)
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
        return self.read(self.layers(self.embed(inputs))).squeeze(-1)

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


def _linear(inputs: int, outputs: int, dtype: torch.dtype) -> nn.Linear:
    """A linear map whose weights are still to be set: torch's own would be drawn globally."""
    return nn.utils.skip_init(nn.Linear, inputs, outputs, dtype=dtype)
