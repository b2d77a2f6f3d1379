"""The trained layer on new prompts: footnote 2, Eq. 4.3 and 4.4, Theorem 4.2 and its proof."""

import math
from functools import partial
from itertools import product

import torch
from torch import Tensor

from innerloop import theory
from innerloop.analysis import Estimate
from innerloop.papers.common import DTYPE, generator, identity, normal, relative, rotated
from innerloop.papers.quantity import SAMPLING, at_least
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.zhang2023 import prompts, settings
from innerloop.papers.zhang2023.prompts import LABELS, layer_around, linear_prompts
from innerloop.papers.zhang2023.settings import LONG, SPECTRA, as_stated, gamma, inverse_gamma
from innerloop.prompt import Prompt
from innerloop.theory.linear import JointMoments


def stated_prediction(preconditioner: Tensor, prompt: Prompt, m: float | None = None) -> Tensor:
    """x_q^T A (1/M) sum_i y_i x_i."""
    mean = torch.einsum("bnd,bn->bd", prompt.x, prompt.y) / (m or prompt.n)
    return torch.einsum("bi,ij,bj->b", prompt.x_query[:, 0], preconditioner, mean)


@claim(
    "zhang2023/footnote2",
    "One step from 0 without preconditioner predicts x^T Lambda w on long prompts, not x^T w",
    source="Section 2, footnote 2",
    formula=r"x \mapsto x^\top \left(\frac{1}{n}\sum_{i=1}^n y_i x_i\right) = x^\top \left("
    r"\frac{1}{n}\sum_{i=1}^n x_i x_i^\top\right) w \approx x^\top \Lambda w",
)
def plain_step(scale: Scale) -> Verdict:
    law, eye = settings.fixed(2), identity(2)
    (lam,), square = law.covariances, law.square()
    spread = (square @ lam).trace() + square.trace() * lam.trace()

    def step_error(factor: float) -> float:
        """Of a step of size 1 on factor times the sum of squares, n = 2."""
        prompt, *_ = linear_prompts(law, 2)
        w = torch.zeros(len(prompt.y), 2, dtype=DTYPE, requires_grad=True)
        residuals = prompt.y - torch.einsum("bnd,bd->bn", prompt.x, w)
        (slope,) = torch.autograd.grad(factor * residuals.square().sum(), w)
        return relative(-(prompt.x_query[:, 0] * slope).sum(-1), stated_prediction(eye, prompt))

    def left(covariance: Tensor) -> Tensor:
        """The error of x^T Lambda w: tr((I - Lambda)^2 Lambda)."""
        return ((eye - covariance) @ (eye - covariance) @ covariance).trace()

    def error_off(case: tuple[Tensor, int]) -> float:
        found = []
        for n in (1, 2):
            prompt, _, _, mass = linear_prompts(law, n)
            error = mass @ (stated_prediction(eye, prompt) - prompt.y_query[:, 0]) ** 2
            found.append(abs(((case[0] + spread / (n + case[1])) / error - 1).item()))
        return max(found)

    name = "relative error of one step's prediction, on half the mean of squares"
    step = as_stated(name, 1 / 4, {"n + 1 for n": 1 / 6}, step_error)
    name = "n = 1, 2: relative difference from the error over every prompt of that of x^T Lambda w"
    name += " plus (tr Lambda^3 + tr Lambda^2 tr Lambda)/n"
    wrong = {"of x^T w, plus the same": (left(eye), 0), "n + 1 for n": (left(lam), 1)}
    error = as_stated(name, (left(lam), 0), wrong, error_off)
    endless = as_stated(
        "error left on endless prompts, over E y^2, eigenvalues 1.5 and 0.4",
        left(lam) / lam.trace(),
        {"Lambda = I": left(eye) / 2},
        tolerance=at_least(1e-10, "the statement: not 0, beyond rounding"),
    )
    remark = "The squared loss is read as half the mean of squared residuals, the step as 1."
    about = {"law": settings.ROTATED[2]}
    return Verdict([*step, *error, *endless], settings=about, remarks=[remark])


