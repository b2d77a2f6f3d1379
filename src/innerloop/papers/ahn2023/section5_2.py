"""Section 5.2, before Theorem 4: the distorted view of the data, and Newton's method."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.functional import hessian

from innerloop.papers.ahn2023.lemma2 import eq10
from innerloop.papers.common import DTYPE, normal, square_root
from innerloop.papers.quantity import ROUNDING, Quantity
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.tasks import LinearRegression

DISTORTION = torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.8, 0.3], [0.2, 0.0, 0.6]], dtype=DTYPE)


@claim(
    "ahn2023/section5.2-view",
    "Labels of the latent covariates are linear in the distorted ones, with weights of "
    "covariance Sigma^-1",
    source="Section 5.2, distorted view of the data",
    formula=r"x = W \bar x,\; \Sigma = W W^\top,\; w_\star = \Sigma^{-1/2} \bar w_\star \;"
    r"\Rightarrow\; \langle \bar x, \bar w_\star \rangle = \langle x, w_\star \rangle",
)
def distorted_view(scale: Scale) -> Verdict:
    latent_x, latent_w = normal(0, 100, 3), normal(1, 100, 3)
    sigma = DISTORTION @ DISTORTION.mT
    inverse_root = square_root(sigma).inverse()
    maps = {
        "w = Sigma^-1/2 w', W not symmetric": (DISTORTION, inverse_root),
        "w = Sigma^-1/2 w', W = Sigma^1/2": (square_root(sigma), inverse_root),
        "w = W^-T w', W not symmetric": (DISTORTION, DISTORTION.mT.inverse()),
        "w = W^-1 w', W not symmetric": (DISTORTION, DISTORTION.inverse()),
    }
    printed, symmetric, corrected, near = maps

    def label_gap(case: tuple[Tensor, Tensor]) -> Tensor:
        w, to_weights = case
        seen = ((latent_x @ w.mT) * (latent_w @ to_weights.mT)).sum(-1)
        return (seen - (latent_x * latent_w).sum(-1)).abs().max()

    labels = Quantity("largest difference of a label", label_gap, ROUNDING).of(maps)
    prior = LinearRegression.distorted_view(DISTORTION, 5).prior
    covariances = Quantity[tuple[Tensor, Tensor]](
        "largest difference of the covariance of w from Sigma^-1",
        lambda case: (case[1] @ case[1].mT - prior).abs().max(),
        ROUNDING,
    ).of(maps)
    return Verdict(
        printed=[
            labels.check(printed, unlike=near),
            covariances.check(printed, unlike=near),
        ],
        corrected=[
            labels.check(corrected, unlike=near),
            labels.check(symmetric, unlike=near),
            covariances.check(corrected, unlike=near),
        ],
        correction=Correction(
            r"w_\star = \Sigma^{-1/2} \bar w_\star",
            r"w_\star = W^{-\top} \bar w_\star",
            "The label is <W^-1 x, w'> = <x, W^-T w'>. Only for W = Sigma^1/2 are the two the "
            "same; the covariance of w is Sigma^-1 either way, so Theorem 4 is not touched.",
            Kind.STATEMENT,
            "W = [[1, .5, 0], [0, .8, .3], [.2, 0, .6]]: labels of 100 draws differ by up to "
            f"{labels[printed]:.2f}.",
        ),
        settings={"draws": 100},
    )


@claim(
    "ahn2023/section5.2-hessian",
    "The Hessian of the least-squares loss of a prompt is XX^T/2n",
    source="Section 5.2, after the distorted view",
    formula=r"\nabla^2 R_{w_\star}(w) = \frac{1}{2n} X X^\top",
)
def newton(scale: Scale) -> Verdict:
    n, d = 6, 3
    x, w_star = normal(0, 1, n, d) @ DISTORTION.mT, normal(1, 1, d)
    gram = x[0].mT @ x[0]
    second = hessian(lambda w: eq10(w[None], w_star, x), torch.zeros(d, dtype=DTYPE))
    hessians = Quantity[Tensor](
        "relative difference from the Hessian of Eq. 10",
        lambda stated: (second - stated).norm() / second.norm(),
        ROUNDING,
    ).of(
        {
            "XX^T/2n": gram / (2 * n),
            "XX^T/n": gram / n,
            "XX^T/(n+1)": gram / (n + 1),
        }
    )
    return Verdict(
        printed=[hessians.check("XX^T/2n", unlike="XX^T/(n+1)")],
        corrected=[hessians.check("XX^T/n", unlike="XX^T/(n+1)")],
        correction=Correction(
            r"\nabla^2 R = \frac{1}{2n} X X^\top",
            r"\nabla^2 R = \frac{1}{n} X X^\top",
            "R = (1/2n) (w - w*)^T XX^T (w - w*) has twice its coefficient as Hessian.",
            Kind.CONSTANT,
            "d = 1, n = 1, x = 1: R = (w - w*)^2 / 2 has the second derivative 1, not 1/2.",
        ),
        settings={"d": d, "n": n},
        remarks=["Sigma^-1 = E[XX^T]^-1 lacks the factor n: E[XX^T] = n Sigma."],
    )
