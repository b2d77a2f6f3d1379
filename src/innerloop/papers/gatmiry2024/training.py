"""How the looped transformers of the paper's experiments are trained here.

The paper names neither the optimizer nor the batch, the steps, or (Figures 2 to 4) n. Two ways:

*Symmetric A* (the lines of the figures). L-BFGS over symmetric A and free u, on fresh samples of
`ControlledWishart`. Its noise cannot move the minimum: on every single sample, whatever its size,
a symmetric A has at least the loss of (tr A / d) I (the proof in `theory.linear.looped` holds for
the sample as well: the trace formula is convex in symmetric A, and with all cyclic shifts its
gradient on the ray points along the ray), and the loss on the ray is exact.

*Free A on fresh prompts*, by Adam: as far as one can tell, what the paper did. The loss has degree
2 L in the sample covariance, so rare prompts carry it, a batch mostly misses them, and Adam, which
divides by the size of recent gradients, hardly heeds the few it meets: at many loops it ends above
the best step.

Free A is more than a nuisance. With two loops or more, and n several times d, the best multiple of
the identity is a saddle: adding a skew-symmetric part lowers the loss. `skew_curvature` measures it
and `exactly_trained` trains A on the exact loss.

Untied models with two or three layers are trained over symmetric matrices on the exact loss. That
is out of reach for more layers; there A_l = a_l I, and the L numbers are trained on the exact loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
from jaxtyping import Float
from scipy.integrate import cumulative_simpson
from torch import Tensor, nn

from innerloop import theory
from innerloop.analysis import distance_to_identity
from innerloop.models import (
    GradientDescentWeights,
    LinearAttention,
    ShiftedGradientDescentWeights,
)
from innerloop.papers.common import DTYPE, generator
from innerloop.papers.verdict import Scale
from innerloop.tasks import LinearRegression
from innerloop.training import (
    ControlledWishart,
    Exact,
    History,
    Metric,
    Prompts,
    clip_norm,
    minimise,
    train,
)

INITIAL_STD = 0.05
BATCH = 20
"""Wishart matrices per round, each used with its d cyclic shifts.

