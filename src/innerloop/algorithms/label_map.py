"""A fixed linear map of the labels: what predictors on a dictionary are, once it is known."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from innerloop.prompt import Prompt


@dataclass(frozen=True)
class LabelMap:
    """prediction_k = sum_i y_i M_ik, whatever the covariates.

    On a dictionary, ridge regression on features that are known is of this form.
    """

    matrix: Float[Tensor, "n queries"]

    def __call__(self, prompt: Prompt) -> Float[Tensor, "batch queries"]:
        expected = [prompt.n, prompt.queries]
        if list(self.matrix.shape) != expected:
            raise ValueError(
                f"matrix must have the shape {expected} of examples and queries, got "
                f"{list(self.matrix.shape)}"
            )
        return prompt.y @ self.matrix
