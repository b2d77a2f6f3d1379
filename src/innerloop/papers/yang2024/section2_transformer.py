"""The transformer of section 2: Eq. 2 to 8."""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.models import block_form_forward
from innerloop.papers.common import generator, normal
from innerloop.papers.quantity import ROUNDING, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.yang2024.settings import SMALL, instance


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
    blocks = block_form_forward(q, w, prompt)

    def short(keys: int, q: Tensor) -> Tensor:
        """(8), attending to this many tokens, whose labels are 0 if they are not shown."""
        labels = torch.nn.functional.pad(prompt.y, (0, keys - prompt.n))
        heads = (tokens[:keys] @ q @ tokens.mT).softmax(dim=1)  # [heads, keys, tokens]
        return labels @ (heads * w[:, None]).sum(0)

    return Verdict(
        checks(
            "relative distance from the diagonal of T(E), all blocks written out",
            ROUNDING,
            {"(8)": short(prompt.n, q), "the library's model": made.model(prompt).detach()},
            unlike={
                "(8) with Q transposed": short(prompt.n, q.mT),
                "(8) over all K tokens, the queries with label 0": short(SMALL.tokens, q),
            },
            measure=lambda prediction: (prediction - blocks).norm() / blocks.norm(),
        ),
        settings={"sizes": SMALL, "prompts": 20, "w": "standard normal"},
    )
