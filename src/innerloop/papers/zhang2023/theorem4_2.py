"""The trained layer on new prompts: footnote 2, Eq. 4.3 and 4.4, Theorem 4.2 and its proof.

Errors are found in three ways that share nothing: formula (4.6), quadrature over every number of a
small prompt that the layer sees, and, for larger sizes, `theory.linear.prediction_error`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import DTYPE, normal, relative, rotated
from innerloop.papers.quantity import ROUNDING, at_least, at_most
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.zhang2023.prompts import (
    LABELS,
    WORDS,
    Labels,
    as_prompt,
    linear_prompts,
    matrices_of,
    minimum_around,
    predict,
    trained_matrices,
)
from innerloop.papers.zhang2023.settings import (
    LIMIT,
    SPECTRA,
    GammaOf,
    checked,
    checked_gammas,
    fixed,
    gamma,
)
from innerloop.prompt import Prompt
from innerloop.theory.linear import JointMoments


def stated_prediction(preconditioner: Tensor, prompt: Prompt, m: float | None = None) -> Tensor:
    """x_q^T A (1/M) sum_i y_i x_i."""
    total = torch.einsum("bnd,bn->bd", prompt.x, prompt.y)
    mean = total / (prompt.n if m is None else m)
    return torch.einsum("bi,ij,bj->b", prompt.x_query[:, 0], preconditioner, mean)


def layer_around(product: Tensor) -> tuple[Tensor, Tensor]:
    """W^PV and W^KQ of Eq. 4.1 or 4.12."""
    return matrices_of(minimum_around(product), len(product))


@claim(
    "zhang2023/footnote2",
    "One step of gradient descent from 0, without preconditioner, predicts x^T Lambda w on long "
    "prompts, which is not x^T w unless Lambda is the identity",
    source="Section 2, footnote 2",
    formula=r"x \mapsto x^\top \left(\frac{1}{n}\sum_{i=1}^n y_i x_i\right) = x^\top \left("
    r"\frac{1}{n}\sum_{i=1}^n x_i x_i^\top\right) w \approx x^\top \Lambda w",
)
def plain_step(scale: Scale) -> Verdict:
    law, d = fixed(2), 2
    lam, identity = law.covariances[0], torch.eye(d, dtype=DTYPE)
    square, trace = lam @ lam, lam.trace()

    def step_error(factor: float) -> float:
        """Of one step of size 1 on factor times the sum of squared residuals, n = 2."""
        prompt, *_ = linear_prompts(law, 2)
        w = torch.zeros(len(prompt.y), d, dtype=DTYPE, requires_grad=True)
        residuals = prompt.y - (prompt.x @ w.unsqueeze(-1)).squeeze(-1)
        (slope,) = torch.autograd.grad(factor * residuals.square().sum(), w)
        return relative(
            -(prompt.x_query[:, 0] * slope).sum(-1), stated_prediction(identity, prompt)
        )

    def error(n: int) -> float:
        """Of the stated prediction, over every prompt."""
        prompt, _, _, mass = linear_prompts(law, n)
        return (mass @ (stated_prediction(identity, prompt) - prompt.y_query[:, 0]) ** 2).item()

    def limit(covariance: Tensor) -> float:
        """Of x^T Lambda w: tr((I - Lambda)^2 Lambda)."""
        return ((identity - covariance) @ (identity - covariance) @ covariance).trace().item()

    spread = ((square @ lam).trace() + square.trace() * trace).item()
    formulas: dict[str, Callable[[int], float]] = {
        "of x^T Lambda w, and (tr Lambda^3 + tr Lambda^2 tr Lambda)/n": lambda n: (
            limit(lam) + spread / n
        ),
        "of x^T w, and the same": lambda n: spread / n,
        "n + 1 for n": lambda n: limit(lam) + spread / (n + 1),
    }
    return Verdict(
        [
            *checked(
                "largest relative difference of one step's prediction from the stated one",
                ROUNDING,
                {"on 1/(2n) sum of squares": 1 / 4, "on 1/(2(n+1)) sum of squares": 1 / 6},
                step_error,
            ),
            *checked(
                "largest relative difference from the error over every prompt, n = 1 and 2",
                ROUNDING,
                formulas,
                lambda stated: max(abs(stated(n) / error(n) - 1) for n in (1, 2)),
            ),
            *checked(
                "error left on endless prompts, over E y^2",
                at_least(1e-10, "the statement: not 0, beyond rounding"),
                {"eigenvalues 1.5 and 0.4": lam, "Lambda = I": identity},
                lambda covariance: limit(covariance) / covariance.trace().item(),
            ),
        ],
        settings={"d": d, "Lambda": f"eigenvalues {SPECTRA[2]}, rotated"},
        remarks=["The squared loss is read as half the mean of squared residuals, the step as 1."],
    )


@claim(
    "zhang2023/eq4.3",
    "The trained layer predicts with one preconditioned step, whatever the labels are",
    source="Eq. 4.2 and 4.3; Corollary 4.3, first display",
    formula=r"\hat y_{\mathrm{query}} = x_{\mathrm{query}}^\top \Gamma^{-1} \left("
    r"\frac{1}{M} \sum_{i=1}^{M} y_i x_i \right)",
)
def prediction_of_the_trained_layer(scale: Scale) -> Verdict:
    law, n, m = fixed(2), 2, 5
    lam = law.covariances[0]
    z = normal(0, 200, m + 1, 3)
    prompt = as_prompt(z[..., :2] @ torch.linalg.cholesky(lam).mT, z[..., 2] ** 2)
    layers = trained_matrices(law, n), layer_around(torch.linalg.inv(gamma(lam, n)))
    seen = [predict(layer, prompt) for layer in layers]

    def error(g: GammaOf, divisor: int = m) -> float:
        stated = stated_prediction(torch.linalg.inv(g(lam, n)), prompt, divisor)
        return max(relative(stated, found) for found in seen)

    others = {"M + 1 for M": error(gamma, m + 1), "N for M": error(gamma, n)}
    name = "largest difference of predictions, relative to the largest"
    return Verdict(
        checked_gammas(name, LIMIT, error, others),
        settings={
            "layers": f"where gradient flow of all weights ends, and Eq. 4.1; d = 2, N = {n}",
            "prompts": f"200 of M = {m} examples, labels independent of the covariates",
        },
    )


@claim(
    "zhang2023/eq4.4",
    "With long training and test prompts the trained layer is the best linear predictor, also of "
    "labels that are not linear",
    source="Eq. 4.4",
    formula=r"\hat y_{\mathrm{query}} \approx x_{\mathrm{query}}^\top \Lambda^{-1} "
    r"\mathbb{E}[y x] = x_{\mathrm{query}}^\top \left( \mathrm{argmin}_{w} "
    r"\mathbb{E}\left[(y - \langle w, x\rangle)^2\right] \right)",
)
def best_linear_limit(scale: Scale) -> Verdict:
    lam, labels, long = rotated(SPECTRA[3], seed=0), LABELS["cubic"], 10**6
    moments = labels.moments(lam)
    # One pair (x, y) at every node: the weighted least squares problem is the expected one.
    pairs, mass = labels.every_prompt(0, lam)
    root = mass.sqrt().unsqueeze(-1)
    x, y = pairs.x_query[:, 0], pairs.y_query
    best = torch.linalg.lstsq(root * x, root * y).solution[:, 0]
    weights = {
        "Lambda^-1 E[yx]": torch.linalg.solve(lam, moments.cross),
        "Gamma^-1 E[yx] for N = 1000": torch.linalg.solve(gamma(lam, 1000), moments.cross),
        "E[yx], as in footnote 2": moments.cross,
    }

    def added(train: float) -> float:
        """M times what the layer's error exceeds that of the best linear predictor by."""
        parts = theory.linear.error_parts(torch.linalg.inv(gamma(lam, train)), moments, long)
        return long * (parts.variance + parts.bias)

    xy, inverse = x * y, torch.linalg.inv(lam)
    uncentred = torch.einsum("p,pi,ij,pj->", mass, xy, inverse, xy).item()
    variance = uncentred - torch.einsum("i,ij,j->", mass @ xy, inverse, mass @ xy).item()
    k = 1 + sum(SPECTRA[3]) / min(SPECTRA[3])
    rates = {
        "from tr(Sigma Lambda^-1), N = M": (long, variance),
        "N = M/100": (long / 100, variance),
        "from tr(E[y^2 x x^T] Lambda^-1), not centred": (long, uncentred),
    }
    slack = at_most(
        (2 * k + k**2) / long,
        f"as Lambda <= Gamma <= (1 + k/N) Lambda with k = 1 + tr(Lambda)/l_min = {k:.4g}, the "
        "term in 1/M is off by a share of at most 2k/N and the bias by k^2 M/N^2",
    )
    return Verdict(
        [
            *checked(
                "largest relative difference from the minimiser, by least squares",
                ROUNDING,
                weights,
                lambda weight: relative(weight, best),
            ),
            *checked(
                f"relative difference of M times the error above the best linear one, M = {long}",
                slack,
                rates,
                lambda case: abs(added(case[0]) / case[1] - 1),
            ),
        ],
        settings={"Lambda": f"eigenvalues {SPECTRA[3]}, rotated", "labels": "cubic"},
        remarks=[f"So the error above the best linear one falls as {variance:.4g}/M."],
    )


