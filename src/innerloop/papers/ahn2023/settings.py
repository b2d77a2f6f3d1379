"""The settings that several claims and figures of the paper share."""

from innerloop.papers.common import rotated
from innerloop.tasks import LinearRegression

# Sections 5.3 and 6.1: Sigma = U^T D^2 U with these D, and a fresh rotation U for every seed.
D = 5
DISTORTION = (1.0, 1.0, 0.5, 0.25, 1.0)
SPARSE_N = 20
TRANSFORMED_N = 10
LAYERS = 3


def experiment(n: int, seed: int) -> LinearRegression:
    """The task of the paper's experiments: covariance U^T D^2 U, prior its inverse."""
    return LinearRegression.with_inverse_prior(rotated([s**2 for s in DISTORTION], seed), n)
