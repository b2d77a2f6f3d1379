"""Moments of the residual I - A^1/2 S A^1/2: Lemmas 4.3 and A.7 of Gatmiry et al. (2024).

Exact fractions, judged as in `moments`: how much of the room that a bound leaves is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from innerloop import theory
from innerloop.papers.gatmiry2024.moments import (
    CONDITION,
    Setting,
    flat,
    long_enough,
    power_of_delta,
    worst_use,
)
from innerloop.papers.gatmiry2024.settings import BOUND
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Correction, Scale, Verdict

LARGE = Setting(flat(3, 2), 3, 3)
LARGER = Setting(flat(10, 5), 6, 3)


def residual_use(setting: Setting, k: int, allowed: float) -> float:
    """max_i |beta_i - (1 - lambda_i)^k| / (allowed (1 + lambda_1)^k)."""
    moments = theory.residual_eigenvalues(setting.spectrum, setting.n, k)
    excess = max(abs(m - (1 - v) ** k) for m, v in zip(moments, setting.spectrum, strict=True))
    return float(excess / (1 + max(setting.spectrum)) ** k) / allowed


def delta_of_k(setting: Setting, k: int) -> float:
    """4 k d / sqrt n, which Lemma A.7 calls delta^k."""
    return 4 * k * setting.d / math.sqrt(setting.n)


def residual_bound(scale: Scale, allowed: Callable[[Setting, int], float], note: str) -> Verdict:
    """Lemma 4.3 or A.7: as printed, and with the condition on n that Lemma A.2 has."""
    settings = long_enough(scale)
    use, used = (worst_use(residual_use, allowed, s) for s in (settings, [LARGE]))
    beta = float(theory.residual_eigenvalues(LARGE.spectrum, LARGE.n, 6)[0])
    bound = (1 - 3) ** 6 + allowed(LARGE, 6) * 4**6
    quantity = "largest |beta_i - (1 - lambda_i)^k| in units of what is allowed"
    return Verdict(
        printed=[
            Check(
                f"{quantity}; {LARGE}",
                used,
                1.0,
                worst_use(residual_use, allowed, [LARGER]),
                BOUND,
                str(LARGER),
            )
        ],
        corrected=[
            Check(
                f"{quantity}; n = 16 L^2 d^2",
                use,
                1.0,
                used,
                BOUND,
                "a prompt that is too short: " + str(LARGE),
            )
        ],
        correction=Correction(
            r"\left|\beta_i^{(k)} - (1 - \lambda_i)^k\right| \le \delta^k (\lambda_1 + 1)^k",
            r"\begin{aligned} & \left|\beta_i^{(k)} - (1 - \lambda_i)^k\right| \le \delta^k "
            r"(\lambda_1 + 1)^k \\ & \text{if } " + CONDITION + r"\end{aligned}",
            "The lemma rests on Lemma 4.2 and inherits the missing condition on n. For d = 2, "
            f"n = 3, L = 3 and A^1/2 Sigma* A^1/2 = 3 I the sixth moment is {beta:.0f}, and the "
            f"bound allows {bound:.0f}. With the condition it follows from Lemma 4.2 by the "
            "binomial formula, term by term. " + note,
        ),
        settings={
            "settings with the condition": f"{len(settings)}: d up to {settings[-1].d}, L up to "
            f"{settings[-1].loops}, three spectra each, all k up to 2L",
            "bound / measured, smallest": round(1 / use, 1),
        },
    )


@claim(
    "gatmiry2024/lemma4.3",
    "The eigenvalues of the averaged residual are close to those for an infinite prompt",
    source="Lemma 4.3",
    formula=r"\begin{aligned} & \mathbb{E}(I - A^{1/2} \Sigma A^{1/2})^k = \sum_i \beta_i^{(k)} "
    r"u_i u_i^\top, \\ & (1 - \lambda_i)^k - \delta^k (\lambda_1 + 1)^k \le \beta_i^{(k)} \le (1 - "
    r"\lambda_i)^k + \delta^k (\lambda_1 + 1)^k \end{aligned}",
)
def residual_control(scale: Scale) -> Verdict:
    return residual_bound(
        scale, power_of_delta, "The sums over eigenvalues run to d; n is printed."
    )


@claim(
    "gatmiry2024/lemmaA.7",
    "Lemma 4.3 again, with another delta",
    source="Lemma A.7",
    formula=r"(\lambda_i - 1)^k - \delta^k (\lambda_1 + 1)^k \le \beta_i^{(k)} \le (\lambda_i - "
    r"1)^k + \delta^k (\lambda_1 + 1)^k,\qquad \delta^k = \frac{4kd}{\sqrt n}",
)
def residual_control_restated(scale: Scale) -> Verdict:
    return residual_bound(
        scale,
        delta_of_k,
        "Here delta^k is 4kd/sqrt(n) for every k; in the main text delta^(2L) is 8Ld/sqrt(n), "
        "which agrees at k = 2L and is larger below where the condition holds. In the proof's sum "
        "the term i = 0 is missing and the sign is (-1)^(k-i).",
    )