def brackets(moments: JointMoments, lam: Tensor, train: float, test: float) -> dict[str, float]:
    """The terms of Eq. 4.6 as printed, |v|_A^2 meaning v^T A v."""
    trace, a = lam.trace(), torch.linalg.solve(lam, moments.cross)
    inverse = torch.linalg.inv(gamma(lam, train))
    squared = inverse @ inverse  # Gamma^-2, which commutes with Lambda

    def norm(matrix: Tensor) -> Tensor:
        return a @ matrix @ a

    terms = {
        "best linear predictor": moments.label_power - a @ lam @ a,
        "1/M": (moments.spread @ squared @ lam).trace() / test,
        "1/N^2, first": norm(squared @ lam @ lam @ lam) / train**2,
        "1/N^2, second": 2 * trace * norm(squared @ lam @ lam) / train**2,
        "1/N^2, third": trace**2 * norm(squared @ lam) / train**2,
    }
    return {name: term.item() for name, term in terms.items()}


def stated_error(moments: JointMoments, lam: Tensor, train: float, test: float) -> float:
    """Eq. 4.6."""
    return sum(brackets(moments, lam, train, test).values())


Terms = tuple[dict[str, float], float]
"""Those of Eq. 4.6, and the error."""
QUADRATURES = [(2, 1), (2, 2), (3, 1)]
"""(d, M) where every prompt can be visited, for every kind of labels."""


