"""The technical lemmas of appendix D: matrix calculus, a Gaussian moment, trace inequalities."""

from collections.abc import Callable
from functools import partial

import torch
from scipy.special import roots_hermitenorm
from torch import Tensor

from innerloop.papers.common import normal, random_rotation, relative, rotated, symmetric
from innerloop.papers.quantity import at_least
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.zhang2023 import lemma5_1, prompts
from innerloop.papers.zhang2023.settings import SPECTRA, as_stated, tight


def slope(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    at = at.clone().requires_grad_()
    return torch.autograd.grad(function(at), at)[0]


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
    vector, bt, vec = normal(4, 4), b.mT.contiguous(), lemma5_1.column_vector
    rows: dict[str, tuple[Tensor, Tensor, Tensor]] = {  # exact, stated, without transposes
        "x^T B x": (slope(lambda t: t @ b @ t, vector), (b + b.mT) @ vector, 2 * b @ vector),
        "tr X B X^T": (slope(lambda t: (t @ b @ t.mT).trace(), x), x @ b.mT + x @ b, 2 * x @ b),
        "tr A X^T": (slope(lambda t: (a @ t.mT).trace(), x), a, a.mT),
        "tr A X B X^T C": (
            slope(lambda t: (a @ t @ b @ t.mT @ c).trace(), x),
            a.mT @ c.mT @ x @ b.mT + c @ a @ x @ b,
            a.mT @ c.mT @ x @ b + c @ a @ x @ b,
        ),
        "Vec(A X B)": (vec(a @ x @ b), torch.kron(bt, a) @ vec(x), torch.kron(a, bt) @ vec(x)),
        "tr A^T B": ((a.mT @ b).trace(), vec(a) @ vec(b), (a @ b).trace()),
    }
    found = []
    for name, (exact, stated, wrong) in rows.items():
        other = {"transposed": relative(wrong, exact)}
        found += as_stated(f"relative difference of {name}", relative(stated, exact), other)
    return Verdict(found, settings={"matrices": "4 x 4, normal entries"})


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
    nodes, mass = prompts.grid([roots_hermitenorm(3)] * 3)
    x = nodes @ torch.linalg.cholesky(lam).mT
    moment = torch.einsum("k,ki,kj->ij", mass * torch.einsum("ki,ij,kj->k", x, a, x), x, x)
    printed = printed_moment(lam, a)
    wrong = {
        "2 A for A + A^T": printed + lam @ (a - a.mT) @ lam,
        "tr(A) for tr(A Lambda)": printed + (a - a @ lam).trace() * lam,
    }
    name, error = "relative difference from quadrature", partial(relative, exact=moment)
    return Verdict(as_stated(name, printed, wrong, error), settings={"d": 3, "A": "normal"})


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
        pairs = ((u, v), (u, aligned), (left @ right, 2 * left @ right))
        chains += [printed_chain(*pair) for pair in pairs]
    every, found = torch.stack(chains), []
    for i, ratio in enumerate((every[:, :-1] / every[:, 1:]).amax(0).tolist(), start=1):
        found += tight(f"largest left over right side of inequality {i}", ratio, 1 / 0.99)
    return Verdict(found, settings={"d": d, "n": n, "pairs": 3 * draws})


def smallest_eigenvalue(matrix: Tensor) -> float:
    """Of the symmetric part."""
    return torch.linalg.eigvalsh(symmetric(matrix))[0].item()


@claim(
    "zhang2023/lemmaD.4",
    "Products of positive semi-definite matrices: their trace, and when they are so themselves",
    source="Lemma D.4",
    formula=r"A, B \succeq 0 \;\Rightarrow\; \mathrm{tr}(AB) \ge 0,\qquad AB \succeq 0"
    r" \Leftrightarrow AB = BA",
)
def products_of_positive_matrices(scale: Scale) -> Verdict:
    d, draws = 4, scale.pick(smoke=100, quick=1000, paper=10_000)

    def products(lowest: float, common: bool) -> list[Tensor]:
        """AB of norm 1, with common eigenvectors or not; B has the `lowest` where A is largest."""
        found = []
        for seed in range(draws):
            values = normal(seed, 2, d).square()
            values[0, 0], values[1, 0] = 100.0, lowest
            turns = [random_rotation(d, s) for s in (seed, seed if common else draws + seed)]
            a, b = (q.mT @ torch.diag(v) @ q for q, v in zip(turns, values, strict=True))
            found.append(a @ b / (a.norm() * b.norm()))
        return found

    def least_trace(lowest: float) -> float:
        return min(ab.trace().item() for c in (True, False) for ab in products(lowest, c))

    def least_eigenvalue(lowest: float) -> float:
        return min(map(smallest_eigenvalue, products(lowest, True)))

    negative = {"an eigenvalue of B -0.1": -0.1}
    rounded = at_least(-1e-12, "the statement itself, up to rounding")
    trace = as_stated("smallest tr(AB) / (|A|_F |B|_F)", 0.0, negative, least_trace, rounded)
    symmetry = as_stated(
        "A, B commute: largest |AB - (AB)^T|_F / (|A|_F |B|_F)",
        True,
        {"A and B do not commute": False},
        lambda common: max((ab - ab.mT).norm() for ab in products(0.0, common)),
    )
    name = "A, B commute: smallest eigenvalue of AB"
    eigenvalue = as_stated(name, 0.0, negative, least_eigenvalue, rounded)
    form = smallest_eigenvalue(rotated([1.0, 0.9], 0) @ rotated([1.0, 0.9], 1))
    remark = (
        "AB >= 0 is read as symmetric with no negative eigenvalue. As a quadratic form AB can be "
        f"positive though A and B do not commute: (AB + BA)/2 >= {form:.3f} for one pair. The "
        "paper uses the other direction alone."
    )
    found = [*trace, *symmetry, *eigenvalue]
    return Verdict(found, settings={"d": d, "pairs": draws}, remarks=[remark])
