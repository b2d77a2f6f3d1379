import pytest
import torch

from innerloop.training import History


def test_rows_become_columns():
    history = History()
    history.record(0, torch.tensor(2.0), {"norm": 1.0})
    history.record(5, torch.tensor([1.0, 3.0]), {"norm": 0.5})
    assert history.columns == {"step": [0, 5], "loss": [2.0, [1.0, 3.0]], "norm": [1.0, 0.5]}
    assert history["step"] == [0, 5]
    assert len(history) == 2
    assert len(History()) == 0


def test_a_continuation_counts_its_steps_on():
    history = History({"step": [0, 5], "loss": [2.0, 1.0]})
    history.extend(History({"step": [0, 3], "loss": [1.0, 0.5]}))
    assert history.columns == {"step": [0, 5, 5, 8], "loss": [2.0, 1.0, 1.0, 0.5]}


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"must be equally long, got {'step': 2, 'loss': 1}"):
        History({"step": [0, 5], "loss": [2.0]})


def test_a_row_of_other_columns_is_refused_and_not_half_recorded():
    history = History()
    history.record(0, 2.0, {"norm": 1.0})
    with pytest.raises(ValueError, match="has the columns step, loss, norm; rows of step, loss do"):
        history.record(1, 1.0, {})
    assert history.columns == {"step": [0], "loss": [2.0], "norm": [1.0]}
