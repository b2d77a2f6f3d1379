"""Mixed precision and compiled layers: the same training, but for rounding."""

import pytest
import torch

from innerloop.experiments import Experiment
from innerloop.training import compile_layers

SMALL = Experiment(
    "algoformer:loops=2,width=16,heads=2",
    "linear:d=2,n=4,dtype=float32",
    "window:batch=16,loops=2,window=2",
    "muon",
    steps=20,
)


def losses(folder, **how):
    run = SMALL.run(folder, **how)
    assert all(p.dtype == torch.float32 for p in run.model.parameters())
    return torch.tensor(run.history["loss"])


def test_mixed_precision_is_the_same_training_to_the_precision_of_bfloat16(tmp_path):
    full, mixed = losses(tmp_path / "a"), losses(tmp_path / "b", mixed_precision=True)
    assert torch.allclose(full, mixed, rtol=0.1)
    assert not torch.equal(full[1:], mixed[1:])


def test_only_layers_of_transformers_are_compiled(tmp_path):
    model = Experiment("gd", "linear").build()[0]
    with pytest.raises(ValueError, match="only the layers of transformers are compiled"):
        compile_layers(model)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the compiler warns of its own parts
def test_compiled_layers_are_the_same_training_but_for_rounding(tmp_path):
    plain, compiled = losses(tmp_path / "a"), losses(tmp_path / "b", torch_compile=True)
    assert torch.allclose(plain, compiled, rtol=1e-3)
