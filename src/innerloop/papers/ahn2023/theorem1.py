"""One layer: which weights matter (Eq. 7), and the best of them (Theorem 1)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from innerloop import theory
from innerloop.models import AHN
from innerloop.papers.ahn2023.settings import ExactLoss
from innerloop.papers.common import DTYPE, generator, normal, rotated
from innerloop.papers.quantity import ROUNDING, Quantity, at_most, measured
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.tasks import LinearRegression

Weights = tuple[Tensor, Tensor]
TASK = LinearRegression(rotated([1.2, 0.5, 0.3], seed=0), 7)
ONE = LinearRegression(torch.tensor([[0.8]], dtype=DTYPE), 4)
FOUND = at_most(1e-4, "descent finds a place to the root of float64's precision, 1e-8, times 10^4")


@claim(
    "ahn2023/eq7",
    "The loss of one layer depends only on the last row of P and the first n columns of Q; the "
    "first n rows of P and the last column of Q do not matter",
    source="Section 4, before Eq. 7",
)
def weights_that_matter(scale: Scale) -> Verdict:
    d = 4

    def change(case: tuple[int, slice, slice, slice, slice]) -> float:
        """Of the loss on 64 prompts, where these rows and columns of P and of Q are drawn anew."""
        n, *slices = case
        prompt = LinearRegression(rotated([1.2, 0.8, 0.5, 0.3], 0), n).sample(
            64, generator=generator(0)
        )
        p, q, new_p, new_q = normal(1, 4, 1, d + 1, d + 1)
        before = (AHN.predict(p, q, prompt) - prompt.y_query).square().mean()
        p[:, slices[0], slices[1]] = new_p[:, slices[0], slices[1]]
        q[:, slices[2], slices[3]] = new_q[:, slices[2], slices[3]]
        after = (AHN.predict(p, q, prompt) - prompt.y_query).square().mean()
        return abs((after / before - 1).item())

    every, none, last = slice(None), slice(0), slice(d, None)
    cases = Quantity("relative change of the loss", change, ROUNDING).of(
        {
            "n = 9: the first n rows of P": (9, slice(9), every, none, none),
            "n = 2: all columns of Q but the first n": (2, none, none, every, slice(2, None)),
            "n = 9: first d rows of P, last column of Q": (9, slice(d), every, every, last),
            "n = 2: first d rows of P, last column of Q": (2, slice(d), every, every, last),
            "the last row of P": (9, last, every, none, none),
            "the last row of Q": (9, none, none, last, every),
        }
    )
    names = list(cases)
    return Verdict(
        printed=[cases.check(name, unlike="the last row of P") for name in names[:2]],
        corrected=[cases.check(name, unlike="the last row of Q") for name in names[2:4]],
        correction=Correction(
            r"\text{the first } n \text{ columns of } Q,\ \text{the first } n \text{ rows of } P",
            r"\text{the first } d \text{ columns of } Q,\ \text{the first } d \text{ rows of } P",
            "P and Q have d + 1 rows and columns. With n > d the first n rows of P are all of "
            "them, and with n < d columns beyond the n-th of Q matter.",
            Kind.MISPRINT,
            f"d = 4, n = 2: other columns 3 to 5 of Q change the loss by {cases[names[1]]:.0%}.",
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
    b = torch.zeros(task.d + 1, dtype=DTYPE)
    b[-1] = 1
    return b, a


def eq7(b: Tensor, a: Tensor) -> Weights:
    """(P, Q) of Eq. 7."""
    return pad(b[None, None], (0, 0, len(b) - 1, 0)), pad(a[None], (0, 1))


def forward_loss(task: LinearRegression) -> Callable[[Tensor, Tensor], Tensor]:
    exact = ExactLoss.of(task, 2, linear_in_w=False)
    return lambda b, a: exact(*eq7(b, a))


def risk(task: LinearRegression, b: Tensor, a: Tensor, *, masked: bool = True) -> Tensor:
    """The closed form, whose preconditioner is minus the paper's A."""
    return theory.linear.single_layer_risk(b, -a, task.covariance, task.n, masked=masked)


