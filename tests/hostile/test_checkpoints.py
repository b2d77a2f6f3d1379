"""Every part of a real checkpoint, removed or replaced in turn: refused, never half believed."""

import copy
import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from innerloop.experiments import Experiment, Run
from innerloop.training import CheckpointError, read_checkpoint
from tests.hostile.helpers import TRAIN, no_hang, refusal

MINE = Experiment(
    "gd:layers=1", "linear:d=2,n=4", objective="prompts:batch=8", optimizer="adam", steps=2
)
FILE = "checkpoint.safetensors"
WRONG = (None, -5, "x", [], {}, 1.5, True)
REMOVED = "removed"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The header and the tensors of a checkpoint, and its bytes."""
    path = MINE.run(tmp_path_factory.mktemp("whole")).folder / FILE
    return *read_checkpoint(path), path.read_bytes()


def header_paths(header):
    """Every key of the header, and every key inside of those that describe the run."""
    yield from ((key,) for key in header)
    for part in ("config", "history", "optimizer"):
        yield from ((part, key) for key in header[part])
    yield from (("optimizer", "groups", 0, key) for key in header["optimizer"]["groups"][0])
    for spec in ("model", "task", "objective", "optimizer", "schedule"):
        yield from (("config", spec, key) for key in ("name", "options"))
        yield from (("config", spec, "options", key) for key in header["config"][spec]["options"])


def changed(header, path, value):
    """A copy of the header with one entry replaced, or removed."""
    result = copy.deepcopy(header)
    *way, last = path
    place = result
    for key in way:
        place = place[key]
    if value is REMOVED:
        del place[last]
    else:
        place[last] = value
    return result


def write(folder, header, tensors):
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / FILE, {"innerloop": json.dumps(header)})


def outcome(function):
    """What was accepted, or None; a refusal must be a CheckpointError."""
    try:
        return function()
    except CheckpointError:
        return None


def test_every_header_entry_removed_or_replaced_is_refused_when_training_goes_on(
    whole, tmp_path, shapes_unchecked
):
    header, tensors, _ = whole
    cases = 0
    for path in header_paths(header):
        if path == ("versions",):  # a courtesy: others are said and used
            continue
        for value in (REMOVED, *WRONG):
            other = changed(header, path, value)
            if other == header or harmless(path, value):
                continue
            write(tmp_path, other, tensors)
            accepted = outcome(lambda: MINE.run(tmp_path))
            assert accepted is None, f"{path} = {value!r} was believed"
            cases += 1
    assert cases > 300


def harmless(path, value):
    """Numbers that are as good as those in their place."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if path[:2] == ("optimizer", "groups"):
        if path[-1] == "base_lr" and value is REMOVED:  # the trainer notes it in its first step
            return True
        return path[-1] in {"lr", "base_lr", "eps", "weight_decay"} and number and value >= 0
    return path == ("history",) and value == {}  # a run may have recorded nothing


def test_every_header_entry_removed_or_replaced_is_refused_or_consistent_when_evaluated(
    whole, tmp_path, shapes_unchecked
):
    """What `evaluate` does not need it need not refuse; what it believes is of the right kind."""
    header, tensors, _ = whole
    for path in header_paths(header):
        for value in (REMOVED, *WRONG):
            write(tmp_path, changed(header, path, value), tensors)
            accepted = outcome(lambda: Run.open(tmp_path))
            if accepted is not None:
                assert accepted.experiment.model.name == MINE.model.name
                assert type(accepted.step) is int
                assert accepted.step >= 0
                assert all(p.isfinite().all() for p in accepted.model.parameters())


