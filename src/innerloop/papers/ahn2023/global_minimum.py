"""One layer: Theorem 1 and Lemmas 6 and 7 of Ahn et al. (2023).

Risks here are exact (`theory.linear.single_layer_risk`), and so are their gradients. The paper's
sign is converted once, in `models.conventions`: its A is minus the preconditioner.
"""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import ALGEBRA, DTYPE, SAMPLING, WHY_SAMPLING, generator
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Correction, Scale, Verdict
from innerloop.tasks import LinearRegression

SPECTRUM = torch.tensor([1.2, 0.5, 0.3], dtype=DTYPE)
N = 7
TASK = LinearRegression(torch.diag(SPECTRUM), N)


def stated_minimum(task: LinearRegression, preconditioner: Tensor) -> tuple[Tensor, Tensor]:
    """(b, A) of Eq. 8 around a preconditioner, in innerloop's sign."""
    d = task.d
    b = torch.zeros(d + 1, dtype=DTYPE)
    b[-1] = 1
    return b, torch.cat([preconditioner.mT, torch.zeros(1, d, dtype=DTYPE)])


def risk(task: LinearRegression, b: Tensor, a: Tensor) -> Tensor:
    return theory.linear.single_layer_risk(b, a, task.covariance, task.n, task.prior)


def deepest_descent(task: LinearRegression, b: Tensor, a: Tensor, draws: int) -> float:
    """The lowest relative change of the risk over random perturbations of all sizes."""
    source, here, lowest = generator(0), risk(task, b, a).item(), float("inf")
    for draw in range(draws):
        size = 10 ** (-3 + 3 * (draw % 4) / 3)
        db, da = (size * torch.randn(t.shape, generator=source, dtype=DTYPE) for t in (b, a))
        lowest = min(lowest, risk(task, b + db, a + da).item() / here - 1)
    return lowest


def critical_points(task: LinearRegression, starts: int) -> list[tuple[float, Tensor, Tensor]]:
    """(risk, b, A) where descent on the exact risk ends, from Gaussian starts; lowest first."""
    d = task.d

    def loss(vector: Tensor) -> Tensor:
        return risk(task, vector[: d + 1], vector[d + 1 :].view(d + 1, d))

    found = []
    for seed in range(starts):
        start = 0.5 * torch.randn((d + 1) ** 2, generator=generator(seed), dtype=DTYPE)
        value, end = theory.flow.descend(loss, start)
        found.append((value, end[: d + 1], end[d + 1 :].view(d + 1, d)))
    return sorted(found, key=lambda point: point[0])


@claim(
    "ahn2023/theorem1",
    "One layer of linear attention has the least loss, over all its weights, when it "
    "takes one step "
    "of gradient descent preconditioned by (8)",
    source="Theorem 1, Eq. 8",
    formula=r"b^\top = [0 \cdots 0\; 1],\quad A = -\begin{bmatrix} U\,\mathrm{diag}\left("
    r"\frac{1}{\frac{n+1}{n}\lambda_i + \frac{1}{n}\sum_k \lambda_k}\right) U^\top \\ "
    r"0 \end{bmatrix}",
)
def global_minimum(scale: Scale) -> Verdict:
    best = theory.linear.one_step_preconditioner(TASK.covariance, N)
    b, a = stated_minimum(TASK, best)
    optimum = risk(TASK, b, a).item()
    # Without the regulariser tr(Sigma)/n the preconditioner would be Sigma^-1.
    control = stated_minimum(TASK, TASK.covariance.inverse())
    starts = scale.pick(smoke=4, quick=20, paper=20)
    reached = [value / optimum - 1 for value, _, _ in critical_points(TASK, starts)]
    elsewhere = [gap for gap in reached if gap > 1e-8]
    # The best plain step: A = eta I minimises a quadratic in eta.
    second = theory.linear.sandwich_moment(TASK.covariance, TASK.covariance, N)
    eta = TASK.covariance.square().sum() / second.trace()
    plain = risk(TASK, *stated_minimum(TASK, eta * torch.eye(3, dtype=DTYPE))).item()
    draws = scale.pick(smoke=200, quick=800, paper=800)
    return Verdict(
        [
            Check(
                "lowest relative change of the loss over random perturbations of (b, A)",
                deepest_descent(TASK, b, a, draws),
                -1e-12,
                deepest_descent(TASK, *control, draws),
                "a minimum allows none below zero; 1e-12 is rounding",
                "the same around A = -1/Sigma, without the regulariser",
                at_least=True,
            ),
            Check(
                "relative gap between the lowest loss descent finds and the stated minimum",
                abs(reached[0]),
                1e-10,
                plain / optimum - 1,
                "descent stops at a gradient of 1e-11, where the loss is quadratic",
                "the best step without preconditioner",
            ),
        ],
        settings={
            "Sigma": "diag(1.2, 0.5, 0.3)",
            "n": N,
            "perturbations": f"{draws} of sizes 0.001 to 1",
            "stated minimum": round(optimum, 6),
            "random starts": starts,
            "of these, ended at a local minimum instead": (
                f"{len(elsewhere)}, with {1 + min(elsewhere):.4f} to {1 + max(elsewhere):.4f} "
                f"times "
                "the loss (v = 0 and p r^T of rank one)"
                if elsewhere
                else "0"
            ),
        },
    )


