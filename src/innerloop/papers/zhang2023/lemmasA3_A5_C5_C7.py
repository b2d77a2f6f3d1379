"""What holds along the flow: Lemmas A.3, A.4, A.5, and C.5, C.6, C.7 with a random covariance."""

from dataclasses import replace

from innerloop.papers.quantity import at_least, at_most
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.zhang2023.flows import Start, described, fixed_starts, random_starts
from innerloop.papers.zhang2023.settings import as_stated, tight
from innerloop.theory.flow import Flow


def balance(starts: list[Start]) -> Verdict:
    def imbalance(flows: list[Flow]) -> float:
        paths = [flow.path.square() for flow in flows]
        return max((p[:, 1:].sum(-1) / p[:, 0] - 1).abs().max().item() for p in paths)

    name = "largest |v^2 - |U|_F^2| / v^2 on the paths"
    bound = at_most(1e-6, "errors of 1e-10 in v and U at a thousand steps may add up to 4e-7")
    longer = {"U(0) 0.1 % longer": [s.from_direction(1.001 * s.direction) for s in starts]}
    found = as_stated(name, [s.flow for s in starts], longer, imbalance, bound)
    return Verdict(found, settings=described(starts))


def positivity(starts: list[Start], *remarks: str) -> Verdict:
    def least_v(flow: Flow, start: Start) -> float:
        return flow.path[:, 0].min().item() / start.sigma

    squares = [start.law.square() for start in starts]  # from minus these the flow passes to v < 0
    past = [s.from_direction(-1.1 * q / q.norm()) for s, q in zip(starts, squares, strict=True)]
    positive = as_stated(
        "smallest v on the paths, relative to sigma",
        [s.flow for s in starts],
        {"U(0) = -1.1 sigma E Lambda^2 / |E Lambda^2|_F": past},
        lambda flows: min(map(least_v, flows, starts)),
        at_least(1e-9, "the claim is v > 0; the integrator's absolute error is 1e-12 a step"),
    )
    below = as_stated(
        "largest loss at a start with sigma 0.1 % below the bound, relative to its linear term",
        0.999,
        {"sigma 0.1 % above the bound": 1.001},
        lambda part: max(replace(s, fraction=part).first_loss() for s in starts),
        at_most(0.0, "the proof needs it below 0, and has it exactly up to the largest sigma"),
    )
    remark = "For v > 0 the bound on sigma is not needed (theorem4.1-any-scale); for d = 1 and "
    remark += "l~(0) < 0 it is sharp."
    about = described(starts)
    return Verdict([*positive, *below], settings=about, remarks=[remark, *remarks])


def lower_bound(starts: list[Start]) -> Verdict:
    ratios = [s.model.smallest_v(s.direction, s.sigma) / s.flow.path[:, 0].min() for s in starts]
    high, low = float(max(ratios)), float(min(ratios))
    return Verdict(
        tight("largest ratio of the bound to the smallest v on a path", high, 1.01),
        settings=described(starts),
        remarks=[f"v is {1 / high:.5g} (d = 1, small sigma) to {1 / low:.3g} times the bound."],
    )


@claim(
    "zhang2023/lemmaA.3",
    "The two blocks stay balanced along the flow",
    source="Lemma A.3, Eq. A.12",
    formula=r"u_{-1}^2 = \mathrm{tr}\left[U_{11} U_{11}^\top\right] \text{ for all } t \ge 0",
)
def fixed_balance(scale: Scale) -> Verdict:
    return balance(fixed_starts(scale))


@claim(
    "zhang2023/lemmaA.4",
    "From a start of limited scale the loss begins below 0, and the scalar block stays positive",
    source="Lemma A.4, Eq. A.13, and its proof",
    formula=r"0 < \sigma < \sqrt{\frac{2}{\sqrt{d}\,\|\Gamma\|_{op}}} \;\Rightarrow\;"
    r" \tilde\ell(0) < 0,\; u_{-1}(t) > 0 \text{ for all } t",
)
def fixed_positivity(scale: Scale) -> Verdict:
    return positivity(fixed_starts(scale))


@claim(
    "zhang2023/lemmaA.5",
    "The scalar block stays above a constant, away from the saddle at the origin",
    source="Lemma A.5, Eq. A.14",
    formula=r"u_{-1} \ge \sqrt{\frac{\sigma^2}{2\sqrt{d}\,\|\Lambda\|_{op}^2} \|\Lambda\Theta\|_F^2"
    r" \left[2 - \sqrt{d}\,\sigma^2 \|\Gamma\|_{op}\right]}",
)
def fixed_lower_bound(scale: Scale) -> Verdict:
    return lower_bound(fixed_starts(scale))


@claim(
    "zhang2023/lemmaC.5",
    "The two blocks stay balanced along the flow, with a random covariance too",
    source="Lemma C.5, Eq. C.9",
    formula=r"u_{-1}^2 = \mathrm{tr}\left[U_{11} U_{11}^\top\right] \text{ for all } t \ge 0",
)
def random_balance(scale: Scale) -> Verdict:
    return balance(random_starts(scale))


@claim(
    "zhang2023/lemmaC.6",
    "With a random covariance, too, the loss begins below 0 and the scalar block stays positive",
    source="Lemma C.6, Eq. C.10 and C.11, and its proof",
    formula=r"0 < \sigma < \sqrt{\frac{2 \|\mathbb{E}\,\Lambda_\tau\Theta\|_F^2}{\sqrt{d}\,"
    r"\mathbb{E}\left[\|\Gamma_\tau\|_{op} \|\Lambda_\tau\|_F^2\right]}} \;\Rightarrow\;"
    r" \ell_{\mathrm{rdm}}(0) < 0,\; u_{-1}(t) > 0 \text{ for all } t",
)
def random_positivity(scale: Scale) -> Verdict:
    starts = random_starts(scale)
    law, theta = starts[1].law, starts[1].direction
    square, (mean,) = (law.square() @ theta).trace(), law.averaged().covariances
    return positivity(
        starts,
        "The proof sets E tr(Lambda^2 Theta Theta^T) equal to |E Lambda Theta|_F^2. It may be more "
        f"(here {square:.3f} and {(mean @ theta @ mean).trace():.3f}): sigma could be larger.",
    )


@claim(
    "zhang2023/lemmaC.7",
    "The scalar block stays above a constant, with a random covariance too",
    source="Lemma C.7, Eq. C.12",
    formula=r"u_{-1} \ge \sqrt{\frac{\sigma^2}{2\sqrt{d}\,\|\mathbb{E}\,\Lambda_\tau^2\|_{op}}"
    r"\left[2 \|\mathbb{E}\,\Lambda_\tau\Theta\|_F^2 - \sqrt{d}\,\sigma^2\, \mathbb{E}\left["
    r"\|\Gamma_\tau\|_{op} \|\Lambda_\tau\|_F^2\right]\right]}",
)
def random_lower_bound(scale: Scale) -> Verdict:
    return lower_bound(random_starts(scale))
