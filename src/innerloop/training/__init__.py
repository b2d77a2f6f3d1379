"""Training: one loop for everything that learns by steps, L-BFGS, and what they minimise."""

from innerloop.interrupts import Terminated
from innerloop.training.acceleration import MixedPrecision, compile_layers
from innerloop.training.checkpoints import Checkpoint, load_weights, read_checkpoint, versions_now
from innerloop.training.controlled import ControlledWishart
from innerloop.training.history import History, Metric
from innerloop.training.lbfgs import gauss_newton_coordinates, minimise
from innerloop.training.muon import MuonAdam
from innerloop.training.objectives import Exact, Objective, Prompts, Wishart
from innerloop.training.parallel import Ensemble, Together
from innerloop.training.schedules import Schedule, cosine, warmup, warmup_stable_decay
from innerloop.training.sequence_objectives import EveryPosition, LoopWindow
from innerloop.training.trainer import Clip, Curriculum, clip_norm, train
from innerloop.training.weights import CheckpointError, read_weights, save_weights

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Clip",
    "ControlledWishart",
    "Curriculum",
    "Ensemble",
    "EveryPosition",
    "Exact",
    "History",
    "LoopWindow",
    "Metric",
    "MixedPrecision",
    "MuonAdam",
    "Objective",
    "Prompts",
    "Schedule",
    "Terminated",
    "Together",
    "Wishart",
    "clip_norm",
    "compile_layers",
    "cosine",
    "gauss_newton_coordinates",
    "load_weights",
    "minimise",
    "read_checkpoint",
    "read_weights",
    "save_weights",
    "train",
    "versions_now",
    "warmup",
    "warmup_stable_decay",
]
