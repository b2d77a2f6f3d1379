"""How each paper writes the same model, and weights converted both ways.

innerloop's layer is z <- z - P G Q z, with the query's label slot read out with a minus, so that
the preconditioner in Q is positive. Papers differ in the two signs, in the mask and in the
normaliser. No paper's sign lives anywhere but here.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from innerloop.prompt import Prompt

Matrices = tuple[Float[Tensor, "layers token token"], Float[Tensor, "layers token token"]]


@dataclass(frozen=True)
class Convention:
    """z <- z + residual_sign (1/n) P Z M Z^T Q z, prediction = readout_sign * label slot."""

    name: str
    residual_sign: int
    readout_sign: int
    masked: bool
    """Whether the query's own token is left out of the sum over tokens."""
    normalised: bool
    """Whether the layer divides by n; if not, the division is part of P."""
    loss_factor: float
    """The paper's loss is this times E (prediction - y_q)^2."""
    good_preconditioner: str
    """The sign of the block of Q at a good solution."""

    def weights_to(self, p: Tensor, q: Tensor, *, n: int) -> Matrices:
        """The paper's (P, Q) of a model with innerloop's (P, Q)."""
        self._require_depth(len(p))
        scale = 1.0 if self.normalised else 1 / n
        return scale * p, self.readout_sign * self.residual_sign * q

    def weights_from(self, p: Tensor, q: Tensor, *, n: int) -> Matrices:
        """innerloop's (P, Q) of a model with the paper's (P, Q)."""
        self._require_depth(len(p))
        scale = 1.0 if self.normalised else 1 / n
        return p / scale, self.readout_sign * self.residual_sign * q

    def layers(
        self, p: Tensor, q: Tensor, z: Float[Tensor, "batch token tokens"]
    ) -> Float[Tensor, "batch token tokens"]:
        """The paper's own layers, with the paper's weights, on the matrix of tokens."""
        n = z.shape[-1] - 1
        for p_layer, q_layer in zip(p, q, strict=True):
            seen = z[:, :, :-1] if self.masked else z
            update = p_layer @ seen @ seen.mT @ q_layer @ z
            z = z + self.residual_sign * update / (n if self.normalised else 1)
        return z

    def predict(self, p: Tensor, q: Tensor, prompt: Prompt) -> Float[Tensor, "batch queries"]:
        """The paper's prediction, with the paper's weights; of each query as if it were alone."""
        tokens = self.layers(p, q, prompt.each_query().token_matrix())
        return (self.readout_sign * tokens[:, -1, -1]).view_as(prompt.y_query)

    def _require_depth(self, layers: int) -> None:
        # With a readout of +1 the context's labels would have to grow where the query's grows:
        # deeper models are then not the same algorithm under any choice of weights.
        if self.readout_sign > 0 and layers > 1:
            raise ValueError(
                f"the convention of {self.name} describes one layer, got {layers} layers"
            )


AHN = Convention("ahn2023", +1, -1, True, True, 1.0, "negative definite")
GATMIRY = Convention("gatmiry2024", -1, -1, True, True, 1.0, "positive definite")
ZHANG = Convention("zhang2023", +1, +1, False, True, 0.5, "positive definite")
# Values and keys of von Oswald 2022 as P = P_o W_V and Q = W_K^T W_Q. Their test token also attends
# to itself, which changes nothing where its value is 0, as in their construction.
VON_OSWALD = Convention("vonoswald2022", +1, -1, False, False, 0.5, "negative definite")

CONVENTIONS = {c.name: c for c in (AHN, ZHANG, GATMIRY, VON_OSWALD)}
