"""What holds along the flow: Lemmas A.3, A.4, A.5, and C.5, C.6, C.7 with a random covariance."""

from __future__ import annotations

from dataclasses import replace

from innerloop.papers.quantity import INEQUALITY, at_least, at_most
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Scale, Verdict
from innerloop.papers.zhang2023.flows import Start, described, fixed_starts, random_starts
from innerloop.papers.zhang2023.settings import checked
from innerloop.theory.flow import Flow

BALANCED = at_most(
    1e-6, "an error of 1e-10 in v and U at each of about a thousand steps may add up to 4e-7"
)


def imbalance(flow: Flow) -> float:
    """The largest |v^2 - |U|_F^2| / v^2 on the path."""
    squares = flow.path[:, 0] ** 2
    return ((squares - flow.path[:, 1:].square().sum(-1)).abs() / squares).max().item()


def balance(starts: list[Start]) -> Verdict:
    cases = {
        "starts of Assumption 3.3": [s.flow for s in starts],
        "U(0) = 1.001 sigma Theta Theta^T": [s.from_direction(1.001 * s.direction) for s in starts],
    }
    name = "largest |v^2 - |U|_F^2| / v^2 on the paths"
    checks = checked(name, BALANCED, cases, lambda flows: max(map(imbalance, flows)))
    return Verdict(checks, settings=described(starts))


def least_v(start: Start, flow: Flow) -> float:
    """The smallest v on the path over sigma."""
    return flow.path[:, 0].min().item() / start.sigma


def past_the_saddle(start: Start) -> Flow:
    """From U(0) = -1.1 sigma E Lambda^2 / |E Lambda^2|_F the flow passes to v < 0."""
    square = start.law.mean(lambda c: c @ c)
    return start.from_direction(-1.1 * square / square.norm())


def positivity(starts: list[Start]) -> list[Check]:
    flows = {
        "starts of Assumption 3.3": [s.flow for s in starts],
        "U(0) = -1.1 sigma E Lambda^2 / |E Lambda^2|_F": list(map(past_the_saddle, starts)),
    }
    parts = {"sigma 0.1 % below the bound": 0.999, "sigma 0.1 % above it": 1.001}
    return [
        *checked(
            "smallest v on the paths, relative to sigma",
            at_least(1e-9, "the claim is v > 0; the integrator's absolute error is 1e-12 a step"),
            flows,
            lambda found: min(map(least_v, starts, found)),
        ),
        *checked(
            "largest loss at the start, relative to its linear term",
            at_most(0.0, "the proof needs it below 0, and has it exactly up to the largest sigma"),
            parts,
            lambda part: max(replace(start, fraction=part).first_loss() for start in starts),
        ),
    ]


def lower_bound(starts: list[Start]) -> Verdict:
    ratios = [s.lowest_v / (least_v(s, s.flow) * s.sigma) for s in starts]
    factors = {"the bound": 1.0, "a bound 1 % higher": 1.01}
    name = "largest ratio of the bound to the smallest v on a path"
    return Verdict(
        checked(name, INEQUALITY, factors, lambda factor: factor * max(ratios)),
        settings=described(starts),
        remarks=[
            f"v stays {1 / max(ratios):.5g} to {1 / min(ratios):.3g} times above the bound. It is "
            "nearly attained for d = 1 and small sigma."
        ],
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
    starts = fixed_starts(scale)
    return Verdict(
        positivity(starts),
        settings=described(starts),
        remarks=[
            "For v > 0 the condition on sigma is not needed: v = 0 on a balanced path means U = 0, "
            "a point of rest, which no other path reaches; see theorem4.1-any-scale. For l~(0) < 0 "
            "it is, and is sharp for d = 1."
        ],
    )


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
    "With a random covariance, too, the loss begins below 0 from a start of limited scale, and the "
    "scalar block stays positive",
    source="Lemma C.6, Eq. C.10 and C.11, and its proof",
    formula=r"0 < \sigma < \sqrt{\frac{2 \|\mathbb{E}\,\Lambda_\tau\Theta\|_F^2}{\sqrt{d}\,"
    r"\mathbb{E}\left[\|\Gamma_\tau\|_{op} \|\Lambda_\tau\|_F^2\right]}} \;\Rightarrow\;"
    r" \ell_{\mathrm{rdm}}(0) < 0,\; u_{-1}(t) > 0 \text{ for all } t",
)
def random_positivity(scale: Scale) -> Verdict:
    starts = random_starts(scale)
    start = starts[1]
    square = (start.law.mean(lambda c: c @ c) @ start.direction).trace().item()
    return Verdict(
        positivity(starts),
        settings=described(starts),
        remarks=[
            "The proof sets E tr(Lambda^2 Theta Theta^T) equal to |E Lambda Theta|_F^2. The first "
            f"is at least the second (here {square:.3f} and {start.seen:.3f}), so the condition is "
            "only stricter than it need be.",
            "For v > 0 no condition on sigma is needed, as for Lemma A.4.",
        ],
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