def family_distance(task: LinearRegression, b: Tensor, a: Tensor) -> float:
    """Distance of b (x) A from that of the stated minimum; rescaling (g b, A/g) leaves it alone."""
    best = stated_minimum(task, theory.linear.one_step_preconditioner(task.covariance, task.n))
    given, stated = (torch.einsum("i,jk->ijk", *pair) for pair in ((b, a), best))
    return ((given - stated).norm() / stated.norm()).item()


@claim(
    "ahn2023/theorem1-d1",
    "The stated global minimum is the only one, up to rescaling",
    source="Main contributions (first item); proof of Theorem 1, step 3",
    formula=r"f(b, A) = \min f \;\Rightarrow\; (b, A) = (\gamma b^*, \gamma^{-1} A^*)",
)
def uniqueness(scale: Scale) -> Verdict:
    one = LinearRegression(torch.tensor([[0.8]], dtype=DTYPE), 4)
    gamma_inverse = theory.linear.one_step_preconditioner(one.covariance, one.n).item()
    # b = (p, 0), A = (0, r): reads the label through the covariate's slot of b instead.
    other = (
        torch.tensor([1.0, 0.0], dtype=DTYPE),
        torch.tensor([[0.0], [gamma_inverse]], dtype=DTYPE),
    )
    stated = risk(one, *stated_minimum(one, torch.tensor([[gamma_inverse]], dtype=DTYPE))).item()
    gap = abs(risk(one, *other).item() - stated)
    starts = scale.pick(smoke=4, quick=20, paper=20)
    points = critical_points(TASK, starts)
    minima = [point for point in points if point[0] < points[0][0] * (1 + 1e-10)]
    distances = [family_distance(TASK, b, a) for _, b, a in minima]
    far = family_distance(TASK, *stated_minimum(TASK, TASK.covariance.inverse()))
    return Verdict(
        printed=[
            Check(
                "d = 1: distance from the stated family of another point with the same loss",
                family_distance(one, *other) if gap < 1e-12 else 0.0,
                1e-4,
                far,
                "a unique minimiser would be found to the square root of the loss's precision",
                "A = -1/Sigma, which is no minimum",
            )
        ],
        corrected=[
            Check(
                "d = 3: largest distance of the global minima that descent finds from the stated "
                "family",
                max(distances),
                1e-4,
                far,
                "minima are found to the square root of the loss's precision, about 1e-8",
                "A = -1/Sigma, which is no minimum",
            )
        ],
        correction=Correction(
            r"\text{unique for every } d",
            r"\begin{aligned} & d \ge 2: \text{ unique up to } (\gamma b, \gamma^{-1} A) \\"
            r" & d = 1: \text{ also } b = (p, 0),\; A = (0, r)^\top,\; pr = -\Gamma^{-1}"
            r" \end{aligned}",
            "For d = 1 the Gram matrix is symmetric in covariate and label, so reading row 1 and "
            "column 2 of it gives the same prediction as reading row 2 and column 1: a "
            "second family "
            f"of minima with the same loss 4/15 (measured gap {gap:.0e}). In the proof, f_j(X) "
            "depends on X only through X + X^T, so its minimiser is unique only up to a "
            "skew-symmetric matrix.",
        ),
        settings={
            "d = 1": "Sigma = 0.8, n = 4",
            "d = 3": "Sigma = diag(1.2, 0.5, 0.3), n = 7",
            "global minima found": f"{len(minima)} of {starts} starts",
        },
    )


