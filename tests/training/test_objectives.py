import pytest
import torch

from innerloop import theory
from innerloop.models import (
    DenseWeights,
    DictionaryAttention,
    GDPlusPlusWeights,
    GradientDescentWeights,
    LinearAttention,
    SingleLayerWeights,
)
from innerloop.tasks import (
    DictionaryRegression,
    GaussianCovariates,
    LinearFunctions,
    LinearRegression,
    NoClosedForm,
    Regression,
)
from innerloop.training import ControlledWishart, Exact, Prompts, Wishart, train
from tests.models.forms import weights
from tests.samples import assert_means, covariance, normal, random_prompt, seeded
from tests.tasks.test_linear import unknown_tasks

D, N = 2, 14
SIGMA, OMEGA = covariance(D, seed=1), covariance(D, seed=2)
CLEAN = LinearRegression(SIGMA, N, OMEGA)
NOISY = LinearRegression(SIGMA, N, OMEGA, noise_std=0.6)
tasks = pytest.mark.parametrize("task", [CLEAN, NOISY], ids=["clean", "noisy"])
BATCHES, BATCH = 60, 800


def model_of(form, layers=2, loops=1):
    return LinearAttention(weights(form, d=D, layers=layers, scale=0.25, seed=3), loops)


def gradient_of(loss, model):
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return torch.cat([g.flatten() for g in gradients])


def sampled(objective, model, seed=5):
    """Losses [batches] and gradients [batches, parameters] on independent batches."""
    generator, losses, gradients = seeded(seed), [], []
    for _ in range(BATCHES):
        loss = objective.loss(model, objective.sample(generator))
        losses.append(loss.detach())
        gradients.append(gradient_of(loss, model))
    return torch.stack(losses), torch.stack(gradients)


def exact(objective, model):
    loss = objective.loss(model)
    return loss.detach(), gradient_of(loss, model)


@tasks
@pytest.mark.parametrize(
    "model",
    [
        model_of(GradientDescentWeights, layers=1),
        model_of(GradientDescentWeights, layers=2),
        model_of(GradientDescentWeights, layers=1, loops=3),
        model_of(GDPlusPlusWeights, layers=1),
        model_of(SingleLayerWeights),
    ],
    ids=["one layer", "two layers", "three loops", "one transformed layer", "single layer"],
)
@pytest.mark.parametrize("objective", [Wishart, Prompts])
def test_sampled_objectives_agree_with_the_exact_one(objective, model, task):
    loss, gradient = exact(Exact(task), model)
    losses, gradients = sampled(objective(task, BATCH), model)
    assert_means(losses, loss)
    moving = gradients.std(0) > 0  # a transform after the last layer has the gradient 0, always
    assert_means(gradients[:, moving], gradient[moving])
    assert (gradient[~moving] == 0).all()


@pytest.mark.slow
@tasks
@pytest.mark.parametrize("objective", [Wishart, Prompts])
def test_sampled_objectives_agree_with_the_exact_one_with_transforms(objective, task):
    model = model_of(GDPlusPlusWeights, layers=2)
    loss, gradient = exact(Exact(task), model)
    losses, gradients = sampled(objective(task, BATCH), model)
    assert_means(losses, loss)
    moving = gradients.std(0) > 0
    assert_means(gradients[:, moving], gradient[moving])


@tasks
@pytest.mark.parametrize("form", [DenseWeights, GDPlusPlusWeights], ids=lambda form: form.__name__)
@pytest.mark.parametrize("loops", [1, 2])
def test_the_two_sampled_objectives_agree(form, loops, task):
    model = model_of(form, layers=2 if loops == 1 else 1, loops=loops)
    (one, one_gradient), (other, other_gradient) = (
        sampled(objective(task, BATCH), model, seed)
        for seed, objective in enumerate((Wishart, Prompts))
    )
    for a, b in ((one, other), (one_gradient, other_gradient)):
        error = ((a.var(0) + b.var(0)) / BATCHES).sqrt()
        z = (a.mean(0) - b.mean(0)) / error.clamp_min(1e-300)
        assert z.abs().max() < 4


def test_integrating_out_the_labels_lowers_the_variance():
    model = model_of(GradientDescentWeights)
    wishart, _ = sampled(Wishart(CLEAN, BATCH), model)
    prompts, _ = sampled(Prompts(CLEAN, BATCH), model)
    assert wishart.var() < prompts.var() / 2


def test_prompts_are_the_mean_squared_error_of_the_clean_label():
    objective, model = Prompts(NOISY, 7), model_of(GradientDescentWeights)
    batch = objective.sample(seeded(1))
    errors = [(model(batch)[i, 0] - batch.y_query[i, 0]) ** 2 for i in range(7)]
    expected = sum(errors) / 7
    torch.testing.assert_close(objective.loss(model, batch), expected)


def test_sampled_gram_matrices_have_the_moments_of_those_of_prompts():
    gram, w = Wishart(NOISY, 40_000).sample(seeded(2))
    token = torch.zeros(D + 1, D + 1, dtype=torch.float64)
    token[:D, :D] = SIGMA
    token[D, D] = (SIGMA @ OMEGA).trace() + 0.36
    assert_means(gram, token)
    assert_means(w.unsqueeze(-1) * w.unsqueeze(-2), OMEGA)
    # E[m w^T] = Sigma Omega ties the Gram matrices to their own weights.
    assert_means(gram[:, D, :D, None] * w[:, None], SIGMA @ OMEGA)
    prompt = NOISY.sample(40_000, generator=seeded(3)).gram()
    a, b = gram.square(), prompt.square()
    z = (a.mean(0) - b.mean(0)) / ((a.var(0) + b.var(0)) / 40_000).sqrt()
    assert z.abs().max() < 4


