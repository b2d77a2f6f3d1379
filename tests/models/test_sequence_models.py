"""Decoders and looped transformers: masks, loops, gradients, and what trace shows."""

import re

import pytest
import torch

from innerloop.models import BlockShape, Decoder, EachPosition, InContext, Looped, Start
from innerloop.models.blocks import Block
from innerloop.sequence import TokenSequence
from tests.samples import DOUBLE, normal, random_prompt, seeded

SHAPE = BlockShape(width=8, heads=2)
EQ1 = BlockShape(
    width=6, heads=3, hidden=10, norm="none", activation="relu", scale=1.0, head=6,
    attention_bias=False,
)  # fmt: skip


def sequence(batch=3, length=7, width=4, outputs=2, readout=(0, 3, 6)):
    tokens = normal(batch, length, width, seed=1)
    return TokenSequence(
        tokens, torch.tensor(readout), normal(batch, len(readout), outputs, seed=2)
    )


def decoder(shape=SHAPE, **options):
    options = {"layers": 2, "length": 9, "generator": seeded(3), "dtype": DOUBLE, **options}
    return Decoder(4, 2, shape, **options)


def looped(shape=SHAPE, **options):
    options = {"loops": 3, "length": 9, "generator": seeded(3), "dtype": DOUBLE, **options}
    return Looped(4, 2, shape, **options)


MODELS = {
    "gpt2": decoder(),
    "post-norm": decoder(BlockShape(8, 2, hidden=5, norm="post", activation="relu")),
    "eq1": decoder(EQ1, length=None),
    "looped": looped(),
    "algoformer": looped(before=1, after=1),
    "algoformer, eq. 2": looped(before=1, after=1, inject=False, norm_in_loop=False),
}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


@every_model
def test_predictions_have_the_shape_of_the_targets(model):
    batch = sequence()
    assert model(batch).shape == batch.targets.shape


@every_model
def test_no_token_sees_what_comes_after_it(model):
    batch = sequence()
    changed = batch.tokens.clone()
    changed[:, 4:] += 1
    other = TokenSequence(changed, batch.readout, batch.targets)
    before, after = model(batch), model(other)
    torch.testing.assert_close(before[:, :2], after[:, :2], rtol=0, atol=1e-13)
    assert (before[:, 2] - after[:, 2]).abs().min() > 1e-6


@every_model
def test_a_prefix_is_answered_as_the_whole_is(model):
    batch = sequence()
    short = TokenSequence(batch.tokens[:, :4], batch.readout[:2], batch.targets[:, :2])
    torch.testing.assert_close(model(short), model(batch)[:, :2], rtol=0, atol=1e-12)


@every_model
def test_a_trace_ends_with_the_prediction_and_its_attention_is_a_distribution(model):
    batch = sequence()
    trace = model.trace(batch)
    assert len(trace.names) == len(trace.residuals) == len(trace.attention) == len(trace.readout)
    torch.testing.assert_close(trace.readout[-1], model(batch), rtol=0, atol=1e-12)
    for name, read in zip(trace.names, trace.readout, strict=True):
        if loop := re.match(r"loop (\d+)", name):
            torch.testing.assert_close(read, model(batch, int(loop[1])), rtol=0, atol=1e-12)
    for attention in trace.attention:
        torch.testing.assert_close(attention.sum(-1), torch.ones_like(attention[..., 0]))
        assert attention.triu(1).abs().max() == 0


def test_without_a_mask_every_token_sees_every_other():
    model = decoder(causal=False)
    batch = sequence()
    changed = batch.tokens.clone()
    changed[:, 6] += 1
    other = TokenSequence(changed, batch.readout, batch.targets)
    assert (model(batch) - model(other)).abs().amin((0, 2)).min() > 1e-6


def test_attention_maps_are_those_that_the_layer_applies():
    block = Block(EQ1, dtype=DOUBLE)
    Start.by_fan_in().draw(block, seeded(5))
    x = normal(2, 5, 6)
    weights = block.attention_map(x, causal=True)
    values = block.query_key_value(x).unflatten(-1, (3, 3, 6))[..., 2, :, :]  # [b, l, heads, head]
    mixed = torch.einsum("bhqk,bkhd->bqhd", weights, values).flatten(2)
    torch.testing.assert_close(block.merge(mixed), block.attention(x, causal=True))


