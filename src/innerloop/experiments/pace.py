"""How long a step of training takes, measured now."""

from __future__ import annotations

import time
from statistics import median

from innerloop.experiments.catalogue import OBJECTIVES, OPTIMIZERS
from innerloop.experiments.experiment import Experiment


def step_seconds(experiment: Experiment, steps: int) -> float:
    """Of the processor, for one step of this training, its curriculum aside: the median of several.

    Not of the clock: on a machine that others use as well, that would be theirs too.
    """
    network, task, generator = experiment.build()
    objective = experiment.objective.build(OBJECTIVES, task)
    optimizer = experiment.optimizer.build(OPTIMIZERS, network)
    taken = []
    for _ in range(steps):
        started = time.process_time()
        objective.loss(network, objective.sample(generator)).backward()
        optimizer.step()
        optimizer.zero_grad()
        taken.append(time.process_time() - started)
    return median(taken)
