import json
import os
import re

import pytest
import torch
from safetensors.torch import save_file

from innerloop.models import DenseWeights, GradientDescentWeights, LinearAttention
from innerloop.training import (
    Checkpoint,
    CheckpointError,
    History,
    load_weights,
    read_checkpoint,
    read_weights,
    save_weights,
)
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
    with pytest.raises(CheckpointError, match="is a folder, not a file"):
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


def tampered(checkpoint, header=None, tensors=None, drop=(), listed=True):
    """Writes the file again with other entries; `listed` keeps the header's list of names true."""
    own_header, own_tensors = read_checkpoint(checkpoint.path)
    own_tensors = {k: t.clone() for k, t in own_tensors.items() if k not in drop} | (tensors or {})
    own_header |= {"tensors": sorted(own_tensors)} if listed else {}
    own_header |= header or {}
    own_header = {k: v for k, v in own_header.items() if k not in drop}
    save_file(own_tensors, checkpoint.path, {"innerloop": json.dumps(own_header)})


def state_of(model, optimizer, generator):
    state = optimizer.state_dict()
    return (
        {k: t.tolist() for k, t in model.state_dict().items()},
        {i: {k: str(v) for k, v in s.items()} for i, s in state["state"].items()},
        json.loads(json.dumps(state["param_groups"])),  # tuples come back as lists
        generator.get_state().tolist(),
    )


def assert_refused(checkpoint, sentence):
    """With a sentence that names the file, and without changing anything."""
    own = parts()
    with torch.no_grad():
        own[0].weights.preconditioners.add_(1)
    before = state_of(*own)
    with pytest.raises(CheckpointError, match=sentence) as caught:
        checkpoint.restore(*own)
    assert str(checkpoint.path) in str(caught.value)
    assert state_of(*own) == before


def test_a_file_written_again_as_it_was_is_accepted(checkpoint):
    tampered(checkpoint)
    assert checkpoint.restore(*parts())[0] == 5


@pytest.mark.parametrize(
    "key", ["config", "versions", "step", "history", "optimizer", "tensors", "generator"]
)
def test_a_header_without_a_key_is_refused(checkpoint, key):
    tampered(checkpoint, drop=[key])
    assert_refused(checkpoint, f"{key}")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("config", []),
        ("config", None),
        ("config", "lr"),
        ("versions", "2.0"),
        ("step", -5),
        ("step", 2.5),
        ("step", True),
        ("step", "5"),
        ("step", None),
        ("step", [5]),
        ("step", 4),  # the history goes further
        ("history", []),
        ("history", {"step": [0, 5], "loss": [1.0]}),
        ("history", {"step": [0, 5]}),
        ("history", {"loss": [0.5]}),
        ("history", {"step": 5, "loss": [0.5]}),
        ("history", {"step": [5, 0], "loss": [0.5, 1.0]}),
        ("history", {"step": [-1, 0], "loss": [0.5, 1.0]}),
        ("history", {"step": ["0"], "loss": [0.5]}),
        ("history", {"step": [0], "loss": ["a lot"]}),
        ("history", {"step": [0], "loss": [None]}),
        ("optimizer", []),
        ("optimizer", {}),
        ("optimizer", {"kind": "Adam", "groups": [], "scalars": {}}),
        ("optimizer", {"kind": "Adam", "groups": [3], "scalars": {}}),
        ("optimizer", {"kind": "Adam", "groups": {}, "scalars": {}}),
        ("optimizer", {"kind": "Adam", "groups": [{}], "scalars": {}}),
        ("optimizer", {"kind": 3, "groups": [], "scalars": {}}),
        ("tensors", {}),
        ("tensors", []),
        ("tensors", [["generator"]]),
    ],
)
def test_a_header_with_a_wrong_value_is_refused(checkpoint, key, value):
    tampered(checkpoint, header={key: value})
    assert_refused(checkpoint, "header|history|optimizer|tensors|groups")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", float("nan")),
        ("lr", float("inf")),
        ("lr", "0.01"),
        ("lr", None),
        ("betas", [0.9]),
        ("betas", 0.9),
        ("betas", ["0.9", "0.99"]),
        ("amsgrad", 3),
        ("eps", True),
        ("params", [1]),
        ("params", []),
        ("params", None),
        ("unheard of", 1.0),
    ],
)
def test_a_setting_that_the_optimizer_cannot_have_is_refused(checkpoint, name, value):
    header, _ = read_checkpoint(checkpoint.path)
    header["optimizer"]["groups"][0][name] = value
    tampered(checkpoint, header={"optimizer": header["optimizer"]})
    assert_refused(checkpoint, re.escape(name))


@pytest.mark.parametrize("header", ["[]", "3", "null", '"text"', "{", "[" * 100_000, "9" * 5000])
def test_a_header_that_is_no_object_is_refused(checkpoint, header):
    save_file({"weight": torch.zeros(2)}, checkpoint.path, {"innerloop": header})
    assert_refused(checkpoint, "was not written by innerloop|must be an object")


