"""Section 5 before Theorem 4: Lemma 2, Theorem 3, the distorted view and Newton's method."""

from functools import partial

import torch
from torch import Tensor
from torch.autograd.functional import hessian
from torch.func import grad

from innerloop import theory
from innerloop.models import AHN
from innerloop.papers.ahn2023 import settings
from innerloop.papers.common import identity, normal, relative, rotated, square_root, symmetric
from innerloop.papers.quantity import ROUNDING, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.prompt import Prompt
from innerloop.tasks import LinearRegression

SIZES = {(4, 9, 3): [1.2, 0.8, 0.5, 0.3], (3, 2, 4): [1.2, 0.5, 0.3], (1, 5, 2): [0.8]}
"""(d, n, layers), and the eigenvalues of Sigma."""
DISTORTION = settings.vector(1.0, 0.5, 0.0, 0.0, 0.8, 0.3, 0.2, 0.0, 0.6).view(3, 3)


def eq10(w: Tensor, w_star: Tensor, x: Tensor) -> Tensor:
    """R_{w*}(w) = (1/2n) sum_i (w^T x_i - w*^T x_i)^2, as printed; summed over prompts."""
    residual = torch.einsum("bnd,bd->bn", x, w - w_star)
    return residual.square().sum() / (2 * x.shape[1])


@claim(
    "ahn2023/lemma2",
    "With weights (9) a forward pass is gradient descent preconditioned by -A_i, a step per layer",
    source="Lemma 2, Eqs. 10 and 11",
    formula=r"w_{i+1} = w_i + A_i \nabla R_{w_\star}(w_i),\qquad"
    r" [Z_i]_{d+1,n+1} = -\langle x^{(n+1)}, w_i \rangle",
)
def forward_pass_is_gradient_descent(scale: Scale) -> Verdict:
    def gap(case: tuple[tuple[int, int, int], float, bool]) -> Tensor:
        """Largest of all layers and prompts; R times the factor, the steps in reverse or not."""
        (d, n, layers), factor, in_reverse = case
        root = torch.linalg.cholesky(rotated(SIZES[d, n, layers], seed=0))
        x, w_star = normal(0, 32, n + 1, d) @ root.mT, normal(1, 32, d)
        y = torch.einsum("bnd,bd->bn", x, w_star)
        z = Prompt(x[:, :n], y[:, :n], x[:, n:], y[:, n:]).token_matrix()
        a = -0.3 * symmetric(normal(2, layers, d, d))
        w, gaps = torch.zeros_like(w_star), []
        for step, p, q in zip(a.flip(0) if in_reverse else a, *settings.weights9(a), strict=True):
            w = w + factor * grad(eq10)(w, w_star, x[:, :n]) @ step.mT  # Eq. 11
            z = AHN.layers(p[None], q[None], z)
            gaps.append(z[:, -1, -1] + (x[:, n] * w).sum(-1))
        return torch.stack(gaps).abs().max()

    big = (4, 9, 3)
    sizes = {f"d = {d}, n = {n}, {k} layers": ((d, n, k), 1.0, False) for d, n, k in SIZES}
    near = {"1/n in Eq. 10": (big, 2.0, False), "the steps in reverse": (big, 1.0, True)}
    name = "largest difference of the label slot after any layer"
    return Verdict(
        checks(name, ROUNDING, sizes, unlike=near, measure=gap),
        settings={"Sigma": "rotated, eigenvalues 1.2 to 0.3", "prompts": 32},
        remarks=[
            "Eq. 11 is printed with R_{w_k} for R_{w*}.",
            "k layers are A_0 to A_{k-1}; the text writes A_0 to A_k.",
        ],
    )


