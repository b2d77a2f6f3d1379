"""What every learner is, the simplest one, and its predictions along a prompt."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.prompt import Prompt


@runtime_checkable
class Learner(Protocol):
    """Anything that maps a prompt to predictions of its queries' labels.

    More generally, anything that maps what a task samples to its `answer_shape`, by default that
    of its `targets`.
    """

    def __call__(self, prompt: Any, /) -> Float[Tensor, "batch queries"]: ...


def answers(learner: Learner, prompt: Any) -> Tensor:
    """The learner's predictions; one that returns another shape than the targets is refused.

    Broadcast against the labels, predictions of shape [batch, 1] or [batch] would make a loss of
    every prediction against every label.
    """
    return _in_shape(learner, learner(prompt), prompt)


class LearnerError(ValueError):
    """A learner raised something when it was asked; the message names both."""


def answers_or_reason(learner: Learner, prompt: Any) -> Tensor:
    """The same of a learner that anyone may have written: whatever it raises is a sentence."""
    try:
        predictions = learner(prompt)
    except (MemoryError, OSError):  # of the machine, not of the learner
        raise
    except ValueError as error:
        raise LearnerError(f"{_name(learner)} refuses the prompts: {error}") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise LearnerError(f"{_name(learner)} fails on the prompts with {reason}") from error
    return _in_shape(learner, predictions, prompt)


def _in_shape(learner: Learner, predictions: Any, prompt: Any) -> Tensor:
    expected = list(prompt.answer_shape)
    if _shape(predictions) != expected:
        axes = ", [batch, queries]" if isinstance(prompt, Prompt) else ""
        raise ValueError(
            f"{_name(learner)} must return predictions of the shape {expected} of the targets"
            f"{axes}, got {_shape(predictions)}"
        )
    return predictions


def curve_answers(learner: Learner, prompt: Prompt) -> Float[Tensor, "batch counts"]:
    """The prediction of example k + 1 from the first k, for k = 0 to n; at last of the query.

    A learner with a quicker way has a method `learning_curve` of this kind. Compare with
    `prompt.curve_targets()`.
    """
    own = getattr(learner, "learning_curve", None)
    if own is None:
        return example_by_example(learner, prompt)
    curve, expected = own(prompt), [len(prompt), prompt.n + 1]
    if _shape(curve) != expected:
        raise ValueError(
            f"learning_curve of {_name(learner)} must return the shape {expected}, "
            f"[batch, n + 1], got {_shape(curve)}"
        )
    return curve


def example_by_example(learner: Learner, prompt: Prompt) -> Float[Tensor, "batch counts"]:
    """The curve of a learner without a quicker way: each example is asked for by itself."""
    return torch.cat([answers(learner, prompt.next_example(k)) for k in range(prompt.n + 1)], dim=1)


def dictionary_curve(learner: Learner, prompt: Prompt) -> Float[Tensor, "batch counts"]:
    """The curve of a learner that answers for a whole dictionary at every length.

    The prediction for token k + 1 with the first k labels shown; at last for the last token.
    """
    places = [*range(prompt.n), -1]
    curve = [answers(learner, prompt.prefix(k))[:, i] for k, i in enumerate(places)]
    return torch.stack(curve, dim=1)


def linear_prediction(
    w: Float[Tensor, "batch d"], prompt: Prompt
) -> Float[Tensor, "batch queries"]:
    """<w, x_q> for every query."""
    return (prompt.x_query @ w.unsqueeze(-1)).squeeze(-1)


@dataclass(frozen=True)
class Zero:
    """Always predicts 0: the mean label, and the floor that any learner has to beat.

    As logarithms of probabilities, 0 says that every word is as likely as any other.
    """

    def __call__(self, prompt: Any) -> Float[Tensor, "batch ..."]:
        targets = prompt.targets
        return torch.zeros(prompt.answer_shape, dtype=prompt.dtype, device=targets.device)


def _shape(predictions: object) -> list[int] | str:
    """A tensor's shape; of anything else, what it is."""
    if isinstance(predictions, Tensor):
        return list(predictions.shape)
    return f"a {type(predictions).__name__}"


def _name(learner: object) -> str:
    return getattr(learner, "__name__", type(learner).__name__)
