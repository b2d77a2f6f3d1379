"""The same algorithm as a standard transformer, and as one looped layer (section 2.2)."""

import pytest
import torch

from innerloop import compiled
from innerloop.models import BlockShape, InContext, Looped
from innerloop.sequence import TokenSequence
from tests.samples import DOUBLE, normal, random_prompt, seeded


def algoformer(heads=1, **options):
    shape = BlockShape(
        6, heads, hidden=7, norm="none", activation="relu", scale=1.0, head=4, attention_bias=False
    )
    options = {"loops": 3, "before": 1, "after": 1, "inject": False, **options}
    model = Looped(4, 2, shape, length=9, generator=seeded(3), dtype=DOUBLE, **options)
    with torch.no_grad():  # biases too, which start at 0
        for parameter in model.parameters():
            parameter.add_(0.1 * normal(*parameter.shape, seed=parameter.numel()))
    return model


def sequence():
    return TokenSequence(
        normal(3, 7, 4, seed=1), torch.tensor([2, 6]), torch.zeros(3, 2, 2, dtype=DOUBLE)
    )


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("causal", [True, False])
def test_three_layers_are_fused_into_one(heads, causal):
    model = algoformer(heads, causal=causal)
    one = compiled.fused(model)
    torch.testing.assert_close(one(sequence()), model(sequence()), rtol=1e-11, atol=1e-11)
    (block,) = one.inside.blocks
    assert (block.shape.heads, one.loops, one.before, one.after) == (3 * heads, 5, None, None)


def test_fusing_costs_computation_and_unrolling_costs_parameters():
    model = algoformer()
    one, flat = compiled.fused(model), compiled.unrolled(model)
    torch.testing.assert_close(flat(sequence()), model(sequence()), rtol=0, atol=1e-14)
    assert compiled.multiplications(one, 7) > 3 * compiled.multiplications(model, 7)
    assert compiled.multiplications(flat, 7) == compiled.multiplications(model, 7)
    assert compiled.parameter_count(flat) > compiled.parameter_count(model)


def test_a_compiled_model_is_unrolled_to_the_same_answers():
    prompt = random_prompt(4, 5, 3)
    model = compiled.newton(3, 5, loops=6, alpha=0.01).model()
    flat = compiled.unrolled(model)
    assert torch.equal(InContext(flat)(prompt), InContext(model)(prompt))
    own = [sum(p.numel() for p in stack.parameters()) for stack in (model.before, model.after)]
    loop = sum(p.numel() for p in model.inside.parameters())
    grown = compiled.parameter_count(flat) - compiled.parameter_count(model)
    assert grown == 5 * loop
    assert all(count > 0 for count in own)


def test_what_cannot_be_fused_or_unrolled_is_refused():
    with pytest.raises(ValueError, match="only one layer of Eq"):
        compiled.fused(algoformer(inside=2))
    with pytest.raises(ValueError, match="is no stack of layers"):
        compiled.unrolled(algoformer(inject=True))