def component_gradient(task: LinearRegression, j: int, coefficient: float) -> Tensor:
    """Gradient of f_j(X) = E (<C, X> + w_j)^2 at X = -coefficient E_{d+1,j}, exactly.

    C has blocks S, m = S w and |y|^2/n. Only m is odd in w, so only its row and column of the
    gradient can differ from zero: 2 E[w_j m] - 2 coefficient E[m m_j], with E[m m^T] = E[S^2].
    """
    d = task.d
    second = theory.linear.sandwich_moment(torch.eye(d, dtype=DTYPE), task.covariance, task.n)
    gradient = torch.zeros(d + 1, d + 1, dtype=DTYPE)
    gradient[-1, :-1] = 2 * task.covariance[j] - 2 * coefficient * second[j]
    gradient[:-1, -1] = gradient[-1, :-1]
    return gradient


def sampled_gradient_z(task: LinearRegression, j: int, coefficient: float, samples: int) -> float:
    """The largest |mean / standard error| over the entries of the sampled gradient."""
    source, d = generator(j), task.d
    root = torch.linalg.cholesky(task.covariance)
    x = torch.randn(samples, task.n, d, generator=source, dtype=DTYPE) @ root.mT
    w = torch.randn(samples, d, generator=source, dtype=DTYPE)
    z = torch.cat([x, x @ w.unsqueeze(-1)], dim=-1)
    c = z.mT @ z / task.n
    terms = 2 * (w[:, j] - coefficient * c[:, -1, j])[:, None, None] * c
    z_scores = terms.mean(0) / (terms.std(0) / samples**0.5)
    return z_scores.abs().max().item()


def component_minimum(task: LinearRegression, scale: Scale) -> list[Check]:
    eigenvalues = task.covariance.diagonal().tolist()
    d, n, samples = task.d, task.n, scale.pick(smoke=20_000, quick=200_000, paper=2_000_000)
    right = [1 / ((n + 1) / n * v + sum(eigenvalues) / n) for v in eigenvalues]
    wrong = [1 / v for v in eigenvalues]
    exact, exact_wrong, sampled, sampled_wrong = (
        max(function(j, coefficients[j]) for j in range(d))
        for function, coefficients in (
            (lambda j, c: component_gradient(task, j, c).abs().max().item(), right),
            (lambda j, c: component_gradient(task, j, c).abs().max().item(), wrong),
            (lambda j, c: sampled_gradient_z(task, j, c, samples), right),
            (lambda j, c: sampled_gradient_z(task, j, c, samples), wrong),
        )
    )
    return [
        Check(
            "largest entry of the gradient of f_j at X_j, over all j",
            exact,
            1e-12,
            exact_wrong,
            ALGEBRA,
            "X_j without the terms in 1/n",
        ),
        Check(
            f"largest |z| of the gradient sampled on {samples} prompts",
            sampled,
            SAMPLING,
            sampled_wrong,
            WHY_SAMPLING,
            "X_j without the terms in 1/n",
        ),
    ]


@claim(
    "ahn2023/lemma6",
    "With isotropic covariates each component f_j of the loss is minimised by a multiple of "
    "E_{d+1,j}",
    source="Lemma 6",
    formula=r"X_j = -\frac{1}{\frac{n-1}{n} + (d+2)\frac{1}{n}} E_{d+1,j}",
)
def isotropic_component(scale: Scale) -> Verdict:
    task = LinearRegression.isotropic(3, N)
    return Verdict(component_minimum(task, scale), settings={"d": 3, "n": N, "Sigma": "I"})


@claim(
    "ahn2023/lemma7",
    "With covariates of diagonal covariance each component f_j of the loss is minimised by a "
    "multiple of E_{d+1,j}",
    source="Lemma 7",
    formula=r"X_j = -\frac{1}{\frac{n+1}{n}\lambda_j + \frac{1}{n}\sum_k \lambda_k} E_{d+1,j}",
)
def diagonal_component(scale: Scale) -> Verdict:
    return Verdict(
        component_minimum(TASK, scale),
        settings={"d": 3, "n": N, "Sigma": "diag(1.2, 0.5, 0.3)"},
    )
