"""The technical lemmas of appendix D: matrix calculus, a Gaussian moment, trace inequalities."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import torch
from torch import Tensor

from innerloop.papers.common import ALGEBRA, DTYPE, generator, random_rotation, rotated
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Scale, Verdict
from innerloop.papers.zhang2023.quadratic_form import column_vector


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=DTYPE)


def relative(value: Tensor, exact: Tensor) -> float:
    return ((value - exact).abs().max() / exact.abs().max()).item()


def slope(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    at = at.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(at), at)
    return gradient


@claim(
    "zhang2023/lemmaD.1",
    "Four matrix derivatives, and two identities of Kronecker products and vectorisation",
    source="Lemma D.1",
    formula=r"\begin{aligned} & \frac{\partial x^\top B x}{\partial x} = (B + B^\top) x,\quad"
    r" \mathrm{Vec}(AXB) = (B^\top \otimes A)\mathrm{Vec}(X),\quad \mathrm{tr}(A^\top B) ="
    r" \mathrm{Vec}(A)^\top \mathrm{Vec}(B) \\ & \frac{\partial}{\partial X}\mathrm{tr}(X B X^\top)"
    r" = X B^\top + X B,\quad \frac{\partial}{\partial X}\mathrm{tr}(A X^\top) = A,\quad"
    r" \frac{\partial}{\partial X}\mathrm{tr}(A X B X^\top C) = A^\top C^\top X B^\top + C A X B"
    r" \end{aligned}",
)
def matrix_calculus(scale: Scale) -> Verdict:
    a, b, c, x = (normal(seed, 4, 4) for seed in range(4))
    vector = normal(4, 4)
    derivatives = {
        "x^T B x": (slope(lambda t: t @ b @ t, vector), (b + b.mT) @ vector, 2 * b @ vector),
        "tr X B X^T": (
            slope(lambda t: (t @ b @ t.mT).trace(), x),
            x @ b.mT + x @ b,
            2 * x @ b,
        ),
        "tr A X^T": (slope(lambda t: (a @ t.mT).trace(), x), a, a.mT),
        "tr A X B X^T C": (
            slope(lambda t: (a @ t @ b @ t.mT @ c).trace(), x),
            a.mT @ c.mT @ x @ b.mT + c @ a @ x @ b,
            2 * c @ a @ x @ b,
        ),
    }
    sandwich = column_vector(a @ x @ b)
    inner = column_vector(a) @ column_vector(b)
    return Verdict(
        [
            Check(
                "largest relative difference of the derivatives from automatic ones",
                max(relative(stated, exact) for exact, stated, _ in derivatives.values()),
                1e-12,
                min(relative(wrong, exact) for exact, _, wrong in derivatives.values()),
                ALGEBRA,
                "the same with transposes left out",
            ),
            Check(
                "relative difference of (B^T x A) Vec(X) from Vec(A X B)",
                relative(torch.kron(b.mT.contiguous(), a) @ column_vector(x), sandwich),
                1e-12,
                relative(torch.kron(a, b.mT.contiguous()) @ column_vector(x), sandwich),
                ALGEBRA,
                "the factors of the Kronecker product swapped",
            ),
            Check(
                "relative difference of Vec(A)^T Vec(B) from tr(A^T B)",
                relative(inner, (a.mT @ b).trace()),
                1e-12,
                relative(inner, (a @ b).trace()),
                ALGEBRA,
                "tr(A B)",
            ),
        ],
        settings={"matrices": "4 x 4, normal entries"},
    )


@claim(
    "zhang2023/lemmaD.2",
    "The fourth moment of a Gaussian vector around a fixed matrix",
    source="Lemma D.2",
    formula=r"\mathbb{E}\left[X X^\top A X X^\top\right] = \Lambda (A + A^\top) \Lambda +"
    r" \mathrm{tr}(A\Lambda) \Lambda",
)
def fourth_moment(scale: Scale) -> Verdict:
    """The moment by Gauss-Hermite quadrature: three nodes a coordinate are exact to degree 5."""
    covariance, a, d = rotated([1.5, 0.8, 0.4], seed=0), normal(0, 3, 3), 3
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    grid = torch.tensor(list(product(nodes, repeat=d)), dtype=DTYPE)
    mass = torch.tensor([np.prod(w) for w in product(weights, repeat=d)], dtype=DTYPE)
    x = grid @ torch.linalg.cholesky(covariance).mT
    forms = torch.einsum("ki,ij,kj->k", x, a, x)
    moment = torch.einsum("k,ki,kj->ij", mass / mass.sum() * forms, x, x)
    trace = (a @ covariance).trace() * covariance
    stated = covariance @ (a + a.mT) @ covariance + trace
    return Verdict(
        [
            Check(
                "relative difference from the moment by quadrature",
                relative(stated, moment),
                1e-12,
                relative(2 * covariance @ a @ covariance + trace, moment),
                ALGEBRA,
                "2 Lambda A Lambda for Lambda (A + A^T) Lambda",
            )
        ],
        settings={"d": d, "A": "normal entries, not symmetric"},
    )


@claim(
    "zhang2023/lemmaD.3",
    "Von Neumann's trace inequality, and two looser bounds",
    source="Lemma D.3",
    formula=r"\mathrm{tr}(U^\top V) \le \sum_{i=1}^d \sigma_i(U)\sigma_i(V) \le \|U\|_{op}"
    r" \sum_{i=1}^d \sigma_i(V) \le \sqrt{d}\,\|U\|_{op} \|V\|_F",
)
def trace_inequality(scale: Scale) -> Verdict:
    """Also for pairs with common singular vectors, where the first bound is attained."""
    d, n, draws = 3, 5, scale.pick(smoke=100, quick=1000, paper=10_000)
    ratios, controls = [], []
    for seed in range(draws):
        u, v = normal(2 * seed, d, n), normal(2 * seed + 1, d, n)
        left, sigma_u, right = torch.linalg.svd(u, full_matrices=False)
        sigma_v = torch.linalg.svdvals(v)
        aligned = left @ torch.diag(sigma_v) @ right
        for w in (v, aligned):
            trace, pairs = (u.mT @ w).trace(), (sigma_u * sigma_v).sum()
            loose = sigma_u[0] * sigma_v.sum()
            loosest = d**0.5 * sigma_u[0] * w.norm()
            ratios.append(torch.stack([trace / pairs, pairs / loose, loose / loosest]))
            controls.append(
                torch.stack(
                    [
                        trace / (sigma_u * sigma_v.flip(0)).sum(),
                        pairs / (sigma_u[-1] * sigma_v.sum()),
                        loose / (sigma_u[0] * w.norm()),
                    ]
                )
            )
    largest, wrong = torch.stack(ratios).amax(0), torch.stack(controls).amax(0)
    names = ("the first", "the second", "the third")
    wrongs = (
        "singular values of V in the opposite order",
        "the smallest singular value of U for its largest",
        "the bound without sqrt(d)",
    )
    return Verdict(
        [
            Check(
                f"largest left over right side of {name} inequality",
                largest[i].item(),
                1 + 1e-12,
                wrong[i].item(),
                "the claim itself; equality can be attained, up to rounding",
                control,
            )
            for i, (name, control) in enumerate(zip(names, wrongs, strict=True))
        ],
        settings={"d": d, "n": n, "pairs": 2 * draws},
    )


def smallest_eigenvalue(matrix: Tensor) -> float:
    """Of the symmetric part."""
    return torch.linalg.eigvalsh((matrix + matrix.mT) / 2)[0].item()


@claim(
    "zhang2023/lemmaD.4",
    "Products of positive semi-definite matrices: their trace, and when they are so themselves",
    source="Lemma D.4",
    formula=r"A, B \succeq 0 \;\Rightarrow\; \mathrm{tr}(AB) \ge 0,\qquad AB \succeq 0"
    r" \Leftrightarrow AB = BA",
)
def products_of_positive_matrices(scale: Scale) -> Verdict:
    d, draws = 4, scale.pick(smoke=100, quick=1000, paper=10_000)
    traces, asymmetry, lowest = [], [], []
    wrong_traces, wrong_asymmetry, wrong_lowest = [], [], []

    def indefinite(matrix: Tensor) -> Tensor:
        return matrix - matrix.trace() / d * torch.eye(d, dtype=DTYPE)

    for seed in range(draws):
        roots = normal(seed, 2, d, d - 1)  # of rank d - 1: semi-definite, not definite
        a, b = roots @ roots.mT
        size = a.norm() * b.norm()
        traces.append(((a @ b).trace() / size).item())
        wrong_traces.append(((a @ indefinite(b)).trace() / size).item())
        wrong_asymmetry.append(((a @ b - b @ a).norm() / size).item())
        basis, values = random_rotation(d, seed), normal(draws + seed, 2, d).square()
        a, b = basis.mT @ torch.diag_embed(values) @ basis  # with common eigenvectors
        size = a.norm() * b.norm()
        asymmetry.append(((a @ b - (a @ b).mT).norm() / size).item())
        lowest.append(smallest_eigenvalue(a @ b) / size.item())
        wrong_lowest.append(smallest_eigenvalue(a @ indefinite(b)) / size.item())
    # Without symmetry: a product of two matrices close to I has a positive quadratic form.
    near = rotated([1.0, 0.9], 0) @ rotated([1.0, 0.9], 1)
    form = smallest_eigenvalue(near)
    return Verdict(
        [
            Check(
                "smallest tr(AB) / (|A|_F |B|_F)",
                min(traces),
                -1e-12,
                min(wrong_traces),
                "the claim itself, up to rounding",
                "B without its trace, so indefinite",
                at_least=True,
            ),
            Check(
                "A and B that commute: largest |AB - (AB)^T|_F / (|A|_F |B|_F)",
                max(asymmetry),
                1e-12,
                min(wrong_asymmetry),
                ALGEBRA,
                "A and B that do not commute",
            ),
            Check(
                "A and B that commute: smallest eigenvalue of AB / (|A|_F |B|_F)",
                min(lowest),
                -1e-12,
                min(wrong_lowest),
                "the claim itself, up to rounding",
                "B without its trace, so indefinite",
                at_least=True,
            ),
        ],
        settings={
            "d": d,
            "pairs": draws,
            "what AB >= 0 means": "symmetric with no negative eigenvalue. Without symmetry, as a "
            "quadratic form, it can be positive though A and B do not commute: the smallest "
            f"eigenvalue of (AB + BA)/2 is {form:.3f} for one pair; only the other direction is "
            "used in the paper",
        },
    )
