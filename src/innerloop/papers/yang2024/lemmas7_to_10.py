"""The bounds and the smoothness behind Theorem 1: Lemmas 7 to 10, Eq. 62 and Eq. 17."""

import math
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from innerloop.papers.common import normal
from innerloop.papers.quantity import INEQUALITY, ROUNDING, at_most, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.papers.yang2024 import settings
from innerloop.papers.yang2024.settings import SMALL, Instance, Sizes, bounds, instance, one_hot


def gradients(made: Instance) -> tuple[Tensor, Tensor]:
    """Of the library's exact loss, in Q and in w."""
    q, w = torch.autograd.grad(made.objective.loss(made.model), [made.model.q, made.model.w])
    return q, w


def largest_weight(made: Instance) -> float:
    """gamma alpha-bar."""
    return made.model.w.detach().abs().max().item()


def random_instances(count: int) -> list[Instance]:
    """Random heads with weights of very different sizes."""
    weights = [normal(1000 + seed, SMALL.heads, SMALL.tokens) for seed in range(count)]
    sizes = [10 ** (seed % 5 - 3) for seed in range(count)]
    return [instance(SMALL, i).with_weights(sizes[i] * w) for i, w in enumerate(weights)]


def ratio_42(made: Instance, factor: float = 1.0) -> float:
    bound = 2 * math.sqrt(2) * largest_weight(made) * made.f_max * math.sqrt(made.gap)
    return gradients(made)[0].norm(dim=(1, 2)).max().item() / (factor * bound)


@claim(
    "yang2024/lemma7",
    "The gradient in a query matrix is bounded by the root of the gap",
    source="Lemma 7, Eq. 42",
    formula=r"|\alpha_{h,k}| \le \bar\alpha:\quad \left\| \frac{\partial \ell}{\partial Q_h} "
    r"\right\|_F \le 2\sqrt{2}\, \gamma \bar\alpha \bar{f}_{\max} \sqrt{\ell - L^\star}",
)
def gradient_bound(scale: Scale) -> Verdict:
    draws = scale.pick(smoke=20, quick=100, paper=1000)
    over = [settings.antipodal(1).with_weights(1e-3), *random_instances(draws)]
    return Verdict(
        bounds("(42)", over, ratio_42, {"0.99 sqrt(2) for 2 sqrt(2)": [0.99 / 2]}),
        settings={"sizes": SMALL, "random heads": draws},
        remarks=[
            "Half the constant would do, and no less: unit tokens have sum_j s_j |v_j - v| <= 1 "
            "around their mean v, where (83) has 2, and two opposite tokens with opposite features "
            "come to half of the bound. (56) has z_j for the column of Z-bar.",
        ],
    )


Pair = tuple[Instance, Instance]  # the same dictionary with two sets of parameters


def pairs(count: int) -> list[Pair]:
    """Random ones, where Q moves, or w, or both; the steepest heads, and saturated ones."""
    steepest, saturated = settings.antipodal(3).with_weights(1.0), one_hot(0, 0, 0)
    v = steepest.task.tokens[0]
    found = [
        (steepest, steepest.with_weights(1.0, 1e-3 * torch.outer(v, v).expand(3, 3, 3))),
        (saturated, saturated.with_weights(1.0)),
    ]
    for seed, made in enumerate(random_instances(count)):
        q, w = (normal(seed, *parameter.shape) for parameter in made.model.parameters())
        q *= (seed % 3 != 0) * 10.0 ** (seed % 4 - 3)
        w *= (seed % 3 != 1) * 10.0 ** (seed % 5 - 3)
        found.append((made, made.with_weights(made.model.w.detach() + w, made.model.q + q)))
    return found


def ratio_50(pair: Pair, factor: float = 1.0) -> float:
    one, other = pair
    distance = (one.model.q - other.model.q).detach().norm(dim=(1, 2))  # [heads]
    left = (one.b - other.b).norm(dim=1)  # [tokens, heads]
    # Where Q rests both sides are 0.
    return (left / (factor * 2 * one.zbar_norm * distance.clamp_min(1e-300))).max().item()