@claim(
    "zhang2023/eq4.3",
    "The trained layer predicts with one preconditioned step, whatever the labels are",
    source="Eq. 4.2 and 4.3; Corollary 4.3, first display",
    formula=r"\hat y_{\mathrm{query}} = x_{\mathrm{query}}^\top \Gamma^{-1} \left("
    r"\frac{1}{M} \sum_{i=1}^{M} y_i x_i \right)",
)
def prediction_of_the_trained_layer(scale: Scale) -> Verdict:
    law, n, m = settings.fixed(2), 2, 5
    (lam,), z = law.covariances, normal(0, 200, m + 1, 3)
    prompt = prompts.as_prompt(z[..., :2] @ torch.linalg.cholesky(lam).mT, z[..., 2] ** 2)
    layers = prompts.trained_matrices(law, n), layer_around(inverse_gamma(lam, n))
    seen = [prompts.predict(layer, prompt) for layer in layers]

    def error(g: settings.GammaOf, divisor: int = m) -> float:
        stated = stated_prediction(torch.linalg.inv(g(lam, n)), prompt, divisor)
        return max(relative(stated, found) for found in seen)

    others = {"M + 1 for M": error(gamma, m + 1), "N for M": error(gamma, n)}
    about = {
        "layers": f"where gradient flow of all weights ends, and Eq. 4.1; d = 2, N = {n}",
        "prompts": f"200 of M = {m} examples, labels independent of the covariates",
    }
    name = "relative difference of predictions"
    return Verdict(settings.gamma_checks(name, error, settings.LIMIT, others), settings=about)


@claim(
    "zhang2023/eq4.4",
    "With long prompts the trained layer is the best linear predictor of any labels",
    source="Eq. 4.4",
    formula=r"\hat y_{\mathrm{query}} \approx x_{\mathrm{query}}^\top \Lambda^{-1} "
    r"\mathbb{E}[y x] = x_{\mathrm{query}}^\top \left( \mathrm{argmin}_{w} "
    r"\mathbb{E}\left[(y - \langle w, x\rangle)^2\right] \right)",
)
def best_linear_limit(scale: Scale) -> Verdict:
    lam, labels = rotated(SPECTRA[3], seed=0), LABELS["cubic"]
    moments, inverse = labels.moments(lam), torch.linalg.inv(lam)
    # One pair (x, y) at every node: the weighted least squares problem is the expected one.
    pairs, mass = labels.every_prompt(0, lam)
    root, x, y = mass.sqrt().unsqueeze(-1), pairs.x_query[:, 0], pairs.y_query
    best = torch.linalg.lstsq(root * x, root * y).solution[:, 0]
    uncentred = torch.einsum("p,pi,ij,pj->", mass, x * y, inverse, x * y)
    variance = uncentred - (mass @ (x * y)) @ inverse @ (mass @ (x * y))

    def rate_error(case: tuple[float, Tensor]) -> Tensor:
        """Of M times what the layer's error exceeds that of the best linear predictor by."""
        train, stated = case
        parts = theory.linear.error_parts(inverse_gamma(lam, train), moments, LONG)
        return abs(LONG * (parts.variance + parts.bias) / stated - 1)

    wrong = {
        "Gamma^-1 E[yx] for N = 1000": inverse_gamma(lam, 1000) @ moments.cross,
        "E[yx], as in footnote 2": moments.cross,
    }
    name, off = "relative difference from the minimiser", partial(relative, exact=best)
    minimiser = as_stated(name, inverse @ moments.cross, wrong, off)
    others = {
        "N = M/100": (LONG / 100, variance),
        "from tr(E[y^2 x x^T] Lambda^-1), not centred": (LONG, uncentred),
    }
    name = "relative difference of M (error - that of the best linear one) from tr(Sigma Lambda^-1)"
    rate = as_stated(name, (LONG, variance), others, rate_error, settings.NEARLY)
    remark = f"So the error above the best linear one falls as {variance:.4g}/M."
    about = {"law": settings.ROTATED[3], "labels": "cubic", "N = M": LONG}
    return Verdict([*minimiser, *rate], settings=about, remarks=[remark])


