"""A fixed linear map of the labels: what predictors on a dictionary are, once it is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.learner import dictionary_curve
from innerloop.prompt import Prompt


@dataclass(frozen=True)
class LabelMap:
    """prediction_k = sum_i y_i M_ik, whatever the covariates; 0 without examples.

    On a dictionary, ridge regression on features that are known is of this form.
    """

    matrix: Float[Tensor, "n queries"]
    shorter: Callable[[int], Float[Tensor, "k queries"]] | None = None
    """The matrix for prompts of k < n examples; without it they are refused."""

    def __call__(self, prompt: Prompt) -> Float[Tensor, "batch queries"]:
        matrix = self.matrix
        if prompt.n == 0:
            matrix = matrix[:0]
        elif prompt.n < len(matrix) and self.shorter is not None:
            matrix = self.shorter(prompt.n)
        expected = [prompt.n, prompt.queries]
        if list(matrix.shape) != expected:
            raise ValueError(
                f"matrix must have the shape {expected} of examples and queries, got "
                f"{list(matrix.shape)}"
            )
        return prompt.y @ matrix

    def learning_curve(self, prompt: Prompt) -> Float[Tensor, "batch counts"]:
        """A matrix answers for all queries at once, so all of them are asked at every length."""
        return dictionary_curve(self, prompt)
