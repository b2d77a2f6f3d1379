"""Any regressor of scikit-learn as a learner."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.learner import Learner
from innerloop.prompt import Prompt


@dataclass(frozen=True)
class Scikit:
    """A fresh estimator, fitted to the examples of every prompt; 0 without examples.

        Scikit(lambda: DecisionTreeRegressor(max_depth=4, random_state=0))

    Prompts are fitted one by one: milliseconds each.
    """

    estimator: Callable[[], Any]
    """Makes an object with `fit(X, y)` and `predict(X)`."""

    def __call__(self, prompt: Prompt) -> Float[Tensor, "batch queries"]:
        if prompt.n == 0:
            return torch.zeros_like(prompt.y_query)
        batch = len(prompt)
        x = prompt.x.expand(batch, -1, -1).cpu().numpy()
        x_query = prompt.x_query.expand(batch, -1, -1).cpu().numpy()
        fitted = (self.estimator().fit(*e) for e in zip(x, prompt.y.cpu().numpy(), strict=True))
        rows = [e.predict(queries) for e, queries in zip(fitted, x_query, strict=True)]
        return torch.stack([torch.as_tensor(row) for row in rows]).to(prompt.y)


@runtime_checkable
class Estimator(Protocol):
    """A regressor of scikit-learn, or what is called like one."""

    def fit(self, X: Any, y: Any, /) -> Any: ...

    def predict(self, X: Any, /) -> Any: ...


def as_learner(learner: Learner | Estimator) -> Learner:
    """An estimator as a learner, a copy of it for every prompt; what is called with prompts, as it
    is."""
    if isinstance(learner, Learner):
        return learner
    return Scikit(partial(copy.deepcopy, learner))
