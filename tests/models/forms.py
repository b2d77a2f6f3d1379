"""One model of every weights form, small enough that deep stacks stay tame."""

from innerloop.models import (
    DenseWeights,
    GDPlusPlusWeights,
    GradientDescentWeights,
    ShiftedGradientDescentWeights,
    SingleLayerWeights,
)
from tests.samples import normal


def weights(form, d=4, layers=3, scale=0.3, seed=0):
    """Weights of this form with independent normal entries of standard deviation `scale`."""
    if form is SingleLayerWeights:
        return form(scale * normal(d + 1, seed=seed), scale * normal(d + 1, d, seed=seed + 100))
    side = d + 1 if form is DenseWeights else d
    first = scale * normal(layers, side, side, seed=seed)
    if form is GradientDescentWeights:
        return form(first)
    if form is ShiftedGradientDescentWeights:
        return form(first, scale * normal(layers, d, seed=seed + 100))
    return form(first, scale * normal(layers, side, side, seed=seed + 100))


FORMS = [
    DenseWeights,
    GDPlusPlusWeights,
    GradientDescentWeights,
    ShiftedGradientDescentWeights,
    SingleLayerWeights,
]
SPARSE = [GDPlusPlusWeights, GradientDescentWeights]
