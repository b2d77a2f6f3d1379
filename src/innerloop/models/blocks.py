"""The layer that every softmax transformer here is made of, and what is random at its start.

In shapes, `length` counts tokens, `width` is the size of the residual, `hidden` that of the
feed-forward network, and `head` that of one head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

Norm = Literal["pre", "post", "none"]
Activation = Literal["gelu", "relu"]
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": partial(functional.gelu, approximate="tanh"),  # as GPT-2 has it
    "relu": functional.relu,
}


@dataclass(frozen=True)
class BlockShape:
    """What a layer is made of.

    GPT-2 is the default. An encoder of Vaswani et al. (2017) has norm="post", activation="relu" and
    is not causal; the layer of AlgoFormer's Eq. 1 has norm="none", activation="relu", scale=1.0,
    heads as wide as the residual and no biases in attention.
    """

    width: int
    heads: int
    hidden: int | None = None
    """Of the feed-forward network; 4 width unless given."""
    norm: Norm = "pre"
    activation: Activation = "gelu"
    scale: float | None = None
    """What logits <query, key> are multiplied by; 1 / sqrt(head) unless given."""
    head: int | None = None
    """Coordinates of one head; width / heads unless given."""
    attention_bias: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("width", "heads", "hidden", "head"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.head is None and self.width % self.heads:
            possible = ", ".join(str(h) for h in range(1, self.width + 1) if self.width % h == 0)
            raise ValueError(
                f"heads must divide the width {self.width} into equal parts, got {self.heads}; "
                f"possible are {possible}"
            )
        if self.norm not in ("pre", "post", "none"):
            raise ValueError(f"norm must be pre, post or none, got {self.norm!r}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"activation must be one of {', '.join(ACTIVATIONS)}, got {self.activation!r}"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout}")

    @property
    def head_width(self) -> int:
        return self.width // self.heads if self.head is None else self.head

    @property
    def hidden_width(self) -> int:
        return 4 * self.width if self.hidden is None else self.hidden


class Block(nn.Module):
    """Self-attention and a feed-forward network, each added to its input.

        x <- x + attention(norm(x)),    x <- x + feed_forward(norm(x))      norm = "pre"
        x <- norm(x + attention(x)),    x <- norm(x + feed_forward(x))      norm = "post"

    and the same without norms. Weights are unset until `Start.draw` or a state dict sets them.
    """

    def __init__(self, shape: BlockShape, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.shape = shape
        width, inner = shape.width, shape.heads * shape.head_width
        bias = shape.attention_bias
        self.query_key_value = unset_linear(width, 3 * inner, dtype, bias=bias)
        self.merge = unset_linear(inner, width, dtype, bias=bias)
        self.into_hidden = unset_linear(width, shape.hidden_width, dtype)
        self.out_of_hidden = unset_linear(shape.hidden_width, width, dtype)
        self.attention_norm = self._norm(dtype)
        self.feed_forward_norm = self._norm(dtype)
        self.dropout = nn.Dropout(shape.dropout) if shape.dropout else nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "batch length width"],
        *,
        causal: bool = True,
        kept: Int[Tensor, " positions"] | None = None,
    ) -> Float[Tensor, "batch _ width"]:
        """The residuals of all tokens; of these positions alone, if they are given: then only they
        pass the feed-forward network, which is most of a layer."""
        chosen = slice(None) if kept is None else kept
        if self.shape.norm == "post":
            x = self.attention_norm(x + self.attention(x, causal=causal))[:, chosen]
            return self.feed_forward_norm(x + self.feed_forward(x))
        x = (x + self.attention(self.attention_norm(x), causal=causal))[:, chosen]
        return x + self.feed_forward(self.feed_forward_norm(x))

    def attention(
        self, x: Float[Tensor, "batch length width"], *, causal: bool
    ) -> Float[Tensor, "batch length width"]:
        """softmax(scale q k^T) v of every head, merged by one matrix; a token sees none after it
        if `causal`."""
        q, k, v = self._heads(x)
        mixed = functional.scaled_dot_product_attention(
            q,
            k,
            v,
            is_causal=causal,
            scale=self.shape.scale,
            dropout_p=self.shape.dropout if self.training else 0.0,
        )
        return self.dropout(self.merge(mixed.transpose(1, 2).flatten(2)))

    def feed_forward(
        self, x: Float[Tensor, "batch length width"]
    ) -> Float[Tensor, "batch length width"]:
        """W_2 activation(W_1 x + b_1) + b_2."""
        hidden = ACTIVATIONS[self.shape.activation](self.into_hidden(x))
        return self.dropout(self.out_of_hidden(hidden))

    def attention_map(
        self, x: Float[Tensor, "batch length width"], *, causal: bool
    ) -> Float[Tensor, "batch heads query key"]:
        """How much each token takes from each, if the layer is given x; rows sum to 1."""
        q, k, _ = self._heads(self.attention_norm(x) if self.shape.norm == "pre" else x)
        scale = self.shape.head_width**-0.5 if self.shape.scale is None else self.shape.scale
        logits = scale * q @ k.mT
        if causal:
            seen = torch.ones(logits.shape[-2:], dtype=torch.bool, device=x.device).tril()
            logits = logits.masked_fill(~seen, float("-inf"))
        return logits.softmax(-1)

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, [batch, heads, length, head] each."""
        parts = self.query_key_value(x).unflatten(-1, (3, self.shape.heads, -1))
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        return q, k, v

    def _norm(self, dtype: torch.dtype) -> nn.Module:
        if self.shape.norm == "none":
            return nn.Identity()
        return nn.LayerNorm(self.shape.width, dtype=dtype)


