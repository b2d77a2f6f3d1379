import pytest
import torch

from innerloop.models import (
    DenseWeights,
    GDPlusPlusWeights,
    GradientDescentWeights,
    LinearAttention,
    SingleLayerWeights,
)
from innerloop.tasks import LinearRegression
from innerloop.training import Exact, Prompts, Wishart
from tests.models.forms import weights
from tests.samples import assert_means, covariance, normal, random_prompt, seeded

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
        model_of(GradientDescentWeights, layers=2),
        model_of(GradientDescentWeights, layers=1, loops=3),
        model_of(GDPlusPlusWeights, layers=1),
        model_of(SingleLayerWeights),
    ],
    ids=["two layers", "three loops", "one transformed layer", "single layer"],
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
    expected = sum((model(batch)[i] - batch.y_query[i]) ** 2 for i in range(7)) / 7
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


@pytest.mark.parametrize("form", [DenseWeights, SingleLayerWeights], ids=lambda form: form.__name__)
def test_the_exact_objective_refuses_what_it_has_no_closed_form_for(form):
    model = model_of(form, loops=2)
    sentence = f"knows no closed form for {form.__name__}; use the wishart or the prompts objective"
    with pytest.raises(ValueError, match=sentence):
        Exact(CLEAN).loss(model)


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
        def sample(self, batch, *, generator):
            return random_prompt(batch, n=4, d=D)

    objective = Prompts(Constant(), 3)
    loss = objective.loss(model_of(DenseWeights), objective.sample(seeded()))
    assert loss.shape == ()
    assert normal(1).dtype == loss.dtype
