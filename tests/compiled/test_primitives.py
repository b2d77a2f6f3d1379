"""Every primitive by itself, in a layer on random rows."""

import pytest
import torch

from innerloop.compiled.accuracy import precision
from innerloop.compiled.layout import Layout
from innerloop.compiled.primitives import (
    ANTISYMMETRIC,
    LARGEST,
    MASKED,
    PRINTED,
    REFINED,
    bilinear,
    copying,
    identity,
    leaky,
    own_product,
    pattern,
)
from innerloop.compiled.program import Layer, Match, Move, Program
from innerloop.sequence import TokenSequence
from tests.samples import DOUBLE, normal

LENGTH, ROWS = 6, 3
LAYOUT = Layout(a=ROWS, b=ROWS, out=ROWS, flag=1, position=LENGTH)
INPUTS = 3 * ROWS + 1


def rows_after(layer, tokens, dtype=DOUBLE, causal=False):
    """What a single layer makes of tokens (a, b, out, flag), by the names of the rows."""
    entry = torch.eye(INPUTS, dtype=DOUBLE)
    read_in = {
        "a": entry[:ROWS], "b": entry[ROWS : 2 * ROWS], "out": entry[2 * ROWS : -1],
        "flag": entry[-1:],
    }  # fmt: skip
    program = Program(
        "one layer", "", LAYOUT, read_in, "position", LENGTH, [], [layer], [],
        {"out": torch.eye(ROWS, dtype=DOUBLE)}, 1, 0.0, causal=causal,
    )  # fmt: skip
    model = program.model(dtype)
    length = tokens.shape[1]
    sequence = TokenSequence(
        tokens.to(dtype), torch.arange(length), torch.zeros(len(tokens), length, ROWS, dtype=dtype)
    )
    (residual,) = model.trace(sequence).residuals
    return {name: residual[..., LAYOUT.place(name)] for name in LAYOUT.sizes}


def tokens(seed=0, batch=4, **given):
    """(a, b, 0, 0) at random, but for what is given by name."""
    parts = {
        "a": normal(batch, LENGTH, ROWS, seed=seed),
        "b": normal(batch, LENGTH, ROWS, seed=seed + 1),
        "out": torch.zeros(batch, LENGTH, ROWS, dtype=DOUBLE),
        "flag": torch.zeros(batch, LENGTH, 1, dtype=DOUBLE),
    } | given
    return torch.cat(list(parts.values()), dim=-1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_copy_is_exact_in_either_precision(dtype):
    source = [3, 0, 0, 5, 4, 2]
    given = tokens()
    got = rows_after(
        Layer([copying("", "position", source, [Move("a", "out", 1.0)])]), given, dtype
    )
    assert torch.equal(got["out"], given[:, source, :ROWS].to(dtype))


def test_who_has_nobody_to_listen_to_gets_the_mean_of_all():
    head = copying("", "position", [None, *range(1, LENGTH)], [Move("a", "out", 1.0)])
    given = tokens()
    got = rows_after(Layer([head]), given)["out"][:, 0]
    torch.testing.assert_close(got, given[..., :ROWS].mean(1))


def test_a_masked_token_is_not_heard_at_all():
    allowed = pattern(LENGTH, lambda i, j: j != 2)
    pair = bilinear(
        "", [Match("a", "b", 1.0)], [Move("a", "out", 1.0)], c=0.1,
        also=[Match("position", "position", allowed)],
    )  # fmt: skip
    one = tokens()
    other = one.clone()
    other[:, 2] += 7
    keep = [0, 1, 3, 4, 5]
    first, second = (rows_after(Layer(pair), t)["out"][:, keep] for t in (one, other))
    assert torch.equal(first, second)
    assert pattern(2, lambda i, j: True).eq(0).all()
    assert MASKED == 1000


def mirrored_tokens():
    """Tokens 0 to 2, and their mirror images."""
    a, b = (normal(4, 3, ROWS, seed=s) for s in (3, 4))
    return a, b, tokens(a=torch.cat([a, -a], 1), b=torch.cat([b, -b], 1))


@pytest.mark.parametrize(("scheme", "order"), [(ANTISYMMETRIC, 2), (REFINED, 4)])
def test_mirrored_bilinear_attention_is_a_mean_with_an_error_of_its_order(scheme, order):
    a, b, given = mirrored_tokens()
    wanted = torch.einsum("bid,bjd,bie->bje", b, given[..., :ROWS], a) / 3
    matches, moves = [Match("a", "b", 1.0)], [Move("a", "out", 1.0)]
    errors = [
        (rows_after(Layer(bilinear("", matches, moves, c=c, scheme=scheme)), given)["out"] - wanted)
        .abs()
        .max()
        for c in (0.02, 0.01)
    ]
    assert torch.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.2)
    assert errors[1] < 0.01