MODEL = "model.weights.preconditioners"
SHAPE = (2, 2, 2)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        (MODEL, torch.zeros(SHAPE, dtype=torch.int8)),
        (MODEL, torch.zeros(SHAPE, dtype=torch.float32)),
        (MODEL, torch.zeros(SHAPE, dtype=torch.complex64)),
        (MODEL, torch.full(SHAPE, float("nan"), dtype=torch.float64)),
        (MODEL, torch.full(SHAPE, float("-inf"), dtype=torch.float64)),
        (MODEL, torch.zeros(3, 2, 2, dtype=torch.float64)),
        (MODEL, torch.zeros(0, dtype=torch.float64)),
        ("model.more", torch.zeros(2)),
        ("optimizer.0.exp_avg", torch.zeros(8, dtype=torch.float64)),
        ("optimizer.0.exp_avg", torch.zeros(SHAPE, dtype=torch.float32)),
        ("optimizer.0.exp_avg", torch.full(SHAPE, float("nan"), dtype=torch.float64)),
        ("optimizer.0.exp_avg", torch.zeros(SHAPE, dtype=torch.float8_e4m3fn)),
        ("optimizer.0.step", torch.zeros(3)),
        ("optimizer.0.momentum", torch.zeros(3)),
        ("optimizer.1.exp_avg", torch.zeros(SHAPE, dtype=torch.float64)),
        ("optimizer.-1.exp_avg", torch.zeros(SHAPE, dtype=torch.float64)),
        ("optimizer.x", torch.zeros(3)),
        ("generator", torch.zeros(5056, dtype=torch.uint8)),
        ("generator", torch.zeros(10, dtype=torch.uint8)),
        ("generator", torch.zeros(5056)),
        ("generator", torch.zeros(0, dtype=torch.uint8)),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused(checkpoint, name, tensor):
    tampered(checkpoint, tensors={name: tensor})
    assert_refused(checkpoint, r"weights|optimizer|generator|holds .* in torch\.")


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(
    "drop",
    [
        [MODEL],
        ["generator"],
        ["optimizer.0.exp_avg"],
        ["optimizer.0.exp_avg", "optimizer.0.exp_avg_sq"],
        [MODEL, "generator", "optimizer.0.exp_avg", "optimizer.0.exp_avg_sq", "optimizer.0.step"],
    ],
)
def test_a_tensor_that_is_missing_is_refused(checkpoint, drop, listed):
    tampered(checkpoint, drop=drop, listed=listed)
    assert_refused(checkpoint, "weights|generator|lacks|tensors")


def test_an_optimizer_whose_state_was_removed_altogether_is_refused(checkpoint):
    names = ["exp_avg", "exp_avg_sq", "step"]
    tampered(checkpoint, drop=[f"optimizer.0.{name}" for name in names], listed=False)
    assert_refused(checkpoint, "they differ in optimizer.0.exp_avg, ")


def test_a_parameter_that_never_had_a_gradient_has_no_state_and_resumes(tmp_path):
    def made():
        model = torch.nn.ModuleDict({"used": torch.nn.Linear(2, 1), "idle": torch.nn.Linear(2, 1)})
        return model, torch.optim.Adam(model.parameters()), seeded()

    model, optimizer, generator = made()
    model["used"](torch.ones(2)).sum().backward()
    optimizer.step()
    saved = Checkpoint(tmp_path / "run")
    saved.save(1, model, optimizer, generator, History())
    other = made()
    saved.restore(*other)
    assert state_of(*other) == state_of(model, optimizer, generator)


@pytest.mark.parametrize(
    "kind",
    [
        torch.optim.SGD,
        torch.optim.Adam,
        torch.optim.AdamW,
        torch.optim.RMSprop,
        torch.optim.Adagrad,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.Rprop,
        torch.optim.ASGD,
    ],
)
@pytest.mark.parametrize("stepped", [True, False])
def test_the_state_of_every_optimizer_comes_back(tmp_path, kind, stepped):
    def made(seed):
        model = LinearAttention(weights(GradientDescentWeights, d=2, layers=1, seed=seed))
        return model, kind(model.parameters(), lr=0.01), seeded(seed)

    model, optimizer, generator = made(0)
    if stepped:
        model.weights.preconditioners.square().sum().backward()
        optimizer.step()
    saved = Checkpoint(tmp_path / "run")
    saved.save(1, model, optimizer, generator, History())
    other = made(1)
    saved.restore(*other)
    assert state_of(*other) == state_of(model, optimizer, generator)
    saved.save(1, *other, History())
    saved.restore(*made(2))  # and once more


