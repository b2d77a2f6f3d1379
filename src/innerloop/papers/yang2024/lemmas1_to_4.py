"""The auxiliary lemmas of appendix A.2: Lemmas 1 to 4."""

from functools import partial

import torch
from torch import Tensor

from innerloop import theory
from innerloop.analysis import Estimate
from innerloop.papers.common import DTYPE, normal
from innerloop.papers.quantity import ROUNDING, SAMPLING, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.yang2024.settings import Sizes, bounds, instance, relative_distance, tensor


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
    name, right = "relative distance from automatic differentiation", {"(29)": printed}
    wrong, distance = {"v_k (v_j - v_i)^T": printed.mT}, partial(relative_distance, jacobian)
    return Verdict(
        checks(name, ROUNDING, right, unlike=wrong, measure=distance),
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
    steepest = torch.zeros(1, 10, dtype=DTYPE), 1e-4 * tensor([1.0, -1.0] * 5)
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
