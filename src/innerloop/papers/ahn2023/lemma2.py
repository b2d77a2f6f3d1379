"""Lemma 2: a layer is a step of preconditioned gradient descent."""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.models import AHN
from innerloop.papers.ahn2023.settings import weights9
from innerloop.papers.common import normal, rotated, symmetric
from innerloop.papers.quantity import ROUNDING, Quantity
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.prompt import Prompt

SIZES = {(4, 9, 3): [1.2, 0.8, 0.5, 0.3], (3, 2, 4): [1.2, 0.5, 0.3], (1, 5, 2): [0.8]}
"""(d, n, layers), and the eigenvalues of Sigma."""


def eq10(w: Tensor, w_star: Tensor, x: Tensor) -> Tensor:
    """R_{w*}(w) = (1/2n) sum_i (w^T x_i - w*^T x_i)^2, as printed; summed over prompts."""
    residual = torch.einsum("bnd,bd->bn", x, w - w_star)
    return residual.square().sum() / (2 * x.shape[1])


def eq11(w_star: Tensor, x: Tensor, a: Tensor, factor: float = 1.0) -> list[Tensor]:
    """w_0 = 0 and w_{i+1} = w_i + A_i grad R(w_i), the gradient of Eq. 10 by autograd."""
    path = [torch.zeros_like(w_star)]
    for matrix in a:
        w = path[-1].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(factor * eq10(w, w_star, x), w)
        path.append(path[-1] + gradient @ matrix.mT)
    return path


@claim(
    "ahn2023/lemma2",
    "The forward pass of a transformer with weights (9) is gradient descent preconditioned by "
    "-A_i, one step per layer",
    source="Lemma 2, Eqs. 10 and 11",
    formula=r"w_{i+1} = w_i + A_i \nabla R_{w_\star}(w_i),\qquad"
    r" [Z_i]_{d+1,n+1} = -\langle x^{(n+1)}, w_i \rangle",
)
def forward_pass_is_gradient_descent(scale: Scale) -> Verdict:
    def instance(size: tuple[int, int, int]) -> tuple[Prompt, Tensor, Tensor]:
        d, n, layers = size
        root = torch.linalg.cholesky(rotated(SIZES[size], seed=0))
        x, w = normal(0, 32, n + 1, d) @ root.mT, normal(1, 32, d)
        y = torch.einsum("bnd,bd->bn", x, w)
        prompt = Prompt(x[:, :n], y[:, :n], x[:, n:], y[:, n:])
        return prompt, w, -0.3 * symmetric(normal(2, layers, d, d))

    def gap(case: tuple[tuple[int, int, int], str]) -> float:
        """Largest difference over all layers and prompts; labels are of order 1."""
        size, change = case
        prompt, w_star, a = instance(size)
        steps = a.flip(0) if change == "reversed" else a
        path = eq11(w_star, prompt.x, steps, factor=2.0 if change == "1/n" else 1.0)
        p, q = weights9(a)
        worst = 0.0
        for i, w in enumerate(path):
            slot = AHN.layers(p[:i], q[:i], prompt.token_matrix())[:, -1, -1]
            stated = -(prompt.x_query[:, 0] * w).sum(-1)
            worst = max(worst, (slot - stated).abs().max().item())
        return worst

    big = (4, 9, 3)
    cases = Quantity("largest difference of the label slot after any layer", gap, ROUNDING).of(
        {f"d = {d}, n = {n}, {k} layers": ((d, n, k), "") for d, n, k in SIZES}
        | {"1/n for 1/2n in Eq. 10": (big, "1/n"), "the steps in reverse": (big, "reversed")}
    )
    names = list(cases)
    return Verdict(
        [
            cases.check(names[0], unlike="1/n for 1/2n in Eq. 10"),
            *(cases.check(name, unlike="the steps in reverse") for name in names[1:3]),
        ],
        settings={"Sigma": "rotated, eigenvalues 1.2 to 0.3", "prompts": 32},
        remarks=[
            "Eq. 11 is printed with R_{w_k} for R_{w*}.",
            "k layers are A_0 to A_{k-1}; the text writes A_0 to A_k.",
        ],
    )
