"""Where training starts: Proposition 1 of Yang et al. (2024), and the tokens of its experiments."""

from __future__ import annotations

import warnings
from dataclasses import replace

import torch
from torch import Tensor

from innerloop.papers.common import DTYPE
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Correction, Scale, Verdict
from innerloop.papers.yang2024.half_loss import ExactHalfLoss
from innerloop.papers.yang2024.settings import Instance, Sizes, instance


def rank_deficit(made: Instance) -> int:
    """N minus the least numerical rank of B_k over the tokens."""
    return made.task.shown - int(torch.linalg.matrix_rank(made.outputs()).min())


def on_tokens(sizes: Sizes, tokens: Tensor) -> Instance:
    """An instance on given tokens, which may be equal on purpose."""
    made = instance(sizes, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        task = replace(made.task, tokens=tokens)
    return Instance(task, made.model, ExactHalfLoss(task))


def smallest_singular_value(made: Instance) -> float:
    return torch.linalg.svdvals(made.softmaxes().permute(2, 1, 0))[:, -1].min().item()


@claim(
    "yang2024/proposition1",
    "With H >= N heads and Gaussian query matrices, every B_k has full row rank almost surely",
    source="Proposition 1",
    formula=r"H \ge N,\; Q_h(i,j) \sim \mathcal{N}(0, \beta^2):\quad \mathrm{rank}\, B_k = N "
    r"\;\text{ for all } k",
)
def full_rank(scale: Scale) -> Verdict:
    seeds = scale.pick(smoke=2, quick=10, paper=50)
    shapes = (
        Sizes(8, 6, 5, 20, 0.05, 5),
        Sizes(2, 6, 6, 12, 0.05, 6),
        Sizes(100, 20, 30, 60, 0.01, 30),
    )
    made = [instance(sizes, seed) for sizes in shapes for seed in range(seeds)]
    fewer = [
        instance(replace(sizes, heads=sizes.heads - 1), seed)
        for sizes in shapes
        for seed in range(seeds)
    ]
    one_hot = on_tokens(Sizes(12, 6, 6, 12, 0.05, 6), torch.eye(12, dtype=DTYPE))
    doubled = instance(shapes[0], 0).task.tokens.clone()
    doubled[3] = doubled[1]
    equal = [rank_deficit(on_tokens(replace(shapes[0], heads=h), doubled)) for h in (5, 10, 64)]
    deficit = max(rank_deficit(each) for each in [*made, one_hot])
    why = "full rank allows none; singular values below max(N, H) roundings of the largest are 0"
    return Verdict(
        [
            Check(
                "largest N - rank B_k over tokens and starts, H = N",
                deficit,
                0,
                min(rank_deficit(each) for each in fewer),
                why,
                "H = N - 1 heads",
            ),
            Check(
                "the same, where the prompt's tokens are distinct",
                deficit,
                0,
                min(equal),
                why,
                "two equal tokens in the prompt, H = N, 2 N and 64",
            ),
        ],
        settings={
            "sizes": "; ".join(map(str, shapes)),
            "starts of each": seeds,
            "smallest singular value of the softmaxes": ", ".join(
                f"{min(map(smallest_singular_value, made[i * seeds : (i + 1) * seeds])):.1e}"
                for i in range(len(shapes))
            ),
            "more than stated": "distinct tokens are enough, Assumption 3 is not needed: a "
            "Gaussian Q is as likely as any rotation of it, and some rotation of distinct tokens "
            "satisfies the assumption. One-hot tokens, which violate it, are among the starts",
        },
    )


@claim(
    "yang2024/unit-tokens",
    "Tokens drawn from a standard Gaussian, as in the experiments, let training start at a rank "
    "that is full in double precision",
    source="Section 4, Setup, with Proposition 1",
    formula=r"v_k \sim \mathcal{N}(0, I_d):\quad \sigma_{\min}(B_k) > H \cdot 2^{-52} "
    r"\sigma_{\max}(B_k) \;\text{ for all } k",
)
def unit_tokens(scale: Scale) -> Verdict:
    sizes = scale.pick(
        smoke=Sizes(100, 20, 30, 60, 0.01, 64),
        quick=Sizes(100, 20, 30, 200, 0.01, 64),
        paper=Sizes(100, 20, 30, 200, 0.01, 64),
    )
    unit, raw = instance(sizes, 0), instance(sizes, 0, unit=False)
    spread = {
        name: torch.std(made.task.tokens[: sizes.shown] @ made.model.q[0] @ made.task.tokens.mT)
        for name, made in (("unit", unit), ("raw", raw))
    }
    few = instance(replace(sizes, heads=sizes.shown - 1), 0)
    why = "full rank allows none; singular values below 64 roundings of the largest are 0"
    return Verdict(
        printed=[
            Check(
                "N - rank B_k, the largest over tokens, Gaussian tokens",
                rank_deficit(raw),
                0,
                rank_deficit(instance(replace(sizes, heads=sizes.shown - 1), 0, unit=False)),
                why,
                "H = N - 1 heads",
            )
        ],
        corrected=[
            Check(
                "N - rank B_k, the largest over tokens, tokens of norm 1",
                rank_deficit(unit),
                0,
                rank_deficit(few),
                why,
                "H = N - 1 heads",
            )
        ],
        correction=Correction(
            r"v_k \sim \mathcal{N}(0, I_d)",
            r"\|v_k\|_2 = 1",
            f"In d = {sizes.d} dimensions Gaussian tokens have norm {sizes.d**0.5:.0f}, and the "
            f"logits v_i^T Q v_k the standard deviation {spread['raw']:.0f}: every softmax is one "
            f"token, and zeta_0 is {raw.zeta_in_words()}. Almost surely it is positive, as "
            "Proposition 1 says, but the rank is not full in float64 and nothing can be trained at "
            "the rate that zeta_0 certifies. Section 2 has tokens of norm 1, for which the logits "
            f"have the standard deviation {spread['unit']:.2f} and zeta_0 = {unit.zeta():.1e}. "
            "Where training then ends is in figure2a.",
        ),
        settings={"sizes": str(sizes), "Q": "standard normal", "seed": 0},
    )