@claim(
    "zhang2023/theorem4.2",
    "The trained layer's error on new prompts is that of the best linear predictor plus terms in "
    "1/M and 1/N^2, whatever the labels are",
    source="Theorem 4.2, Eq. 4.6",
    formula=r"\begin{aligned} \mathbb{E}(\hat y - y)^2 = \min_{w} \mathbb{E}(\langle w, x\rangle "
    r"- y)^2 &+ \frac{1}{M} \mathrm{tr}\left[\Sigma \Gamma^{-2} \Lambda\right] \\ &+ \frac{1}{N^2}"
    r"\left[ \|a\|_{\Gamma^{-2}\Lambda^3}^2 + 2\,\mathrm{tr}(\Lambda)\|a\|_{\Gamma^{-2}\Lambda^2}^2"
    r" + \mathrm{tr}(\Lambda)^2 \|a\|_{\Gamma^{-2}\Lambda}^2 \right] \end{aligned}",
)
def error_on_new_prompts(scale: Scale) -> Verdict:
    small: list[Terms] = []
    for (d, m), train, labels in product(QUADRATURES, (1, 12), LABELS.values()):
        lam = rotated(SPECTRA[d], seed=1)
        layer = layer_around(torch.linalg.inv(gamma(lam, train)))
        terms = brackets(labels.moments(lam), lam, train, m)
        small.append((terms, labels.error(layer, m, lam)))
    large: list[Terms] = []
    for d, train, test, labels in product((3, 5), (1, 20), (7, 1000), LABELS.values()):
        lam = rotated(SPECTRA[d], seed=0)
        step, moments = torch.linalg.inv(gamma(lam, train)), labels.moments(lam)
        exact = theory.linear.prediction_error(step, moments, test).item()
        large.append((brackets(moments, lam, train, test), exact))

    def error(found: list[Terms], factors: dict[str, float]) -> float:
        sums = [sum(v * factors.get(k, 1.0) for k, v in terms.items()) for terms, _ in found]
        return max(abs(s / exact - 1) for s, (_, exact) in zip(sums, found, strict=True))

    cases: dict[str, dict[str, float]] = {
        "Eq. 4.6": {},
        "without tr(Lambda)^2 |a|^2": {"1/N^2, third": 0.0},
        "1 for the 2 before tr(Lambda)": {"1/N^2, second": 0.5},
        "without its first term in 1/N^2": {"1/N^2, first": 0.0},
        "1/(2M) for 1/M": {"1/M": 0.5},
    }
    visited = "largest relative difference from the layer's error over every prompt"
    moments_name = "larger sizes: largest relative difference from theory.linear.prediction_error"
    return Verdict(
        [
            *checked(visited, ROUNDING, cases, partial(error, small)),
            *checked(moments_name, ROUNDING, cases, partial(error, large)),
        ],
        settings={
            "over every prompt": f"(d, M) = {str(QUADRATURES)[1:-1]}; N = 1, 12",
            "larger sizes": "d = 3, 5; N = 1, 20; M = 7, 1000",
        },
        remarks=[
            WORDS,
            "The theorem needs E y^2 to be finite and does not list it. What it lists does not "
            "imply it: for d = 1 and y = |x|^(-3/4), E y, E xy and E x^2 y^2 are finite, E y^2 and "
            "both sides of (4.6) are not.",
        ],
    )


