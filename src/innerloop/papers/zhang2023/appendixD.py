"""The technical lemmas of appendix D: matrix calculus, a Gaussian moment, trace inequalities."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import truediv

import torch
from scipy.special import roots_hermitenorm
from torch import Tensor

from innerloop.papers.common import normal, random_rotation, relative, rotated
from innerloop.papers.quantity import INEQUALITY, ROUNDING, at_least
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.zhang2023.lemma5_1 import column_vector
from innerloop.papers.zhang2023.prompts import grid
from innerloop.papers.zhang2023.settings import SPECTRA, checked


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
    a, b, c, x = normal(0, 4, 4, 4)
    vector, bt = normal(4, 4), b.mT.contiguous()
    rows: dict[str, tuple[Tensor, Tensor, Tensor]] = {  # exact, stated, without transposes
        "x^T B x": (slope(lambda t: t @ b @ t, vector), (b + b.mT) @ vector, 2 * b @ vector),
        "tr X B X^T": (slope(lambda t: (t @ b @ t.mT).trace(), x), x @ b.mT + x @ b, 2 * x @ b),
        "tr A X^T": (slope(lambda t: (a @ t.mT).trace(), x), a, a.mT),
        "tr A X B X^T C": (
            slope(lambda t: (a @ t @ b @ t.mT @ c).trace(), x),
            a.mT @ c.mT @ x @ b.mT + c @ a @ x @ b,
            a.mT @ c.mT @ x @ b + c @ a @ x @ b,
        ),
        "Vec(A X B)": (
            column_vector(a @ x @ b),
            torch.kron(bt, a) @ column_vector(x),
            torch.kron(a, bt) @ column_vector(x),
        ),
        "tr A^T B": ((a.mT @ b).trace(), column_vector(a) @ column_vector(b), (a @ b).trace()),
    }
    checks = [
        checked(
            f"relative difference of {name}",
            ROUNDING,
            {"as printed": stated, "transposed": wrong},
            partial(relative, exact=exact),
        )
        for name, (exact, stated, wrong) in rows.items()
    ]
    return Verdict(
        [check for of in checks for check in of], settings={"matrices": "4 x 4, normal entries"}
    )


def printed_moment(lam: Tensor, a: Tensor) -> Tensor:
    return lam @ (a + a.mT) @ lam + (a @ lam).trace() * lam


@claim(
    "zhang2023/lemmaD.2",
    "The fourth moment of a Gaussian vector around a fixed matrix",
    source="Lemma D.2",
    formula=r"\mathbb{E}\left[X X^\top A X X^\top\right] = \Lambda (A + A^\top) \Lambda +"
    r" \mathrm{tr}(A\Lambda) \Lambda",
)
def fourth_moment(scale: Scale) -> Verdict:
    """The moment by Gauss-Hermite quadrature: three nodes a coordinate are exact to degree 5."""
    lam, a = rotated(SPECTRA[3], seed=0), normal(0, 3, 3)
    nodes, mass = grid([roots_hermitenorm(3)] * 3)
    x = nodes @ torch.linalg.cholesky(lam).mT
    moment = torch.einsum("k,ki,kj->ij", mass * torch.einsum("ki,ij,kj->k", x, a, x), x, x)
    printed = printed_moment(lam, a)
    cases = {
        "as printed": printed,
        "2 A for A + A^T": printed + lam @ (a - a.mT) @ lam,
        "tr(A) for tr(A Lambda)": printed + (a.trace() - (a @ lam).trace()) * lam,
    }
    name = "relative difference from the moment by quadrature"
    return Verdict(
        checked(name, ROUNDING, cases, partial(relative, exact=moment)),
        settings={"d": 3, "A": "normal entries, not symmetric"},
    )


def printed_chain(u: Tensor, v: Tensor) -> Tensor:
    """The four sides of the three inequalities."""
    s, t = torch.linalg.svdvals(u), torch.linalg.svdvals(v)
    sides = [(u.mT @ v).trace(), (s * t).sum(), s[0] * t.sum()]
    return torch.stack([*sides, len(u) ** 0.5 * s[0] * v.norm()])


@claim(
    "zhang2023/lemmaD.3",
    "Von Neumann's trace inequality, and two looser bounds",
    source="Lemma D.3",
    formula=r"\mathrm{tr}(U^\top V) \le \sum_{i=1}^d \sigma_i(U)\sigma_i(V) \le \|U\|_{op}"
    r" \sum_{i=1}^d \sigma_i(V) \le \sqrt{d}\,\|U\|_{op} \|V\|_F",
)
def trace_inequality(scale: Scale) -> Verdict:
    """Also for pairs where all three are attained: V = 2 U with equal singular values."""
    d, n, draws = 3, 5, scale.pick(smoke=100, quick=1000, paper=10_000)
    chains = []
    for seed in range(draws):
        u, v = normal(seed, 2, d, n)
        left, _, right = torch.linalg.svd(u, full_matrices=False)
        aligned = left @ torch.diag(torch.linalg.svdvals(v)) @ right
        for first, second in ((u, v), (u, aligned), (left @ right, 2 * left @ right)):
            chains.append(printed_chain(first, second))
    every = torch.stack(chains)
    ratios = (every[:, :-1] / every[:, 1:]).amax(0)
    factors = {"as printed": 1.0, "a right side 1 % smaller": 0.99}
    names = (f"largest left over right side of inequality {i}" for i in (1, 2, 3))
    checks = [
        checked(name, INEQUALITY, factors, partial(truediv, ratio))
        for name, ratio in zip(names, ratios.tolist(), strict=True)
    ]
    return Verdict([c for of in checks for c in of], settings={"d": d, "n": n, "pairs": 3 * draws})


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
    rounded = at_least(-1e-12, "the statement itself, up to rounding")

    def pair(seed: int, lowest: float, *, common: bool = True) -> tuple[Tensor, Tensor]:
        """Of norm 1, with common eigenvectors or not; B has this eigenvalue where A is largest."""
        a_values, b_values = normal(seed, 2, d).square()
        a_values[0], b_values[0] = 100.0, lowest
        first, second = (
            random_rotation(d, seed),
            random_rotation(d, seed if common else draws + seed),
        )
        a = first.mT @ torch.diag(a_values) @ first
        b = second.mT @ torch.diag(b_values) @ second
        return a / a.norm(), b / b.norm()

    def traces(lowest: float) -> float:
        pairs = [pair(s, lowest, common=c) for s in range(draws) for c in (True, False)]
        return min((a @ b).trace().item() for a, b in pairs)

    def asymmetry(common: bool) -> float:
        pairs = [pair(seed, 0.0, common=common) for seed in range(draws)]
        return max((a @ b - (a @ b).mT).norm().item() for a, b in pairs)

    def eigenvalue(lowest: float) -> float:
        pairs = [pair(seed, lowest) for seed in range(draws)]
        return min(smallest_eigenvalue(a @ b) for a, b in pairs)

    signs = {"an eigenvalue of B 0": 0.0, "an eigenvalue of B -0.1": -0.1}
    commuting = {"A and B commute": True, "A and B do not": False}
    form = smallest_eigenvalue(rotated([1.0, 0.9], 0) @ rotated([1.0, 0.9], 1))
    return Verdict(
        [
            *checked("smallest tr(AB) / (|A|_F |B|_F)", rounded, signs, traces),
            *checked("largest |AB - (AB)^T|_F / (|A|_F |B|_F)", ROUNDING, commuting, asymmetry),
            *checked("A, B commute: smallest eigenvalue of AB", rounded, signs, eigenvalue),
        ],
        settings={"d": d, "pairs": draws},
        remarks=[
            "AB >= 0 is read as symmetric with no negative eigenvalue; a product that is symmetric "
            "commutes. Without symmetry, as a quadratic form, it can be positive though A and B "
            f"do not commute: the smallest eigenvalue of (AB + BA)/2 is {form:.3f} for one pair. "
            "Only the other direction is used in the paper."
        ],
    )
