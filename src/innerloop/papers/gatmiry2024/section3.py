"""Section 3 of Gatmiry et al. (2024) before its theorems: gradient descent, and loops that take it.

The paper's A stands in Q itself, so that the step on the prompt is preconditioned by A^T.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.functional import hessian, jacobian

from innerloop.algorithms import GradientDescent
from innerloop.models import GATMIRY
from innerloop.papers.common import generator, identity, normal, relative
from innerloop.papers.gatmiry2024.settings import against_last, paper_weights
from innerloop.papers.quantity import ROUNDING, Quantity, at_most
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.tasks import LinearRegression

SEEDS = range(5)


def squared_residual(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """|X^T w - y|^2, for x = X^T, [n, d]."""
    return (x @ w - y).square().sum()


def left_over(x: Tensor, step: float, steps: int) -> float:
    """The largest |w_t - w*| / |w*| over all w*, after these steps of descent from 0."""
    d = x.shape[1]
    truth, w = identity(d), torch.zeros(d, d, dtype=x.dtype)
    for _ in range(steps):
        w = w - step * jacobian(lambda w: squared_residual(w, x, x @ truth), w)
    return torch.linalg.matrix_norm(w - truth, 2).item()


@claim(
    "gatmiry2024/section3.2",
    "The Hessian of the regression loss is XX^T, with condition number kappa, and gradient descent "
    "with step size 1/kappa converges in O(kappa) iterations",
    source="section 3.2",
    formula=r"\nabla^2 \|X^\top w - y\|^2 = X X^\top,\qquad w_{t+1} = w_t - \tfrac{1}{\kappa} "
    r"\nabla \|X^\top w_t - y\|^2",
)
def descent_converges(scale: Scale) -> Verdict:
    d, n = 10, 100
    inputs = [normal(seed, n, d) for seed in SEEDS]
    spectra = [torch.linalg.eigvalsh(x.mT @ x) for x in inputs]
    kappas = [(values[-1] / values[0]).item() for values in spectra]

    def left(step: Callable[[Tensor], float]) -> float:
        runs = zip(inputs, map(step, spectra), kappas, strict=True)
        return max(left_over(x, size, math.ceil(kappa)) for x, size, kappa in runs)

    error = Quantity(
        "largest |w_t - w*| / |w*| after kappa steps of size",
        left,
        at_most(math.exp(-1), "O(kappa): a step 1/lambda_max(H) leaves (1 - 1/kappa)^kappa <= 1/e"),
    ).of(
        {
            "1/kappa": lambda values: (values[0] / values[-1]).item(),
            "1/lambda_max(2 X X^T)": lambda values: 1 / (2 * values[-1].item()),
            "1/lambda_max(X X^T)": lambda values: 1 / values[-1].item(),
        }
    )
    x = inputs[0]
    exact = hessian(lambda w: squared_residual(w, x, x.sum(1)), x[0])
    second = Quantity[float](
        "relative difference from the Hessian by autograd",
        lambda factor: relative(factor * x.mT @ x, exact),
        ROUNDING,
    ).of({"X X^T": 1.0, "2 X X^T": 2.0, "2.02 X X^T": 2.02})
    diverges, converges = against_last(error)
    single, double = against_last(second)
    return Verdict(
        [diverges, single],
        [converges, double],
        Correction(
            r"\text{step } \tfrac{1}{\kappa},\quad H = X X^\top",
            r"\begin{aligned} & \text{step } \tfrac{1}{\lambda_{\max}(H)},\quad H = 2 X X^\top, "
            r"\\ & \|w_t - w^*\| \le \left(1 - \tfrac{1}{\kappa}\right)^t \|w^*\| \end{aligned}",
            "A step size has the unit of 1/H; 1/kappa has none. The eigenvalues of XX^T are about "
            "n, so with step 1/kappa descent diverges; with 1/lambda_max(H) the number of "
            "iterations is as stated. The Hessian is 2XX^T (and the loss is printed with w* for "
            "w).",
            Kind.STATEMENT,
            f"d = {d}, n = {n}: kappa is {min(kappas):.2f} to {max(kappas):.2f}, and after kappa "
            f"steps of size 1/kappa the error is up to {error['1/kappa']:.0e} times |w*|.",
        ),
        settings={"d": d, "n": n, "prompts": len(inputs), "w*": "the worst one"},
    )


@claim(
    "gatmiry2024/proposition3.1",
    "A looped transformer with weights (5) takes one step of gradient descent, preconditioned by "
    "A, in every loop",
    source="Proposition 3.1, Eq. 5 to 9",
    formula=r"\begin{aligned} & \mathrm{TF}_L(Z^{(0)}; Q, P) = w_L^\top x_q,\qquad w_{t+1} = w_t "
    r"- \tfrac{1}{n} A X (X^\top w_t - y),\quad w_0 = 0, \\ & \nabla_w \ell_2^2(0) = X y "
    r"\end{aligned}",
)
def loops_are_gradient_steps(scale: Scale) -> Verdict:
    task, loops = LinearRegression.isotropic(4, 9), 3

    def gap(seed: int, factor: float, *, transposed: bool) -> float:
        prompt = task.sample(64, generator=generator(seed))
        a = 0.3 * normal(seed, task.d, task.d)
        transformer = GATMIRY.predict(*paper_weights(a.expand(loops, -1, -1)), prompt)
        step = factor * (a.mT if transposed else a)
        return relative(GradientDescent.repeated(step, loops)(prompt), transformer)

    steps = Quantity[tuple[float, bool]](
        "largest relative difference of the predictions, dense A, from descent preconditioned by",
        lambda case: max(gap(seed, case[0], transposed=case[1]) for seed in SEEDS),
        ROUNDING,
    ).of({"A": (1.0, False), "A^T": (1.0, True), "1.01 A^T": (1.01, True)})
    x, y = normal(0, task.n, task.d), normal(1, task.n)
    zero, moment = torch.zeros(task.d, dtype=x.dtype), x.mT @ y
    slope = jacobian(lambda w: squared_residual(w, x, y), zero)
    gradient = Quantity[tuple[Tensor, float]](
        "relative difference of the gradient at 0 by autograd from",
        lambda case: relative(case[0], case[1] * slope),
        ROUNDING,
    ).of(
        {
            "X y of |X^T w - y|^2": (moment, 1.0),
            "-X y / n of |X^T w - y|^2 / (2n)": (-moment / task.n, 1 / (2 * task.n)),
            "-X y / n of |X^T w - y|^2 / n": (-moment / task.n, 1 / task.n),
        }
    )
    plain, transposed = against_last(steps)
    wrong, right = against_last(gradient)
    return Verdict(
        [plain, wrong],
        [transposed, right],
        Correction(
            r"\begin{aligned} & \ell_2^2(w) = \|X^\top w^* - y\|^2,\; \nabla_w \ell_2^2(0) = X y, "
            r"\\ & w_1 = -\tfrac{1}{n} A \nabla_w \ell_2^2(0) \end{aligned}",
            r"\begin{aligned} & R(w) = \tfrac{1}{2n} \|X^\top w - y\|^2,\; \nabla R(0) = "
            r"-\tfrac{1}{n} X y, \\ & w_1 = -A^\top \nabla R(0) = \tfrac{1}{n} A^\top X y "
            r"\end{aligned}",
            "That loops take preconditioned steps is true; with A in Q the preconditioner is A^T, "
            "since the label row of (6) is y^T X^T A. The objective is written with w* for w, its "
            "gradient at 0 is -2Xy and not Xy, and with the gradient as printed the labels would "
            "grow in (9). The factor 1/(2n) makes every line right.",
            Kind.MISPRINT,
        ),
        settings={"task": task, "loops": loops, "A": "dense, not symmetric", "seeds": "0 to 4"},
    )
