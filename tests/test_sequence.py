import pytest
import torch
from torch.utils import _pytree as pytree

from innerloop.sequence import TokenSequence
from tests.samples import DOUBLE, normal


def parts(**changed):
    given = {
        "tokens": normal(3, 5, 2, seed=1),
        "readout": torch.tensor([0, 2, 4]),
        "targets": normal(3, 3, 6, seed=2),
    }
    return given | changed


def test_a_sequence_has_vector_targets_at_the_positions_read_out():
    sequence = TokenSequence(**parts())
    assert len(sequence) == 3
    assert sequence.targets.shape == (3, 3, 6)


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"tokens": normal(3, 5)}, r"tokens must have shape \[batch, length, width\], got \[3, 5"),
        ({"readout": torch.tensor(0)}, r"readout must have shape \[positions\], got \[\]"),
        ({"targets": normal(3, 3)}, r"targets must have shape \[3, 3, outputs\], .* got \[3, 3\]"),
        ({"targets": normal(3, 2, 6)}, r"targets must have shape \[3, 3, outputs\].*\[3, 2, 6\]"),
        ({"targets": normal(2, 3, 6)}, r"targets must have shape \[3, 3, outputs\].*\[2, 3, 6\]"),
        ({"readout": torch.tensor([0, 2, 5])}, "readout must name positions from 0 to 4, got 5"),
        ({"readout": torch.tensor([0, -1, 2])}, "readout must name positions from 0 to 4, got -1"),
        ({"tokens": torch.zeros(3, 5, 2).long()}, "tokens must be of a real floating dtype"),
        ({"targets": normal(3, 3, 6).float()}, r"targets must have the dtype torch.float64 of tok"),
    ],
)
def test_parts_that_make_no_sequence_are_refused_by_name(changed, sentence):
    with pytest.raises(ValueError, match=sentence):
        TokenSequence(**parts(**changed))


def test_a_sequence_survives_being_taken_apart_and_put_together():
    sequence = TokenSequence(**parts())
    leaves, spec = pytree.tree_flatten(sequence)
    again = pytree.tree_unflatten(leaves, spec)
    assert isinstance(again, TokenSequence)
    assert again.tokens is sequence.tokens
    assert again.readout is sequence.readout
    assert again.targets is sequence.targets


def test_sequences_can_be_mapped_over():
    made = [TokenSequence(**parts(tokens=normal(3, 5, 2, seed=s))) for s in range(4)]
    stacked = pytree.tree_map(lambda *t: torch.stack(t), *made)
    sums = torch.func.vmap(lambda sequence: sequence.tokens.sum((1, 2)))(stacked)
    for total, sequence in zip(sums, made, strict=True):
        torch.testing.assert_close(total, sequence.tokens.sum((1, 2)))


def test_to_changes_the_dtype_of_numbers_but_not_of_positions():
    sequence = TokenSequence(**parts())
    single = sequence.to("cpu", torch.float32)
    assert single.tokens.dtype == single.targets.dtype == torch.float32
    assert torch.equal(single.readout, sequence.readout)
    assert single.readout.dtype == torch.int64
    assert sequence.to().tokens.dtype == DOUBLE
