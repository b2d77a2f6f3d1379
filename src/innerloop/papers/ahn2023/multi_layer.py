"""Several layers: Lemmas 2, 8, 9, 10 and Theorems 3, 4, 5 of Ahn et al. (2023).

Risks and gradients are exact (`theory.linear.layered_risk`, degree up to 8 in the sample
covariance): sampling leaves noise in gradient directions that is larger than what the theorems are
about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import permutations

import torch
from torch import Tensor

from innerloop import theory
from innerloop.algorithms import GradientDescent
from innerloop.models import AHN
from innerloop.papers.common import ALGEBRA, DTYPE, generator, rotated
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Correction, Scale, Verdict
from innerloop.tasks import LinearRegression

SIGMA = rotated([1.2, 0.5, 0.3], seed=0)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=DTYPE)


def symmetric(matrices: Tensor) -> Tensor:
    return (matrices + matrices.mT) / 2


def paper_weights(a: Tensor, b: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(P, Q) of Eq. 9, or of Eq. 13 with b, in the paper's own sign."""
    q = torch.nn.functional.pad(a, (0, 1, 0, 1))
    p = torch.zeros_like(q)
    if b is not None:
        p[:, :-1, :-1] = b
    p[:, -1, -1] = 1
    return p, q


def relative(difference: Tensor, reference: Tensor) -> float:
    return (difference.abs().max() / reference.abs().max()).item()


@claim(
    "ahn2023/lemma2",
    "The forward pass of a transformer with weights (9) is gradient descent "
    "preconditioned by -A_i, "
    "one step per layer",
    source="Lemma 2",
    formula=r"w_{i+1} = w_i + A_i \nabla R_{w_\star}(w_i),\qquad"
    r" -[Z_i]_{d+1,n+1} = \langle x^{(n+1)}, w_i \rangle",
)
def forward_pass_is_gradient_descent(scale: Scale) -> Verdict:
    d, n, layers = 4, 9, 3
    seeds = range(5)
    errors, controls = [], []
    for seed in seeds:
        prompt = LinearRegression.isotropic(d, n).sample(64, generator=generator(seed))
        a = -0.3 * symmetric(normal(seed, layers, d, d))
        transformer = AHN.predict(*paper_weights(a), prompt)
        descent = GradientDescent([-matrix for matrix in a])(prompt)
        reverse = GradientDescent([-matrix for matrix in a.flip(0)])(prompt)
        errors.append(relative(transformer - descent, descent))
        controls.append(relative(transformer - reverse, descent))
    return Verdict(
        [
            Check(
                "largest relative difference of predictions",
                max(errors),
                1e-12,
                min(controls),
                ALGEBRA,
                "gradient descent with the preconditioners in reverse order",
            )
        ],
        settings={"d": d, "n": n, "layers": layers, "prompts": 64, "seeds": "0 to 4"},
    )


def reached(function: Callable[[Tensor], Tensor], starts: Iterable[Tensor]) -> list[float]:
    """Where descent ends from each of these starts."""
    return [theory.flow.descend(function, start.flatten())[0] for start in starts]


@claim(
    "ahn2023/theorem3",
    "Two layers on isotropic data: among the best symmetric A_0, A_1 there are diagonal ones",
    source="Theorem 3",
    formula=r"\min_{A_0, A_1 \text{ symmetric}} f = \min_{A_0, A_1 \text{ diagonal}} f",
)
def two_layers_are_diagonal(scale: Scale) -> Verdict:
    """More is true: every start ends at the best two multiples of the identity."""
    settings = scale.pick(
        smoke=[(2, 4)],
        quick=[(2, 1), (2, 4), (2, 20), (3, 2), (3, 4), (3, 10)],
        paper=[(2, 1), (2, 2), (2, 4), (2, 6), (2, 20), (3, 1), (3, 2), (3, 4), (3, 10)],
    )
    starts = scale.pick(smoke=3, quick=6, paper=10)
    diagonal_gap, scalar_gap, tied_gap, spread_gap = 0.0, 0.0, float("inf"), float("inf")
    for d, n in settings:
        identity = torch.eye(d, dtype=DTYPE)

        def full(v: Tensor, d: int = d, n: int = n, identity: Tensor = identity) -> Tensor:
            a = symmetric(v.view(2, d, d))
            return theory.linear.layered_risk(a, identity, n, symmetric=True)

        def diagonal(v: Tensor, d: int = d, n: int = n, identity: Tensor = identity) -> Tensor:
            return theory.linear.layered_risk(
                torch.diag_embed(v.view(2, d)), identity, n, symmetric=True
            )

        centre = 0.5 * torch.stack([identity, identity])
        ends = reached(full, (centre + 0.3 * normal(s, 2, d, d) for s in range(starts)))
        lowest, highest = min(ends), max(ends)
        best_diagonal = min(reached(diagonal, (0.5 + 0.3 * normal(s, 2, d) for s in range(starts))))
        optimum = theory.linear.untied_optimum(2, n, d).risk
        tied = theory.linear.looped_optimum(2, n, d).risk
        diagonal_gap = max(diagonal_gap, best_diagonal / lowest - 1)
        scalar_gap = max(scalar_gap, abs(lowest / optimum - 1), abs(highest / optimum - 1))
        tied_gap = min(tied_gap, tied / optimum - 1)
        spread_gap = min(spread_gap, tied / lowest - 1)
    why = "descent ends where the gradient is below 1e-11, and the loss is quadratic there"
    control = "the best A_0 = A_1 (one layer looped twice)"
    return Verdict(
        [
            Check(
                "how much the best diagonal pair is worse than the best symmetric pair found",
                diagonal_gap,
                1e-8,
                spread_gap,
                why,
                control,
            ),
            Check(
                "largest relative gap of any start from the best two multiples of the identity",
                scalar_gap,
                1e-8,
                tied_gap,
                why,
                control,
            ),
        ],
        settings={
            "(d, n)": ", ".join(map(str, settings)),
            "random starts each": starts,
            "beyond the theorem": "the minimisers found are scalar, not only diagonal",
        },
    )