def brackets(moments: JointMoments, lam: Tensor, train: float, test: float) -> dict[str, float]:
    """The terms of Eq. 4.6 as printed, |v|_A^2 meaning v^T A v."""
    trace, a = lam.trace(), torch.linalg.solve(lam, moments.cross)
    squared = inverse_gamma(lam, train) @ inverse_gamma(lam, train)  # commutes with Lambda
    terms = {
        "best linear predictor": moments.label_power - a @ lam @ a,
        "1/M": (moments.spread @ squared @ lam).trace() / test,
        "1/N^2, first": a @ squared @ lam @ lam @ lam @ a / train**2,
        "1/N^2, second": 2 * trace * (a @ squared @ lam @ lam @ a) / train**2,
        "1/N^2, third": trace**2 * (a @ squared @ lam @ a) / train**2,
    }
    return {name: term.item() for name, term in terms.items()}


def stated_error(moments: JointMoments, lam: Tensor, train: float, test: float) -> float:
    """Eq. 4.6."""
    return sum(brackets(moments, lam, train, test).values())


def sampled_difference(samples: int, halved: str) -> float:
    """|Eq. 4.6 - the layer's error| in standard errors, both sampled: y = |x_1| + N(0, 1/4)."""
    lam, train, test = rotated(SPECTRA[2], seed=1), 12, 3
    pairs = theory.linear.gaussian_pairs(lam, lambda x: x[:, 0].abs(), noise_std=0.5)
    drawn = theory.linear.SampledMoments.draw(pairs, samples, generator=generator(0))

    def stated(moments: JointMoments) -> Tensor:
        groups = [moments]
        if moments.label_power.ndim:  # one for every group of samples
            parts = (moments.second, moments.cross, moments.spread, moments.label_power)
            groups = [JointMoments(*group) for group in zip(*parts, strict=True)]
        terms = [brackets(group, lam, train, test) for group in groups]
        return torch.tensor([sum(t.values()) - t.get(halved, 0.0) / 2 for t in terms])

    formula = Estimate(*drawn.estimate(stated), samples)
    x, y = pairs(samples * (test + 1), generator(1))
    prompt = prompts.as_prompt(x.view(samples, -1, 2), y.view(samples, -1))
    off = prompts.predict(layer_around(inverse_gamma(lam, train)), prompt) - prompt.y_query[:, 0]
    seen = Estimate.of(off**2)
    return abs(formula.mean - seen.mean) / math.hypot(formula.standard_error, seen.standard_error)


@claim(
    "zhang2023/theorem4.2",
    "The error is that of the best linear predictor plus terms in 1/M and 1/N^2, for any labels",
    source="Theorem 4.2, Eq. 4.6",
    formula=r"\begin{aligned} \mathbb{E}(\hat y - y)^2 = \min_{w} \mathbb{E}(\langle w, x\rangle "
    r"- y)^2 &+ \frac{1}{M} \mathrm{tr}\left[\Sigma \Gamma^{-2} \Lambda\right] \\ &+ \frac{1}{N^2}"
    r"\left[ \|a\|_{\Gamma^{-2}\Lambda^3}^2 + 2\,\mathrm{tr}(\Lambda)\|a\|_{\Gamma^{-2}\Lambda^2}^2"
    r" + \mathrm{tr}(\Lambda)^2 \|a\|_{\Gamma^{-2}\Lambda}^2 \right] \end{aligned}",
)
def error_on_new_prompts(scale: Scale) -> Verdict:
    small, large = [], []  # the terms of Eq. 4.6, and the error
    for (d, m), train, labels in product(((2, 1), (2, 2), (3, 1)), (1, 12), LABELS.values()):
        lam = rotated(SPECTRA[d], seed=1)
        exact = labels.error(layer_around(inverse_gamma(lam, train)), m, lam)
        small.append((brackets(labels.moments(lam), lam, train, m), exact))
    for d, train, test, labels in product((3, 5), (1, 20), (7, 1000), LABELS.values()):
        lam = rotated(SPECTRA[d], seed=0)
        step, moments = inverse_gamma(lam, train), labels.moments(lam)
        exact = theory.linear.prediction_error(step, moments, test).item()
        large.append((brackets(moments, lam, train, test), exact))

    def error(found: list[tuple[dict[str, float], float]], factors: dict[str, float]) -> float:
        sums = [sum(v * factors.get(k, 1.0) for k, v in terms.items()) for terms, _ in found]
        return max(abs(s / exact - 1) for s, (_, exact) in zip(sums, found, strict=True))

    wrong = {
        "without tr(Lambda)^2 |a|^2": {"1/N^2, third": 0.0},
        "1 for the 2 before tr(Lambda)": {"1/N^2, second": 0.5},
        "without its first term in 1/N^2": {"1/N^2, first": 0.0},
        "1/(2M) for 1/M": {"1/M": 0.5},
    }
    every = "relative difference from the layer's error over every prompt"
    larger = "larger sizes: relative difference from theory.linear.prediction_error"
    infinite = (
        "The theorem needs E y^2 to be finite and does not list it: for d = 1 and y = |x|^(-3/4), "
        "all that it lists is finite, E y^2 and both sides of (4.6) are not."
    )
    found = as_stated(every, {}, wrong, partial(error, small))
    found += as_stated(larger, {}, wrong, partial(error, large))
    samples = scale.pick(smoke=20_000, quick=200_000, paper=1_000_000)
    name = "labels |x_1| with noise, sampled: difference from the layer's error in standard errors"
    off = partial(sampled_difference, samples)
    found += as_stated(name, "", {"1/(2M) for 1/M": "1/M"}, off, SAMPLING)
    about = {
        "over every prompt": "(d, M) = (2, 1), (2, 2), (3, 1); N = 1, 12",
        "larger sizes": "d = 3, 5; N = 1, 20; M = 7, 1000",
    }
    return Verdict(found, settings=about, remarks=[prompts.WORDS, infinite])


