"""How the looped transformers of the paper's experiments are trained here.

*Symmetric A* (the lines of the figures): L-BFGS over symmetric A and free u, on fresh samples of
`ControlledWishart`, whose noise cannot move the minimum: the proof in `theory.linear.looped` holds
for every sample, and the loss on the ray is exact.

*Free A on fresh prompts*, by Adam: as far as one can tell, what the paper did. Rare prompts carry
the loss, a batch mostly misses them, and with many loops Adam ends above the best step. And with n
several times d a skew-symmetric part of A lowers the loss.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.integrate import cumulative_simpson
from torch import Tensor, nn
from torch.autograd.functional import hessian

from innerloop import theory, training
from innerloop.analysis import distance_to_identity
from innerloop.models import GradientDescentWeights, LinearAttention, ShiftedGradientDescentWeights
from innerloop.papers import Scale
from innerloop.papers.common import DTYPE, generator, identity, normal, symmetric
from innerloop.tasks import LinearRegression

INITIAL_STD = 0.05
BATCH = 20
"""Wishart matrices per round, each with its d cyclic shifts; see the remark of Figure 2."""
EXACT_LAYERS = 3
"""Untied layers of full matrices whose exact loss is quick to write down."""
Row = dict[str, float | int | str]


def preconditioner_of(model: LinearAttention) -> Float[Tensor, "d d"]:
    return model.weights.get_parameter("preconditioners").detach()[0]


METRICS: dict[str, training.Metric] = {
    "step size": lambda model: preconditioner_of(model).trace() / model.d,
    "distance": lambda model: (preconditioner_of(model) - identity(model.d)).norm(),
    "dist": lambda model: distance_to_identity(preconditioner_of(model)),
    "shift": lambda model: model.weights.shifts.detach().norm(),
}


@dataclass(frozen=True)
class Trained:
    seed: int
    task: LinearRegression
    model: LinearAttention
    history: training.History

    @property
    def step(self) -> float:
        """tr(A) / d."""
        return preconditioner_of(self.model).trace().item() / self.task.d

    @property
    def best(self) -> theory.linear.RayOptimum:
        return theory.linear.looped_optimum(self.model.loops, self.task.n, self.task.d)

    @property
    def ray_loss(self) -> float:
        """The exact loss of tr(A)/d times the identity (and of the shift)."""
        return training.ControlledWishart(self.task, 1).ray_risk(self.model).item()

    def row(self, kind: str) -> Row:
        """Where it ended; the loss is exact but for the part off the ray."""
        own = {"training": kind, "n": self.task.n, "loops": self.model.loops, "seed": self.seed}
        last = {key: self.history[key][-1] for key in (*METRICS, "loss")}
        return {**own, **last, "ray loss": self.ray_loss}


@cache
def looped_transformer(d: int, n: int, loops: int, seed: int) -> Trained:
    """Symmetric A and free u, by L-BFGS on variance-reduced samples, at most three of them."""
    source, task = generator(seed), LinearRegression.isotropic(d, n)
    model, objective = _looped(d, loops, source), training.ControlledWishart(task, BATCH)
    history = training.History()
    for _ in range(3):
        loss = partial(objective.loss, model, objective.sample(source))
        part = _minimised(model, loss, steps=60, metrics=METRICS)
        first, last = part["loss"][0], part["loss"][-1]
        if len(history):
            history.extend(part)
        else:
            history = part
        if first - last < 1e-6 * last:  # a fresh sample changes nothing
            break
    return Trained(seed, task, model, history)


@cache
def prompt_trained(d: int, n: int, loops: int, seed: int, scale: Scale) -> Trained:
    """Free A and u, by Adam with clipping, on fresh prompts."""
    quick, paper = (250, 200, 0.01), (4000, 3000, 0.001)
    batch, steps, rate = scale.pick(smoke=(50, 100, 0.01), quick=quick, paper=paper)
    source, task = generator(seed), LinearRegression.isotropic(d, n)
    model = _looped(d, loops, source)
    history = training.train(
        model,
        training.Prompts(task, batch),
        torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.9)),
        steps=steps,
        generator=source,
        clip=training.clip_norm(1.0),
        metrics=METRICS,
        every=max(steps // 60, 1),
    )
    return Trained(seed, task, model, history)


@cache
def exactly_trained(d: int, n: int, loops: int, seed: int, *, symmetrised: bool = False) -> Trained:
    """A and u by L-BFGS on the exact loss, which is a sum over words in A; minutes beyond L = 3."""
    task, model = LinearRegression.isotropic(d, n), _looped(d, loops, generator(seed))
    loss = partial(training.Exact(task).loss, model)
    history = _minimised(model, loss, symmetrised=symmetrised, steps=150, metrics=METRICS)
    return Trained(seed, task, model, history)


@cache
def untied_transformer(d: int, n: int, layers: int, seed: int) -> training.History:
    """L layers on the exact loss: symmetric matrices up to `EXACT_LAYERS`, A_l = a_l I beyond."""
    if layers > EXACT_LAYERS:
        steps = nn.Parameter(INITIAL_STD * normal(seed, layers))
        return training.minimise(
            nn.ParameterList([steps]),
            lambda: theory.linear.ray_risk(steps, n, d),
            steps=2000,
            gradient_tolerance=0.0,
            loss_tolerance=1e-9,
        )
    weights = GradientDescentWeights.gaussian(d, layers, INITIAL_STD, generator=generator(seed))
    model, exact = LinearAttention(weights), training.Exact(LinearRegression.isotropic(d, n))
    return _minimised(model, partial(exact.loss, model), steps=400)


def _looped(d: int, loops: int, source: torch.Generator) -> LinearAttention:
    weights = ShiftedGradientDescentWeights.gaussian(d, 1, INITIAL_STD, generator=source)
    return LinearAttention(weights, loops)


def _minimised(
    model: LinearAttention, loss: Callable[[], Tensor], *, symmetrised: bool = True, **options: Any
) -> training.History:
    """By L-BFGS over symmetric or all A."""
    if symmetrised:
        options["coordinates"] = symmetric_coordinates(model)
        a = model.weights.get_parameter("preconditioners")
        a.data = symmetric(a.data)
    return training.minimise(model, loss, loss_tolerance=1e-9, **options)


def symmetric_coordinates(model: nn.Module) -> Float[Tensor, "p p"]:
    """The projection that makes preconditioners symmetric and leaves all else as it is."""
    blocks = []
    for name, parameter in model.named_parameters():
        basis = identity(parameter.numel()).view(-1, *parameter.shape)
        blocks.append((symmetric(basis) if name.endswith("preconditioners") else basis).flatten(1))
    return torch.block_diag(*blocks)


def skew_curvature(d: int, n: int, loops: int) -> float:
    """d^2/de^2 of the exact loss at a* I + e K, K skew-symmetric of rank two with |K|_F^2 = 2."""
    middle = theory.linear.looped_optimum(loops, n, d).steps[0] * identity(d)
    skew = torch.zeros(d, d, dtype=DTYPE)
    skew[0, 1], skew[1, 0] = 1, -1
    return hessian(
        lambda e: theory.linear.tied_risk(middle + e * skew, identity(d), n, loops=loops),
        torch.zeros((), dtype=DTYPE),
    ).item()


def ray_flow(loops: int, n: int, d: int) -> tuple[Float[Tensor, " t"], Float[Tensor, " t"]]:
    """Times and step sizes, up to 0.99 a*, of the gradient flow dA/dt = -grad L(A) from A = 0.

    It stays on the ray A = a I, where da/dt = (2 L / d) E tr x (1 - a x)^{2L-1} =: v(a), x = W/n,
    so that a is reached at the time int_0^a 1 / v.
    """
    spectrum = theory.linear.ray_spectrum(loops, n, d)
    best = theory.linear.looped_optimum(loops, n, d).steps[0].item()
    a = torch.linspace(0, 0.99 * best, 4001, dtype=DTYPE)
    left = 1 - a[:, None] * spectrum.nodes
    speed = 2 * loops / d * spectrum(spectrum.nodes * left ** (2 * loops - 1))
    times = cumulative_simpson(1 / speed.numpy(), x=a.numpy(), initial=0.0)
    return torch.from_numpy(np.asarray(times)), a
