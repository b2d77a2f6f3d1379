"""Learners of the user's own, by package.module:factory."""

import sys
import textwrap

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from innerloop.algorithms import LeastSquares, answers
from innerloop.experiments import own_learner
from innerloop.tasks import LinearRegression
from innerloop.training import CheckpointError
from tests.samples import seeded

TASK = LinearRegression.isotropic(2, 5)
SINGLE = LinearRegression.isotropic(2, 5, dtype=torch.float32)
SOURCE = """
    import torch
    from torch import nn
    from innerloop.algorithms import LeastSquares

    class Mine(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.scale = nn.Parameter(torch.zeros(d))
            self.drop = nn.Dropout(0.5)

        def forward(self, prompt):
            return self.drop(prompt.x_query @ self.scale)

    def module(task):
        return Mine(task.d)

    def plain(task):
        return LeastSquares()

    def function(task):
        return lambda prompt: prompt.y.mean(1, keepdim=True)

    class Mean:
        def fit(self, x, y):
            self.mean = y.mean()
            return self

        def predict(self, x):
            return 0 * x[:, 0] + self.mean

    def estimator(task):
        return Mean()

    def nothing(task):
        return None

    def broken(task):
        return task.nothing

    number = 3
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `mine` in the present folder, with the module `models` in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    (tmp_path / "mine" / "models.py").write_text(textwrap.dedent(SOURCE))
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] == "mine"]:
        del sys.modules[name]


def test_an_algorithm_a_function_or_an_estimator_is_found_in_the_present_folder(package):
    prompt = TASK.sample(3, generator=seeded())
    learner = own_learner("mine.models:plain", TASK)
    assert torch.equal(answers(learner, prompt), LeastSquares()(prompt))
    mean = own_learner("mine.models:function", TASK)
    assert torch.equal(answers(mean, prompt)[:, 0], prompt.y.mean(1))
    estimated = own_learner("mine.models:estimator", TASK)
    torch.testing.assert_close(answers(estimated, prompt), answers(mean, prompt))


@pytest.mark.parametrize("task", [TASK, SINGLE], ids=["double", "single"])
def test_a_module_is_given_the_precision_of_the_task_and_does_not_drop_out(package, task):
    model = own_learner("mine.models:module", task)
    assert isinstance(model, nn.Module)
    assert not model.training
    assert model.scale.dtype == task.covariance.dtype
    prompt = task.sample(3, generator=seeded())
    assert answers(model, prompt).dtype == prompt.y.dtype


def test_weights_come_from_a_safetensors_file(package):
    scale = torch.tensor([2.0, -1.0], dtype=torch.float64)
    save_file({"scale": scale}, package / "weights.safetensors")
    for path in (package / "weights.safetensors", "weights.safetensors"):
        model = own_learner("mine.models:module", TASK, path)
        prompt = TASK.sample(3, generator=seeded())
        assert torch.equal(answers(model, prompt), prompt.x_query @ scale)


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        ({"scale": torch.zeros(3)}, r"holds weights of shapes .*\[3\].*, the model has .*\[2\]"),
        ({"other": torch.zeros(2)}, "holds weights of shapes .*other"),
        ({"scale": torch.zeros(2)}, "holds scale in torch.float32, the model has torch.float64"),
        ({"scale": torch.full((2,), float("nan")).double()}, "weights that are not finite"),
    ],
)
def test_weights_that_do_not_fit_are_refused(package, tensors, sentence):
    save_file(tensors, package / "weights.safetensors")
    with pytest.raises(CheckpointError, match=sentence):
        own_learner("mine.models:module", TASK, package / "weights.safetensors")


def test_a_file_that_holds_no_weights_is_refused(package):
    with pytest.raises(CheckpointError, match="there is no checkpoint at nowhere"):
        own_learner("mine.models:module", TASK, "nowhere")
    (package / "text").write_text("no weights")
    with pytest.raises(CheckpointError, match="is damaged or is not a checkpoint"):
        own_learner("mine.models:module", TASK, "text")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mine.models", "a model of your own is named package.module:factory, got 'mine.models'"),
        (":module", "a model of your own is named package.module:factory"),
        ("mine.models:", "a model of your own is named package.module:factory"),
        ("mine.models:a b", "a model of your own is named package.module:factory"),
        ("mine.other:module", "cannot import mine.other of 'mine.other:module'"),
        ("absent:module", "cannot import absent of 'absent:module': .*No module named 'absent'"),
        ("mine.models:modul", "the module mine.models has no modul"),
        ("mine.models:number", "mine.models:number must be a function of a task, got int"),
        ("mine.models:broken", "mine.models:broken fails with AttributeError: .*'nothing'"),
        ("mine.models:nothing", "must give a learner, called with a prompt; got a NoneType"),
    ],
)
def test_what_names_no_learner_is_refused_with_a_sentence(package, name, sentence):
    with pytest.raises(ValueError, match=sentence):
        own_learner(name, TASK)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def factory(:", "cannot import mine.broken .*SyntaxError"),
        ("import nothing_of_that_name", "cannot import mine.broken .*No module named 'nothing_of"),
        ("None.name", "cannot import mine.broken .*AttributeError"),
        ("1 / 0", "cannot import mine.broken .*ZeroDivisionError"),
    ],
)
def test_a_module_that_fails_on_import_is_refused_with_its_error(package, text, sentence):
    (package / "mine" / "broken.py").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        own_learner("mine.broken:factory", TASK)


def test_weights_for_what_has_none_are_refused(package):
    save_file({"scale": torch.zeros(2)}, package / "weights.safetensors")
    with pytest.raises(ValueError, match=r"loaded into an nn.Module, .* gives a LeastSquares"):
        own_learner("mine.models:plain", TASK, "weights.safetensors")
