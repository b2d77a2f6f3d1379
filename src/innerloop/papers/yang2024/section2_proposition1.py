"""The transformer of section 2, its start (Proposition 1), and the tokens of section 4."""

import warnings
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from innerloop.models import block_form_forward
from innerloop.papers.common import DTYPE, generator, identity, normal
from innerloop.papers.quantity import ROUNDING, at_most, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.yang2024.settings import FULL, SMALL, Instance, Sizes, instance
from innerloop.papers.yang2024.settings import relative_distance as distance

FULL_RANK = at_most(
    0, "full rank allows none; singular values below max(N, H) roundings of the largest count as 0"
)


@claim(
    "yang2024/eq8",
    "With the weights (7), the diagonal of the transformer's output is a weighted sum of softmax "
    "heads applied to the shown labels",
    source="Section 2, Eq. 2 to 8",
    formula=r"\hat{y}_k = \left\langle y, \sum_{h=1}^H w_{h,k}\, \mathrm{softmax}(V^\top Q_h v_k) "
    r"\right\rangle",
)
def short_form(scale: Scale) -> Verdict:
    made = instance(SMALL, 0).with_weights(normal(1, SMALL.heads, SMALL.tokens))
    q, w, tokens = made.model.q.detach(), made.model.w.detach(), made.task.tokens
    prompt = made.task.sample(20, generator=generator(2))

    def short(keys: int, q: Tensor) -> Tensor:
        """(8), attending to this many tokens, whose labels are 0 if they are not shown."""
        labels = torch.nn.functional.pad(prompt.y, (0, keys - prompt.n))
        heads = (tokens[:keys] @ q @ tokens.mT).softmax(dim=1)  # [heads, keys, tokens]
        return labels @ (heads * w[:, None]).sum(0)

    right = {"(8)": short(prompt.n, q), "the library's model": made.model(prompt).detach()}
    wrong = {"Q transposed": short(prompt.n, q.mT), "all K tokens as keys": short(SMALL.tokens, q)}
    name = "relative distance from the diagonal of T(E), all blocks written out"
    measure = partial(distance, block_form_forward(q, w, prompt))
    return Verdict(
        checks(name, ROUNDING, right, unlike=wrong, measure=measure),
        settings={"sizes": SMALL, "prompts": 20, "w": "standard normal"},
    )


def rank_deficit(made: Instance) -> int:
    """N minus the least numerical rank of B_k over the tokens."""
    return made.n - int(torch.linalg.matrix_rank(made.outputs()).min())


def on_tokens(sizes: Sizes, tokens: Tensor) -> Instance:
    """An instance on given tokens, which may be equal on purpose."""
    made = instance(sizes, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Instance(replace(made.task, tokens=tokens), made.model)


@claim(
    "yang2024/proposition1",
    "With H >= N heads and Gaussian query matrices, every B_k has full row rank almost surely",
    source="Proposition 1",
    formula=r"H \ge N,\; Q_h(i,j) \sim \mathcal{N}(0, \beta^2):\quad \mathrm{rank}\, B_k = N "
    r"\;\text{ for all } k",
)
def full_rank(scale: Scale) -> Verdict:
    seeds, small = scale.pick(smoke=2, quick=10, paper=50), replace(SMALL, heads=5)
    shapes = (small, Sizes(2, 6, 6, 12, 0.05, 6), Sizes(100, 20, 30, 60, 0.01, 30))

    def deficits(fewer: int = 0) -> list[int]:
        return [
            rank_deficit(made.with_weights(0.0, beta * made.model.q))
            for sizes in shapes
            for seed in range(seeds)
            for made in [instance(sizes.with_heads(sizes.heads - fewer), seed)]
            for beta in (0.5, 1.0, 2.0)
        ]

    doubled = instance(small, 0).task.tokens.clone()
    doubled[3] = doubled[1]
    equal = [on_tokens(small.with_heads(heads), doubled) for heads in (5, 10, 64)]
    one_hot_tokens = on_tokens(Sizes(12, 6, 6, 12, 0.05, 6), identity(12))
    right = {"H = N": max(deficits()), "H = N, one-hot tokens": rank_deficit(one_hot_tokens)}
    wrong = {  # the least: what must fail must fail everywhere
        "H = N - 1": min(deficits(fewer=1)),
        "two equal tokens shown, H = N, 2 N and 64": min(map(rank_deficit, equal)),
    }
    return Verdict(
        checks("N - rank B_k", FULL_RANK, right, unlike=wrong),
        settings={"sizes": "; ".join(map(str, shapes)), "beta": "0.5, 1, 2", "starts": seeds},
        remarks=[
            "Distinct tokens are enough, Assumption 3 (violated by one-hot tokens) is not needed: "
            "some rotation of them satisfies it, and a rotated Gaussian Q is as likely.",
            "In the proof, R^{N x (m-1)} should read R^{N x (N-1)}.",
        ],
    )


@claim(
    "yang2024/unit-tokens",
    "Where tokens of norm 1 start at a rank that is full in double precision, Gaussian tokens, "
    "which section 4 describes, do not",
    source="Section 4, Setup, with Proposition 1",
    formula=r"\min_k \frac{\sigma_{\min}(B_k)}{\sigma_{\max}(B_k)} > H \cdot 2^{-52} \;\text{ for }"
    r"\; \|v_k\|_2 = 1, \;\text{ not for }\; v_k \sim \mathcal{N}(0, I_d)",
    ours="measured",
)
def unit_tokens(scale: Scale) -> Verdict:
    sizes = replace(FULL, tokens=scale.pick(smoke=60, quick=200, paper=200))
    starts = range(scale.pick(smoke=2, quick=3, paper=10))
    unit, raw = ([instance(sizes, seed, unit=unit) for seed in starts] for unit in (True, False))

    def in_words(made: Instance) -> str:
        v, zeta = made.task.tokens, made.constants().zeta
        spread = torch.std(v[: made.n] @ made.model.q.detach()[0] @ v.mT).item()
        least = (torch.finfo(DTYPE).eps * torch.linalg.matrix_norm(made.outputs(), 2).max()) ** 2
        digits = f"{zeta:.1e}" if zeta > least else f"below (eps |B|)^2 = {least:.0e}"
        return f"the standard deviation {spread:.3g}, and zeta_0 is {digits}"

    full = {"tokens of norm 1": max(map(rank_deficit, unit))}
    deficient = {"Gaussian tokens": min(map(rank_deficit, raw))}
    return Verdict(
        checks("N - rank B_k", FULL_RANK, full, unlike=deficient),
        settings={"sizes": sizes, "Q": "standard normal", "starts": len(starts)},
        remarks=[
            f"The logits v_i^T Q v_k of Gaussian tokens, of norm {sizes.d**0.5:.0f}, have "
            f"{in_words(raw[0])}: every softmax is one token, and Proposition 1 holds at a rate "
            "that trains nothing. Those of tokens of norm 1, which section 2 has, have "
            f"{in_words(unit[0])}. Where training then ends is in figure2a."
        ],
    )
