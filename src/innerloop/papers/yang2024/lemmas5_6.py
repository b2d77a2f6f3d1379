"""The loss and its coordinates: Lemmas 5 and 6 of appendix B."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from innerloop.analysis import Estimate
from innerloop.models import DictionaryAttention
from innerloop.papers.common import DTYPE, generator, normal
from innerloop.papers.quantity import ROUNDING, SAMPLING, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Correction, Kind, Scale, Verdict
from innerloop.papers.yang2024.half_loss import SampledHalfLoss
from innerloop.papers.yang2024.notation import Notation, ratio_error, relative_distance
from innerloop.papers.yang2024.settings import SMALL, SQUARED_ROUNDING, Instance, Sizes, instance
from innerloop.prompt import Prompt
from innerloop.training import train

FEW = Sizes(4, 5, 4, 9, 0.3, 6)
"""Fewer shown tokens than features, as the paper has it in mind, and more heads than shown."""


def loss_75(made: Instance, matrix: Tensor) -> float:
    """L of a predictor linear in the labels by Eq. 75 and 77, a route that knows no optimum."""
    is_ = Notation(made)
    features = (is_.z @ matrix - is_.all_z).square().sum()
    noise = is_.noise * (matrix.square().sum() + is_.k - 2 * matrix[:, : is_.n].trace())
    return ((features + noise) / (2 * is_.k)).item()


def infimum(made: Instance, noisy: int) -> float:
    """L* of Lemma 5 with m tau for so many tokens: N as printed, K as corrected."""
    is_ = Notation(made)
    explained = (is_.a * (is_.gram @ is_.a)).sum(0)  # r_k^T G^-1 r_k, since A = G^-1 R
    total = (is_.all_z.square().sum(0) - explained).sum() + noisy * is_.noise
    return total.item() / (2 * is_.k)


def squared_errors(made: Instance, prompt: Prompt) -> Tensor:
    """What (9) is the expectation of, for every prompt."""
    return (made.model(prompt).detach() - prompt.y_query).square().mean(1) / 2


def z_score(sampled: Estimate, exact: float) -> float:
    return abs(sampled.z(exact))


def library_losses(start: Instance, random: Instance, prompt: Prompt) -> list[Check]:
    """The library's own losses, which the figures train with, against the paper's formulas."""
    exact, is_ = start.objective, Notation(random)
    loss = exact.loss(random.model).item()
    sampled = SampledHalfLoss(start.task, len(prompt)).loss(random.model, prompt).item()
    return checks(
        "relative distance",
        ROUNDING,
        {
            "the exact loss and (75)": (loss, loss_75(start, random.attention())),
            "the exact gap and (36)": (exact.gap(random.model).item(), is_.gap),
            "the infimum and (75) at A of (34)": (start.risk.infimum, loss_75(start, is_.a)),
            "the loss on prompts and (9)": (sampled, squared_errors(random, prompt).mean().item()),
        },
        unlike={
            "the exact loss and (36) with L* as printed": (loss, is_.gap + infimum(start, is_.n))
        },
        measure=ratio_error,
    )


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
    at_infimum, at_random = (Estimate.of(squared_errors(m, prompt)) for m in (fitted, random))
    printed, true = infimum(start, FEW.shown), infimum(start, FEW.tokens)
    misread = replace(start, task=replace(start.task, tau=FEW.tau**2))
    is_ = Notation(random)
    without_noise = (is_.z @ is_.delta).square().sum().item() / (2 * is_.k)
    fewer = replace(start, model=instance(FEW.with_heads(FEW.shown - 1), 0).model)

    def left(made: Instance) -> float:
        return made.objective.gap(made.model).item() / Notation(start).gap

    on, best = f"on {samples} prompts", "|z| of the loss of the best heads, against L*,"
    as_printed, none = {"as printed": printed}, {"m tau for no token": infimum(start, 0)}
    all_noisy = {"m tau for every token": true}
    squared = {"the variance tau^2 of the proof": infimum(misread, FEW.tokens)}
    whole, part = {"(36)": is_.gap + true}, {"(36) with Z for Z-bar": without_noise + true}
    enough, few = {"H = 6 heads for N = 4": fitted}, {"H = 3": fewer.with_fitted_weights()}
    z, of_random = partial(z_score, at_infimum), partial(z_score, at_random)
    loss, gap = "|z| of the loss of random heads", "gap with fitted w relative to that of w = 0"
    return Verdict(
        printed=checks(f"{best} {on}", SAMPLING, as_printed, unlike=none, measure=z),
        corrected=[
            *checks(f"{best} {on}", SAMPLING, all_noisy, unlike=squared, measure=z),
            *checks(f"{loss} {on}", SAMPLING, whole, unlike=part, measure=of_random),
            *checks(gap, SQUARED_ROUNDING, enough, unlike=few, measure=left),
            *library_losses(start, random, prompt),
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
    query_rate, weight_rate, steps = 0.1, 0.3, 100
    made = instance(SMALL, 0)
    start = made.model.q.detach().clone()
    made.descend(steps, query_rate=query_rate, weight_rate=weight_rate)

    def distance(gamma: float) -> float:
        """Of descent with one rate in (Q, alpha) from descent with two in (Q, w)."""
        model = Rescaled(start.clone(), torch.zeros(SMALL.heads, SMALL.tokens, dtype=DTYPE))
        model.gamma = gamma
        optimizer = torch.optim.SGD(model.parameters(), query_rate)
        train(model, made.objective, optimizer, steps=steps, generator=generator(0))
        pairs = ((made.model.q, model.q), (made.model.w, gamma * model.w))
        return max(relative_distance(*pair) for pair in pairs)

    name, ratio = (
        f"relative distance of the parameters after {steps} steps",
        weight_rate / query_rate,
    )
    root, square = {"gamma = sqrt(eta_w / eta_Q)": ratio**0.5}, {"gamma = eta_w / eta_Q": ratio}
    return Verdict(
        checks(name, ROUNDING, root, unlike=square, measure=distance),
        settings={"task": made.task, "H": SMALL.heads, "eta_Q": query_rate, "eta_w": weight_rate},
    )
