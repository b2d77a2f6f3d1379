"""How alike two learners are, in numbers that mean the same for all of them.

f is the learner's prediction, g the candidate's, y the label (of the query, without noise where the
task has it so); e = f - y and c = g - y are their errors. Means E are over prompts.

*Squared prediction difference*, D = E (f - g)^2: what is minimised when a candidate is fitted, and
what candidates are ranked by (the `prediction_distance` of `innerloop evaluate` is its root). Its
limit: good learners all predict nearly y, so D is small for every pair of them.

*Share of the error*, the concordance of the two errors about zero (after Lin 1989):

    1 - D / (E e^2 + E c^2)  =  2 E[e c] / (E e^2 + E c^2)

1 for the same predictions, 0 for errors that have nothing to do with each other, however small both
are, negative for opposite ones; 2 r / (r^2 + 1) for an error of the same shape and r times the
size. Akyurek et al. (2022) compare predictions, Fu et al. (2023) the cosine of the errors, which is
blind to their size. Its limit: a learner that has learned nothing shares its error with
everything that has learned nothing, since e = c = -y.

*Share of the prediction*, the same about zero in place of y: 1 - D / (E f^2 + E g^2). It is what
the share of the error cannot see: 0 for a prediction that has nothing to do with the candidate's,
and for the candidate that predicts 0. Its limit is that of D.

Where neither errs, to rounding, there is no error to share, and the share is NaN.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

Measure = Callable[[Tensor], Tensor]
"""From the means of `squares` along the last axis to a number for each row."""
DIFFERENCE, ERROR, OTHER_ERROR, PREDICTION, OTHER_PREDICTION = range(5)
"""The columns of `squares`."""


def squares(
    f: Float[Tensor, "prompts *targets"],
    g: Float[Tensor, "prompts *targets"],
    y: Float[Tensor, "prompts *targets"],
) -> Float[Tensor, "prompts five"]:
    """(f - g)^2, e^2, c^2, f^2 and g^2 of every prompt, averaged over its targets."""
    columns = (f - g, f - y, g - y, f, g)
    return torch.stack([column.square().flatten(1).mean(1) for column in columns], dim=1)


def error_share(means: Float[Tensor, "*resamples five"]) -> Float[Tensor, "*resamples"]:
    """From the means of `squares`."""
    scale = means[..., ERROR] + means[..., OTHER_ERROR]
    predictions = means[..., PREDICTION] + means[..., OTHER_PREDICTION]
    rounding = torch.finfo(means.dtype).eps * predictions
    return torch.where(scale > rounding, 1 - means[..., DIFFERENCE] / scale, torch.nan)


def prediction_share(means: Float[Tensor, "*resamples five"]) -> Float[Tensor, "*resamples"]:
    """From the means of `squares`; 1 where both predict 0."""
    scale = means[..., PREDICTION] + means[..., OTHER_PREDICTION]
    smallest = torch.finfo(means.dtype).tiny
    return 1 - means[..., DIFFERENCE] / scale.clamp_min(smallest)


def distance(means: Float[Tensor, "*resamples five"]) -> Float[Tensor, "*resamples"]:
    """The root mean square difference of predictions."""
    return means[..., DIFFERENCE].sqrt()


def relative_distance(means: Float[Tensor, "*resamples five"]) -> Float[Tensor, "*resamples"]:
    """The same in units of the learner's predictions; of the candidate's, if those are 0."""
    smallest = torch.finfo(means.dtype).tiny
    own, other = means[..., PREDICTION], means[..., OTHER_PREDICTION]
    return (means[..., DIFFERENCE] / torch.where(own > 0, own, other).clamp_min(smallest)).sqrt()