def mutations(tensor):
    if tensor.is_floating_point() or tensor.ndim > 1:  # a generator reads any shape as a row
        yield "reshaped", tensor.reshape(1, *tensor.shape)
    yield "longer", torch.cat([tensor.flatten()] * 2)
    yield "empty", torch.zeros(0, dtype=tensor.dtype)
    if tensor.is_floating_point():
        yield "int8", tensor.to(torch.int8)
        yield "half", tensor.half()
        yield "NaN", torch.full_like(tensor, torch.nan)
        yield "infinite", torch.full_like(tensor, -torch.inf)
    else:
        yield "numbers", tensor.double()


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "unlisted"])
def test_every_tensor_removed_or_replaced_is_refused(whole, tmp_path, listed):
    header, tensors, _ = whole
    cases = 0
    for name, tensor in tensors.items():
        others = [(REMOVED, None), *mutations(tensor)]
        for what, other in others:
            mixed = {**tensors, name: other}
            if other is None:
                del mixed[name]
            names = sorted(mixed) if listed else header["tensors"]
            write(tmp_path, {**header, "tensors": names}, mixed)
            assert outcome(lambda: MINE.run(tmp_path)) is None, f"{name} {what}"
            if name.startswith("model."):
                assert outcome(lambda: Run.open(tmp_path)) is None, f"{name} {what}"
            cases += 1
    assert cases > 20


def test_a_file_cut_anywhere_is_refused(whole, tmp_path):
    *_, content = whole
    for length in [*range(0, 40, 3), *range(40, len(content), len(content) // 30)]:
        (tmp_path / FILE).write_bytes(content[:length])
        assert outcome(lambda: MINE.run(tmp_path)) is None
        assert outcome(lambda: Run.open(tmp_path)) is None


def in_its_place(kind, whole):
    """Puts something else where the checkpoint of the folder `run` belongs."""
    header, tensors, content = whole
    Path("run").mkdir()
    path = Path("run") / FILE
    if kind == "a folder":
        path.mkdir()
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a link to itself":
        path.symlink_to(path.name)
    elif kind == "an empty file":
        path.write_bytes(b"")
    elif kind == "half a file":
        path.write_bytes(content[: len(content) // 2])
    elif kind == "a step of -5":
        write(path.parent, {**header, "step": -5}, tensors)
    elif kind == "a clip that is a word":
        write(path.parent, changed(header, ("config", "clip"), "x"), tensors)
    elif kind == "a number beyond floats":
        write(path.parent, changed(header, ("config", "clip"), 10**400), tensors)
    elif kind == "a model too large":
        layers = ("config", "model", "options", "layers")
        write(path.parent, changed(header, layers, 10**9), tensors)
    elif kind == "weights that are NaN":
        nan = {k: torch.full_like(t, torch.nan) for k, t in tensors.items() if "model." in k}
        write(path.parent, header, {**tensors, **nan})
    elif kind == "no optimizer":
        kept = {k: t for k, t in tensors.items() if not k.startswith("optimizer.")}
        write(path.parent, header, kept)


KINDS = ["a folder", "a pipe", "a link to itself", "an empty file", "half a file", "a step of -5"]
KINDS += ["a clip that is a word", "a number beyond floats", "a model too large"]
KINDS += ["weights that are NaN"]


@pytest.mark.parametrize("kind", [*KINDS, "no optimizer"])
def test_the_command_line_refuses_to_go_on_from(whole, folder, shapes_unchecked, capsys, kind):
    in_its_place(kind, whole)
    assert "checkpoint" in refusal(capsys, *TRAIN, "--run", "run")


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_line_refuses_to_evaluate(whole, folder, shapes_unchecked, capsys, kind):
    in_its_place(kind, whole)
    assert "checkpoint" in refusal(capsys, "evaluate", "run", "--samples", "100")


def test_a_pipe_as_a_file_of_weights_is_not_waited_on(folder, capsys):
    os.mkfifo("weights.safetensors")
    words = ["--model", "gd:layers=1", "--task", "linear:d=2"]
    with no_hang(20):
        said = refusal(capsys, "evaluate", "weights.safetensors", *words)
    assert "is a pipe, not a file" in said
