import re
import subprocess
import sys

import pytest
import torch

from innerloop.tasks import (
    DictionaryRegression,
    GaussianCoefficients,
    SphericalCoefficients,
    TabulatedCoefficients,
)
from tests.samples import DOUBLE, assert_means, normal, seeded

SAMPLES = 40_000
COEFFICIENTS = [
    GaussianCoefficients(),
    GaussianCoefficients(mean=1.0, std=2.0),
    SphericalCoefficients(1.7),
    TabulatedCoefficients(normal(4, 3, seed=8)),
]


def task_of(tau=0.3, shown=4, coefficients=COEFFICIENTS[0]):
    tokens = normal(7, 2, seed=1)
    return DictionaryRegression(tokens, normal(7, 3, seed=2), shown, tau, coefficients)


@pytest.mark.parametrize("coefficients", COEFFICIENTS, ids=lambda c: type(c).__name__)
def test_coefficients_have_the_stated_second_moment(coefficients):
    drawn = coefficients.draw(SAMPLES, 3, generator=seeded())
    products = drawn[:, :, None] * drawn[:, None, :]
    exact, moving = coefficients.second_moment(3), products.std(0) > 0
    assert_means(products[:, moving], exact[moving])


def test_coefficients_of_a_sphere_have_its_radius():
    drawn = SphericalCoefficients(2.5).draw(10, 4, generator=seeded())
    torch.testing.assert_close(drawn.norm(dim=1), torch.full((10,), 2.5, dtype=DOUBLE))


def test_coefficients_of_a_table_are_its_rows():
    values = normal(3, 2)
    drawn = TabulatedCoefficients(values).draw(50, 2, generator=seeded())
    assert {tuple(row) for row in drawn.tolist()} == {tuple(row) for row in values.tolist()}


@pytest.mark.parametrize("coefficients", COEFFICIENTS, ids=lambda c: type(c).__name__)
def test_labels_have_the_second_moment_of_noisy_features(coefficients):
    # E[y_j y_k] = z_j^T M z_k + tau tr(M) 1{j = k}
    task = task_of(coefficients=coefficients)
    targets = task.sample(SAMPLES, generator=seeded(3)).targets
    moment = coefficients.second_moment(3)
    exact = task.features @ moment @ task.features.mT
    exact = exact + 0.3 * moment.trace() * torch.eye(7, dtype=DOUBLE)
    assert_means(targets[:, :, None] * targets[:, None, :], exact)


def test_a_shown_label_is_its_own_target_noise_and_all():
    prompt = task_of().sample(5, generator=seeded())
    assert torch.equal(prompt.y, prompt.targets[:, :4])
    assert (len(prompt), prompt.n, prompt.queries) == (5, 4, 7)


def test_all_prompts_share_the_tokens_of_the_dictionary():
    task = task_of()
    prompt = task.sample(5, generator=seeded())
    assert torch.equal(prompt.x_query, task.tokens.unsqueeze(0))
    assert torch.equal(prompt.x, task.tokens[:4].unsqueeze(0))
    assert (task.d, task.n) == (2, 4)


def test_without_noise_labels_are_linear_in_the_features():
    task = task_of(tau=0.0)
    targets = task.sample(10, generator=seeded()).targets
    fitted = task.features @ torch.linalg.pinv(task.features) @ targets.mT
    torch.testing.assert_close(fitted.mT, targets, rtol=1e-12, atol=1e-12)


def test_gaussian_dictionaries_have_unit_tokens_unless_asked_not_to():
    shape = dict(d=50, features=3, tokens=9, shown=4, tau=0.1)
    unit = DictionaryRegression.gaussian(**shape, generator=seeded())
    raw = DictionaryRegression.gaussian(**shape, generator=seeded(), unit=False)
    torch.testing.assert_close(unit.tokens.norm(dim=1), torch.ones(9, dtype=DOUBLE))
    torch.testing.assert_close(raw.tokens / raw.tokens.norm(dim=1, keepdim=True), unit.tokens)
    assert raw.tokens.norm(dim=1).min() > 4
    assert torch.equal(unit.features, raw.features)


def test_features_come_from_the_function_given():
    network = torch.nn.Linear(2, 5).double()
    task = DictionaryRegression.of(network, normal(6, 2), 3, 0.1)
    assert torch.equal(task.features, network(task.tokens))
    assert not task.features.requires_grad


def test_a_network_of_another_dtype_is_refused_by_name():
    with pytest.raises(ValueError, match=r"dtype torch.float64 of tokens, got torch.float32 in we"):
        DictionaryRegression.of(torch.nn.Linear(2, 5), normal(6, 2), 3, 0.1)