def ratio_51(pair: Pair, first: float = 1.0, last: float = 1.0) -> float:
    one, other = pair
    (q, w), (q_, w_) = ((made.model.q.detach(), made.model.w.detach()) for made in pair)
    queries = 2 * math.sqrt(one.h) * max(map(largest_weight, pair)) * (q - q_).norm()
    right = first * queries + last * math.sqrt(one.h) * (w - w_).norm(dim=0)  # [tokens]
    return ((one.delta - other.delta).norm(dim=0) / right).max().item()


@claim(
    "yang2024/lemma8",
    "The heads' outputs and the residuals are Lipschitz in the parameters",
    source="Lemma 8, Eq. 50 and 51",
    formula=r"\|b^h_k - {b^h_k}'\|_2 \le 2 \|\bar{Z}\|_2 \|Q_h - Q_h'\|_F,\quad "
    r"\|\delta_k - \delta_k'\|_2 \le 2\gamma\sqrt{H}\,\bar\alpha "
    r"\sqrt{\sum_h \|Q_h - Q_h'\|_F^2} + \gamma\sqrt{H} \|\alpha_k - \alpha_k'\|_2",
)
def lipschitz_bounds(scale: Scale) -> Verdict:
    draws = scale.pick(smoke=40, quick=200, paper=2000)
    over = pairs(draws)
    factors = {"0.7 for the 2": [0.35, 1.0], "0.99 times the last term": [1.0, 0.99]}
    return Verdict(
        [
            *bounds("(50)", over, ratio_50, {"0.7 for the 2": [0.35]}),
            *bounds("(51)", over, ratio_51, factors),
        ],
        settings={"sizes": SMALL, "random pairs": draws, "distances": "0.001 to 10 in an entry"},
        remarks=[
            "1/sqrt(2) for the 2 would do in both, and no less: two opposite tokens, attended to "
            "alike. The last term of (51) is tight where the heads are alike and saturated."
        ],
    )


def ratio_52(made: Instance, factor: float = 1.0) -> float:
    return made.b.norm(dim=1).max().item() / (factor * made.zbar_norm)


def ratio_53(made: Instance, weights: float = 1.0, target: float = 1.0) -> float:
    right = weights * made.h * largest_weight(made) + target * settings.norm(made.a)
    return made.delta.norm(dim=0).max().item() / right


@claim(
    "yang2024/lemma9",
    "The heads' outputs and the residuals are bounded",
    source="Lemma 9, Eq. 52 and 53",
    formula=r"\|b^h_k\|_2 \le \|\bar{Z}\|_2,\quad \|\delta_k\|_2 \le \gamma H \bar\alpha + "
    r"\|A\|_2",
)
def size_bounds(scale: Scale) -> Verdict:
    draws = scale.pick(smoke=40, quick=200, paper=2000)
    saturated = [one_hot(0, 0, 0).with_weights(w) for w in (-1e6, -1e-3)]
    over = [*random_instances(draws), *saturated]
    factors = {"0.99 gamma H alpha-bar": [0.99, 1.0], "0.99 |A|": [1.0, 0.99]}
    return Verdict(
        [
            *bounds("(52)", over, ratio_52, {"0.99 |Z-bar|": [0.99]}),
            *bounds("(53)", over, ratio_53, factors),
        ],
        settings={"sizes": SMALL, "random heads": draws},
        remarks=["Both are tight where all heads attend to the same token alone."],
    )


def ratio_62(made: Instance, factor: float = 1.0) -> float:
    """With gamma = 1, which multiplies both sides: alpha is then w."""
    bound = made.zbar_norm * math.sqrt(2 / made.k * made.gap)
    return gradients(made)[1].norm(dim=1).max().item() / (factor * bound)