def gradients(
    a: Tensor, n: int, prior: Tensor | None, b: Tensor | None = None, sigma: Tensor = SIGMA
) -> tuple[Tensor, Tensor]:
    """Exact gradients of the risk in the A_l (symmetric part) and in the B_l."""
    a = a.clone().requires_grad_()
    b = torch.zeros_like(a) if b is None else b.clone().requires_grad_()
    transforms = b if b.requires_grad else None
    value = theory.linear.layered_risk(a, sigma, n, prior, transforms=transforms, symmetric=True)
    value.backward()
    assert a.grad is not None
    return symmetric(a.grad), torch.zeros_like(a) if b.grad is None else b.grad


def off_direction(gradient: Tensor, direction: Tensor) -> float:
    """The part of the gradients that is not along one direction, relative to all of them."""
    unit = direction / direction.norm()
    along = torch.einsum("lij,ij->l", gradient, unit)[:, None, None] * unit
    return ((gradient - along).norm() / gradient.norm()).item()


@claim(
    "ahn2023/theorem4",
    "Among preconditioners proportional to the inverse covariance there are critical points of the "
    "whole loss, for any number of layers",
    source="Theorem 4",
    formula=r"\inf_{A \in \mathcal{S}} \sum_{i=0}^{k} \|\nabla_{A_i} f(A)\|_F^2 = 0,\qquad"
    r" \mathcal{S} = \{A : A_i = a_i \Sigma^{-1}\}",
)
def ray_holds_critical_points(scale: Scale) -> Verdict:
    """The infimum is attained: at the best steps the gradient in every matrix is zero."""
    n, layers = 7, scale.pick(smoke=2, quick=3, paper=3)
    inverse = SIGMA.inverse()
    steps = theory.linear.untied_optimum(layers, n, 3).steps
    best = steps[:, None, None] * inverse
    arbitrary = torch.tensor([0.4, 0.9, 0.2], dtype=DTYPE)[:layers, None, None] * inverse
    identity = torch.eye(3, dtype=DTYPE)
    at_best, _ = gradients(best, n, inverse)
    other_prior, _ = gradients(best, n, identity)
    return Verdict(
        [
            Check(
                "largest entry of the gradient at the best point of the ray",
                at_best.abs().max().item(),
                1e-9,
                other_prior.abs().max().item(),
                "rounding of the exact polynomial, whose terms are about 1e5 times its value",
                "the same point under the prior N(0, I)",
            ),
            Check(
                "part of the gradient that is not along Sigma, at another point of the ray",
                off_direction(gradients(arbitrary, n, inverse)[0], SIGMA),
                1e-9,
                off_direction(gradients(arbitrary, n, identity)[0], SIGMA),
                "rounding, as above",
                "the same point under the prior N(0, I)",
            ),
        ],
        settings={
            "d": 3,
            "n": n,
            "layers": layers,
            "Sigma": "eigenvalues 1.2, 0.5, 0.3, rotated",
            "steps": ", ".join(f"{s:.4f}" for s in steps.tolist()),
        },
    )