def test_a_pipe_is_refused_and_not_waited_on(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert_refused(Checkpoint(tmp_path / "pipe"), "is a pipe, not a file")
    with pytest.raises(CheckpointError, match="is a pipe"):
        Checkpoint(tmp_path / "pipe").save(1, *parts(), History())
    with pytest.raises(CheckpointError, match="is a pipe"):
        read_weights(tmp_path / "pipe")


def test_a_device_is_refused_and_not_replaced():
    assert_refused(Checkpoint("/dev/null"), "is a device, not a file")
    with pytest.raises(CheckpointError, match="is a device"):
        Checkpoint("/dev/null").save(1, *parts(), History())
    with pytest.raises(CheckpointError, match="is a device"):
        save_weights(parts()[0], "/dev/null")


def test_a_path_that_cannot_be_looked_at_is_refused():
    assert_refused(Checkpoint("x" * 5000), "cannot look at .*: File name too long")


def test_bytes_that_were_changed_are_refused_or_read(checkpoint):
    """Every byte of the file's own header in turn: never anything but a sentence."""
    whole = checkpoint.path.read_bytes()
    length = 8 + int.from_bytes(whole[:8], "little")
    refused = 0
    for position in range(0, length, 7):
        changed = bytearray(whole)
        changed[position] ^= 0x15
        checkpoint.path.write_bytes(changed)
        try:
            checkpoint.restore(*parts())
        except CheckpointError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_state_that_is_not_finite_is_not_saved(checkpoint, bad):
    before = checkpoint.path.read_bytes()
    model, optimizer, generator = parts()
    optimizer.state_dict()["state"][0]["exp_avg"].fill_(bad)
    with pytest.raises(FloatingPointError, match=r"after 6 steps the optimizer .*exp_avg are not"):
        checkpoint.save(6, model, optimizer, generator, History())
    model, optimizer, generator = parts()
    with torch.no_grad():
        model.weights.preconditioners.fill_(bad)
    with pytest.raises(FloatingPointError, match=r"after 6 steps the weights .* are not finite"):
        checkpoint.save(6, model, optimizer, generator, History())
    assert checkpoint.path.read_bytes() == before


def test_other_versions_are_said_and_used(checkpoint):
    told = []
    same = checkpoint.restore(*parts(), told.append)
    assert told == []
    newer = Checkpoint(checkpoint.path, config=checkpoint.config, versions={"torch": "99.0"})
    again = newer.restore(*parts(), told.append)
    assert again[0] == same[0] == 5
    (sentence,) = told
    assert f"torch {torch.__version__}" in sentence
    assert "this is torch 99.0. Going on" in sentence


@pytest.mark.parametrize("config", [{"f": print}, {"t": torch.zeros(2)}])
def test_a_config_that_json_does_not_know_is_refused(tmp_path, config):
    with pytest.raises(ValueError, match="config must be of types that JSON knows"):
        Checkpoint(tmp_path / "run", config=config)


def test_weights_alone_are_saved_and_read(tmp_path):
    model = parts()[0]
    other = LinearAttention(weights(GradientDescentWeights, d=2, layers=2, seed=5))
    save_weights(model, str(tmp_path / "own.safetensors"))
    tensors = read_weights(str(tmp_path / "own.safetensors"))
    assert tensors.keys() == model.state_dict().keys()
    load_weights(other, tensors, tmp_path / "own.safetensors")
    assert torch.equal(other.weights.preconditioners, model.weights.preconditioners)


def test_weights_of_a_checkpoint_are_loaded_too(checkpoint):
    model = LinearAttention(weights(GradientDescentWeights, d=2, layers=2, seed=5))
    load_weights(model, read_checkpoint(str(checkpoint.path))[1], checkpoint.path)
    assert torch.equal(model.weights.preconditioners, parts()[0].weights.preconditioners)


def test_a_model_whose_own_part_is_called_model_keeps_its_names(tmp_path):
    holder = torch.nn.ModuleDict({"model": torch.nn.Linear(2, 1)})
    save_weights(holder, tmp_path / "w")
    fresh = torch.nn.ModuleDict({"model": torch.nn.Linear(2, 1)})
    load_weights(fresh, read_weights(tmp_path / "w"), tmp_path / "w")
    assert torch.equal(fresh["model"].weight, holder["model"].weight)


def test_tied_weights_are_saved(tmp_path):
    one = torch.nn.Linear(2, 2)
    tied = torch.nn.ModuleDict({"first": one, "second": one})
    save_weights(tied, tmp_path / "w")
    load_weights(tied, read_weights(tmp_path / "w"), tmp_path / "w")


@pytest.mark.parametrize(
    "other",
    [
        torch.nn.Linear(3, 1),
        torch.nn.Linear(2, 1, bias=False),
        torch.nn.Linear(2, 1, dtype=torch.float64),
        torch.nn.ModuleDict({"inner": torch.nn.Linear(2, 1)}),
    ],
)
def test_weights_of_another_model_are_refused(tmp_path, other):
    save_weights(torch.nn.Linear(2, 1), tmp_path / "w")
    before = {k: t.clone() for k, t in other.state_dict().items()}
    with pytest.raises(CheckpointError, match=f"{tmp_path / 'w'} holds .*, the model has"):
        load_weights(other, read_weights(tmp_path / "w"), tmp_path / "w")
    assert all(torch.equal(t, before[k]) for k, t in other.state_dict().items())


def test_an_infinite_mask_is_no_weight(tmp_path):
    model = torch.nn.Linear(2, 1)
    model.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
    save_weights(model, tmp_path / "w")
    load_weights(model, read_weights(tmp_path / "w"), tmp_path / "w")