@claim(
    "yang2024/eq62",
    "The gradient in the weights of a head is bounded by the root of the gap",
    source="Proof of Theorem 1, step 3, Eq. 62",
    formula=r"\left\| \frac{\partial \ell}{\partial \alpha_h} \right\|_2 \le \|\bar{Z}\|_2 "
    r"\gamma \sqrt{\frac{2}{K} (\ell - L^\star)}",
)
def weight_gradient_bound(scale: Scale) -> Verdict:
    draws = scale.pick(smoke=40, quick=200, paper=2000)
    over = [*random_instances(draws), one_hot(0, 1)]
    return Verdict(
        bounds("(62)", over, ratio_62, {"1.98 for the 2": [0.99**0.5]}),
        settings={"sizes": SMALL, "random heads": draws},
        remarks=[
            "Tight where a head attends to one token alone and all residuals lie along its column "
            "of Z-bar. The display before (62) lacks a partial sign.",
        ],
    )


SMOOTH = at_most(1 + 1e-9, "the least local Lipschitz constant; 1e-9 is rounding of Hessians")


@dataclass(frozen=True)
class Point:
    """Parameters where every |alpha_{h,k}| is alpha-bar or less."""

    made: Instance
    gamma: float
    alpha_bar: float

    def curvature(self) -> float:
        """The spectral norm of the Hessian of the library's exact loss in (Q, alpha)."""
        made, v = self.made, self.made.task.tokens
        q, alpha = made.model.q.detach(), made.model.w.detach() / self.gamma

        def gap(vector: Tensor) -> Tensor:
            queries, weights = vector[: q.numel()].view_as(q), vector[q.numel() :].view_as(alpha)
            heads = (v[: made.task.shown] @ queries @ v.mT).softmax(1)
            return made.risk.gap((self.gamma * weights[:, None] * heads).sum(0))

        at = torch.cat([q.flatten(), alpha.flatten()])
        return settings.norm(torch.autograd.functional.hessian(gap, at))

    def appendix(self, last: float) -> float:
        """L of Eq. 61, with this factor before its last bracket."""
        made, gamma, reach = self.made, self.gamma, self.gamma * self.made.h * self.alpha_bar
        k, zbar, a = made.k, made.zbar_norm, settings.norm(made.a)
        weights = (2 * gamma * zbar**2 * (2 * reach + a)) ** 2 / k
        weights += gamma**4 * made.h**2 * zbar**4 / k**2
        bracket = reach**2 + 4 * made.n * (reach + a) ** 2
        bracket *= max(1, (2 * math.sqrt(k) * self.alpha_bar) ** 2)
        return math.sqrt(2 * weights + last * bracket)

    def printed(self) -> float:
        """L of Eq. 61."""
        return self.appendix(8 * self.gamma * self.made.f_max * self.made.zbar_norm)

    def corrected(self, sixteen: float = 16) -> float:
        made = self.made
        return self.appendix(sixteen / made.k * (self.gamma * made.f_max * made.zbar_norm) ** 2)


