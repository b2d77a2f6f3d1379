"""The transformer and its derivatives: Eq. 8 and Lemmas 1, 2, 3 and 6 of Yang et al. (2024)."""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.models import DictionaryAttention, block_form_forward
from innerloop.papers.common import ALGEBRA, DTYPE, generator
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Scale, Verdict
from innerloop.papers.yang2024.half_loss import two_rates
from innerloop.papers.yang2024.settings import SMALL, Sizes, instance, normal
from innerloop.training import train


@claim(
    "yang2024/eq8",
    "With the weights (7), the diagonal of the transformer's output is a weighted sum of softmax "
    "heads applied to the shown labels",
    source="Section 2, Eq. 2 to 8",
    formula=r"\hat{y}_k = \left\langle y, \sum_{h=1}^H w_{h,k}\, \mathrm{softmax}(V^\top Q_h v_k) "
    r"\right\rangle",
)
def short_form(scale: Scale) -> Verdict:
    made = instance(SMALL, 0)
    q, w = made.model.q.detach(), normal(SMALL.heads, SMALL.tokens, seed=1)
    prompt = made.task.sample(20, generator=generator(2))
    blocks = block_form_forward(q, w, prompt)

    def error(keys: int) -> float:
        """Relative distance of the short form from the blocks, attending to this many tokens."""
        labels = torch.nn.functional.pad(prompt.y, (0, keys - prompt.n))
        scores = (made.task.tokens[:keys] @ q @ made.task.tokens.mT).softmax(1)
        prediction = labels @ (scores * w.unsqueeze(1)).sum(0)
        return ((prediction - blocks).norm() / blocks.norm()).item()

    return Verdict(
        [
            Check(
                "relative distance of (8) from the diagonal of T(E), all blocks written out",
                error(SMALL.shown),
                1e-12,
                error(SMALL.tokens),
                ALGEBRA,
                "attention to all K tokens, the queries among them with label 0",
            )
        ],
        settings={"sizes": str(SMALL), "prompts": 20, "w": "standard normal"},
    )


@claim(
    "yang2024/lemma1",
    "The gradient of a softmax weight in the query matrix",
    source="Lemma 1, Eq. 29",
    formula=r"\frac{\partial s^h_{jk}}{\partial Q_h} = s^h_{jk} \sum_{i=1}^N s^h_{ik} (v_j - v_i) "
    r"v_k^\top",
)
def softmax_gradient(scale: Scale) -> Verdict:
    sizes = Sizes(3, 2, 5, 7, 0.1, 1)
    made = instance(sizes, 0, unit=False)
    v, n = made.task.tokens, sizes.shown
    s = made.softmaxes()[0]  # [shown, tokens]

    def softmax(q: Tensor) -> Tensor:
        return (v[:n] @ q @ v.mT).softmax(0)

    jacobian = torch.autograd.functional.jacobian(softmax, made.model.q.detach()[0])
    mean = torch.einsum("ik,id->kd", s, v[:n])  # sum_i s_ik v_i

    def error(centre: Tensor) -> float:
        differences = v[:n, None] - centre  # [shown, tokens, d]: v_j - sum_i s_ik v_i
        stated = torch.einsum("jk,jkd,ke->jkde", s, differences, v)
        return ((stated - jacobian).norm() / jacobian.norm()).item()

    return Verdict(
        [
            Check(
                "relative distance of (29) from automatic differentiation",
                error(mean),
                1e-12,
                error(torch.zeros_like(mean)),
                ALGEBRA,
                "without the mean of the tokens, sum_i s_i v_i",
            )
        ],
        settings={"sizes": str(sizes), "tokens": "Gaussian: the lemma needs no unit norm"},
    )


