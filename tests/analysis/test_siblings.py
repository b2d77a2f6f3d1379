"""Two looped models loop by loop, and maps of attention."""

import pytest
import torch

from innerloop import compiled
from innerloop.analysis import loop_distances, plot_attention, plot_loop_distances
from innerloop.models import InContext
from innerloop.tasks import LinearRegression
from tests.samples import seeded

TASK = LinearRegression.isotropic(2, 5)


def descends(loops, step_size):
    return InContext(compiled.gradient_descent(2, 5, loops=loops, step_size=step_size).model())


def test_a_model_is_nearest_to_itself_at_as_many_loops():
    softmax = descends(5, 0.1)
    linear = compiled.linear_gradient_descent(2, loops=6, step_size=0.1)
    distances = loop_distances(softmax, linear, TASK, loops=(5, 6), batch=50, generator=seeded())
    assert distances.shape == (5, 6)
    assert distances.argmin(1).tolist() == [0, 1, 2, 3, 4]
    assert distances.diagonal().max() < 1e-9
    assert distances[0, 1] > 1e-3
    picture = plot_loop_distances(distances, names=("one", "other"))
    assert len(picture.axes) == 2
    plot_loop_distances(torch.zeros(1, 1, dtype=torch.float64), names=("one", "itself"))


def test_half_the_step_takes_more_loops():
    distances = loop_distances(
        descends(3, 0.1), descends(8, 0.05), TASK, loops=(3, 8), batch=200, generator=seeded()
    )
    assert distances.argmin(1).tolist() == [1, 3, 5]


def test_a_loop_count_that_does_not_exist_is_refused():
    model = descends(2, 0.1)
    with pytest.raises(ValueError, match="loops must be at least 1"):
        loop_distances(model, model, TASK, loops=(0, 2), batch=5, generator=seeded())


def test_a_panel_for_every_head_and_one_for_the_difference_of_two():
    model = descends(2, 0.1).model
    sequence = TASK.sample(1, generator=seeded()).interleave().last()
    trace = model.trace(sequence)
    tokens = [str(t) for t in range(11)]
    picture = plot_attention(trace, [0, 1], titles=[["a", "b"], ["c"]], tokens=tokens)
    drawn = [axes for axes in picture.axes if axes.axison]
    assert len(drawn) == 4
    assert torch.equal(trace.attention[0].sum(-1), torch.ones(1, 2, 11, dtype=torch.float64))