def ends(task: LinearRegression, starts: int, diagonal: bool = False) -> list[tuple[float, Tensor]]:
    """Loss and symmetric (or diagonal) A_0, A_1 where descent ends; lowest first. Our sign."""
    d = task.d
    size, centre = (d, 0.5) if diagonal else (d * d, 0.5 * identity(d).flatten())

    def pair(place: Tensor) -> Tensor:
        return torch.diag_embed(place.view(2, d)) if diagonal else symmetric(place.view(2, d, d))

    def loss(place: Tensor) -> Tensor:
        return theory.linear.layered_risk(pair(place), task.covariance, task.n, symmetric=True)

    begin = [(centre + 0.3 * normal(s, 2, size)).flatten() for s in range(starts)]
    return [(value, pair(place)) for value, place in settings.lowest_first(loss, begin)]


def tasks(scale: Scale) -> tuple[dict[str, LinearRegression], int]:
    """Isotropic ones, and starts of descent for each."""
    sizes, starts = scale.pick(
        smoke=([(2, 4), (2, 20)], 3),
        quick=([(2, 2), (2, 4), (2, 20), (3, 4), (3, 10)], 6),
        paper=([(2, 1), (2, 2), (2, 4), (2, 20), (3, 1), (3, 2), (3, 4), (3, 10)], 10),
    )
    return {f"d = {d}, n = {n}": LinearRegression.isotropic(d, n) for d, n in sizes}, starts


@claim(
    "ahn2023/theorem3",
    "Two layers on isotropic data: among the best symmetric A_0, A_1 there are diagonal ones",
    source="Theorem 3",
    formula=r"\min_{A_0, A_1 \text{ symmetric}} f = \min_{A_0, A_1 \text{ diagonal}} f",
)
def two_layers_are_diagonal(scale: Scale) -> Verdict:
    isotropic, starts = tasks(scale)
    skewed = LinearRegression(rotated([1.0, 0.8], seed=0), 4)
    value, a = ends(isotropic["d = 2, n = 4"], starts)[0]
    loss = settings.ExactLoss.of(isotropic["d = 2, n = 4"], 4)
    gap, longer = (relative(loss(*settings.weights9(pair)), value) for pair in (-a, -1.01 * a))
    forward = "relative difference of the loss of the forward pass from the one that descent is on"
    return Verdict(
        checks(
            "how much the best diagonal pair is worse than the best symmetric pair found",
            settings.BEST,
            isotropic,
            unlike={"d = 2, n = 4, not isotropic: eigenvalues 1 and 0.8": skewed},
            measure=lambda task: ends(task, starts, True)[0][0] / ends(task, starts)[0][0] - 1,
        )
        + checks(forward, ROUNDING, {"the best pair": gap}, unlike={"1% longer": longer}),
        settings={"starts of descent": starts, "w": "N(0, I)"},
    )


@claim(
    "ahn2023/theorem3-scalar",
    "Two layers on isotropic data: all minima found are multiples of I, the best two steps",
    source="Theorem 3, and what is more",
    formula=r"A_0 = -a_0 I,\quad A_1 = -a_1 I",
    ours="measured",
)
def two_layers_are_scalar(scale: Scale) -> Verdict:
    isotropic, starts = tasks(scale)

    def farthest(case: tuple[LinearRegression, int]) -> float:
        """Of any end of descent from the best two steps for n + more examples."""
        task, more = case
        steps = theory.linear.untied_optimum(2, task.n + more, task.d).steps
        pairs = [settings.matrices(order, identity(task.d)) for order in (steps, steps.flip(0))]
        gaps = [[(a - pair).abs().max().item() for pair in pairs] for _, a in ends(task, starts)]
        return max(min(orders) for orders in gaps)

    name = "largest distance of any end of descent from the best two steps, in either order"
    cases = {size: (task, 0) for size, task in isotropic.items()}
    near = {"d = 2, n = 20, the best steps of n + 1": (isotropic["d = 2, n = 20"], 1)}
    found = checks(name, settings.ARRIVED, cases, unlike=near, measure=farthest)
    return Verdict(found, settings={"starts of descent": starts})