@claim(
    "yang2024/lemma10",
    "The smoothness constant of the loss in (Q, alpha)",
    source="Lemma 10, Eq. 60 and 61",
    formula=r"\|\nabla\ell(\xi) - \nabla\ell(\xi')\|_2 \le L \|\xi - \xi'\|_2,\quad |\alpha_{h,k}|,"
    r"|\alpha_{h,k}'| \le \bar\alpha",
)
def smoothness(scale: Scale) -> Verdict:
    # Random heads, the steepest ones, and saturated ones with next to no weights.
    seeds = range(scale.pick(smoke=5, quick=30, paper=200))
    scales = ((1.0, 1.0), (1e3, 1.0), (1e4, 1e2), (1e8, 1e3))
    signs = [(instance(Sizes(2, 2, 2, 2, 0.5, 1), s), normal(s, 1, 2).sign()) for s in seeds]
    signs += [(made, torch.ones_like(made.model.w)) for made in map(settings.antipodal, (1, 2))]
    over = [
        Point(made.with_weights(gamma * alpha * sign, 0.3 * made.model.q), gamma, alpha)
        for (made, sign), (gamma, alpha) in product(signs, scales)
    ]
    over.append(Point(one_hot(0, 0), 1e8, 1e-12))
    hessians = [point.curvature() for point in over]
    printed, corrected = [p.printed() for p in over], [p.corrected() for p in over]

    def worst(constants: list[float]) -> float:
        return max(norm / constant for norm, constant in zip(hessians, constants, strict=True))

    def library(constants: list[float]) -> float:
        ours = [p.made.constants().smoothness(p.gamma, p.alpha_bar) for p in over]
        return max(map(settings.ratio_error, zip(ours, constants, strict=True)))

    name, error = "largest norm of the Hessian relative to L", "largest error of the library's L"
    ours, theirs = {"(61) corrected": corrected}, {"(61) as printed": printed}
    near_miss = {"(61) as printed, without its 8": [L / 8**0.5 for L in printed]}
    misses = {
        "0.7 times (61) corrected": [0.7 * L for L in corrected],
        "(61) corrected, 1/80 for the 16": [p.corrected(1 / 80) for p in over],
    }
    example = Point(settings.antipodal(1).with_weights(1e6), 1e4, 1e2)
    return Verdict(
        printed=checks(name, SMOOTH, theirs, unlike=near_miss, measure=worst),
        corrected=[
            *checks(name, SMOOTH, ours, unlike=misses, measure=worst),
            *checks(error, ROUNDING, ours, unlike=theirs, measure=library),
        ],
        correction=Correction(
            r"L^2 = \cdots + 8 \gamma \bar{f}_{\max} \|\bar{Z}\|_2 \max\{1, 4K\bar\alpha^2\} "
            r"\left[ (\bar\alpha\gamma H)^2 + 4N (\bar\alpha\gamma H + \|A\|_2)^2 \right]",
            r"L^2 = \cdots + \frac{16}{K} \left( \gamma \bar{f}_{\max} \|\bar{Z}\|_2 \right)^2 "
            r"\max\{1, 4K\bar\alpha^2\} "
            r"\left[ (\bar\alpha\gamma H)^2 + 4N (\bar\alpha\gamma H + \|A\|_2)^2 \right]",
            "(59) squares all of (58) but its factor 2 gamma f_max |Z-bar| / K. The proof of "
            "Theorem 1 goes through with the corrected L.",
            kind=Kind.CONSTANT,
            counterexample="Two opposite tokens with features 1 and -1, tau = 1e-8, one head, "
            "Q = 0, gamma = 10^4, both alpha = alpha-bar = 100: the norm of the Hessian is "
            f"{example.curvature():.3g}, L as printed {example.printed():.3g}, corrected "
            f"{example.corrected():.3g}.",
        ),
        settings={"points": len(over), "gamma": "1 to 10^8", "alpha-bar": "10^-12 to 1000"},
        remarks=[
            "The corrected L is sharp up to the sqrt(2) of Young's inequality where gamma is large "
            "and the weights small; on the steepest softmaxes a thousandth of the 16 would do."
        ],
    )


def printed_main_text(made: Instance, gamma: float) -> float:
    """L of Eq. 17."""
    n, k, h, zbar, zeta, gap = made.n, made.k, made.h, made.zbar_norm, made.zeta, made.gap
    reach = 8 * math.sqrt(2) * h * math.sqrt(k) * zbar**2 * math.sqrt(gap) / zeta
    reach += 1 + settings.norm(made.z.mT @ made.all_z) / made.noise
    first = reach**2 * zbar**4 * (8 * gamma**2 / k + 4096 * k**2 * n * gap / (gamma * zeta**2))
    second = gamma**4 / k**2 + 16384 * k**3 * zbar**2 * gap**2 / (gamma * zeta**4)
    return math.sqrt(first + 2 * h**2 * zbar**4 * second)