Chosen by looking: with 5, ten loops at n = 100 end with a part off the ray that adds up to 1e-3 of
the loss, with 20 up to 2e-4. All other settings converge with either."""
ROUNDS, ITERATIONS = 3, 60
"""At most; fewer if a fresh sample changes nothing, or an iteration nothing."""
EXACT_LAYERS = 3
"""Untied layers of full matrices whose exact loss is quick to write down."""


Row = dict[str, float | int | str]


@dataclass(frozen=True)
class Trained:
    """A looped transformer at the end of training, and how it got there."""

    seed: int
    task: LinearRegression
    model: LinearAttention
    history: History

    @property
    def preconditioner(self) -> Float[Tensor, "d d"]:
        return self.model.weights.get_parameter("preconditioners").detach()[0]

    @property
    def step(self) -> float:
        """tr(A) / d: the size of the step that the model takes, if A is a multiple of I."""
        return self.preconditioner.trace().item() / self.task.d

    @property
    def best(self) -> theory.linear.RayOptimum:
        return theory.linear.looped_optimum(self.model.loops, self.task.n, self.task.d)

    @property
    def best_step(self) -> float:
        return self.best.steps[0].item()

    @property
    def loss(self) -> float:
        """The last one of training: exact but for the part of A off the ray."""
        return float(self.history["loss"][-1])

    @property
    def ray_loss(self) -> float:
        """The exact loss of tr(A)/d times the identity (and of the shift)."""
        return ControlledWishart(self.task, 1).ray_risk(self.model).item()

    def row(self, kind: str) -> Row:
        """Where it ended, as a row of a table."""
        last = {key: self.history[key][-1] for key in METRICS}
        return {
            "training": kind,
            "n": self.task.n,
            "loops": self.model.loops,
            "seed": self.seed,
            **last,
            "loss": self.loss,
            "ray loss": self.ray_loss,
        }


def _last(model: LinearAttention) -> Tensor:
    return model.weights.get_parameter("preconditioners").detach()[0]


def _distance_from_identity(model: LinearAttention) -> Tensor:
    return torch.linalg.matrix_norm(_last(model) - torch.eye(model.d, dtype=DTYPE))


METRICS: dict[str, Metric] = {
    "step size": lambda model: _last(model).trace() / model.d,
    "distance": _distance_from_identity,
    "dist": lambda model: distance_to_identity(_last(model)),
    "shift": lambda model: model.weights.shifts.detach().norm(),
}


@cache
def looped_transformer(d: int, n: int, loops: int, seed: int) -> Trained:
    """Symmetric A and free u, from Gaussian entries, by L-BFGS on variance-reduced samples."""
    source, task = generator(seed), LinearRegression.isotropic(d, n)
    model = _looped(d, loops, source)
    symmetrise(model)
    objective, history = ControlledWishart(task, BATCH), History()
    for _ in range(ROUNDS):
        part = minimise(
            model,
            partial(objective.loss, model, objective.sample(source)),
            steps=ITERATIONS,
            loss_tolerance=1e-9,
            coordinates=symmetric_coordinates(model),
            metrics=METRICS,
        )
        if len(history):
            history.extend(part)
        else:
            history = part
        first, last = part["loss"][0], part["loss"][-1]
        if first - last < 1e-6 * last:
            break
    return Trained(seed, task, model, history)


@cache
def prompt_trained(d: int, n: int, loops: int, seed: int, scale: Scale) -> Trained:
    """Free A and u, by Adam with clipping, on fresh prompts."""
    batch, steps, rate = scale.pick(
        smoke=(50, 100, 0.01), quick=(250, 200, 0.01), paper=(4000, 3000, 0.001)
    )
    source, task = generator(seed), LinearRegression.isotropic(d, n)
    model = _looped(d, loops, source)
    history = train(
        model,
        Prompts(task, batch),
        torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.9)),
        steps=steps,
        generator=source,
        clip=clip_norm(1.0),
        metrics=METRICS,
        every=max(steps // 60, 1),
    )
    return Trained(seed, task, model, history)


@cache
def exactly_trained(d: int, n: int, loops: int, seed: int, *, symmetric: bool = False) -> Trained:
    """A, free or symmetric, and u by L-BFGS on the exact loss; more than three loops take minutes.

    The exact loss is a sum over words in A and knows nothing of the multiples of I.
    """
    task = LinearRegression.isotropic(d, n)
    model = _looped(d, loops, generator(seed))
    if symmetric:
        symmetrise(model)
    history = minimise(
        model,
        partial(Exact(task).loss, model),
        steps=150,
        loss_tolerance=1e-9,
        coordinates=symmetric_coordinates(model) if symmetric else None,
        metrics=METRICS,
    )
    return Trained(seed, task, model, history)


def skew_curvature(d: int, n: int, loops: int) -> float:
    """d^2/de^2 of the exact loss at a* I + e K, for K skew-symmetric with |K|_F^2 = 2.

    By the rotational symmetry it is the same for every K of rank two.
    """
    best = theory.linear.looped_optimum(loops, n, d).steps[0]
    identity = torch.eye(d, dtype=DTYPE)
    skew = torch.zeros_like(identity)
    skew[0, 1], skew[1, 0] = 1, -1
    e = torch.zeros((), dtype=DTYPE, requires_grad=True)
    loss = theory.linear.tied_risk(best * identity + e * skew, identity, n, loops=loops)
    (slope,) = torch.autograd.grad(loss, e, create_graph=True)
    return float(torch.autograd.grad(slope, e)[0])


def _looped(d: int, loops: int, source: torch.Generator) -> LinearAttention:
    weights = ShiftedGradientDescentWeights.gaussian(d, 1, INITIAL_STD, generator=source)
    return LinearAttention(weights, loops)


@torch.no_grad()
def symmetrise(model: LinearAttention) -> None:
    a = model.weights.get_parameter("preconditioners")
    a.copy_((a + a.mT) / 2)


def symmetric_coordinates(model: nn.Module) -> Float[Tensor, "p p"]:
    """The projection that makes preconditioners symmetric and leaves all else as it is."""
    blocks = []
    for name, parameter in model.named_parameters():
        basis = torch.eye(parameter.numel(), dtype=DTYPE).view(-1, *parameter.shape)
        if name.endswith("preconditioners"):
            basis = (basis + basis.mT) / 2
        blocks.append(basis.flatten(1))
    return torch.block_diag(*blocks)


class RaySteps(nn.Module):
    """L layers with A_l = a_l I."""

    def __init__(self, steps: Float[Tensor, " layers"]) -> None:
        super().__init__()
        self.steps = nn.Parameter(steps)


@cache
def untied_transformer(d: int, n: int, layers: int, seed: int) -> History:
    """The training of L layers with weights of their own; full matrices up to `EXACT_LAYERS`."""
    source = generator(seed)
    if layers > EXACT_LAYERS:
        normal = torch.randn(layers, generator=source, dtype=DTYPE)
        ray = RaySteps(INITIAL_STD * normal)
        return minimise(
            ray,
            lambda: theory.linear.ray_risk(ray.steps, n, d),
            steps=2000,
            gradient_tolerance=0.0,
            loss_tolerance=1e-9,
        )
    task = LinearRegression.isotropic(d, n)
    weights = GradientDescentWeights.gaussian(d, layers, INITIAL_STD, generator=source)
    model = LinearAttention(weights)
    symmetrise(model)
    return minimise(
        model,
        partial(Exact(task).loss, model),
        steps=400,
        loss_tolerance=1e-9,
        coordinates=symmetric_coordinates(model),
    )


def ray_flow(
    loops: int, n: int, d: int, *, points: int = 4001
) -> tuple[Float[Tensor, " points"], Float[Tensor, " points"]]:
    """Times and step sizes of the gradient flow dA/dt = -grad L(A) from A = 0, without sampling.

    The flow stays on the ray A = a I, where da/dt = (2 L / d) E tr x (1 - a x)^{2L-1} =: v(a) with
    x = W/n, so that a is reached at the time int_0^a 1 / v. Step sizes end at 0.99 a*.
    """
    spectrum = theory.linear.ray_spectrum(loops, n, d)
    best = theory.linear.looped_optimum(loops, n, d).steps[0].item()
    a = torch.linspace(0, 0.99 * best, points, dtype=DTYPE)
    left = 1 - a[:, None] * spectrum.nodes
    speed = 2 * loops / d * spectrum(spectrum.nodes * left ** (2 * loops - 1))
    times = cumulative_simpson(1 / speed.numpy(), x=a.numpy(), initial=0.0)
    return torch.from_numpy(np.asarray(times)), a