def test_the_exact_objective_samples_nothing():
    generator = seeded(4)
    before = generator.get_state()
    assert Exact(CLEAN).sample(generator) is None
    assert torch.equal(generator.get_state(), before)


def test_the_exact_objective_of_an_unmasked_single_layer_is_that_of_prompts():
    single = weights(SingleLayerWeights, d=D, seed=3)
    model = LinearAttention(single, masked=False)
    loss, gradient = exact(Exact(NOISY), model)
    losses, gradients = sampled(Prompts(NOISY, BATCH), model)
    assert_means(losses, loss)
    assert_means(gradients, gradient)


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        (DenseWeights, "no closed form is known for the loss of DenseWeights; use the wishart or"),
        (SingleLayerWeights, "known for one layer applied once, got loops = 2; use the wishart or"),
    ],
    ids=lambda form: getattr(form, "__name__", ""),
)
def test_the_exact_objective_refuses_what_it_has_no_closed_form_for(form, sentence):
    with pytest.raises(NoClosedForm, match=sentence):
        Exact(CLEAN).loss(model_of(form, loops=2))


def test_the_exact_objective_refuses_a_model_that_knows_no_risk():
    with pytest.raises(NoClosedForm, match=r"Linear has no method `risk`, .* the prompts"):
        Exact(CLEAN).loss(torch.nn.Linear(1, 1))


@unknown_tasks
def test_exact_objectives_refuse_a_task_that_only_looks_like_linear_regression(task, sentence):
    model = LinearAttention(weights(GradientDescentWeights, d=3))
    with pytest.raises(NoClosedForm, match=sentence):
        Exact(task).loss(model)
    with pytest.raises(NoClosedForm, match=sentence):
        model.risk(task)
    with pytest.raises(NoClosedForm, match=sentence):
        Wishart(task, 5)
    with pytest.raises(NoClosedForm, match=sentence):
        ControlledWishart(task, 5)


def test_a_composition_of_gaussians_has_the_exact_loss_of_the_linear_regression_it_is():
    model = model_of(GradientDescentWeights)
    made = Regression(GaussianCovariates(SIGMA), LinearFunctions(OMEGA), N, noise_std=0.6)
    assert torch.equal(Exact(made).loss(model), Exact(NOISY).loss(model))
    one, other = (Wishart(task, 5) for task in (made, NOISY))
    assert torch.equal(
        one.loss(model, one.sample(seeded())), other.loss(model, other.sample(seeded()))
    )


def test_singular_covariances_train_on_prompts_alone():
    singular = LinearRegression(torch.diag(torch.tensor([1.0, 0.0], dtype=torch.float64)), N)
    model = model_of(GradientDescentWeights)
    prompts = Prompts(singular, 10)
    assert prompts.loss(model, prompts.sample(seeded())).isfinite()
    for objective in (Exact, lambda task: Wishart(task, 3)):
        with pytest.raises(NoClosedForm, match="positive definite, got a singular one"):
            objective(singular).loss(model)


def test_weights_of_singular_covariance_have_an_exact_loss():
    task = LinearRegression(SIGMA, N, torch.diag(torch.tensor([1.0, 0.0], dtype=torch.float64)))
    model = model_of(GradientDescentWeights)
    loss, gradient = exact(Exact(task), model)
    losses, gradients = sampled(Wishart(task, BATCH), model)
    assert_means(losses, loss)
    assert_means(gradients, gradient)


def test_exact_and_sampled_objectives_of_a_dictionary_agree():
    task = DictionaryRegression.gaussian(3, 4, 8, 3, 0.2, generator=seeded())
    model = DictionaryAttention(normal(5, 3, 3, seed=1), normal(5, 8, seed=2))
    loss, gradient = exact(Exact(task), model)
    losses, gradients = sampled(Prompts(task, BATCH), model)
    assert_means(losses, loss)
    assert_means(gradients, gradient)


def test_a_dictionary_trains_on_its_exact_loss_with_the_ordinary_trainer():
    task = DictionaryRegression.gaussian(3, 4, 8, 3, 0.2, generator=seeded())
    model = DictionaryAttention.gaussian(8, 3, 8, generator=seeded(1))
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    history = train(model, Exact(task), optimizer, steps=300, generator=seeded(), every=300)
    best = 2 * theory.softmax.DictionaryRisk.of(task.features, 3, 0.2, task.second_moment).infimum
    gaps = [loss - best for loss in history["loss"]]
    assert 0 < gaps[-1] < 0.05 * gaps[0]


@pytest.mark.parametrize("objective", [Wishart(CLEAN, 3), Exact(CLEAN)])
def test_objectives_that_integrate_the_query_out_refuse_an_unmasked_model(objective):
    model = LinearAttention(weights(GradientDescentWeights, d=D), masked=False)
    with pytest.raises(
        ValueError, match="needs a model with masked=True; use the prompts objective"
    ):
        objective.loss(model, objective.sample(seeded()))


@pytest.mark.parametrize("objective", [Wishart, Prompts])
def test_an_empty_batch_is_refused(objective):
    with pytest.raises(ValueError, match="batch must be at least 1, got 0"):
        objective(CLEAN, 0)


def test_prompts_train_on_any_task():
    class Constant:
        d, n = D, 4

        def sample(self, batch, *, generator):
            return random_prompt(batch, n=4, d=D, queries=2)

    objective = Prompts(Constant(), 3)
    loss = objective.loss(model_of(DenseWeights), objective.sample(seeded()))
    assert loss.shape == ()
    assert normal(1).dtype == loss.dtype