@claim(
    "yang2024/eq17",
    "The smoothness constant of the main text is a simpler upper bound of the one in the appendix",
    source="Eq. 17 and its footnote",
    formula=r"L^2_{(61)} \le L^2_{(17)} \text{ for every } \gamma \text{ of } (15)",
)
def simplified_constant(scale: Scale) -> Verdict:
    seeds, units = scale.pick(smoke=3, quick=20, paper=100), (0.01, 0.1, 1.0, 10.0)
    printed, corrected, small = dict.fromkeys(units, 0.0), 0.0, 0.0
    for sizes, unit, seed in product(settings.TINY, units, range(seeds)):
        made = instance(sizes, seed)
        features, tau = unit * made.task.features, unit**2 * sizes.tau
        made = Instance(replace(made.task, features=features, tau=tau), made.model)
        for gamma in (made.least_gamma * times for times in (1, 1e3, 1e9)):
            point, ours = Point(made, gamma, made.alpha_bar(gamma)), made.constants()
            printed[unit] = max(printed[unit], point.printed() / printed_main_text(made, gamma))
            corrected = max(corrected, point.corrected() / ours.main_text_smoothness(gamma))
            small = max(small, 4 * made.k * point.alpha_bar**2)
    name, largest = "largest L of (61) relative to L of (17)", max(printed.values())
    half, less = {"half of (17)": 2 * largest}, {"0.99 times (17)": corrected / 0.99}
    return Verdict(
        printed=checks(name, INEQUALITY, {"both as printed": largest}, unlike=half),
        corrected=checks(name, INEQUALITY, {"both as corrected": corrected}, unlike=less),
        correction=Correction(
            r"L^2 = \|\bar{Z}\|_2^4 \left[ \left( \tfrac{8\sqrt{2} H \sqrt{K} \|\bar{Z}\|_2^2 "
            r"\sqrt{\Delta}}{\zeta_0} + 1 + \tfrac{\|Z^\top \hat{Z}\|_2}{m\tau} \right)^2 "
            r"\left( \tfrac{8\gamma^2}{K} + \tfrac{4096 K^2 N \Delta}{\gamma\zeta_0^2} \right) + "
            r"2H^2 \left( \tfrac{\gamma^4}{K^2} + \tfrac{16384 K^3 \|\bar{Z}\|_2^2 \Delta^2}"
            r"{\gamma\zeta_0^4} \right) \right]",
            r"\begin{aligned} L^2 &= \|\bar{Z}\|_2^4 \left[ \tfrac{8\gamma^2}{K} r^2 + "
            r"\tfrac{2\gamma^4 H^2}{K^2} + \tfrac{16\gamma^2}{K} \max\{1, 4K\bar\alpha^2\} "
            r"(a^2 + 4N r^2) \right], \\ a &= \gamma H \bar\alpha = "
            r"\tfrac{4\sqrt{2} H \sqrt{K} \|\bar{Z}\|_2 \sqrt{\Delta}}{\zeta_0},\quad "
            r"r = 2a + 1 + \tfrac{\|Z^\top \hat{Z}\|_2}{m\tau} \end{aligned}",
            "2 gamma H alpha-bar of (44) has the first power of |Z-bar|, where (17) prints the "
            f"square; and (17) has 4 K alpha-bar^2, here at most {small:.2f}, for max(1, 4 K "
            "alpha-bar^2). In other units, f -> c f and tau -> c^2 tau, the curvature scales as "
            "c^2 and neither printed constant does; the corrected pair keeps its order in all "
            "units, and becomes equal as gamma grows.",
            kind=Kind.CONSTANT,
            counterexample="L of (61) relative to L of (17), the largest found for c = "
            + ", ".join(f"{unit:g}: {ratio:.3g}" for unit, ratio in printed.items()),
        ),
        settings={
            "sizes": f"{'; '.join(map(str, settings.TINY))}; {seeds} starts of each",
            "gamma": "1, 10^3 and 10^9 times the least of (15)",
        },
    )