def critical_points(task: LinearRegression, starts: int) -> list[tuple[float, Tensor, Tensor]]:
    """(loss, b, A) where descent on the closed form ends, from Gaussian starts; lowest first."""
    d = task.d

    def split(vector: Tensor) -> Weights:
        return vector[: d + 1], vector[d + 1 :].view(d + 1, d)

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
    loss = forward_loss(TASK)
    b, a = eq8(TASK)
    points = {
        "Eq. 8": (b, a),
        "Eq. 8, rescaled by -2.5": (-2.5 * b, a / -2.5),
        "Eq. 8 with n for n + 1": eq8(TASK, examples=0),
        "Eq. 8 without the sum over k": eq8(TASK, traces=0.0),
    }

    def largest_gradient(point: Weights) -> Tensor:
        variables = [t.clone().requires_grad_() for t in point]
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss(*variables), variables)]
        ).abs().max()  # fmt: skip

    starts = scale.pick(smoke=6, quick=20, paper=20)
    reached = [value for value, _, _ in critical_points(TASK, starts)]
    gradients = Quantity("largest entry of the gradient in b and A", largest_gradient, ROUNDING)
    gaps = Quantity[Weights](
        "relative gap from the lowest loss that descent finds",
        lambda point: abs(loss(*point).item() / reached[0] - 1),
        ROUNDING,
    )
    dense = 0.5 * normal(0, 4), 0.5 * normal(1, 4, 3)
    closed = Quantity[bool](
        "relative difference of the closed form, which descent is on, from the forward pass",
        lambda masked: abs(risk(TASK, *dense, masked=masked).item() / loss(*dense).item() - 1),
        ROUNDING,
    ).of({"dense random weights": True, "the query's token in the sum": False})
    stated, no_trace = "Eq. 8", "Eq. 8 without the sum over k"
    above = [value / reached[0] for value in reached if value > reached[0] * (1 + 1e-8)]
    local = f"{len(above)} of {starts} starts of descent end at local minima"
    return Verdict(
        [
            gradients.of(points).check(stated, unlike="Eq. 8 with n for n + 1"),
            gaps.of(points).check(stated, unlike="Eq. 8 with n for n + 1"),
            gaps.of(points).check("Eq. 8, rescaled by -2.5", unlike=no_trace),
            closed.check("dense random weights", unlike="the query's token in the sum"),
        ],
        settings={"task": TASK, "starts of descent": starts, "least loss": round(reached[0], 6)},
        remarks=[
            local + (f" of {min(above):.3f} to {max(above):.3f} times the loss." if above else "."),
            'For large n the text has "A is about Sigma^-1"; by Eq. 8 it is about -Sigma^-1.',
        ],
    )


def family_distance(task: LinearRegression, b: Tensor, a: Tensor) -> float:
    """Of b (x) A from that of Eq. 8: rescaling (g b, A/g) leaves it alone."""
    given, stated = (torch.einsum("i,jk->ijk", *pair) for pair in ((b, a), eq8(task)))
    return ((given - stated).norm() / stated.norm()).item()


def other_family(task: LinearRegression) -> Weights:
    """d = 1: b = (1, 0), A = (0, r) reads the label through the covariate's slot of b."""
    b, a = eq8(task)
    return b.flip(0), a.flip(0)


@claim(
    "ahn2023/theorem1-d1",
    "The stated global minimum is the only one, up to rescaling",
    source="Main contributions, first item",
    formula=r"f(b, A) = \min f \;\Rightarrow\; (b, A) = (\gamma b^*, \gamma^{-1} A^*)",
)
def uniqueness(scale: Scale) -> Verdict:
    starts = scale.pick(smoke=6, quick=20, paper=20)

    def farthest(task: LinearRegression, *, swapped: bool = False) -> float:
        """Largest distance from Eq. 8 of the global minima that descent finds."""
        points = critical_points(task, starts)
        minima = [point for point in points if point[0] < points[0][0] * (1 + 1e-10)]
        distances = []
        for _, b, a in minima:
            own = family_distance(task, b, a)
            other = family_distance(task, b.flip(0), a.flip(0)) if swapped else own
            distances.append(min(own, other))
        return max(distances)

    two = LinearRegression(rotated([1.0, 0.3], seed=0), 5)
    cases = measured(
        "largest distance of a global minimum that descent finds from the stated family",
        FOUND,
        {
            "d = 1": farthest(ONE),
            "d = 1, or from the second family": farthest(ONE, swapped=True),
            "d = 2": farthest(two),
            "d = 3": farthest(TASK),
            "Eq. 8 with n for n + 1, no minimum": family_distance(TASK, *eq8(TASK, examples=0)),
        },
    )
    control = "Eq. 8 with n for n + 1, no minimum"
    loss = forward_loss(ONE)
    return Verdict(
        printed=[cases.check("d = 1", unlike=control)],
        corrected=[
            cases.check(case, unlike=control)
            for case in ("d = 2", "d = 3", "d = 1, or from the second family")
        ],
        correction=Correction(
            r"\text{unique for every } d",
            r"\begin{aligned} & d \ge 2: \text{ unique up to } (\gamma b, \gamma^{-1} A) \\"
            r" & d = 1: \text{ also } b = (p, 0),\; A = (0, r)^\top,\; pr = -\Gamma^{-1}"
            r" \end{aligned}",
            "For d = 1 the Gram matrix treats covariate and label alike, so reading its row 1 and "
            "column 2 predicts the same as reading row 2 and column 1: a second family of minima.",
            Kind.STATEMENT,
            f"Sigma = 0.8, n = 4: b = (0, 1), A = (r, 0) and b = (1, 0), A = (0, r) with r = "
            f"{eq8(ONE)[1][0].item():.4f} have the losses {loss(*eq8(ONE)).item():.6f} and "
            f"{loss(*other_family(ONE)).item():.6f}.",
        ),
        settings={"d = 1": ONE, "d = 2": two, "d = 3": TASK, "starts of descent": starts},
    )
