import contextlib

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
from innerloop.training import (
    Checkpoint,
    Ensemble,
    Exact,
    Prompts,
    Together,
    Wishart,
    clip_norm,
    train,
)
from tests.models.forms import weights
from tests.samples import covariance, seeded

TASK = LinearRegression(covariance(2), 6, noise_std=0.3)
MEMBERS = 3


def models(form=GradientDescentWeights, layers=2, loops=1):
    return [
        LinearAttention(weights(form, d=2, layers=layers, scale=0.2, seed=s), loops)
        for s in range(MEMBERS)
    ]


class Recorded:
    """Hands out batches that were drawn before: members on their own see what they saw together."""

    def __init__(self, objective, batches):
        self.objective = objective
        self.batches = list(batches)

    def sample(self, generator):
        return self.batches.pop(0)

    def loss(self, model, batch):
        return self.objective.loss(model, batch)


def run(model, objective, steps, clip, adam=True):
    kind = torch.optim.Adam if adam else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=0.05)
    return train(model, objective, optimizer, steps=steps, generator=seeded(), clip=clip, every=2)


def assert_equal_weights(model, other):
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


CASES = [
    (Exact(TASK), GradientDescentWeights, 2, 1),
    (Exact(TASK), GradientDescentWeights, 1, 3),
    (Exact(TASK), SingleLayerWeights, 1, 1),
    (Prompts(TASK, 8), GradientDescentWeights, 2, 1),
    (Prompts(TASK, 8), GDPlusPlusWeights, 2, 1),
    (Prompts(TASK, 8), DenseWeights, 2, 1),
    (Prompts(TASK, 8), SingleLayerWeights, 1, 1),
    (Wishart(TASK, 8), GradientDescentWeights, 2, 1),
    (Wishart(TASK, 8), GDPlusPlusWeights, 2, 1),
    (Wishart(TASK, 8), DenseWeights, 2, 1),
    pytest.param(Exact(TASK), GDPlusPlusWeights, 2, 1, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("adam", [True, False], ids=["adam", "sgd"])
@pytest.mark.parametrize(("objective", "form", "layers", "loops"), CASES)
def test_members_trained_together_equal_members_trained_alone(objective, form, layers, loops, adam):
    steps, generator = 6, seeded(3)
    draws = [[objective.sample(generator) for _ in range(MEMBERS)] for _ in range(steps + 1)]
    together = Together(Recorded(objective, [batch for row in draws for batch in row]), MEMBERS)
    ensemble = Ensemble(models(form, layers, loops))
    history = run(ensemble, together, steps, clip_norm(0.3, per_member=True), adam)
    for i, model in enumerate(models(form, layers, loops)):
        alone = run(
            model, Recorded(objective, [row[i] for row in draws]), steps, clip_norm(0.3), adam
        )
        assert_equal_weights(ensemble.member(i), model)
        for row, loss in zip(history["loss"], alone["loss"], strict=True):
            assert row[i] == pytest.approx(loss, rel=1e-11)


def test_clipping_all_members_by_one_norm_would_couple_them():
    objective, steps = Exact(TASK), 4
    coupled, apart = Ensemble(models()), Ensemble(models())
    run(coupled, Together(objective, MEMBERS), steps, clip_norm(0.3), adam=False)
    run(apart, Together(objective, MEMBERS), steps, clip_norm(0.3, per_member=True), adam=False)
    assert not torch.allclose(coupled.stacked[0], apart.stacked[0], rtol=1e-3)


def test_the_exact_objective_maps_over_members_with_transforms():
    made = models(GDPlusPlusWeights, layers=1)
    losses = Ensemble(made).losses(Exact(TASK), None)
    for loss, model in zip(losses, made, strict=True):
        torch.testing.assert_close(loss, Exact(TASK).loss(model), rtol=1e-12, atol=0)


@pytest.mark.parametrize("members", [2, 4])
def test_members_do_not_influence_each_other(members):
    objective = Prompts(TASK, 8)
    batch = Together(objective, members).sample(seeded(1))
    made = [LinearAttention(weights(GradientDescentWeights, d=2, seed=s)) for s in range(members)]
    ensemble = Ensemble(made)
    ensemble.losses(objective, batch)[0].backward()
    gradient = ensemble.stacked[0].grad
    assert (gradient[0] != 0).any()
    assert (gradient[1:] == 0).all()


def test_each_member_sees_its_own_batch():
    batch = Together(Prompts(TASK, 8), MEMBERS).sample(seeded(1))
    assert batch.x.shape == (MEMBERS, 8, 6, 2)
    generator = seeded(1)
    for i in range(MEMBERS):
        assert torch.equal(batch.x[i], Prompts(TASK, 8).sample(generator).x)


def test_the_exact_objective_has_no_batches():
    assert Together(Exact(TASK), MEMBERS).sample(seeded()) is None


def test_members_are_the_models_that_were_put_in():
    made = models()
    ensemble = Ensemble(made)
    assert len(ensemble) == MEMBERS
    for member, model in zip(ensemble.members(), made, strict=True):
        assert_equal_weights(member, model)
        assert member.loops == model.loops


def test_the_ensemble_and_its_models_share_nothing():
    made = models()
    ensemble = Ensemble(made)
    before = made[0].weights.preconditioners.detach().clone()
    with torch.no_grad():
        ensemble.stacked[0].zero_()
        ensemble.member(1).weights.preconditioners.fill_(9.0)
    assert torch.equal(made[0].weights.preconditioners, before)
    assert (ensemble.stacked[0] == 0).all()


def test_an_ensemble_resumes_from_a_checkpoint(tmp_path):
    def train_some(steps, checkpoint=None):
        ensemble = Ensemble(models())
        optimizer = torch.optim.Adam(ensemble.parameters(), lr=0.05)
        objective = Together(Prompts(TASK, 8), MEMBERS)
        with contextlib.suppress(ZeroDivisionError):
            train(
                ensemble,
                objective,
                optimizer,
                steps=8,
                generator=seeded(2),
                checkpoint=checkpoint,
                watch=lambda step, loss: 1 / (steps - step),  # fails once these steps are done
            )
        return ensemble

    whole = train_some(9)
    checkpoint = Checkpoint(tmp_path / "run", every=3)
    train_some(5, checkpoint)
    resumed = train_some(9, checkpoint)
    assert torch.equal(resumed.stacked[0], whole.stacked[0])


def test_no_models_are_refused():
    with pytest.raises(ValueError, match="models must hold at least one model, got none"):
        Ensemble([])


@pytest.mark.parametrize(
    "other",
    [models(GDPlusPlusWeights)[0], models(layers=3)[0]],
    ids=["another form", "another shape"],
)
def test_models_with_different_parameters_are_refused(other):
    with pytest.raises(ValueError, match="models of an ensemble must"):
        Ensemble([models()[0], other])


def test_models_with_different_settings_are_refused():
    with pytest.raises(ValueError, match="loops"):
        Ensemble([*models(loops=1), *models(loops=2)])


class Dropping(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(32))

    def forward(self, _):
        return torch.nn.functional.dropout(self.scale, training=self.training)


class Total:
    def sample(self, generator):
        return None

    def loss(self, model, batch):
        return model(batch).sum()


def test_members_have_dropouts_of_their_own_and_none_in_eval_mode():
    ensemble = Ensemble([Dropping() for _ in range(MEMBERS)])
    ensemble.train()
    ensemble.losses(Total(), None).sum().backward()
    masks = ensemble.stacked[0].grad
    assert (masks == 0).any()
    assert len({tuple(row) for row in masks.tolist()}) == MEMBERS
    ensemble.eval()
    assert ensemble.losses(Total(), None).tolist() == [32.0] * MEMBERS