def proof_terms(labels: prompts.Labels, best: float) -> dict[str, float]:
    """Terms I to VI over every prompt minus what the proof says of them, in units of the error.

    `best` multiplies the best linear predictor a, to see what the proof owes to the choice of it.
    """
    lam, m, n = rotated(SPECTRA[2], seed=1), 2, 12
    moments, inverse = labels.moments(lam), inverse_gamma(lam, n)
    a = torch.linalg.solve(lam, moments.cross)
    prompt, mass = labels.every_prompt(m, lam)
    x, y = prompt.x_query[:, 0], prompt.y_query[:, 0]
    best_y, mean_y = best * x @ a, x @ (inverse @ moments.cross)
    seen = prompts.predict(layer_around(inverse), prompt)
    first, second, third = best_y - y, seen - mean_y, mean_y - best_y
    inner = (identity(2) + lam.trace() * torch.linalg.inv(lam)) / n
    terms = {
        "I": (first**2, moments.label_power - a @ moments.cross),
        "II": (second**2, (moments.spread @ inverse @ inverse @ lam).trace() / m),
        "III": (third**2, a @ inner @ inner @ inverse @ inverse @ lam @ lam @ lam @ a),
        "IV": (2 * second * first, 0.0),
        "V": (2 * second * third, 0.0),
        "VI": (2 * third * first, 0.0),
    }
    total = stated_error(moments, lam, n, m)
    return {k: (mass @ v - stated).item() / total for k, (v, stated) in terms.items()}


@claim(
    "zhang2023/appendixB",
    "In the proof of Theorem 4.2 three cross terms vanish, and the other terms are those of (4.6)",
    source="Appendix B, terms I to VI",
    formula=r"\mathrm{II} = \frac{1}{M}\mathrm{tr}\left[\Sigma\Gamma^{-2}\Lambda\right],\quad "
    r"\mathrm{III} = \frac{1}{N^2}\mathrm{tr}\left[(I_d + \mathrm{tr}(\Lambda)\Lambda^{-1})^2"
    r"\Gamma^{-2}\Lambda^3 a a^\top\right],\quad \mathrm{IV} = \mathrm{V} = \mathrm{VI} = 0",
)
def terms_of_the_proof(scale: Scale) -> Verdict:
    def difference(best: float, names: str) -> float:
        every = [proof_terms(labels, best) for labels in LABELS.values()]
        return max(abs(terms[name]) for terms in every for name in names.split(", "))

    found = []
    for names in ("I, II, III", "IV, V, VI"):
        name = f"difference from the proof, relative to the error, of terms {names}"
        found += as_stated(name, 1.0, {"1.01 a for a": 1.01}, partial(difference, names=names))
    hessian = "The Hessian of R(w) is 2 Lambda, not Lambda; its minimum is the same."
    return Verdict(found, settings={"d": 2, "N": 12, "M": 2}, remarks=[prompts.WORDS, hessian])