@dataclass(frozen=True)
class Start:
    """The distribution of initial weights. Biases start at 0, norms at 1 and 0.

    Two matter: GPT-2's, `Start.gpt2()`, every matrix N(0, 0.02^2) and those that write to the
    residual smaller by sqrt(2 layers); and one by fan-in, `Start.by_fan_in()`, from which larger
    learning rates leave the plateau of predicting nothing.
    """

    std: float | None = None
    """Of every entry; None: gain / sqrt(fan-in)."""
    gain: float = 0.7
    positions: float = 0.5
    """Standard deviation of learned positions."""
    shrink_residual: bool = False
    """Whether matrices that write to the residual are divided by sqrt(2 layers)."""

    def __post_init__(self) -> None:
        for name in ("std", "gain", "positions"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be finite and at least 0, got {value}")

    @classmethod
    def gpt2(cls) -> Start:
        return cls(std=0.02, positions=0.02, shrink_residual=True)

    @classmethod
    def by_fan_in(cls, gain: float = 0.7, positions: float = 0.5) -> Start:
        return cls(gain=gain, positions=positions)

    def draw(self, model: nn.Module, generator: torch.Generator) -> None:
        """Sets every weight of the model, in the order of its modules."""
        blocks = [module for module in model.modules() if isinstance(module, Block)]
        writing = {id(m) for block in blocks for m in (block.merge, block.out_of_hidden)}
        for module in model.modules():
            if isinstance(module, nn.Linear):
                std = self.gain * module.in_features**-0.5 if self.std is None else self.std
                if self.shrink_residual and id(module) in writing:
                    std /= (2 * len(blocks)) ** 0.5
                nn.init.normal_(module.weight, std=std, generator=generator)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, Positions):
                nn.init.normal_(module.table, std=self.positions, generator=generator)


class Positions(nn.Module):
    """A learned vector for every position, added to the token that stands there.

    With `offsets`, sequences begin anywhere in the table while training, so that all of its rows
    are trained; otherwise those beyond the longest training sequence stay as they were drawn. With
    `from_end` they end where the table ends: the last token, a prompt's query, is known by its row
    however many examples stand before it.
    """

    def __init__(
        self,
        length: int,
        width: int,
        *,
        offsets: bool = False,
        from_end: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if length < 1:
            raise ValueError(f"length must be at least 1 token, got {length}")
        if offsets and from_end:
            raise ValueError("positions counted from the end of a sequence have no offsets")
        self.offsets, self.from_end = offsets, from_end
        self.table = nn.Parameter(torch.empty(length, width, dtype=dtype))

    def forward(
        self, x: Float[Tensor, "batch length width"]
    ) -> Float[Tensor, "batch length width"]:
        known, length = len(self.table), x.shape[1]
        if length > known:
            raise ValueError(
                f"a sequence may have at most the {known} tokens that positions were made for, "
                f"got {length}"
            )
        if self.from_end:
            return x + self.table[known - length :]
        if not (self.offsets and self.training):
            return x + self.table[:length]
        # A batch has one offset: the trainer draws it anew in every step. Even, so that x and y
        # keep their parity.
        first = 2 * int(torch.randint((known - length) // 2 + 1, ()))
        return x + self.table[first : first + length]


def unset_linear(inputs: int, outputs: int, dtype: torch.dtype, *, bias: bool = True) -> nn.Linear:
    """A linear map whose weights are still to be set: torch's own would be drawn globally."""
    return nn.utils.skip_init(nn.Linear, inputs, outputs, bias=bias, dtype=dtype)
