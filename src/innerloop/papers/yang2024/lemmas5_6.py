"""The loss and its coordinates: Lemmas 5 and 6 of appendix B."""

from dataclasses import replace

import torch
from torch import Tensor

from innerloop.analysis import Estimate
from innerloop.models import DictionaryAttention
from innerloop.papers.common import DTYPE, generator, normal
from innerloop.papers.quantity import ROUNDING, SAMPLING, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.papers.yang2024 import settings
from innerloop.papers.yang2024.settings import SMALL, Instance, Sizes, instance
from innerloop.training import train

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
    exact, loss = start.objective, start.objective.loss(random.model).item()
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
    library = {
        "the exact loss and (75)": (loss, loss_75(start, random.attention())),
        "the exact gap and (36)": (exact.gap(random.model).item(), random.gap),
        "the infimum and (75) at A of (34)": (start.risk.infimum, loss_75(start, start.a)),
        "the loss on prompts and (9)": (sampled, at_random.mean),
    }
    wrong = {"the exact loss and (36) with L* as printed": (loss, random.gap + printed)}
    return Verdict(
        printed=checks(best, SAMPLING, as_printed, unlike=none, measure=z),
        corrected=[
            *checks(best, SAMPLING, every, unlike=squared, measure=z),
            *checks(of_random, SAMPLING, whole, unlike=part, measure=lambda x: abs(at_random.z(x))),
            *checks(gap, settings.SQUARED_ROUNDING, enough, unlike=few, measure=left),
            *checks(
                "relative distance", ROUNDING, library, unlike=wrong, measure=settings.ratio_error
            ),
        ],
        correction=Correction(
            r"L^\star = \frac{1}{2K} \left[ \sum_{k \le N} (\|z_k\|^2 + m\tau - "
            r"r_k^\top G^{-1} r_k) + \sum_{k > N} (\|z_k\|^2 - r_k^\top G^{-1} r_k) \right]",
            r"L^\star = \frac{1}{2K} \sum_{k=1}^K (\|z_k\|^2 + m\tau - r_k^\top G^{-1} r_k),\quad "
            r"G = Z^\top Z + m\tau I,\; r_k = Z^\top z_k + m\tau e_k 1\{k \le N\}",
            "The labels of the tokens that are not shown carry noise as well, E y_k^2 = |z_k|^2 + "
            "m tau: the printed L* is (K - N) m tau / 2K below the infimum. Also, (33) lacks a Z^T "
            "before z_k, and the proof calls the noise N(0, tau^2 I).",
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