def test_eq1_of_algoformer_is_the_block_without_norm_and_scale():
    """Attn(X) = X + sum_i WV_i X softmax((WK_i X)^T (WQ_i X)), written with tokens as columns."""
    block = Block(EQ1, dtype=DOUBLE)
    Start.by_fan_in().draw(block, seeded(5))
    x = normal(1, 5, 6)
    columns = x[0].mT
    q, k, v = block.query_key_value.weight.view(3, 3, 6, 6)
    merge = block.merge.weight.view(6, 3, 6)
    attended = columns
    for i in range(3):
        logits = (k[i] @ columns).mT @ (q[i] @ columns)  # row: key, column: query
        attended = attended + merge[:, i] @ v[i] @ columns @ logits.softmax(0)
    inner = block.into_hidden.weight @ attended + block.into_hidden.bias[:, None]
    expected = attended + block.out_of_hidden.weight @ inner.relu()
    expected = expected + block.out_of_hidden.bias[:, None]
    torch.testing.assert_close(block(x, causal=False)[0].mT, expected)


def test_positions_can_be_left_out_and_then_order_and_length_are_free():
    model = decoder(length=None, causal=False)
    batch = sequence(length=7, readout=(6,))
    order = torch.tensor([3, 1, 0, 5, 2, 4, 6])
    shuffled = TokenSequence(batch.tokens[:, order], batch.readout, batch.targets)
    torch.testing.assert_close(model(shuffled), model(batch), rtol=0, atol=1e-12)
    assert model(sequence(length=50, readout=(49,))).isfinite().all()


def test_loops_are_applications_of_the_same_layers():
    model = looped(before=1, inside=2, after=1)
    batch = sequence()
    counts = [4, 1, 3]
    together = model.predictions(batch, counts)
    for count, one in zip(counts, together, strict=True):
        torch.testing.assert_close(one, model(batch, loops=count), rtol=0, atol=1e-12)
    torch.testing.assert_close(model(batch), together[2], rtol=0, atol=1e-12)
    assert (together[0] - together[2]).abs().max() > 1e-3


def test_without_layers_around_it_one_loop_is_a_decoder():
    loop, plain = looped(loops=1, norm_in_loop=False), decoder(layers=1)
    plain.stack.load_state_dict(loop.inside.state_dict())
    for name in ("read_in", "positions", "final_norm", "read_out"):
        getattr(plain, name).load_state_dict(getattr(loop, name).state_dict())
    torch.testing.assert_close(loop(sequence()), plain(sequence()), rtol=0, atol=1e-13)


@pytest.mark.parametrize("inject", [True, False])
def test_truncation_without_injection_gives_the_layers_before_no_gradient(inject):
    model = looped(before=1, after=1, loops=4, inject=inject)
    model.predictions(sequence(), [4], without_gradient=2).sum().backward()
    size = sum(float(p.grad.norm()) for p in model.before.parameters() if p.grad is not None)
    assert (size > 1e-3) == inject
    model.zero_grad()
    model.predictions(sequence(), [4]).sum().backward()
    assert sum(float(p.grad.norm()) for p in model.before.parameters()) > 1e-3


@pytest.mark.parametrize("model", [decoder(length=30), looped(length=30, before=1)])
def test_the_learning_curve_of_one_pass_is_that_of_many(model):
    learner = InContext(type(model)(5, 1, SHAPE, **_sizes(model)))
    prompt = random_prompt(batch=3, n=6, d=4, queries=2)
    curve = learner.learning_curve(prompt)
    for k in range(7):
        asked = learner(prompt.next_example(k))
        torch.testing.assert_close(curve[:, k : k + 1], asked, rtol=0, atol=1e-12)


