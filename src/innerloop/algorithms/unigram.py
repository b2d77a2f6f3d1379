"""A translator that does not read: words by their frequency alone."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from innerloop.sentences import SentencePairs


@dataclass(frozen=True)
class Unigram:
    """Every target has the same distribution, whatever was said before it.

    With the frequencies of the targets themselves its loss is their entropy, which no other
    distribution without context can go below.
    """

    log_probabilities: Float[Tensor, " vocabulary"]

    def __call__(self, pairs: SentencePairs) -> Float[Tensor, "targets vocabulary"]:
        return self.log_probabilities.to(pairs.dtype).expand(pairs.answer_shape)
