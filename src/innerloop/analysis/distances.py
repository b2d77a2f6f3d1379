"""How far two things are apart: a matrix from the identity, a learner from another."""

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms import Learner, answers
from innerloop.tasks import Task


def distance_to_identity(matrix: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch"]:
    """min_a |M - a I|_F / |M|_F, reached at a = tr M / d (Ahn 2023, section 5.3).

    0 for a multiple of the identity (also for 0), at most 1.
    """
    d = matrix.shape[-1]
    mean = matrix.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    rest = matrix - mean * torch.eye(d).to(matrix)
    norm = torch.linalg.matrix_norm(matrix).clamp_min(torch.finfo(matrix.dtype).tiny)
    return torch.linalg.matrix_norm(rest) / norm


@torch.no_grad()
def prediction_distance(
    learner: Learner, other: Learner, task: Task, *, batch: int, generator: torch.Generator
) -> float:
    """Root mean square of the difference of two learners' predictions, on the same prompts."""
    prompt = task.sample(batch, generator=generator)
    return (answers(learner, prompt) - answers(other, prompt)).square().mean().sqrt().item()