def proof_terms(labels: Labels, lam: Tensor, m: int, n: int, best: float) -> dict[str, float]:
    """Terms I to VI of appendix B over every prompt, minus what the proof says of them.

    `best` multiplies the best linear predictor a, to see what the proof owes to the choice of it.
    In units of the error itself.
    """
    moments, inverse = labels.moments(lam), torch.linalg.inv(gamma(lam, n))
    a = best * torch.linalg.solve(lam, moments.cross)
    prompt, mass = labels.every_prompt(m, lam)
    x, y = prompt.x_query[:, 0], prompt.y_query[:, 0]
    best_y, mean_y = x @ a, x @ (inverse @ moments.cross)
    seen = predict(layer_around(inverse), prompt)
    integrands = {
        "I": (best_y - y) ** 2,
        "II": (seen - mean_y) ** 2,
        "III": (mean_y - best_y) ** 2,
        "IV": 2 * (seen - mean_y) * (best_y - y),
        "V": 2 * (seen - mean_y) * (mean_y - best_y),
        "VI": 2 * (mean_y - best_y) * (best_y - y),
    }
    identity = torch.eye(len(lam), dtype=DTYPE)
    inner = identity + lam.trace() * torch.linalg.inv(lam)
    third = inner @ inner @ inverse @ inverse @ lam @ lam @ lam @ torch.outer(a, a) / best**2
    stated = {
        "I": (moments.label_power - moments.cross @ torch.linalg.solve(lam, moments.cross)),
        "II": (moments.spread @ inverse @ inverse @ lam).trace() / m,
        "III": third.trace() / n**2,
    }
    total = stated_error(moments, lam, n, m)
    return {
        name: ((mass @ value) - stated.get(name, 0.0)).item() / total
        for name, value in integrands.items()
    }


@claim(
    "zhang2023/appendixB",
    "In the proof of Theorem 4.2 the three cross terms vanish and the other three are the terms of "
    "(4.6)",
    source="Appendix B, terms I to VI",
    formula=r"\mathrm{II} = \frac{1}{M}\mathrm{tr}\left[\Sigma\Gamma^{-2}\Lambda\right],\quad "
    r"\mathrm{III} = \frac{1}{N^2}\mathrm{tr}\left[(I_d + \mathrm{tr}(\Lambda)\Lambda^{-1})^2"
    r"\Gamma^{-2}\Lambda^3 a a^\top\right],\quad \mathrm{IV} = \mathrm{V} = \mathrm{VI} = 0",
)
def terms_of_the_proof(scale: Scale) -> Verdict:
    lam, m, n = rotated(SPECTRA[2], seed=1), 2, 12

    def largest(names: str, best: float) -> float:
        found = [proof_terms(labels, lam, m, n, best) for labels in LABELS.values()]
        return max(abs(terms[name]) for terms in found for name in names.split())

    cases = {"a, the best linear predictor": 1.0, "1.01 a in its place": 1.01}
    name = "largest difference from the proof, relative to the error, of terms"
    return Verdict(
        [
            *checked(f"{name} I, II, III", ROUNDING, cases, partial(largest, "I II III")),
            *checked(f"{name} IV, V, VI", ROUNDING, cases, partial(largest, "IV V VI")),
        ],
        settings={"d": 2, "N": n, "M": m},
        remarks=[WORDS, "The Hessian of R(w) is 2 Lambda, not Lambda; its minimum is the same."],
    )
