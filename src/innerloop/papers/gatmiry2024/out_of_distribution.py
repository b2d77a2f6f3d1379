"""Prompts from another distribution: Theorems 4.5 and A.13 of Gatmiry et al. (2024).

The predictions are those of the paper's own forward pass on one given prompt; |v|_M^2 = v^T M v.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from innerloop import theory
from innerloop.models import GATMIRY
from innerloop.papers.common import DTYPE, random_rotation, rotated, square_root
from innerloop.papers.gatmiry2024.settings import accuracy, normal, paper_weights
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Correction, Scale, Verdict
from innerloop.prompt import Prompt

LOOPS, ZETA = 2, 0.3
LONG = 10**30
"""With fewer examples 16 delta d^{1/(2L)}, by which the bound is enlarged, is not small."""


@dataclass(frozen=True)
class Instance:
    """One prompt: the whitened covariance of its examples, its w and its query."""

    sigma: Tensor
    relative: Tensor
    """Sigma*^-1/2 Sigma_out Sigma*^-1/2; condition (30) bounds its eigenvalues."""
    w: Tensor
    query: Tensor

    def error(self, step: float, loops: int) -> float:
        """(TF(Z_0) - y_q)^2 with A = step / Sigma*, u = 0.

        d examples with the right (1/n) X X^T stand for any number of them.
        """
        d = len(self.sigma)
        root = square_root(self.sigma)
        x = d**0.5 * square_root(root @ self.relative @ root)
        prompt = Prompt(
            x[None], (x @ self.w)[None], self.query[None, None], (self.w @ self.query)[None, None]
        )
        a = (step * self.sigma.inverse()).expand(loops, d, d)
        error = GATMIRY.predict(*paper_weights(a), prompt) - prompt.y_query
        return error.square().item()

    def norms(self, *, swapped: bool) -> float:
        """|x_q|^2 |w|^2 in the norms of the theorem, or in those that the proof leads to."""
        inner, outer = self.sigma, self.sigma.inverse()
        if swapped:
            inner, outer = outer, inner
        return (self.query @ inner @ self.query * (self.w @ outer @ self.w)).item()


def printed_factor(n: int, d: int) -> float:
    """(1 + 16 delta d^{1/(2L)})^2 (1 + 16 delta d^{1/(2L)} - zeta)^{2L}."""
    extra = 16 * accuracy(LOOPS, n, d) * d ** (1 / (2 * LOOPS))
    return (1 + extra) ** 2 * (1 + extra - ZETA) ** (2 * LOOPS)


def spectral(eigenvalues: list[float], rotation: Tensor) -> Tensor:
    return rotation.mT @ torch.diag(torch.tensor(eigenvalues, dtype=DTYPE)) @ rotation


def counterexample(above: bool) -> Instance:
    """Sigma* = diag(4, 0.04), w along the long axis, the query along the short one.

    The eigenvalues of the relative covariance are 1 and the extreme one that the condition allows
    (2 - zeta under (10), which asks for at least 1; zeta under (30)), in rotated axes.
    """
    unit = torch.eye(2, dtype=DTYPE)
    turn = torch.tensor([[1.0, 1.0], [-1.0, 1.0]], dtype=DTYPE) / 2**0.5
    eigenvalues = [1.0, 2 - ZETA if above else ZETA]
    sigma = torch.diag(torch.tensor([4.0, 0.04], dtype=DTYPE))
    return Instance(sigma, spectral(eigenvalues, turn), unit[0], unit[1])


def random_instance(seed: int, lowest: float, highest: float) -> Instance:
    """Rotated everything; the relative covariance has eigenvalues in [lowest, highest]."""
    d = 3
    eigenvalues = torch.linspace(lowest, highest, d, dtype=DTYPE).tolist()
    relative = spectral(eigenvalues, random_rotation(d, seed))
    sigma = rotated([2.0, 0.5, 0.05], seed + 1)
    if seed % 2:  # along the worst eigenvector, where the corrected bound is attained
        worst = int(lowest + highest > 2) * (d - 1)
        vector = random_rotation(d, seed)[worst]
        root = square_root(sigma)
        return Instance(sigma, relative, torch.linalg.solve(root, vector), root @ vector)
    return Instance(sigma, relative, *normal(seed, 2, d).unbind())


def instance_bound(scale: Scale, lowest: float, note: str) -> Verdict:
    """`lowest` is the least eigenvalue of Sigma_out over Sigma* that the condition allows."""
    example = counterexample(above=lowest == 1.0)
    error, factor = example.error(1.0, LOOPS), printed_factor(LONG, 2)
    printed, swapped = (factor * example.norms(swapped=s) for s in (False, True))
    seeds = range(scale.pick(smoke=20, quick=200, paper=2000))
    within = [random_instance(seed, lowest, 2 - ZETA) for seed in seeds]
    outside = [random_instance(seed, 1.0, 3.0) for seed in seeds if seed % 2]
    n = 20
    step = theory.linear.looped_optimum(LOOPS, n, 3).steps[0].item()

    def share(instances: list[Instance], step: float, factor: float) -> float:
        return max(i.error(step, LOOPS) / (factor * i.norms(swapped=True)) for i in instances)

    long_factor = printed_factor(LONG, 3)
    # The best symmetric A is a*/Sigma*: the eigenvalues of I - A^1/2 S A^1/2 are in +-(1 - zeta
    # a*).
    exact_factor = (1 - ZETA * step) ** (2 * LOOPS)
    control = "Sigma_out = 3 Sigma* in one direction, which the condition excludes"
    return Verdict(
        printed=[
            Check(
                "squared error over the printed bound, n = 1e30",
                error / printed,
                1.0,
                max(i.error(1.0, LOOPS) / (long_factor * i.norms(swapped=False)) for i in outside),
                "the claim itself: no more than the bound allows",
                control,
            )
        ],
        corrected=[
            Check(
                f"largest squared error over the corrected bound, {len(seeds)} prompts, n = 1e30",
                max(share(within, 1.0, long_factor), error / swapped),
                1.0,
                share(outside, 1.0, long_factor),
                "the claim itself: no more than the bound allows",
                control,
            ),
            Check(
                f"beyond the statement, for any n: the same with (1 - zeta a*)^(2L), n = {n}",
                share(within, step, exact_factor),
                1 + 1e-10,
                share(outside, step, exact_factor),
                "the claim itself, which the eigenvalue zeta attains where the condition allows "
                "it; 1e-10 is rounding",
                control,
            ),
        ],
        correction=Correction(
            r"(\cdots)\, \|x_q^{out}\|_{\Sigma^*}^2\, \|w^{out,*}\|_{\Sigma^{*-1}}^2",
            r"(\cdots)\, \|x_q^{out}\|_{\Sigma^{*-1}}^2\, \|w^{out,*}\|_{\Sigma^*}^2",
            "The two norms are exchanged. The error is w^T A^-1/2 (I - A^1/2 Sigma_out A^1/2)^L "
            "A^1/2 x_q, so that its square is at most (w^T A^-1 w)(x_q^T A x_q) times the norm of "
            "the bracket to the power 2L, and A is close to the inverse of Sigma*: the last step "
            "of the proof replaces A^-1 by the inverse of Sigma*, and A by Sigma*. With Sigma* = "
            "diag(4, 0.04), w = e_1, x_q = e_2, L = 2, zeta = 0.3, n = 1e30 the squared error is "
            f"{error:.3f}; the printed bound is {printed:.5f}, the corrected one {swapped:.2f}. "
            f"For Sigma* = I there is no difference. {note} Since the best symmetric A is "
            "a*/Sigma* exactly, (1 - zeta a*)^(2L) times the corrected norms is a bound for every "
            "n, without delta.",
        ),
        settings={
            "L": LOOPS,
            "zeta": ZETA,
            "16 delta d^(1/2L)": f"{16 * accuracy(LOOPS, LONG, 2) * 2**0.25:.4f} at n = 1e30, "
            f"{16 * accuracy(LOOPS, 10**4, 2) * 2**0.25:.0f} at n = 1e4",
            "a* at n = 20, d = 3": round(step, 4),
        },
    )


@claim(
    "gatmiry2024/theorem4.5",
    "The optimal looped transformer has a small error on every prompt whose covariance is "
    "comparable to that of training",
    source="Theorem 4.5, Eq. 10",
    formula=r"\begin{aligned} & \Sigma^* \preceq \Sigma^{out} \preceq (2 - \zeta) \Sigma^*\; "
    r"\Rightarrow \\ & (\mathrm{TF}_L - y_q^{out})^2 \le (1 + r)^2 (1 + r - \zeta)^{2L} "
    r"\|x_q^{out}\|_{\Sigma^*}^2 \|w^{out,*}\|_{\Sigma^{*-1}}^2, \\ & r = 16\delta d^{1/(2L)} "
    r"\end{aligned}",
)
def bound_on_other_prompts(scale: Scale) -> Verdict:
    return instance_bound(
        scale,
        1.0,
        "Condition (10) asks for Sigma* <= Sigma_out; the appendix, and the proof, have "
        "zeta Sigma* <= Sigma_out. Sigma_out is (1/n) X X^T; the factor 1/n is missing.",
    )


@claim(
    "gatmiry2024/theoremA.13",
    "Theorem 4.5 again, under a weaker condition",
    source="Theorem A.13, Eq. 30",
    formula=r"\begin{aligned} & \zeta \Sigma^* \preceq \Sigma^{out} \preceq (2 - \zeta) \Sigma^*\; "
    r"\Rightarrow \\ & (\mathrm{TF}_L - y_q^{out})^2 \le (1 + r)^2 (1 + r - \zeta)^{2L} "
    r"\|x_q^{out}\|_{\Sigma^*}^2 \|w^{out,*}\|_{\Sigma^{*-1}}^2, \\ & r = 16\delta d^{1/(2L)} "
    r"\end{aligned}",
)
def bound_on_other_prompts_restated(scale: Scale) -> Verdict:
    return instance_bound(
        scale,
        ZETA,
        "Sigma_out is (1/n) X X^T; the factor 1/n is missing, and A^out in the proof is A^opt.",
    )