@pytest.mark.parametrize(("scheme", "order"), [(ANTISYMMETRIC, 2), (PRINTED, 1)])
def test_bilinear_attention_with_sinks_is_a_mean_too(scheme, order):
    """Tokens 3 to 5 are sinks: their values are 0."""
    a, b = (normal(4, LENGTH, ROWS, seed=s) for s in (3, 4))
    a[:, 3:], b[:, 3:] = 0, 0
    given = tokens(a=a, b=b)
    wanted = torch.einsum("bid,bjd,bie->bje", b, a, a) / 3
    sink = 34.0
    logits = torch.zeros(LENGTH, LENGTH, dtype=DOUBLE)
    logits[:, 3:] = sink
    errors = []
    for c in (0.02, 0.01):
        pair = bilinear(
            "", [Match("a", "b", 1.0)],
            [Move("a", "out", float(torch.tensor(sink, dtype=DOUBLE).exp()))], c=c,
            also=[Match("position", "position", logits)], scheme=scheme,
        )  # fmt: skip
        errors.append((rows_after(Layer(pair), given)["out"] - wanted).abs().max())
    assert torch.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.2)


def test_heads_cancel_to_the_last_bit_where_the_form_is_zero():
    given = tokens(b=torch.zeros(4, LENGTH, ROWS, dtype=DOUBLE))
    pair = bilinear("", [Match("a", "b", 1.0)], [Move("a", "out", 1.0)], c=1e-6)
    assert rows_after(Layer(pair), given)["out"].abs().max() == 0


def test_a_token_multiplies_two_of_its_own_blocks():
    b = normal(4, LENGTH, ROWS, seed=4)
    b[:, 1] = 0  # the token that all others listen to
    given = tokens(b=b)
    alone = pattern(LENGTH, lambda i, j: j in (i, 1))
    into = torch.tensor([[0.0], [1.0], [0.0]], dtype=DOUBLE)
    heads = own_product(
        "", "a", "b", "out", position="position", alone=alone,
        one=into @ (torch.arange(LENGTH) != 1).double()[None], c=1e-5,
    )  # fmt: skip
    out = rows_after(Layer(heads), given)["out"]
    wanted = (given[..., :ROWS] * b).sum(-1)
    torch.testing.assert_close(out[..., 1], wanted, rtol=0, atol=1e-9)
    assert out[..., [0, 2]].abs().max() == 0


def test_a_gate_is_exact_where_it_is_open_and_zero_where_it_is_closed():
    flag = torch.tensor([0.0, 1, 0, 1, 0, 1], dtype=DOUBLE).expand(4, -1)[..., None]
    given = tokens(a=normal(4, LENGTH, ROWS) * 1e4, flag=flag)
    unit = torch.eye(ROWS, dtype=DOUBLE)
    off = {"flag": torch.ones(1, 1, dtype=DOUBLE)}
    units = leaky({"a": unit}, {"out": 1.0}, slope=1.0, off=off)
    out = rows_after(Layer((), units), given)["out"]
    assert torch.equal(out, given[..., :ROWS] * (1 - flag))
    assert given.abs().max() < LARGEST


@pytest.mark.parametrize("slope", [0.1, 0.5])
def test_leaky_units_are_the_activation_and_their_inverse_undoes_it(slope):
    unit = torch.eye(ROWS, dtype=DOUBLE)
    given = tokens()
    there = rows_after(Layer((), leaky({"a": unit}, {"out": 1.0}, slope=slope)), given)["out"]
    torch.testing.assert_close(
        there, torch.nn.functional.leaky_relu(given[..., :ROWS], slope), rtol=0, atol=1e-15
    )
    back = leaky({"a": unit}, {"out": 1.0}, slope=1 / slope)
    again = rows_after(Layer((), back), tokens(a=there))["out"]
    torch.testing.assert_close(again, given[..., :ROWS], rtol=1e-14, atol=1e-14)


def test_identity_units_add_any_linear_map():
    matrix = normal(ROWS, ROWS, seed=9)
    given = tokens()
    out = rows_after(Layer((), identity({"a": matrix, "b": 1.0}, {"out": 1.0})), given)["out"]
    wanted = given[..., :ROWS] @ matrix.mT + given[..., ROWS : 2 * ROWS]
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-13)


def test_rows_are_read_and_written_by_name():
    layout = Layout(x=2, y=1)
    assert layout.width == 3
    assert layout.reading({"y": 2.0}).tolist() == [[0, 0, 2]]
    assert layout.writing({"x": torch.tensor([[1.0], [4.0]])}).tolist() == [[1], [4], [0]]
    with pytest.raises(ValueError, match="no rows are called 'z'; there are x, y"):
        layout.reading({"z": 1.0})
    with pytest.raises(ValueError, match="x has 2 rows, got a matrix"):
        layout.reading({"x": torch.ones(1, 3)})


@pytest.mark.parametrize("form", ["mirrored", "refined", "sinks", "refined-sinks", "printed"])
def test_the_chosen_c_has_the_least_expected_error(form):
    best = precision(form, 4.0)
    for factor in (0.5, 2.0):
        assert precision(form, 4.0, c=factor * best.c).error > best.error


def test_a_form_that_is_not_known_is_refused(shapes_unchecked):
    with pytest.raises(ValueError, match="form must be one of"):
        precision("other", 4.0)


def test_what_no_precision_can_hold_is_refused():
    with pytest.raises(ValueError, match="choose a smaller sink"):
        precision("sinks", 4.0, torch.float32, sink=60.0)
    with pytest.raises(ValueError, match="choose a smaller sink"):
        precision("sinks", 4.0, sink=800.0)
    with pytest.raises(ValueError, match="sink goes with the forms sinks, refined-sinks, printed"):
        precision("mirrored", 4.0, sink=30.0)
    with pytest.raises(ValueError, match="c must be positive"):
        precision("sinks", 4.0, c=-1.0)
