"""What is learned: Theorem 2, and Eq. 68 and 69 of its proof."""

import math
from dataclasses import replace

import torch
from scipy.stats import chi2
from torch import Tensor

from innerloop import theory
from innerloop.analysis import Estimate
from innerloop.papers.common import generator, identity, normal
from innerloop.papers.quantity import INEQUALITY, ROUNDING, SAMPLING, at_most, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.yang2024 import settings
from innerloop.papers.yang2024.settings import SMALL, TINY, Instance, instance, one_hot
from innerloop.papers.yang2024.theorem1 import Certified, certified, fastest_start
from innerloop.tasks import SphericalCoefficients

RADIUS, PRECISION, FAILURE = 3.0, 1e-9, 0.1
"""B, epsilon and delta."""
NEXT = at_most(1, "the next whole number")


def deviation(n: int, delta: float, times: float = 1.0) -> float:
    """N + 2 sqrt(N log(1/delta)) + 2 log(1/delta), with the deviation from N times a factor."""
    log = math.log(1 / delta)
    return n + times * (2 * math.sqrt(n * log) + 2 * log)


def labels_69(made: Instance, delta: float, times: float = 1.0) -> float:
    """The bound of (69) on |y| relative to B."""
    return settings.norm(made.z) + math.sqrt(made.task.tau * deviation(made.n, delta, times))


def steps_21(made: Instance, rates: Certified) -> float:
    """T of (21)."""
    ratio = RADIUS**2 * made.gap * labels_69(made, FAILURE) ** 2 / (made.noise * PRECISION)
    return math.log(ratio) / math.log(1 / (1 - rates.decrease))


def late_shares(made: Instance, rates: Certified, steps: int, prompts: int) -> list[Estimate]:
    """The share of prompts with |lambda| = B beyond the precision, after T/5 steps and after T."""
    task = replace(made.task, coefficients=SphericalCoefficients(RADIUS))
    prompt = task.sample(prompts, generator=generator(2))

    def late(model: object) -> float:
        error = prompt.y @ (made.attention() - made.a)
        return (error.square().mean(1) / 2 > PRECISION).double().mean().item()

    fifth = math.ceil(steps / 5)
    history = made.descend(5 * fifth, rates.query_rate, rates.weight_rate, every=fifth, late=late)
    error = math.sqrt(FAILURE * (1 - FAILURE) / prompts)  # of a share at the tolerance
    at = dict(zip(history["step"], history["late"], strict=True))
    return [Estimate(at[step], error, prompts) for step in (fifth, 5 * fifth)]


@claim(
    "yang2024/theorem2",
    "After T steps the transformer repeats the shown labels and predicts the others by ridge "
    "regression, for every |lambda| <= B with probability 1 - delta",
    source="Theorem 2, Eq. 20 to 22",
    formula=r"\frac{1}{2K} \|\hat{y} - \hat{y}^\star\|_2^2 \le \varepsilon,\quad "
    r"\hat{y}^\star = \begin{bmatrix} y \\ (Z^Q)^\top \hat\lambda \end{bmatrix},\quad "
    r"T \ge \frac{\log ( B^2 \Delta ( \|Z\|_2 + \sqrt\tau ( 2\sqrt{N \log(1/\delta)} + "
    r"2\log(1/\delta) + N )^{1/2} )^2 / (m\tau\varepsilon) )}"
    r"{\log (1 / (1 - \eta_w \zeta_0 / 2K))}",
)
def inference(scale: Scale) -> Verdict:
    prompts, drawn = scale.pick(smoke=2_000, quick=20_000, paper=200_000), instance(SMALL, 0)
    labels, noise = normal(1, 50, drawn.n), drawn.noise

    def distance(case: tuple[Tensor, float]) -> float:
        """Of A^T y for arbitrary y from (22), with (20) by least squares on m more rows."""
        matrix, penalty = case
        rows = torch.cat([drawn.z.mT, penalty**0.5 * identity(drawn.m)])
        padded = torch.nn.functional.pad(labels, (0, drawn.m))
        coefficients = torch.linalg.lstsq(rows, padded.mT).solution.mT
        stated = torch.cat([labels, coefficients @ drawn.all_z[:, drawn.n :]], dim=1)
        return settings.relative_distance(stated, labels @ matrix)

    ridge = theory.softmax.ridge_matrix(drawn.task.features, drawn.n, noise)
    learned = {
        "A of (34)": (drawn.a, noise),
        "the library's optimum": (drawn.risk.optimum, noise),
        "the library's ridge regression": (ridge, noise),
    }
    of_n = {"A of (34), penalty N tau": (drawn.a, drawn.n * SMALL.tau)}
    starts = {"random start": (fastest_start(), 1.0), "one-hot heads": (one_hot(0, 1), 0.25)}
    after, counts = dict[str, list[Estimate]](), dict[str, tuple[int, float]]()
    for name, (made, share) in starts.items():
        rates = certified(made, share=share)
        steps = steps_21(made, rates)
        asked = {"precision": PRECISION, "failure": FAILURE, "radius": RADIUS, "tau": made.task.tau}
        library = theory.softmax.iterations(
            made.constants(), rates.decrease, features=made.z.mT, **asked
        )
        counts[name] = (library, steps)
        without_radius = steps + 2 * math.log(RADIUS) / math.log1p(-rates.decrease)
        after[name] = late_shares(made, rates, math.ceil(steps), prompts)
    far = "relative distance from (22) for arbitrary y"
    beyond = f"share of {prompts} prompts with |lambda| = {RADIUS:g} beyond epsilon"
    late = {f"{name}, after T steps": shares[1] for name, shares in after.items()}
    too_late = {"one-hot heads, after T/5 steps": after["one-hot heads"][0]}
    off = {name: abs(library - steps) for name, (library, steps) in counts.items()}
    wrong = {"(21) without B^2": abs(counts["one-hot heads"][0] - without_radius)}
    return Verdict(
        [
            *checks(far, ROUNDING, learned, unlike=of_n, measure=distance),
            *checks(beyond, at_most(FAILURE, "delta"), late, unlike=too_late),
            *checks("distance of the library's T from (21)", NEXT, off, unlike=wrong),
        ],
        settings={
            "random start": f"{TINY[0]}: of 20 the one with the largest certified rate",
            "epsilon, delta, B": f"{PRECISION:g}, {FAILURE:g}, {RADIUS:g}",
            "T": ", ".join(f"{count} ({name})" for name, (count, _) in counts.items()),
        },
        remarks=["The shown labels are repeated with their noise. About T/4 steps would do."],
    )


