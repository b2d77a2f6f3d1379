"""Section 3 of Gatmiry et al. (2024) before its theorems: gradient descent, in loops."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.functional import hessian, jacobian

from innerloop.algorithms import GradientDescent
from innerloop.models import GATMIRY
from innerloop.papers import Correction, Kind, Scale, Verdict, claim
from innerloop.papers.common import generator, identity, normal, relative
from innerloop.papers.gatmiry2024.settings import paper_weights
from innerloop.papers.quantity import ROUNDING, at_most, checks
from innerloop.tasks import LinearRegression

SEEDS = range(5)


def squared_residual(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """|X^T w - y|^2, for x = X^T, [n, d]."""
    return (x @ w - y).square().sum()


def left_over(x: Tensor, step: float, steps: int) -> float:
    """The largest |w_t - w*| / |w*| over all w*, after these steps of descent from 0."""
    truth = identity(x.shape[1])
    w = torch.zeros_like(truth)
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
    eigenvalues = [torch.linalg.eigvalsh(x.mT @ x).tolist() for x in inputs]
    kappas = [values[-1] / values[0] for values in eigenvalues]

    def left(sizes: list[float]) -> float:
        return max(map(left_over, inputs, sizes, map(math.ceil, kappas)))

    diverges, converges = checks(
        "largest |w_t - w*| / |w*| after kappa steps of size",
        at_most(math.exp(-1), "O(kappa): a step 1/lambda_max(H) leaves (1 - 1/kappa)^kappa <= 1/e"),
        {
            "1/kappa": [1 / kappa for kappa in kappas],
            "1/lambda_max(2 X X^T)": [1 / (2 * values[-1]) for values in eigenvalues],
        },
        unlike={"1/lambda_max(X X^T)": [1 / values[-1] for values in eigenvalues]},
        measure=left,
    )
    x = inputs[0]
    exact = hessian(lambda w: squared_residual(w, x, x.sum(1)), x[0])
    single, double = checks(
        "relative difference from the Hessian by autograd",
        ROUNDING,
        {"X X^T": x.mT @ x, "2 X X^T": 2 * x.mT @ x},
        unlike={"2.02 X X^T": 2.02 * x.mT @ x},
        measure=lambda formula: relative(formula, exact),
    )
    return Verdict(
        [diverges, single],
        [converges, double],
        Correction(
            r"\text{step } \tfrac{1}{\kappa},\quad H = X X^\top",
            r"\begin{aligned} & \text{step } \tfrac{1}{\lambda_{\max}(H)},\quad H = 2 X X^\top, "
            r"\\ & \|w_t - w^*\| \le \left(1 - \tfrac{1}{\kappa}\right)^t \|w^*\| \end{aligned}",
            "A step size has the unit of 1/H, and 1/kappa has none: the eigenvalues of XX^T are "
            "about n, and descent diverges. The loss is printed with w* for w.",
            Kind.STATEMENT,
            f"d = {d}, n = {n}: kappa is {min(kappas):.2f} to {max(kappas):.2f}, and after kappa "
            f"steps of size 1/kappa the error is up to {diverges.measured:.0e} times |w*|.",
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
    n, loops, task = 9, 3, LinearRegression.isotropic(4, 9)

    def gap(preconditioner: Callable[[Tensor], Tensor]) -> float:
        gaps = []
        for seed in SEEDS:
            prompt, a = task.sample(64, generator=generator(seed)), 0.3 * normal(seed, 4, 4)
            transformer = GATMIRY.predict(*paper_weights(a.expand(loops, -1, -1)), prompt)
            descent = GradientDescent.repeated(preconditioner(a), loops)(prompt)
            gaps.append(relative(descent, transformer))
        return max(gaps)

    plain, transposed = checks(
        "largest relative difference of the predictions, dense A, from descent preconditioned by",
        ROUNDING,
        {"A": lambda a: a, "A^T": lambda a: a.mT},
        unlike={"1.01 A^T": lambda a: 1.01 * a.mT},
        measure=gap,
    )
    x, y = normal(0, n, 4), normal(1, n)
    slope, moment = jacobian(lambda w: squared_residual(w, x, y), 0 * x[0]), x.mT @ y
    wrong, right = checks(
        "relative difference of the gradient at 0 by autograd from",
        ROUNDING,
        {
            "X y of |X^T w - y|^2": relative(moment, slope),
            "-X y / n of |X^T w - y|^2 / (2n)": relative(-moment / n, slope / (2 * n)),
        },
        unlike={"-X y / n of |X^T w - y|^2 / n": relative(-moment / n, slope / n)},
    )
    return Verdict(
        [plain, wrong],
        [transposed, right],
        Correction(
            r"\begin{aligned} & \ell_2^2(w) = \|X^\top w^* - y\|^2,\; \nabla_w \ell_2^2(0) = X y, "
            r"\\ & w_1 = -\tfrac{1}{n} A \nabla_w \ell_2^2(0) \end{aligned}",
            r"\begin{aligned} & R(w) = \tfrac{1}{2n} \|X^\top w - y\|^2,\; \nabla R(0) = "
            r"-\tfrac{1}{n} X y, \\ & w_1 = -A^\top \nabla R(0) = \tfrac{1}{n} A^\top X y "
            r"\end{aligned}",
            "With A in Q the preconditioner is A^T: the label row of (6) is y^T X^T A. The "
            "objective is printed with w* for w; its gradient at 0 is -2Xy, and with Xy the labels "
            "would grow in (9). The factor 1/(2n) makes every line right.",
            Kind.MISPRINT,
        ),
        settings={"task": task, "loops": loops, "A": "dense", "seeds": len(SEEDS)},
    )
