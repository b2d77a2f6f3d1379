import json

import pytest
import torch
from safetensors.torch import save_file

from innerloop.models import DenseWeights, GradientDescentWeights, LinearAttention
from innerloop.training import Checkpoint, CheckpointError, History
from innerloop.training.checkpoints import read_checkpoint
from tests.models.forms import weights
from tests.samples import seeded


def parts(layers=2, form=GradientDescentWeights):
    """A model, an optimizer that has taken a step, and a generator that has been used."""
    model = LinearAttention(weights(form, d=2, layers=layers))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sum(p.square().sum() for p in model.parameters()).backward()
    optimizer.step()
    generator = seeded(1)
    torch.rand(3, generator=generator)
    return model, optimizer, generator


@pytest.fixture
def checkpoint(tmp_path):
    saved = Checkpoint(tmp_path / "runs" / "run.safetensors", config={"lr": 0.01, "seed": 1})
    history = History({"step": [0, 5], "loss": [2.0, float("inf")]})
    saved.save(5, *parts(), history)
    return saved


def test_everything_that_was_saved_is_restored(checkpoint):
    model, optimizer, generator = parts()
    expected = {name: t.clone() for name, t in model.state_dict().items()}
    state = {k: v.clone() for k, v in optimizer.state_dict()["state"][0].items()}
    numbers = torch.rand(4, generator=generator)
    fresh = LinearAttention(weights(GradientDescentWeights, d=2, layers=2, seed=9))
    fresh_optimizer, fresh_generator = torch.optim.Adam(fresh.parameters(), lr=5.0), seeded(2)
    step, history = checkpoint.restore(fresh, fresh_optimizer, fresh_generator)
    assert step == 5
    assert history.columns == {"step": [0, 5], "loss": [2.0, float("inf")]}
    for name, tensor in fresh.state_dict().items():
        assert torch.equal(tensor, expected[name])
    for name, tensor in fresh_optimizer.state_dict()["state"][0].items():
        assert torch.equal(tensor, state[name])
        assert tensor.dtype == state[name].dtype
    assert fresh_optimizer.param_groups[0]["lr"] == 0.01
    assert torch.equal(torch.rand(4, generator=fresh_generator), numbers)


def test_without_a_file_there_is_nothing_to_restore(tmp_path):
    model, optimizer, generator = parts()
    before = model.weights.preconditioners.detach().clone()
    step, history = Checkpoint(tmp_path / "none").restore(model, optimizer, generator)
    assert (step, len(history)) == (0, 0)
    assert torch.equal(model.weights.preconditioners, before)


def test_saving_again_replaces_the_file_and_leaves_no_other(checkpoint):
    checkpoint.save(6, *parts(), History())
    assert [f.name for f in checkpoint.path.parent.iterdir()] == ["run.safetensors"]
    assert read_checkpoint(checkpoint.path)[0]["step"] == 6


def test_a_save_that_fails_leaves_the_last_one(checkpoint, monkeypatch):
    def fail(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="no space left"):
        checkpoint.save(6, *parts(), History())
    monkeypatch.undo()
    assert [f.name for f in checkpoint.path.parent.iterdir()] == ["run.safetensors"]
    assert read_checkpoint(checkpoint.path)[0]["step"] == 5


def test_another_config_is_refused_with_what_differs(checkpoint):
    other = Checkpoint(checkpoint.path, config={"lr": 0.02, "seed": 1, "clip": 0.5})
    sentence = r"belongs to another run \(it differs in clip, lr\); choose another folder"
    with pytest.raises(CheckpointError, match=sentence):
        other.restore(*parts())


def test_a_config_with_tuples_is_recognised_as_its_own(tmp_path):
    saved = Checkpoint(tmp_path / "run", config={"betas": (0.9, 0.95), "scales": {"a": (1, 2)}})
    saved.save(5, *parts(), History())
    step, _ = saved.restore(*parts())
    assert step == 5


@pytest.mark.parametrize("model_parts", [parts(layers=3), parts(form=DenseWeights)])
def test_weights_of_other_shapes_are_refused(checkpoint, model_parts):
    sentence = r"holds weights of shapes .*preconditioners.*\[2, 2, 2\].*, the model has"
    with pytest.raises(CheckpointError, match=sentence):
        checkpoint.restore(*model_parts)


@pytest.mark.parametrize("keep", [0, 4, 100, -20])
def test_a_damaged_file_is_refused(checkpoint, keep):
    checkpoint.path.write_bytes(checkpoint.path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="is damaged or is not a checkpoint"):
        checkpoint.restore(*parts())


def test_a_file_of_something_else_is_refused(checkpoint):
    checkpoint.path.write_text("a shopping list, long enough to hold a length of a header")
    with pytest.raises(CheckpointError, match="is damaged or is not a checkpoint"):
        checkpoint.restore(*parts())


def test_the_state_of_another_optimizer_is_refused(checkpoint):
    model, _, generator = parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    with pytest.raises(CheckpointError, match="optimizer"):
        checkpoint.restore(model, optimizer, generator)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="is damaged or is not a checkpoint"):
        Checkpoint(tmp_path).restore(*parts())


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"innerloop": "{"}])
def test_weights_saved_by_another_program_are_refused(tmp_path, metadata):
    save_file({"weight": torch.zeros(2)}, tmp_path / "foreign", metadata)
    with pytest.raises(CheckpointError, match="was not written by innerloop"):
        Checkpoint(tmp_path / "foreign").restore(*parts())


def test_another_format_is_refused(tmp_path):
    header = json.dumps({"format": "innerloop-checkpoint-99"})
    save_file({"weight": torch.zeros(2)}, tmp_path / "newer", {"innerloop": header})
    with pytest.raises(
        CheckpointError, match="has the format 'innerloop-checkpoint-99', this version"
    ):
        Checkpoint(tmp_path / "newer").restore(*parts())


def test_reading_what_is_not_there_says_so(tmp_path):
    with pytest.raises(CheckpointError, match="there is no checkpoint at"):
        read_checkpoint(tmp_path / "none")


def test_a_refused_checkpoint_changes_nothing(checkpoint):
    model, optimizer, generator = parts(layers=3)
    before = model.weights.preconditioners.detach().clone()
    state = generator.get_state()
    with pytest.raises(CheckpointError):
        checkpoint.restore(model, optimizer, generator)
    assert torch.equal(model.weights.preconditioners, before)
    assert torch.equal(generator.get_state(), state)