def test_every_constructor_takes_the_distribution_of_coefficients():
    given = SphericalCoefficients(2.0)
    made = DictionaryRegression.of(torch.sin, normal(6, 2), 3, 0.1, given)
    drawn = DictionaryRegression.gaussian(2, 3, 6, 3, 0.1, generator=seeded(), coefficients=given)
    assert made.coefficients == drawn.coefficients == given


def test_single_precision_dictionaries_have_single_precision_prompts():
    task = DictionaryRegression.of(torch.sin, normal(6, 2).float(), 3, 0.1)
    prompt = task.sample(4, generator=seeded())
    assert prompt.x.dtype == prompt.y.dtype == prompt.targets.dtype == torch.float32


def test_gaussian_dictionaries_are_the_same_in_any_dtype():
    single, double = (
        DictionaryRegression.gaussian(3, 2, 6, 4, 0.1, generator=seeded(), dtype=dtype)
        for dtype in (torch.float32, DOUBLE)
    )
    assert torch.equal(single.tokens, double.tokens.float())
    assert torch.equal(single.features, double.features.float())
    assert single.sample(2, generator=seeded()).y.dtype == torch.float32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shown": 8}, "shown must be between 1 and the 7 tokens of the dictionary, got 8"),
        ({"shown": 0}, "shown must be between 1 and the 7 tokens of the dictionary, got 0"),
        ({"tau": -0.1}, r"tau is a variance: it must be finite and >= 0, got -0.1"),
        ({"tau": float("nan")}, "tau is a variance"),
        ({"features": normal(6, 3)}, "one row for each of the 7 tokens, got 6"),
        ({"features": normal(7, 3).float()}, "features must have the dtype torch.float64"),
        ({"features": torch.full((7, 3), float("nan"), dtype=DOUBLE)}, "features must be finite"),
        ({"tokens": normal(7, 2) * torch.arange(7)[:, None]}, r"must not be zero, got zero at \[0"),
        ({"coefficients": 3.0}, "coefficients must be a distribution.*got 3.0"),
        ({"coefficients": TabulatedCoefficients(normal(2, 4))}, "each of the 3 features, got 4"),
    ],
)
def test_settings_that_make_no_task_are_refused(change, message, shapes_unchecked):
    settings = {"tokens": normal(7, 2), "features": normal(7, 3), "shown": 4, "tau": 0.1}
    with pytest.raises(ValueError, match=message):
        DictionaryRegression(**(settings | change))


def test_a_dictionary_that_is_no_matrix_is_refused(shapes_unchecked):
    with pytest.raises(ValueError, match=r"one row per token, got shape \[7\]"):
        DictionaryRegression(normal(7), normal(7, 3), 4, 0.1)


def test_equal_tokens_in_the_prompt_are_named_in_a_warning():
    tokens = normal(7, 2)
    tokens[3] = tokens[1]
    with pytest.warns(UserWarning, match="tokens 1 and 3 of the prompt are equal.*Assumption 3"):
        DictionaryRegression(tokens, normal(7, 3), 4, 0.1)
    DictionaryRegression(tokens, normal(7, 3), 3, 0.1)  # token 3 is not shown: nothing is lost


WARNS = """
import torch, warnings
from dataclasses import replace
from innerloop.tasks import DictionaryRegression
v = torch.ones(3, 1)
task = DictionaryRegression(v, v, 1, 0.1)
warnings.simplefilter("always")
DictionaryRegression(v, v, 2, 0.1)  # line 8
DictionaryRegression.of(torch.sin, v, 2, 0.1)
replace(task, shown=2)
"""


def test_the_warning_names_the_users_line_in_every_constructor():
    # In a process of its own: checking shapes at run time puts frames of its own in between.
    ran = subprocess.run([sys.executable, "-c", WARNS], capture_output=True, text=True, check=True)
    assert re.findall(r"<string>:(\d+): UserWarning", ran.stderr) == ["8", "9", "10"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianCoefficients(std=-1.0), "std must be finite and not negative, got -1.0"),
        (lambda: GaussianCoefficients(mean=float("nan")), "mean must be finite, got nan"),
        (lambda: TabulatedCoefficients(normal(2, 3) / 0), "values must be finite"),
        (lambda: SphericalCoefficients(0.0), "radius must be positive and finite, got 0"),
        (lambda: TabulatedCoefficients(normal(0, 3)), r"shape \[rows, features\], got \[0, 3\]"),
        (
            lambda: TabulatedCoefficients(normal(2, 3)).draw(4, 5, generator=seeded()),
            "one column for each of the 5 features, got 3",
        ),
        (
            lambda: DictionaryRegression.gaussian(0, 2, 3, 2, 0.1, generator=seeded()),
            "d must be a whole number of at least 1, got 0",
        ),
    ],
)
def test_distributions_that_do_not_exist_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
