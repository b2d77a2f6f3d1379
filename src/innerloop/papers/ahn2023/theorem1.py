"""One layer: which weights matter (Eq. 7), the best of them (Theorem 1), and Lemmas 6 and 7."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.autograd.functional import hessian
from torch.func import grad
from torch.nn.functional import pad

from innerloop import theory
from innerloop.models import AHN
from innerloop.papers.ahn2023.settings import ExactLoss, lowest_first, vector
from innerloop.papers.common import DTYPE, generator, identity, normal, relative, rotated
from innerloop.papers.quantity import ROUNDING, at_least, at_most, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.tasks import LinearRegression

Weights = tuple[Tensor, Tensor]
ONE = LinearRegression(vector(0.8)[None], 4)
TWO = LinearRegression(rotated([1.0, 0.3], seed=0), 5)
TASK = LinearRegression(rotated([1.2, 0.5, 0.3], seed=0), 7)
ISOTROPIC = LinearRegression.isotropic(3, 7)
DIAGONAL = LinearRegression(torch.diag(vector(1.2, 0.5, 0.3)), 7)
FOUND = at_most(1e-4, "descent finds a place to the root of float64's precision, 1e-8, times 10^4")


@claim(
    "ahn2023/eq7",
    "With one layer, the first n rows of P and all columns of Q but the first n do not matter",
    source="Section 4, before Eq. 7",
)
def weights_that_matter(scale: Scale) -> Verdict:
    d, every, none, last = 4, slice(None), slice(0), slice(4, None)

    def change(case: tuple[int, slice, slice, slice]) -> float:
        """Of the loss, where these rows of P and these rows and columns of Q are drawn anew."""
        n, rows, q_rows, q_columns = case
        task = LinearRegression(rotated([1.2, 0.8, 0.5, 0.3], seed=0), n)
        prompt = task.sample(64, generator=generator(0))
        p, q, new_p, new_q = normal(1, 4, 1, d + 1, d + 1)
        before = (AHN.predict(p, q, prompt) - prompt.y_query).square().mean()
        p[:, rows] = new_p[:, rows]
        q[:, q_rows, q_columns] = new_q[:, q_rows, q_columns]
        return relative((AHN.predict(p, q, prompt) - prompt.y_query).square().mean(), before)

    changes = partial(checks, "relative change of the loss", ROUNDING, measure=change)
    failing = {
        "n = 9: the first n rows of P": (9, slice(9), none, none),
        "n = 2: all columns of Q but the first n": (2, none, every, slice(2, None)),
    }
    holding = {
        f"n = {n}: d rows of P, last column of Q": (n, slice(d), every, last) for n in (9, 2)
    }
    printed = changes(failing, unlike={"the last row of P": (9, last, none, none)})
    return Verdict(
        printed,
        changes(holding, unlike={"the last row of Q": (9, none, last, every)}),
        Correction(
            r"\text{the first } n \text{ columns of } Q,\ \text{the first } n \text{ rows of } P",
            r"\text{the first } d \text{ columns of } Q,\ \text{the first } d \text{ rows of } P",
            "P and Q have d + 1 rows and columns, whatever n is.",
            Kind.MISPRINT,
            f"d = 4, n = 2: new columns 3 to 5 of Q change the loss by {printed[1].measured:.0%}.",
        ),
        settings={"d": d, "prompts": 64, "weights": "standard normal"},
        remarks=["Eq. 6 is printed without the square, which Appendix A.1 has."],
    )


def eq8(task: LinearRegression, *, examples: int = 1, traces: float = 1.0) -> Weights:
    """(b, A) as printed in Eq. 8; with other numbers, near misses of it."""
    n = task.n
    eigenvalues, u = torch.linalg.eigh(task.covariance)
    best = 1 / ((n + examples) / n * eigenvalues + traces * eigenvalues.sum() / n)
    a = -torch.cat([u @ torch.diag(best) @ u.mT, torch.zeros(1, task.d, dtype=DTYPE)])
    return vector(*[0.0] * task.d, 1.0), a


def forward_loss(task: LinearRegression) -> Callable[[Tensor, Tensor], Tensor]:
    """Of (b, A), with P and Q of Eq. 7."""
    exact = ExactLoss.of(task, 2, linear_in_w=False)
    return lambda b, a: exact(pad(b[None, None], (0, 0, task.d, 0)), pad(a[None], (0, 1)))


def critical_points(task: LinearRegression, starts: int) -> list[tuple[float, Tensor, Tensor]]:
    """(loss, b, A) where descent on the closed form ends, from Gaussian starts; lowest first."""
    d = task.d

    def split(place: Tensor) -> Weights:
        return place[: d + 1], place[d + 1 :].view(d + 1, d)

    def risk(place: Tensor) -> Tensor:
        b, a = split(place)
        return theory.linear.single_layer_risk(b, -a, task.covariance, task.n)

    begin = [0.5 * normal(seed, (d + 1) ** 2) for seed in range(starts)]
    return [(loss, *split(end)) for loss, end in lowest_first(risk, begin)]


@claim(
    "ahn2023/theorem1",
    "One layer has its least loss with (8), a step of preconditioned GD; also with (g b, A / g)",
    source="Theorem 1, Eq. 8",
    formula=r"b^\top = [0 \cdots 0\; 1],\quad A = -\begin{bmatrix} U\,\mathrm{diag}\left(\frac{1}{"
    r"\frac{n+1}{n}\lambda_i + \frac{1}{n}\sum_k \lambda_k}\right) U^\top \\ 0 \end{bmatrix}",
)
def global_minimum(scale: Scale) -> Verdict:
    loss, (b, a) = forward_loss(TASK), eq8(TASK)
    starts = scale.pick(smoke=6, quick=20, paper=20)
    reached = [value for value, _, _ in critical_points(TASK, starts)]
    local = sum(value > reached[0] * (1 + 1e-8) for value in reached)
    dense = 0.5 * normal(0, 4), 0.5 * normal(1, 4, 3)

    def gradient(point: Weights) -> Tensor:
        return max(g.abs().max() for g in grad(loss, (0, 1))(*point))

    def gap(point: Weights) -> float:
        return relative(loss(*point), reached[0])

    def closed_form_gap(masked: bool) -> float:
        b, a, sigma = dense[0], -dense[1], TASK.covariance
        closed = theory.linear.single_layer_risk(b, a, sigma, TASK.n, masked=masked)
        return relative(closed, loss(*dense))

    cases = {"Eq. 8": (b, a), "Eq. 8, rescaled by -2.5": (-2.5 * b, a / -2.5)}
    near = {
        "Eq. 8 with n for n + 1": eq8(TASK, examples=0),
        "Eq. 8 without the sum over k": eq8(TASK, traces=0.0),
    }
    masked, unmasked = {"dense random weights": True}, {"the query's token in the sum": False}
    closed = "relative difference of the closed form, which descent is on, from the forward pass"
    return Verdict(
        checks("largest entry of the gradient", ROUNDING, cases, unlike=near, measure=gradient)
        + checks("relative gap to the least loss found", ROUNDING, cases, unlike=near, measure=gap)
        + checks(closed, ROUNDING, masked, unlike=unmasked, measure=closed_form_gap),
        settings={"task": TASK, "starts of descent": starts, "least loss": round(reached[0], 6)},
        remarks=[
            f"{local} of {starts} starts of descent end at local minima, the worst of "
            f"{reached[-1] / reached[0]:.3f} times the loss.",
            'For large n the text has "A is about Sigma^-1"; by Eq. 8 it is about -Sigma^-1.',
        ],
    )


def family_distance(given: Weights, stated: Weights) -> float:
    """Of b (x) A from b (x) A: rescaling (g b, A/g) leaves it alone."""
    product, exact = (torch.einsum("i,jk->ijk", *pair) for pair in (given, stated))
    return ((product - exact).norm() / exact.norm()).item()


@claim(
    "ahn2023/theorem1-d1",
    "The stated global minimum is the only one, up to rescaling",
    source="Main contributions, first item",
    formula=r"f(b, A) = \min f \;\Rightarrow\; (b, A) = (\gamma b^*, \gamma^{-1} A^*)",
)
def uniqueness(scale: Scale) -> Verdict:
    starts = scale.pick(smoke=6, quick=20, paper=20)

    def farthest(task: LinearRegression, *families: Weights) -> float:
        """Of the global minima that descent finds, from the nearest of these families."""
        points = critical_points(task, starts)
        minima = [(b, a) for loss, b, a in points if loss < points[0][0] * (1 + 1e-10)]
        return max(min(family_distance(point, f) for f in families) for point in minima)

    name = "largest distance of a global minimum that descent finds from the stated family"
    near = {"Eq. 8 with n for n + 1, no minimum": family_distance(eq8(TASK, examples=0), eq8(TASK))}
    (b, a), loss = eq8(ONE), forward_loss(ONE)
    second = b.flip(0), a.flip(0)
    corrected = {
        "d = 2": farthest(TWO, eq8(TWO)),
        "d = 3": farthest(TASK, eq8(TASK)),
        "d = 1, or from the second family": farthest(ONE, eq8(ONE), second),
    }
    return Verdict(
        checks(name, FOUND, {"d = 1": farthest(ONE, eq8(ONE))}, unlike=near),
        checks(name, FOUND, corrected, unlike=near),
        Correction(
            r"\text{unique for every } d",
            r"\begin{aligned} & d \ge 2: \text{ unique up to } (\gamma b, \gamma^{-1} A) \\"
            r" & d = 1: \text{ also } b = (p, 0),\; A = (0, r)^\top,\; pr = -\Gamma^{-1}"
            r" \end{aligned}",
            "For d = 1 the Gram matrix treats covariate and label alike: its row 1 and column 2 "
            "predict the same as row 2 and column 1.",
            Kind.STATEMENT,
            f"Sigma = 0.8, n = 4, r = {a[0].item():.4f}: b = (0, 1), A = (r, 0) and b = (1, 0), "
            f"A = (0, r) have the losses {loss(b, a):.6f} and {loss(*second):.6f}.",
        ),
        settings={"d = 1": ONE, "d = 2": TWO, "d = 3": TASK, "starts of descent": starts},
    )


def component(task: LinearRegression, j: int, x: Tensor) -> Tensor:
    """f_j(X) = E (<C, X> + w_j)^2, C = (1/n) sum_i z_i z_i^T, exactly."""
    exact = ExactLoss.of(task, 2, linear_in_w=False)
    tokens = torch.cat([exact.prompt.x, exact.prompt.y.unsqueeze(-1)], dim=-1)
    c = tokens.mT @ tokens / task.n
    # The queries are the columns of Sigma^1/2, here diagonal: y_q of the j-th is Sigma_jj^1/2 w_j.
    w = exact.prompt.y_query / task.covariance.diagonal().sqrt()
    return (exact.weights * ((c * x).sum((-2, -1)) + w[:, j]).square()).sum()


def at_entry(task: LinearRegression, j: int, coefficient: float) -> Tensor:
    """-coefficient E_{d+1,j}."""
    units = identity(task.d + 1)
    return -coefficient * torch.outer(units[-1], units[j])


def minimises(task: LinearRegression, stated: list[float], near: dict[str, list[float]]) -> Verdict:
    """f_j is convex in X: it is a gradient of 0 that makes a minimum."""

    def largest_gradient(coefficients: list[float]) -> Tensor:
        xs = [at_entry(task, j, value) for j, value in enumerate(coefficients)]
        return max(grad(partial(component, task, j))(x).abs().max() for j, x in enumerate(xs))

    name = "largest entry of the gradient of the convex f_j at X_j, over all j"
    return Verdict(
        checks(name, ROUNDING, {"as printed": stated}, unlike=near, measure=largest_gradient),
        settings={"task": task},
        remarks=["The lower right entry of C is printed y^T; it is y^2."],
    )


@claim(
    "ahn2023/lemma6",
    "With isotropic covariates every component f_j is minimised by a multiple of E_{d+1,j}",
    source="Lemma 6",
    formula=r"X_j = -\frac{1}{\frac{n-1}{n} + (d+2)\frac{1}{n}} E_{d+1,j}",
)
def isotropic_component(scale: Scale) -> Verdict:
    n, d = ISOTROPIC.n, ISOTROPIC.d
    stated, near = ([1 / ((n - 1) / n + number / n)] * d for number in (d + 2, d + 1))
    return minimises(ISOTROPIC, stated, {"d + 1 for d + 2": near})


def lemma7(task: LinearRegression, examples: int = 1) -> list[float]:
    """The coefficients as printed; with another number for the 1 in n + 1, a near miss."""
    eigenvalues, n = task.covariance.diagonal().tolist(), task.n
    return [1 / ((n + examples) / n * v + sum(eigenvalues) / n) for v in eigenvalues]


@claim(
    "ahn2023/lemma7",
    "With a diagonal covariance every component f_j is minimised by a multiple of E_{d+1,j}",
    source="Lemma 7",
    formula=r"X_j = -\frac{1}{\frac{n+1}{n}\lambda_j + \frac{1}{n}\sum_k \lambda_k} E_{d+1,j}",
)
def diagonal_component(scale: Scale) -> Verdict:
    return minimises(DIAGONAL, lemma7(DIAGONAL), {"n for n + 1": lemma7(DIAGONAL, examples=0)})


@claim(
    "ahn2023/lemma7-unique",
    "X_j is the unique global minimum of f_j",
    source="Proof of Theorem 1: step 3 of A.2, step 1 of A.3",
    formula=r"f_j(X) = \min f_j \;\Rightarrow\; X = X_j",
)
def unique_component(scale: Scale) -> Verdict:
    f, size = partial(component, DIAGONAL, 0), DIAGONAL.d + 1
    stated = at_entry(DIAGONAL, 0, lemma7(DIAGONAL)[0])
    curvature = hessian(f, stated).view(size**2, size**2)
    units = identity(size**2).view(-1, size, size)

    def least_curvature(directions: Tensor) -> Tensor:
        """On the span of these matrices, relative to the largest curvature of all."""
        basis = torch.linalg.svd(directions.flatten(1), full_matrices=False)
        kept = basis.Vh[basis.S > 1e-8]
        values = torch.linalg.eigvalsh(kept @ curvature @ kept.mT)
        return values[0] / torch.linalg.eigvalsh(curvature)[-1]

    gap, longer = (relative(f(x), f(stated)) for x in (stated.mT, 1.01 * stated))
    positive = at_least(1e-6, "a minimum is unique where this is positive; rounding is 1e-16")
    skew = {"skew-symmetric matrices": units - units.mT}
    name = "least curvature of f_0, relative to the largest"
    curvatures = partial(checks, name, positive, unlike=skew, measure=least_curvature)
    return Verdict(
        curvatures({"all matrices": units}),
        curvatures({"symmetric matrices": units + units.mT})
        + checks("relative gap of f_0", ROUNDING, {"X_0^T": gap}, unlike={"1.01 X_0": longer}),
        Correction(
            r"X_j \text{ is the unique minimum}",
            r"X \text{ is a minimum} \iff X + X^\top = X_j + X_j^\top",
            "C is symmetric: f_j sees only X + X^T. Theorem 1 does not need uniqueness.",
            Kind.PROOF,
            f"d = 3: f_0 is {f(stated):.4f} at X_0 and {f(stated.mT):.4f} at its transpose.",
        ),
        settings={"task": DIAGONAL, "j": 0},
    )
