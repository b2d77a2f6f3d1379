"""Training: one loop for everything that learns by steps, L-BFGS, and what they minimise."""

from innerloop.training.checkpoints import Checkpoint, CheckpointError
from innerloop.training.controlled import ControlledWishart
from innerloop.training.dictionary import DictionaryExact, DictionaryPrompts, two_rates
from innerloop.training.history import History, Metric
from innerloop.training.lbfgs import gauss_newton_coordinates, minimise
from innerloop.training.objectives import Exact, Objective, Prompts, Wishart
from innerloop.training.parallel import Ensemble, Together
from innerloop.training.trainer import clip_norm, cosine, train, warmup

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "ControlledWishart",
    "DictionaryExact",
    "DictionaryPrompts",
    "Ensemble",
    "Exact",
    "History",
    "Metric",
    "Objective",
    "Prompts",
    "Together",
    "Wishart",
    "clip_norm",
    "cosine",
    "gauss_newton_coordinates",
    "minimise",
    "train",
    "two_rates",
    "warmup",
]