@claim(
    "ahn2023/theorem4-direction",
    "In the proof: moving along R~_i = r_i I lowers the loss at least as fast as along any R",
    source="Proof of Theorem 4, Eq. 25 and the line after it",
    formula=r"\tilde R_i = r_i I,\quad r_i = \tfrac{1}{d}\mathrm{Tr}(\Sigma^{1/2} R_i "
    r"\Sigma^{1/2})",
)
def descent_direction(scale: Scale) -> Verdict:
    n, layers, d = 7, 2, 3
    inverse, identity = SIGMA.inverse(), torch.eye(d, dtype=DTYPE)
    point = torch.tensor([0.4, 0.9], dtype=DTYPE)[:, None, None] * inverse
    gradient, _ = gradients(point, n, inverse)

    def excess(direction: Tensor) -> float:
        """How much slower than along R, relative to the size of both derivatives."""
        worst = -float("inf")
        for seed in range(10):
            r = symmetric(normal(seed, layers, d, d))
            sizes = torch.einsum("ij,lji->l", SIGMA, r)[:, None, None] / d
            stated, along = (gradient * sizes * direction).sum(), (gradient * r).sum()
            worst = max(worst, ((stated - along) / along.abs()).item())
        return worst

    why = "the two derivatives are equal in exact arithmetic; 1e-9 is rounding"
    control = "the direction r_i Sigma"
    return Verdict(
        printed=[
            Check(
                "d/dt f along r I minus along R, relative, worst of 10 directions R",
                excess(identity),
                1e-9,
                excess(SIGMA),
                why,
                control,
            )
        ],
        corrected=[
            Check(
                "d/dt f along r Sigma^-1 minus along R, relative, worst of 10 directions R",
                excess(inverse),
                1e-9,
                excess(SIGMA),
                why,
                control,
            )
        ],
        correction=Correction(
            r"\tilde R_i = r_i I",
            r"\tilde R_i = r_i \Sigma^{-1}",
            "The gradient on the ray is proportional to Sigma, so the direction in the ray "
            "with the "
            "same derivative as R is r Sigma^-1; r I does not even lie in S unless Sigma is a "
            "multiple of I. The later steps of the proof use the right one.",
        ),
        settings={"d": d, "n": n, "layers": layers, "a": "0.4, 0.9"},
    )


@claim(
    "ahn2023/theorem5",
    "With covariate transforms B_i there are critical points with A_i proportional to the inverse "
    "covariance and B_i to the identity",
    source="Theorem 5, Eq. 14",
    formula=r"\inf_{(A,B) \in \mathcal{S}} \sum_{i=0}^{k} \|\nabla_{A_i} f\|_F^2 + "
    r"\|\nabla_{B_i} f\|_F^2 = 0,\qquad \mathcal{S} = \{A_i = a_i \Sigma^{-1},\; B_i = b_i I\}",
)
def ray_holds_critical_points_with_transforms(scale: Scale) -> Verdict:
    d, n = 2, 6
    sigma = rotated([1.0, 0.3], seed=0)
    inverse, identity = sigma.inverse(), torch.eye(d, dtype=DTYPE)

    def on_ray(steps: Tensor, transforms: Tensor) -> tuple[Tensor, Tensor]:
        return steps[:, None, None] * inverse, transforms[:, None, None] * identity

    def ray_gradients(prior: Tensor, steps: Tensor, transforms: Tensor) -> tuple[Tensor, Tensor]:
        a, b = on_ray(steps, transforms)
        ga, gb = gradients(a, n, prior, b, sigma)
        return ga, gb[:1]  # the last transform changes nothing

    point = torch.tensor([0.4, 1.5], dtype=DTYPE), torch.tensor([0.8, 0.0], dtype=DTYPE)
    a_gradient, b_gradient = ray_gradients(inverse, *point)
    best = theory.linear.transformed_optimum(2, n, d, starts=20, generator=generator(0))
    assert best.transforms is not None
    a_best, b_best = ray_gradients(inverse, best.steps, best.transforms)
    untransformed = theory.linear.untied_optimum(2, n, d).steps, torch.zeros(2, dtype=DTYPE)
    _, b_control = ray_gradients(inverse, *untransformed)
    skew = torch.tensor([[0.0, 0.2], [0.1, 0.0]], dtype=DTYPE)
    a_point, b_point = on_ray(*point)
    a_off, b_off = gradients(a_point, n, inverse, b_point + skew, sigma)
    why = "rounding of an exact polynomial of degree 8 whose terms are about 1e5 times its value"
    return Verdict(
        [
            Check(
                "part of the gradient in A that is not along Sigma",
                off_direction(a_gradient, sigma),
                1e-8,
                off_direction(a_off, sigma),
                why,
                "the same with B_0 off the ray",
            ),
            Check(
                "part of the gradient in B that is not along I",
                off_direction(b_gradient, identity),
                1e-8,
                off_direction(b_off[:1], identity),
                why,
                "the same with B_0 off the ray",
            ),
            Check(
                "largest entry of the gradient at the best point of the ray",
                max(a_best.abs().max().item(), b_best.abs().max().item()),
                1e-6,
                b_control.abs().max().item(),
                "descent on the ray stalls at gradients of 1e-8, the square root of float64",
                "the best steps without transforms",
            ),
        ],
        settings={
            "d": d,
            "n": n,
            "layers": 2,
            "Sigma": "eigenvalues 1, 0.3, rotated",
            "point": "a = (0.4, 1.5), b = 0.8",
            "best": f"a = {best.steps.tolist()}, b = {best.transforms[0]:.4f}",
        },
    )


