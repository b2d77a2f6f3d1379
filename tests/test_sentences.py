"""Sentence pairs as numbers: what is asked, and the cross-entropy of the answers."""

import math

import pytest
import torch
from torch.utils import _pytree as pytree

from innerloop.sentences import SentencePairs
from tests.samples import normal

ROWS = [[5, 6, 1, 7, 8, 2], [5, 1, 9, 2, 0, 0], [4, 4, 4, 1, 3, 2]]
"""Two, one and three tokens of a sentence; 1 is the mark, 2 the end, 0 the filling."""
V = 10


def pairs(rows=ROWS, middle=(2, 1, 3), lengths=(6, 4, 6)):
    return SentencePairs(torch.tensor(rows), torch.tensor(middle), torch.tensor(lengths), V)


def test_targets_are_the_translations_with_their_ends_row_after_row():
    assert pairs().targets.tolist() == [7, 8, 2, 9, 2, 3, 2]
    assert pairs().answer_shape == [7, V]
    assert pairs().asked.nonzero().tolist() == [
        *([0, 2], [0, 3], [0, 4]),
        *([1, 1], [1, 2]),
        *([2, 3], [2, 4]),
    ]


def test_the_loss_is_the_mean_of_minus_log_probabilities():
    answers = normal(7, V)
    probabilities = answers.exp() / answers.exp().sum(1, keepdim=True)
    by_hand = [-math.log(probabilities[i, t]) for i, t in enumerate([7, 8, 2, 9, 2, 3, 2])]
    assert pairs().loss(answers).item() == pytest.approx(sum(by_hand) / 7, rel=1e-12)
    each = [sum(by_hand[:3]), sum(by_hand[3:5]), sum(by_hand[5:])]
    assert pairs().total_nats(answers).tolist() == pytest.approx(each, rel=1e-12)
    means = [each[0] / 3, each[1] / 2, each[2] / 2]
    assert pairs().errors(answers).tolist() == pytest.approx(means, rel=1e-12)


def test_losses_of_several_answers_at_once_are_those_of_each():
    answers = normal(4, 7, V)
    assert pairs().errors(answers).shape == (4, 3)
    torch.testing.assert_close(pairs().errors(answers)[2], pairs().errors(answers[2]))
    mean = torch.stack([pairs().loss(one) for one in answers]).mean()
    torch.testing.assert_close(pairs().loss(answers), mean)


def test_a_constant_in_the_logits_changes_nothing():
    answers = normal(7, V)
    torch.testing.assert_close(pairs().loss(answers + normal(7, 1)), pairs().loss(answers))


def test_pairs_are_a_tree_of_three_tensors():
    leaves, spec = pytree.tree_flatten(pairs())
    assert len(leaves) == 3
    again = pytree.tree_unflatten(leaves, spec)
    assert (again.vocabulary, again.dtype) == (V, torch.float32)
    assert torch.equal(again.targets, pairs().targets)
    assert pairs().to(dtype=torch.float64).dtype == torch.float64


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"rows": [[5, 6, 1, 7, 8, V], *ROWS[1:]]}, "tokens must be between 0 and 9"),
        ({"middle": (0, 1, 3)}, "a sentence before its mark"),
        ({"middle": (2, 3, 3)}, "an end after it"),
        ({"lengths": (6, 4, 7)}, "at most the 6 tokens of a row, got 7"),
        ({"middle": (2, 1)}, r"middle must have shape \[3\]"),
    ],
)
def test_rows_that_are_no_pairs_are_refused(changed, sentence, shapes_unchecked):
    with pytest.raises(ValueError, match=sentence):
        pairs(**changed)
