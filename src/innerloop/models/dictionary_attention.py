"""Many softmax heads over a dictionary of tokens: the short form, and the one with all its blocks.

In shapes, `heads` is H, `shown` is N, `tokens` is K, and `token` is d + 1.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop import theory
from innerloop.algorithms.learner import dictionary_curve
from innerloop.prompt import Prompt
from innerloop.tasks import DictionaryRegression, NoClosedForm, Task


class DictionaryAttention(nn.Module):
    """One layer of H softmax heads that predicts the label of every token of a dictionary.

        prediction_k = <y, a_k>,   a_k = sum_h w_{h,k} softmax(V^T Q_h v_k)   [shown]

    V has the shown tokens as columns and y their labels (Yang 2024, Eq. 8). The weights w belong to
    tokens as well as heads: what the layer learns, it learns about this one dictionary. The labels
    enter linearly, so the matrix [a_1 .. a_K] is all that a prompt meets.

    Args:
        q: Q_h, one matrix for each head.
        w: the weight of every head for every token.
    """

    def __init__(self, q: Float[Tensor, "heads d d"], w: Float[Tensor, "heads tokens"]) -> None:
        super().__init__()
        if q.ndim != 3 or q.shape[1] != q.shape[2] or len(q) < 1:
            raise ValueError(
                f"q must have shape [heads, d, d] with at least 1 head, got {list(q.shape)}"
            )
        if w.ndim != 2 or len(w) != len(q):
            raise ValueError(
                f"w must have shape [heads, tokens] with the {len(q)} heads of q, got "
                f"{list(w.shape)}"
            )
        if w.dtype != q.dtype:
            raise ValueError(f"w must have the dtype {q.dtype} of q, got {w.dtype}")
        self.q = nn.Parameter(q)
        self.w = nn.Parameter(w)
        self._kept: tuple[DictionaryRegression, theory.softmax.DictionaryRisk] | None = None

    @classmethod
    def gaussian(
        cls,
        heads: int,
        d: int,
        tokens: int,
        std: float = 1.0,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float64,
    ) -> DictionaryAttention:
        """Entries of Q_h from N(0, std^2) and w = 0, where the theorems start.

        `dtype` is to be that of the task's tokens; the draws are the same in any.
        """
        for name, value in (("heads", heads), ("d", d), ("tokens", tokens)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not 0 <= std < float("inf"):
            raise ValueError(f"std must be finite and not negative, got {std}")
        q = std * torch.randn(heads, d, d, generator=generator, dtype=torch.float64)
        return cls(q.to(dtype), torch.zeros(heads, tokens, dtype=dtype))

    @property
    def heads(self) -> int:
        return len(self.q)

    def softmaxes(
        self, tokens: Float[Tensor, "tokens d"], shown: int
    ) -> Float[Tensor, "heads shown tokens"]:
        """softmax(V^T Q_h v_k) of every head and token, over the shown tokens."""
        self._require(tokens)
        logits = torch.matmul(tokens[:shown] @ self.q, tokens.mT)
        return logits.softmax(dim=1)

    def attention(
        self, tokens: Float[Tensor, "tokens d"], shown: int
    ) -> Float[Tensor, "shown tokens"]:
        """[a_1 .. a_K]: the weight of every shown label in every prediction."""
        return (self.softmaxes(tokens, shown) * self.w.unsqueeze(1)).sum(0)

    def forward(self, prompt: Prompt) -> Float[Tensor, "batch queries"]:
        return prompt.y @ self.attention(dictionary_of(prompt), prompt.n)

    def learning_curve(self, prompt: Prompt) -> Float[Tensor, "batch counts"]:
        """The weights belong to a whole dictionary, so all of it is asked for at every length."""
        return dictionary_curve(self, prompt)

    def risk(self, task: Task) -> Float[Tensor, ""]:
        """The exact expected squared error, averaged over the tokens (Yang 2024, Eq. 9, twice)."""
        if type(task) is not DictionaryRegression:
            raise NoClosedForm(
                "a closed form is known for the loss on a DictionaryRegression, got "
                f"{type(task).__name__}; use the prompts objective, or estimate it by sampling"
            )
        return 2 * self._half_risk(task)(self.attention(task.tokens, task.shown))

    def _half_risk(self, task: DictionaryRegression) -> theory.softmax.DictionaryRisk:
        # Factored once: a training asks for the same task at every step.
        if self._kept is None or self._kept[0] is not task:
            made = theory.softmax.DictionaryRisk.of(
                task.features, task.shown, task.tau, task.second_moment
            )
            self._kept = (task, made)
        return self._kept[1]

    def _require(self, tokens: Tensor) -> None:
        expected = [self.w.shape[1], self.q.shape[1]]
        if list(tokens.shape) != expected:
            raise ValueError(
                f"tokens must be the dictionary of shape {expected} that the weights belong to, "
                f"got {list(tokens.shape)}"
            )
        if tokens.dtype != self.q.dtype:
            raise ValueError(
                f"tokens must have the dtype {self.q.dtype} of the weights, got {tokens.dtype}: "
                "make the model with dtype=tokens.dtype"
            )


def dictionary_of(prompt: Prompt) -> Float[Tensor, "tokens d"]:
    """The tokens of a prompt that asks for a whole dictionary, its first tokens the examples."""
    x, tokens = prompt.x, prompt.x_query
    if len(x) > 1 or len(tokens) > 1 or not torch.equal(tokens[:, : prompt.n], x):
        raise ValueError(
            "the prompt must ask for every token of one dictionary, with the examples first, as "
            f"DictionaryRegression samples it; got examples of shape {list(x.shape)} and queries "
            f"of shape {list(tokens.shape)}"
        )
    return tokens[0]


def block_form_forward(
    q: Float[Tensor, "heads d d"], w: Float[Tensor, "heads tokens"], prompt: Prompt
) -> Float[Tensor, "batch tokens"]:
    """The same predictions with every matrix of the transformer written out, as a reference.

        head_h(E) = W^V_h E^P softmax((E^P)^T (W^K_h)^T W^Q_h E),   T(E) = W^O (head_1; ..; head_H)

    and the predictions are the diagonal of T(E), a K x K matrix (Yang 2024, Eq. 2 to 7). Tokens are
    columns, with the label underneath; the label of a query is 0.
    """
    heads, count = w.shape
    batch, shown, d = len(prompt), prompt.n, prompt.d
    tokens = dictionary_of(prompt)
    e = tokens.new_zeros(batch, d + 1, count)
    e[:, :d] = tokens.mT
    e[:, d, :shown] = prompt.y
    examples = e[:, :, :shown]
    outputs = []
    for h in range(heads):
        value = torch.cat([torch.zeros_like(tokens), w[h].unsqueeze(1)], dim=1)  # [K, d + 1]
        key_query = nn.functional.pad(q[h], (0, 1, 0, 1))  # [d + 1, d + 1]
        scores = examples.mT @ key_query @ e  # [batch, shown, tokens]
        outputs.append(value @ examples @ scores.softmax(dim=1))
    output = torch.eye(count).to(e).repeat(1, heads)  # W^O, [tokens, heads * tokens]
    return (output @ torch.cat(outputs, dim=1)).diagonal(dim1=1, dim2=2)