@claim(
    "ahn2023/lemma8",
    "On the ray the order of the layers does not matter",
    source="Lemma 8",
    formula=r"f(\ldots, A_i, \ldots, A_j, \ldots) = f(\ldots, A_j, \ldots, A_i, \ldots)"
    r"\quad\text{if } A_\ell = a_\ell \Sigma^{-1}",
)
def order_does_not_matter(scale: Scale) -> Verdict:
    n = 6
    inverse = SIGMA.inverse()

    def spread(a: Tensor) -> float:
        values = torch.stack(
            [
                theory.linear.layered_risk(a[list(p)], SIGMA, n, inverse)
                for p in permutations(range(3))
            ]
        )
        return ((values.max() - values.min()) / values.min()).item()

    ray = torch.tensor([0.2, 0.5, 0.9], dtype=DTYPE)[:, None, None] * inverse
    return Verdict(
        [
            Check(
                "relative spread of the exact loss over the six orders",
                spread(ray),
                1e-10,
                spread(ray + 0.2 * symmetric(normal(1, 3, 3, 3))),
                "rounding of the exact polynomial",
                "preconditioners off the ray",
            )
        ],
        settings={"d": 3, "n": n, "layers": 3, "a": "0.2, 0.5, 0.9"},
    )


def shifted_label(seed: int, *, dense: bool) -> tuple[Tensor, Tensor, Tensor]:
    """All tokens after three layers from label slot 0 and from label slot y_q, and y_q."""
    d, n = 4, 9
    prompt = LinearRegression.isotropic(d, n).sample(32, generator=generator(seed))
    p, q = paper_weights(-0.2 * symmetric(normal(seed, 3, d, d)), 0.2 * normal(seed + 50, 3, d, d))
    if dense:
        q = q + 0.2 * normal(seed + 99, 3, d + 1, d + 1)
    z = prompt.token_matrix()
    with_label = z.clone()
    with_label[:, -1, -1] = prompt.y_query[:, 0]
    return AHN.layers(p, q, z), AHN.layers(p, q, with_label), prompt.y_query[:, 0]


def identity_of_sparse_weights(quantity: str, gap: Callable[..., float]) -> Verdict:
    """An identity of weights (13), measured by gap(seed, dense=...), which a dense Q breaks."""
    seeds = range(5)
    check = Check(
        quantity,
        max(gap(seed, dense=False) for seed in seeds),
        1e-12,
        min(gap(seed, dense=True) for seed in seeds),
        ALGEBRA,
        "a dense Q, which (13) excludes",
    )
    settings = {"d": 4, "n": 9, "layers": 3, "prompts": 32, "seeds": "0 to 4"}
    return Verdict([check], settings=settings)


@claim(
    "ahn2023/lemma9",
    "With weights (13) the loss is the mean square of the query's last entry when its label is "
    "written into the prompt",
    source="Lemma 9",
    formula=r"f = \mathbf{E}\left[\mathrm{Tr}\left((I-M) \bar Y_k^\top \bar Y_k "
    r"(I-M)\right)\right]",
)
def reformulated_loss(scale: Scale) -> Verdict:
    def gap(seed: int, *, dense: bool) -> float:
        z, with_label, y = shifted_label(seed, dense=dense)
        loss = (z[:, -1, -1] + y).square().mean()
        return abs((with_label[:, -1, -1].square().mean() / loss - 1).item())

    return identity_of_sparse_weights("largest relative difference of the two losses", gap)


@claim(
    "ahn2023/lemma10",
    "With weights (13), a number added to the query's label slot is added to its output, and "
    "nothing else changes",
    source="Lemma 10",
    formula=r"F_X(X_0, Y_0 + C) = F_X(X_0, Y_0),\qquad F_Y(X_0, Y_0 + C) = F_Y(X_0, Y_0) + C",
)
def label_slot_is_additive(scale: Scale) -> Verdict:
    def gap(seed: int, *, dense: bool) -> float:
        z, with_label, y = shifted_label(seed, dense=dense)
        expected = z.clone()
        expected[:, -1, -1] += y
        return relative(with_label - expected, expected)

    return identity_of_sparse_weights(
        "largest relative change of any token beyond the stated one", gap
    )