@claim(
    "ahn2023/section5.2-view",
    "Labels of latent covariates are linear in the distorted ones, with weights w ~ N(0, Sigma^-1)",
    source="Section 5.2, distorted view of the data",
    formula=r"x = W \bar x,\; \Sigma = W W^\top,\; w_\star = \Sigma^{-1/2} \bar w_\star \;"
    r"\Rightarrow\; \langle \bar x, \bar w_\star \rangle = \langle x, w_\star \rangle",
)
def distorted_view(scale: Scale) -> Verdict:
    latent_x, latent_w = normal(0, 100, 3), normal(1, 100, 3)
    root = square_root(DISTORTION @ DISTORTION.mT)
    prior = LinearRegression.distorted_view(DISTORTION, 5).prior
    printed = {"w = Sigma^-1/2 w', W not symmetric": (DISTORTION, root.inverse())}
    corrected = {"w = W^-T w', W not symmetric": (DISTORTION, DISTORTION.mT.inverse())}
    same = {"w = Sigma^-1/2 w', W = Sigma^1/2": (root, root.inverse())}
    near = {"w = W^-1 w', W not symmetric": (DISTORTION, DISTORTION.inverse())}

    def label_gap(case: tuple[Tensor, Tensor]) -> Tensor:
        w, to_weights = case
        seen = ((latent_x @ w.mT) * (latent_w @ to_weights.mT)).sum(-1)
        return (seen - (latent_x * latent_w).sum(-1)).abs().max()

    def covariance_gap(case: tuple[Tensor, Tensor]) -> Tensor:
        return (case[1] @ case[1].mT - prior).abs().max()

    labels = partial(checks, "difference of a label", ROUNDING, unlike=near, measure=label_gap)
    covariance = "difference of Cov w from Sigma^-1"
    covariances = partial(checks, covariance, ROUNDING, unlike=near, measure=covariance_gap)
    failing = labels(printed)
    return Verdict(
        failing + covariances(printed),
        labels(corrected | same) + covariances(corrected),
        Correction(
            r"w_\star = \Sigma^{-1/2} \bar w_\star",
            r"w_\star = W^{-\top} \bar w_\star",
            "The label is <W^-1 x, w'> = <x, W^-T w'>, the same only for W = Sigma^1/2. The "
            "covariance of w is Sigma^-1 either way, so Theorem 4 is not touched.",
            Kind.STATEMENT,
            f"W = [1, .5, 0; 0, .8, .3; .2, 0, .6]: labels are off by {failing[0].measured:.2f}.",
        ),
        settings={"draws": 100},
    )


@claim(
    "ahn2023/section5.2-hessian",
    "The Hessian of the least-squares loss of a prompt is XX^T/2n",
    source="Section 5.2, after the distorted view",
    formula=r"\nabla^2 R_{w_\star}(w) = \frac{1}{2n} X X^\top",
)
def newton(scale: Scale) -> Verdict:
    n, d = 6, 3
    x, w_star = normal(0, 1, n, d) @ DISTORTION.mT, normal(1, 1, d)
    gram = x[0].mT @ x[0]
    second = hessian(lambda w: eq10(w, w_star, x), w_star)[0, :, 0]
    gaps = [((second - gram / k).norm() / second.norm()).item() for k in (2 * n, n, n + 1)]
    name, near = "relative difference from the Hessian of Eq. 10", {"XX^T/(n+1)": gaps[2]}
    return Verdict(
        checks(name, ROUNDING, {"XX^T/2n": gaps[0]}, unlike=near),
        checks(name, ROUNDING, {"XX^T/n": gaps[1]}, unlike=near),
        Correction(
            r"\nabla^2 R = \frac{1}{2n} X X^\top",
            r"\nabla^2 R = \frac{1}{n} X X^\top",
            "R = (1/2n) (w - w*)^T XX^T (w - w*) has twice its coefficient as Hessian.",
            Kind.CONSTANT,
            "d = 1, n = 1, x = 1: R = (w - w*)^2 / 2 has the second derivative 1, not 1/2.",
        ),
        settings={"d": d, "n": n},
        remarks=["Sigma^-1 = E[XX^T]^-1 lacks the factor n: E[XX^T] = n Sigma."],
    )
