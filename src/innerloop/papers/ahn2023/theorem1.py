"""One layer: which weights matter (Eq. 7), and the best of them (Theorem 1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from innerloop import theory
from innerloop.models import AHN
from innerloop.papers.ahn2023.settings import ExactLoss, vector
from innerloop.papers.common import DTYPE, generator, normal, relative, rotated
from innerloop.papers.quantity import ROUNDING, at_most, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.tasks import LinearRegression

Weights = tuple[Tensor, Tensor]
ONE = LinearRegression(vector(0.8)[None], 4)
TWO = LinearRegression(rotated([1.0, 0.3], seed=0), 5)
TASK = LinearRegression(rotated([1.2, 0.5, 0.3], seed=0), 7)
FOUND = at_most(1e-4, "descent finds a place to the root of float64's precision, 1e-8, times 10^4")


@claim(
    "ahn2023/eq7",
    "The loss of one layer depends only on the last row of P and the first n columns of Q; the "
    "first n rows of P and the last column of Q do not matter",
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
    printed = {
        "n = 9: the first n rows of P": (9, slice(9), none, none),
        "n = 2: all columns of Q but the first n": (2, none, every, slice(2, None)),
    }
    corrected = {
        f"n = {n}: first d rows of P, last column of Q": (n, slice(d), every, last) for n in (9, 2)
    }
    failing = changes(printed, unlike={"the last row of P": (9, last, none, none)})
    return Verdict(
        failing,
        changes(corrected, unlike={"the last row of Q": (9, none, last, every)}),
        Correction(
            r"\text{the first } n \text{ columns of } Q,\ \text{the first } n \text{ rows of } P",
            r"\text{the first } d \text{ columns of } Q,\ \text{the first } d \text{ rows of } P",
            "P and Q have d + 1 rows and columns, whatever n is.",
            Kind.MISPRINT,
            f"d = 4, n = 2: new columns 3 to 5 of Q change the loss by {failing[1].measured:.0%}.",
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


def risk(task: LinearRegression, b: Tensor, a: Tensor, *, masked: bool = True) -> Tensor:
    """The closed form, whose preconditioner is minus the paper's A."""
    return theory.linear.single_layer_risk(b, -a, task.covariance, task.n, masked=masked)


def critical_points(task: LinearRegression, starts: int) -> list[tuple[float, Tensor, Tensor]]:
    """(loss, b, A) where descent on the closed form ends, from Gaussian starts; lowest first."""
    d = task.d

    def split(place: Tensor) -> Weights:
        return place[: d + 1], place[d + 1 :].view(d + 1, d)

    ends = [
        theory.flow.descend(lambda v: risk(task, *split(v)), 0.5 * normal(s, (d + 1) ** 2))
        for s in range(starts)
    ]
    return sorted(((loss, *split(end)) for loss, end in ends), key=lambda point: point[0])


@claim(
    "ahn2023/theorem1",
    "One layer of linear attention has the least loss, over all its weights, with (8), which is "
    "one step of preconditioned gradient descent; also with b times and A over any number",
    source="Theorem 1, Eq. 8",
    formula=r"b^\top = [0 \cdots 0\; 1],\quad A = -\begin{bmatrix} U\,\mathrm{diag}\left("
    r"\frac{1}{\frac{n+1}{n}\lambda_i + \frac{1}{n}\sum_k \lambda_k}\right) U^\top \\ "
    r"0 \end{bmatrix}",
)
def global_minimum(scale: Scale) -> Verdict:
    loss, (b, a) = forward_loss(TASK), eq8(TASK)
    starts = scale.pick(smoke=6, quick=20, paper=20)
    least, *others = (value for value, _, _ in critical_points(TASK, starts))
    dense = 0.5 * normal(0, 4), 0.5 * normal(1, 4, 3)

    def gradient(point: Weights) -> Tensor:
        variables = [t.clone().requires_grad_() for t in point]
        return max(g.abs().max() for g in torch.autograd.grad(loss(*variables), variables))

    def gap(point: Weights) -> float:
        return relative(loss(*point), least)

    def closed_form_gap(masked: bool) -> float:
        return relative(risk(TASK, *dense, masked=masked), loss(*dense))

    stated, other_n = {"Eq. 8": (b, a)}, {"Eq. 8 with n for n + 1": eq8(TASK, examples=0)}
    both = stated | {"Eq. 8, rescaled by -2.5": (-2.5 * b, a / -2.5)}
    near = other_n | {"Eq. 8 without the sum over k": eq8(TASK, traces=0.0)}
    name = "relative gap from the lowest loss that descent finds"
    above = [value / least for value in others if value > least * (1 + 1e-8)]
    local = f"{len(above)} of {starts} starts of descent end at local minima"
    return Verdict(
        checks("largest gradient in b and A", ROUNDING, stated, unlike=other_n, measure=gradient)
        + checks(name, ROUNDING, both, unlike=near, measure=gap)
        + checks(
            "relative difference of the closed form, which descent is on, from the forward pass",
            ROUNDING,
            {"dense random weights": True},
            unlike={"the query's token in the sum": False},
            measure=closed_form_gap,
        ),
        settings={"task": TASK, "starts of descent": starts, "least loss": round(least, 6)},
        remarks=[
            local + (f" of {min(above):.3f} to {max(above):.3f} times the loss." if above else "."),
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
            f"Sigma = 0.8, n = 4: b = (0, 1), A = (r, 0) and b = (1, 0), A = (0, r) with r = "
            f"{a[0].item():.4f} have the losses {loss(b, a).item():.6f} and "
            f"{loss(*second).item():.6f}.",
        ),
        settings={"d = 1": ONE, "d = 2": TWO, "d = 3": TASK, "starts of descent": starts},
    )
