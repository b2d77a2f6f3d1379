"""The auxiliary lemmas of appendix A.2, and the loss and its coordinates: Lemmas 1 to 6."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from innerloop import theory
from innerloop.analysis import Estimate
from innerloop.models import DictionaryAttention
from innerloop.papers.common import DTYPE, generator, normal
from innerloop.papers.quantity import ROUNDING, SAMPLING, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Correction, Kind, Scale, Verdict
from innerloop.papers.yang2024 import settings
from innerloop.papers.yang2024.settings import SMALL, Instance, Sizes, bounds, instance
from innerloop.training import train


@claim(
    "yang2024/lemma1",
    "The gradient of a softmax weight in the query matrix",
    source="Lemma 1, Eq. 29",
    formula=r"\frac{\partial s^h_{jk}}{\partial Q_h} = s^h_{jk} \sum_{i=1}^N s^h_{ik} (v_j - v_i) "
    r"v_k^\top",
)
def softmax_gradient(scale: Scale) -> Verdict:
    made = instance(Sizes(3, 2, 5, 7, 0.1, 1), 0, unit=False)
    v, shown, s = made.task.tokens, made.task.tokens[: made.n], made.s[0]  # s: [shown, tokens]
    jacobian = torch.autograd.functional.jacobian(
        lambda q: (shown @ q @ v.mT).softmax(0), made.model.q.detach()[0]
    )
    printed = torch.einsum("jk,ik,jid,ke->jkde", s, s, shown[:, None] - shown, v)
    name, distance = "relative distance from automatic differentiation", settings.relative_distance
    right, wrong = {"(29)": printed}, {"v_k (v_j - v_i)^T": printed.mT}
    return Verdict(
        checks(name, ROUNDING, right, unlike=wrong, measure=partial(distance, jacobian)),
        settings={"task": made.task, "tokens": "Gaussian: the lemma needs no unit norm"},
    )


def ratio_30(pair: tuple[Tensor, Tensor], factor: float = 1.0) -> float:
    """For every vector, moved by a step."""
    one, step = pair
    change = ((one + step).softmax(1) - one.softmax(1)).abs().sum(1)
    return (change / (2 * factor * step.abs().amax(1))).max().item()


@claim(
    "yang2024/lemma2",
    "The softmax is Lipschitz from the maximum norm to the 1-norm, with constant 2",
    source="Lemma 2, Eq. 30",
    formula=r"\|\mathrm{softmax}(\xi_1) - \mathrm{softmax}(\xi_2)\|_1 \le "
    r"2 \|\xi_1 - \xi_2\|_\infty",
)
def softmax_lipschitz(scale: Scale) -> Verdict:
    pairs = scale.pick(smoke=5_000, quick=100_000, paper=1_000_000)
    steepest = torch.zeros(1, 10, dtype=DTYPE), 1e-4 * settings.tensor([1.0, -1.0] * 5)
    random = [(normal(n, pairs, n), 0.3 * normal(100 + n, pairs, n)) for n in (2, 3, 10)]
    return Verdict(
        bounds("(30)", [steepest, *random], ratio_30, {"0.99 in place of the 2": [0.99 / 2]}),
        settings={"pairs": f"{pairs} of lengths 2, 3 and 10, and the steepest point"},
        remarks=["1 would do: if entries of weight p rise, the slope is 4 p (1 - p)."],
    )


def ratio_31(x: Tensor, factor: float = 1.0) -> float:
    """For every row of vectors: [draws, l, p]."""
    right = factor * x.shape[1] * x.square().sum((1, 2))
    return (x.sum(1).square().sum(1) / right).max().item()


@claim(
    "yang2024/lemma3",
    "Young's inequality for the squared norm of a sum",
    source="Lemma 3, Eq. 31",
    formula=r"\left\| \sum_{i=1}^l x_i \right\|_2^2 \le l \sum_{i=1}^l \|x_i\|_2^2",
)
def youngs_inequality(scale: Scale) -> Verdict:
    draws = scale.pick(smoke=1_000, quick=100_000, paper=100_000)
    equal = normal(0, 1, 1, 3).expand(1, 5, 3)
    vectors = [equal, *(normal(length, draws, length, 3) for length in (2, 4, 7))]
    return Verdict(
        bounds("(31)", vectors, ratio_31, {"0.99 l in place of l": [0.99]}),
        settings={"draws": draws, "l": "2, 4, 7, and 5 equal vectors, where it is tight"},
    )


@claim(
    "yang2024/lemma4",
    "Regression on noisy features is ridge regression, on average over the noise",
    source="Lemma 4, Eq. 24, 25 and 32",
    formula=r"\mathbb{E}_\epsilon \frac{1}{2N} \sum_{i=1}^N (y_i - \lambda^\top (f(v_i) + "
    r"\epsilon_i))^2 = \frac{1}{2N} \sum_{i=1}^N (y_i - \lambda^\top f(v_i))^2 + "
    r"\frac{\tau}{2} \|\lambda\|_2^2",
)
def two_regressions(scale: Scale) -> Verdict:
    n, m, tau, samples = 5, 3, 0.4, scale.pick(smoke=20_000, quick=200_000, paper=2_000_000)
    z, coefficients, tried = normal(0, n, m), normal(1, m), normal(2, m)
    label_noise, fresh = (tau**0.5 * normal(seed, samples, n, m) for seed in (3, 4))
    y = (z + label_noise) @ coefficients  # [samples, n]

    def right(at: Tensor, labels: Tensor, penalty: float) -> Tensor:
        return (labels - z @ at).square().mean(-1) / 2 + penalty / 2 * at.square().sum()

    def distance(case: tuple[Tensor, float]) -> float:
        noise, penalty = case
        left = (y - (z + noise) @ tried).square().mean(1) / 2
        return abs(Estimate.of(left - right(tried, y, penalty)).z(0.0))

    def slope(penalty: float) -> float:
        at = theory.softmax.ridge_coefficients(z, y[0], penalty).requires_grad_()
        (gradient,) = torch.autograd.grad(right(at, y[0], tau), at)
        return gradient.abs().max().item()

    name, printed = f"|z| of the difference over {samples} samples", {"(32)": (fresh, tau)}
    wrong = {"tau/(2N) for tau/2": (fresh, tau / n), "the labels' own noise": (label_noise, tau)}
    stated, other = {"(Z Z^T + N tau I)^-1 Z y": n * tau}, {"m tau in place of N tau": m * tau}
    return Verdict(
        [
            *checks(name, SAMPLING, printed, unlike=wrong, measure=distance),
            *checks("gradient of (25)", ROUNDING, stated, unlike=other, measure=slope),
        ],
        settings={"N": n, "m": m, "tau": tau},
        remarks=["The noise is a fresh copy: (24) loses inside the tilde of its expectation."],
    )


FEW = Sizes(4, 5, 4, 9, 0.3, 6)
"""Fewer shown tokens than features, as the paper has it in mind, and more heads than shown."""


def loss_75(made: Instance, matrix: Tensor) -> float:
    """L of a predictor linear in the labels by Eq. 75 and 77, a route that knows no optimum."""
    features = (made.z @ matrix - made.all_z).square().sum()
    noise = made.noise * (matrix.square().sum() + made.k - 2 * matrix[:, : made.n].trace())
    return ((features + noise) / (2 * made.k)).item()


def infimum(made: Instance, noisy: int) -> float:
    """L* of Lemma 5 with m tau for so many tokens: N as printed, K as corrected."""
    explained = (made.a * (made.gram @ made.a)).sum(0)  # r_k^T G^-1 r_k, since A = G^-1 R
    total = (made.all_z.square().sum(0) - explained).sum() + noisy * made.noise
    return total.item() / (2 * made.k)


def library_checks(
    start: Instance, random: Instance, printed: float, sampled: tuple[float, float]
) -> list[Check]:
    """The library's losses beside the paper's formulas for them."""
    exact, loss = start.objective, start.objective.loss(random.model).item()
    pairs = {
        "the exact loss and (75)": (loss, loss_75(start, random.attention())),
        "the exact gap and (36)": (exact.gap(random.model).item(), random.gap),
        "the infimum and (75) at A of (34)": (start.risk.infimum, loss_75(start, start.a)),
        "the loss on prompts and (9)": sampled,
    }
    wrong = {"the exact loss and (36) with L* as printed": (loss, random.gap + printed)}
    return checks("relative distance", ROUNDING, pairs, unlike=wrong, measure=settings.ratio_error)


@claim(
    "yang2024/lemma5",
    "The population loss is a quadratic form in the attention weights, above its infimum L*",
    source="Lemma 5, Eq. 33 to 36",
    formula=r"L(\theta) = \frac{1}{2K} \sum_{k=1}^K \left\| (Z^\top Z + m\tau I)^{1/2} "
    r"\delta_k^\theta \right\|_2^2 + L^\star",
)
def quadratic_loss(scale: Scale) -> Verdict:
    samples, start = scale.pick(smoke=20_000, quick=200_000, paper=2_000_000), instance(FEW, 0)
    fitted = start.with_fitted_weights()
    random = start.with_weights(normal(5, FEW.heads, FEW.tokens))
    prompt = start.task.sample(samples, generator=generator(11))
    # What (9) is the expectation of, for every prompt.
    at_infimum, at_random = (
        Estimate.of((made.model(prompt).detach() - prompt.y_query).square().mean(1) / 2)
        for made in (fitted, random)
    )
    printed, true = infimum(start, FEW.shown), infimum(start, FEW.tokens)
    misread = Instance(replace(start.task, tau=FEW.tau**2), start.model)
    without_noise = (random.z @ random.delta).square().sum().item() / (2 * random.k)
    fewer = Instance(start.task, instance(FEW.with_heads(FEW.shown - 1), 0).model)
    sampled = settings.SampledHalfLoss(start.task, samples).loss(random.model, prompt).item()

    def left(made: Instance) -> float:
        return made.objective.gap(made.model).item() / start.gap

    def z(loss: float) -> float:
        return abs(at_infimum.z(loss))

    best = f"|z| of the loss of the best heads, against L*, on {samples} prompts"
    as_printed, none = {"as printed": printed}, {"m tau for no token": infimum(start, 0)}
    every = {"m tau for every token": true}
    squared = {"the variance tau^2 of the proof": infimum(misread, FEW.tokens)}
    whole, part = {"(36)": random.gap + true}, {"(36) with Z for Z-bar": without_noise + true}
    enough, few = {"H = 6 heads for N = 4": fitted}, {"H = 3": fewer.with_fitted_weights()}
    of_random = f"|z| of the loss of random heads on {samples} prompts"
    gap = "gap with fitted w relative to that of w = 0"
    library = library_checks(start, random, printed, (sampled, at_random.mean))
    return Verdict(
        printed=checks(best, SAMPLING, as_printed, unlike=none, measure=z),
        corrected=[
            *checks(best, SAMPLING, every, unlike=squared, measure=z),
            *checks(of_random, SAMPLING, whole, unlike=part, measure=lambda x: abs(at_random.z(x))),
            *checks(gap, settings.SQUARED_ROUNDING, enough, unlike=few, measure=left),
            *library,
        ],
        correction=Correction(
            r"L^\star = \frac{1}{2K} \left[ \sum_{k \le N} (\|z_k\|^2 + m\tau - "
            r"r_k^\top G^{-1} r_k) + \sum_{k > N} (\|z_k\|^2 - r_k^\top G^{-1} r_k) \right]",
            r"L^\star = \frac{1}{2K} \sum_{k=1}^K (\|z_k\|^2 + m\tau - r_k^\top G^{-1} r_k),\quad "
            r"G = Z^\top Z + m\tau I,\; r_k = Z^\top z_k + m\tau e_k 1\{k \le N\}",
            "Labels that are not shown carry noise as well: the printed L* is (K - N) m tau / 2K "
            "below the infimum. Also, (33) lacks a Z^T before z_k, and the proof calls the noise "
            "N(0, tau^2 I).",
            kind=Kind.CONSTANT,
            counterexample=f"{FEW}: the printed L* is {printed:.5f}, and the infimum, which fitted "
            f"heads attain, {true:.5f} (on prompts {at_infimum}).",
        ),
        settings={"task": start.task, "H": FEW.heads, "prompts": samples},
    )


class Rescaled(DictionaryAttention):
    """The same heads in the coordinates (Q, alpha): its w is alpha, and gamma alpha acts."""

    gamma: float = 1.0

    def attention(self, tokens: Tensor, shown: int) -> Tensor:
        return self.gamma * super().attention(tokens, shown)


@claim(
    "yang2024/lemma6",
    "Gradient descent with two learning rates is gradient descent with one, after rescaling w",
    source="Lemma 6, Eq. 39 to 41",
    formula=r"\gamma = \sqrt{\eta_w / \eta_Q},\quad \alpha_h = w_h / \gamma:\quad "
    r"\xi^{(t)} = \xi^{(t-1)} - \eta_Q \nabla_\xi \ell(\xi^{(t-1)})",
)
def reparameterisation(scale: Scale) -> Verdict:
    made, query_rate, weight_rate, steps = instance(SMALL, 0), 0.1, 0.3, 100
    start, ratio = made.model.q.detach().clone(), weight_rate / query_rate
    made.descend(steps, query_rate, weight_rate)

    def distance(gamma: float) -> float:
        """Of descent with one rate in (Q, alpha) from descent with two in (Q, w)."""
        model = Rescaled(start.clone(), torch.zeros(SMALL.heads, SMALL.tokens, dtype=DTYPE))
        model.gamma = gamma
        optimizer = torch.optim.SGD(model.parameters(), query_rate)
        train(model, made.objective, optimizer, steps=steps, generator=generator(0))
        pairs = ((made.model.q, model.q), (made.model.w, gamma * model.w))
        return max(settings.relative_distance(*pair) for pair in pairs)

    name = f"relative distance of the parameters after {steps} steps"
    root, square = {"gamma = sqrt(eta_w / eta_Q)": ratio**0.5}, {"gamma = eta_w / eta_Q": ratio}
    return Verdict(
        checks(name, ROUNDING, root, unlike=square, measure=distance),
        settings={"task": made.task, "H": SMALL.heads, "eta_Q": query_rate, "eta_w": weight_rate},
    )