def worst_tail(twos: tuple[float, float]) -> float:
    """The largest P / delta of (68), with these numbers for its two twos."""
    cases = [(n, s) for n in (1, 2, 12, 100, 100_000) for s in (0.01, 0.1, 1, 3, 10, 40, 300)]
    return max(
        chi2.sf(n + twos[0] * math.sqrt(n * s) + twos[1] * s, n) * math.exp(s) for n, s in cases
    )


@claim(
    "yang2024/eq68-69",
    "The labels of a prompt are bounded with probability 1 - delta",
    source="Proof of Theorem 2, Eq. 68 and 69",
    formula=r"P\left( \|y - Z^\top\lambda\|_2^2 \ge \tau \|\lambda\|_2^2 ( N + "
    r"2\sqrt{N \log(1/\delta)} + 2\log(1/\delta) ) \right) \le \delta,\quad \|y\|_2 \le B \left( "
    r"\|Z\|_2 + \sqrt\tau ( N + 2\sqrt{N \log(1/\delta)} + 2\log(1/\delta) )^{1/2} \right)",
)
def bounded_labels(scale: Scale) -> Verdict:
    prompts = scale.pick(smoke=4_000, quick=20_000, paper=50_000)
    drawn = instance(replace(SMALL, shown=100, tokens=110), 0)
    short = Instance(replace(drawn.task, features=1e-3 * drawn.task.features), drawn.model)
    n, tau, delta = drawn.n, drawn.task.tau, 0.05

    def labels(made: Instance) -> tuple[Tensor, Tensor]:
        """y of (1), with the noise on the features, and Z^T lambda, for the worst |lambda| = B."""
        worst = RADIUS * torch.linalg.svd(made.z).U[:, 0]
        noise = tau**0.5 * normal(1, prompts, made.m, n)
        return torch.einsum("i,pij->pj", worst, made.z + noise), worst @ made.z

    def z_score(freedom: int) -> float:
        """Of the share of prompts farther off than half the deviation of (68)."""
        y, without_noise = labels(drawn)
        off = (y - without_noise).square().sum(1) / (tau * RADIUS**2)
        threshold = deviation(n, delta, 0.5)
        return abs(Estimate.of((off >= threshold).double()).z(float(chi2.sf(threshold, freedom))))

    def share(case: tuple[Instance, float]) -> Estimate:
        made, times = case
        size = labels(made)[0].norm(dim=1)
        return Estimate.of((size > RADIUS * labels_69(made, delta, times)).double())

    rare, far = "(69), features a thousandth", f"|z| of a share of {prompts} prompts"
    tail, beyond = "largest probability over delta", f"share of {prompts} prompts beyond |y|"
    smaller = {"1.9 sqrt(N log(1/delta))": (1.9, 2.0), "1.8 log(1/delta)": (2.0, 1.8)}
    bound, less = {"(69)": (drawn, 1.0), rare: (short, 1.0)}, {f"{rare}, 0.4 times": (short, 0.4)}
    freedom, more = {"chi-squared with N degrees of freedom": n}, {"with N + 5": n + 5}
    return Verdict(
        [
            *checks(far, SAMPLING, freedom, unlike=more, measure=z_score),
            *checks(tail, INEQUALITY, {"(68)": (2.0, 2.0)}, unlike=smaller, measure=worst_tail),
            *checks(beyond, at_most(delta, "delta"), bound, unlike=less, measure=share),
        ],
        settings={"task": drawn.task, "delta of (69)": delta, "prompts": prompts},
        remarks=["Neither 2 of (68) can be smaller: the tail of chi-squared, down to e^-300."],
    )
