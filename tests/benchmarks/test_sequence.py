"""The benchmark of sequence models measures what it says; how fast things are is never asserted."""

import pytest
import torch
from rich.console import Console

from innerloop.benchmarks import BENCHMARKS, sequence

TINY = sequence.Sizes(layers=1, width=8, heads=2, d=2, n=9, batch=2)


def test_a_timed_step_trains_the_model():
    batch, model = TINY.sequences(), TINY.decoder()

    def loss():
        return (model(batch) - batch.targets).square().mean().item()

    before = loss()
    step = sequence.stepper(model, batch)
    for _ in range(20):
        step()
    assert loss() < before


def test_the_plain_loop_predicts_the_same():
    model, batch = TINY.looped(sequence.LOOPS), TINY.sequences()
    counts = range(sequence.LOOPS - sequence.WINDOW + 1, sequence.LOOPS + 1)
    torch.testing.assert_close(sequence.plain_loop(model, batch), model.predictions(batch, counts))


def test_the_other_decoder_is_the_same_one():
    pytest.importorskip("transformers")
    batch = TINY.sequences()
    other = sequence.HuggingFace(TINY.decoder())
    torch.testing.assert_close(other(batch), TINY.decoder()(batch), rtol=1e-4, atol=1e-5)


def test_operations_are_those_of_the_products_of_matrices():
    """Counted by hand for one layer: four products of width and hidden, and two of attention."""
    tokens, read, width, length = 2 * 19, 2 * 10, 8, 19
    forward = 2 * tokens * (3 * width * width + width * width)
    forward += 2 * read * 2 * width * 4 * width
    forward += 2 * 2 * tokens * length * width
    assert TINY.step_flops == 3 * forward


@pytest.mark.slow
def test_the_benchmark_prints_its_tables(capsys):
    BENCHMARKS["sequence"](Console(width=120))
    output = capsys.readouterr().out
    for title in ("training step, 12 layers", "looped transformer", "learning curve", "relative"):
        assert title in output