@claim(
    "yang2024/lemma2",
    "The softmax is Lipschitz from the maximum norm to the 1-norm, with constant 2",
    source="Lemma 2, Eq. 30",
    formula=r"\|\mathrm{softmax}(\xi_1) - \mathrm{softmax}(\xi_2)\|_1 \le "
    r"2 \|\xi_1 - \xi_2\|_\infty",
)
def softmax_lipschitz(scale: Scale) -> Verdict:
    pairs = scale.pick(smoke=5_000, quick=100_000, paper=1_000_000)

    def worst_ratio(inverse_temperature: float) -> float:
        ratios = []
        for length in (2, 3, 10):
            one = normal(pairs, length, seed=length)
            step = 0.3 * normal(pairs, length, seed=100 + length).sign()
            one[0], step[0] = 0, 1e-3  # two equal halves moved apart: the steepest point
            step[0, ::2] = -1e-3
            change = (inverse_temperature * (one + step)).softmax(1) - (
                inverse_temperature * one
            ).softmax(1)
            ratios.append((change.abs().sum(1) / step.abs().amax(1)).max().item())
        return max(ratios)

    worst = worst_ratio(1.0)
    return Verdict(
        [
            Check(
                "largest ratio of the two sides without the 2",
                worst,
                2.0,
                worst_ratio(4.0),
                "the lemma's constant",
                "the softmax of 4 xi, four times as steep",
            )
        ],
        settings={
            "pairs": f"{pairs} of lengths 2, 3 and 10, and the steepest point of each",
            "constant that would do": "1: with p the weight of the entries that rise, the 1-norm "
            "changes at the rate 4 p (1 - p) at most",
            "bound / measured": round(2 / worst, 3),
        },
    )


@claim(
    "yang2024/lemma3",
    "Young's inequality for the squared norm of a sum",
    source="Lemma 3, Eq. 31",
    formula=r"\left\| \sum_{i=1}^l x_i \right\|_2^2 \le l \sum_{i=1}^l \|x_i\|_2^2",
)
def youngs_inequality(scale: Scale) -> Verdict:
    draws = scale.pick(smoke=1_000, quick=100_000, paper=100_000)

    def worst_ratio(factor: float) -> float:
        ratios = []
        for length in (2, 4, 7):
            x = normal(draws, length, 3, seed=length)
            x[0] = x[0, :1]  # equal vectors: the inequality is tight
            right = factor * length * x.square().sum((1, 2))
            ratios.append((x.sum(1).square().sum(1) / right).max().item())
        return max(ratios)

    return Verdict(
        [
            Check(
                "largest ratio of the two sides",
                worst_ratio(1.0),
                1 + 1e-12,
                worst_ratio(0.5),
                "the inequality itself, up to rounding",
                "the inequality with l/2 in place of l",
            )
        ],
        settings={"draws": draws, "l": "2, 4, 7", "tight": "where all x_i are equal"},
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
    gamma = (weight_rate / query_rate) ** 0.5
    made = instance(SMALL, 0)
    start = made.model.q.detach().clone()

    def with_alpha(alpha_rate: float) -> tuple[Tensor, Tensor]:
        model = Rescaled(start.clone(), torch.zeros(SMALL.heads, SMALL.tokens, dtype=DTYPE))
        model.gamma = gamma
        optimizer = two_rates(model, query_rate=query_rate, weight_rate=alpha_rate)
        train(model, made.objective, optimizer, steps=steps, generator=generator(0))
        return model.q.detach(), gamma * model.w.detach()

    made.descend(steps, query_rate=query_rate, weight_rate=weight_rate)
    with_two = made.model.q.detach(), made.model.w.detach()

    def distance(other: tuple[Tensor, Tensor]) -> float:
        pairs = zip(other, with_two, strict=True)
        return max(((a - b).norm() / b.norm()).item() for a, b in pairs)

    return Verdict(
        [
            Check(
                f"relative distance of the parameters after {steps} steps",
                distance(with_alpha(query_rate)),
                1e-10,
                distance(with_alpha(weight_rate)),
                "rounding of 1e-16 per step, grown a little by the descent",
                "alpha moved with the rate eta_w",
            )
        ],
        settings={"sizes": str(SMALL), "eta_Q": query_rate, "eta_w": weight_rate},
    )
