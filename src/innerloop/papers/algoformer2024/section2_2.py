"""Section 2.2: three parts fused into one looped layer, and what a standard transformer costs."""

import torch

from innerloop import compiled
from innerloop.models import BlockShape, Looped
from innerloop.papers.algoformer2024.settings import largest, linear_prompts
from innerloop.papers.common import generator, normal
from innerloop.papers.quantity import ROUNDING, at_least, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.sequence import TokenSequence

LENGTH, LOOPS = 9, 6


def algoformer(loops: int = LOOPS) -> Looped:
    """One layer and one head in each part, of Eq. 1, with weights at random."""
    shape = BlockShape(
        6, 1, hidden=8, norm="none", activation="relu", scale=1.0, head=6, attention_bias=False
    )
    model = Looped(
        4, 2, shape, loops=loops, before=1, after=1, length=LENGTH, causal=False, inject=False,
        generator=generator(0), dtype=torch.float64,
    )  # fmt: skip
    with torch.no_grad():
        for block in (model.before, model.inside, model.after):
            assert block is not None
            for name, bias in block.named_parameters():
                if name.endswith("bias"):
                    bias.copy_(0.3 * normal(1, *bias.shape))
    return model


@claim(
    "algoformer2024/section2.2",
    "Three parts of one layer and one head are one looped layer of four heads, at more computation",
    source="Section 2.2, expressiveness and efficiency",
)
def fusion(scale: Scale) -> Verdict:
    model = algoformer()
    tokens = normal(2, 16, LENGTH, 4)
    sequence = TokenSequence(tokens, torch.tensor([LENGTH - 1]), tokens.new_zeros(16, 1, 2))
    wanted = model(sequence)
    one = compiled.fused(model)
    block_heads = one.shape.heads
    more = compiled.multiplications(one, LENGTH) / compiled.multiplications(model, LENGTH)
    return Verdict(
        checks(
            "largest difference of its answers from the AlgoFormer's",
            ROUNDING,
            {"the fused layer": largest(one(sequence) - wanted)},
            unlike={
                "the same, one loop fewer": largest(
                    compiled.fused(algoformer(LOOPS - 1))(sequence) - wanted
                )
            },
        )
        + checks(
            "four heads over its heads",
            at_least(1.0, "the statement: four heads are enough"),
            {"the fused layer": 4 / block_heads},
            unlike={"five heads": 4 / 5},
        )
        + checks(
            "its multiplications over the AlgoFormer's",
            at_least(1.0, "the statement: redundant computation"),
            {"the fused layer": more},
            unlike={"a layer of one head": 1 - 1 / (LOOPS + 2)},
        ),
        settings={"tokens": LENGTH, "T": LOOPS, "width": 6, "width of the fused layer": 28},
        remarks=[
            f"{block_heads} heads are enough: no head can select, since feed-forward networks must "
            "be selected too. A number that counts loops does it, by gates. The residual needs "
            "rows for what each part's heads say, and the feed-forward network units that clear "
            f"them: {more:.1f} times the multiplications.",
        ],
    )


@claim(
    "algoformer2024/section2.2-parameters",
    "For an iterative algorithm a standard transformer has redundant parameters",
    source="Section 2.2, expressiveness and efficiency",
)
def redundant_parameters(scale: Scale) -> Verdict:
    """Of Newton's iteration: layers of their own for every loop, as it is written."""
    loops = 6
    model = compiled.newton(4, 16, loops=loops, alpha=0.02).model()
    flat = compiled.unrolled(model)
    loop = compiled.parameter_count(model.inside)
    once = compiled.parameter_count(model)
    ratio = compiled.parameter_count(flat) / once
    sequence = linear_prompts(4, 16).interleave().last()
    wanted = model(sequence)
    return Verdict(
        checks(
            "largest difference of its answers from the AlgoFormer's",
            ROUNDING,
            {f"{loops} loops as layers": largest(flat(sequence) - wanted)},
            unlike={f"{loops - 1} loops": largest(model(sequence, loops=loops - 1) - wanted)},
        )
        + checks(
            "parameters over the AlgoFormer's",
            at_least(1 + (loops - 1) * loop / once, "a copy of the loop's layer for every loop"),
            {f"{loops} loops as layers": ratio},
            unlike={f"{loops - 1} loops as layers": 1 + (loops - 2) * loop / once},
        ),
        settings={"d": 4, "examples": 16, "T": loops, "parameters": once},
        remarks=[f"{ratio:.2f} times the parameters, for the same multiplications."],
    )