def _sizes(model):
    sizes = {"length": 30, "generator": seeded(3), "dtype": DOUBLE}
    return sizes | ({"loops": 3, "before": 1} if isinstance(model, Looped) else {"layers": 2})


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: BlockShape(8, 3), "heads must divide the width 8 into equal parts, got 3"),
        (lambda: BlockShape(0, 1), "width must be at least 1, got 0"),
        (lambda: BlockShape(8, 2, norm="layer"), "norm must be pre, post or none, got 'layer'"),
        (lambda: BlockShape(8, 2, dropout=1.0), "dropout must be at least 0 and below 1"),
        (lambda: decoder(layers=0), "layers must be at least 1, got 0"),
        (lambda: looped(loops=0), "loops must be at least 1 loop, got 0"),
        (lambda: looped().predictions(sequence(), []), "at least one number of loops, got none"),
        (lambda: looped()(sequence(), loops=0), "counts must be at least 1 loop, got 0"),
        (lambda: decoder(length=5)(sequence()), "at most the 5 tokens that positions were made"),
        (lambda: decoder()(sequence(width=3)), "tokens must have the width 4"),
    ],
)
def test_what_does_not_fit_is_refused(shapes_unchecked, make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_gpt2_starts_small_and_smaller_where_it_writes_to_the_residual():
    shape = BlockShape(width=64, heads=4)
    model = decoder(shape, layers=8, start=Start.gpt2())
    block = model.stack.blocks[0]
    assert block.into_hidden.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert block.out_of_hidden.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)
    assert model.positions.table.std().item() == pytest.approx(0.02, rel=0.1)
    assert block.merge.bias.abs().max() == 0


def test_by_fan_in_every_matrix_has_outputs_of_one_size():
    model = decoder(BlockShape(width=64, heads=4), start=Start.by_fan_in(0.7, 0.5))
    for name in ("query_key_value", "into_hidden", "out_of_hidden"):
        layer = getattr(model.stack.blocks[0], name)
        assert layer.weight.std().item() == pytest.approx(0.7 / layer.in_features**0.5, rel=0.05)
    assert model.positions.table.std().item() == pytest.approx(0.5, rel=0.1)


def test_random_offsets_train_every_row_of_the_positions():
    def trained_rows(offsets):
        model = Decoder(
            3, 1, BlockShape(8, 2), layers=1, length=15, offsets=offsets, generator=seeded()
        ).train()
        tokens = torch.randn(2, 5, 3, generator=seeded(1))
        batch = TokenSequence(tokens, torch.tensor([4]), torch.zeros(2, 1, 1))
        torch.manual_seed(0)
        for _ in range(60):
            model(batch).sum().backward()
        moved = model.positions.table.grad.abs().sum(1) > 0
        evaluated = model.eval()(batch), model(batch)
        assert torch.equal(*evaluated)  # without offsets once it is trained
        return moved.nonzero().flatten().tolist()

    assert trained_rows(offsets=False) == [0, 1, 2, 3, 4]
    assert trained_rows(offsets=True) == list(range(15))


def test_positions_from_the_end_know_the_last_token_by_its_place():
    model = decoder(length=9, from_end=True, causal=False)
    batch = sequence(length=9, readout=(8,))
    short = TokenSequence(batch.tokens[:, 4:], torch.tensor([4]), batch.targets)
    with_table = model.positions(torch.zeros(1, 5, 8, dtype=DOUBLE))
    assert torch.equal(with_table[0], model.positions.table[4:])
    assert model(short).shape == batch.targets.shape
    with pytest.raises(ValueError, match="counted from the end of a sequence have no offsets"):
        decoder(from_end=True, offsets=True)


def test_layers_may_have_shapes_of_their_own_but_one_width():
    wide, narrow = BlockShape(8, 4, hidden=12), BlockShape(8, 1, hidden=3)
    model = looped(before=[wide], inside=[narrow, wide], after=[narrow])
    heads = [layer.shape[1] for layer in model.trace(sequence()).attention]
    assert heads == [4, *([1, 4] * 3), 1]
    with pytest.raises(ValueError, match="all layers must have the width 8 of the model, got 6"):
        looped(before=[BlockShape(6, 2)])


def test_a_model_that_sees_everything_is_asked_about_each_position_by_itself():
    model = looped(causal=False)
    batch = sequence()
    answers = EachPosition(model)(batch)
    first = TokenSequence(batch.tokens[:, :4], torch.tensor([3]), batch.targets[:, :1])
    torch.testing.assert_close(answers[:, 1:2], model(first))
    assert (answers - model(batch)).abs().max() > 1e-3
    after = EachPosition(model).after_loops(batch, [1, 3])
    torch.testing.assert_close(after[1], answers)
