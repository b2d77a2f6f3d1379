"""Tasks: distributions over prompts."""

from innerloop.tasks.autoregression import Autoregression
from innerloop.tasks.chain_of_thought import ChainOfThought
from innerloop.tasks.covariates import (
    Covariates,
    Exponential,
    FirstCoordinates,
    GaussianCovariates,
    ScaledCovariates,
)
from innerloop.tasks.dictionary import (
    Coefficients,
    DictionaryRegression,
    GaussianCoefficients,
    SphericalCoefficients,
    TabulatedCoefficients,
)
from innerloop.tasks.functions import (
    Functions,
    LinearFunctions,
    PooledLinearFunctions,
    ReluNetworkFunctions,
    RepresentedFunctions,
    SparseLinearFunctions,
    TransformedFunctions,
    TreeFunctions,
)
from innerloop.tasks.linear import LinearRegression, gaussian_linear
from innerloop.tasks.moving import moved
from innerloop.tasks.queries import (
    ContextQueries,
    FreshQueries,
    OrthogonalQueries,
    OtherQueries,
    Queries,
)
from innerloop.tasks.regression import Regression, law_of
from innerloop.tasks.representation import LeakyNetwork
from innerloop.tasks.shifts import (
    narrowed,
    with_covariance,
    with_noise,
    with_orthogonal_query,
    with_query_covariance,
    with_query_in_context,
    with_random_covariance,
    with_response,
    with_rotated_covariates,
    with_scaled_covariates,
    with_scaled_weights,
)
from innerloop.tasks.task import NoClosedForm, Task
from innerloop.tasks.translation import Translation

__all__ = [
    "Autoregression",
    "ChainOfThought",
    "Coefficients",
    "ContextQueries",
    "Covariates",
    "DictionaryRegression",
    "Exponential",
    "FirstCoordinates",
    "FreshQueries",
    "Functions",
    "GaussianCoefficients",
    "GaussianCovariates",
    "LeakyNetwork",
    "LinearFunctions",
    "LinearRegression",
    "NoClosedForm",
    "OrthogonalQueries",
    "OtherQueries",
    "PooledLinearFunctions",
    "Queries",
    "Regression",
    "ReluNetworkFunctions",
    "RepresentedFunctions",
    "ScaledCovariates",
    "SparseLinearFunctions",
    "SphericalCoefficients",
    "TabulatedCoefficients",
    "Task",
    "TransformedFunctions",
    "Translation",
    "TreeFunctions",
    "gaussian_linear",
    "law_of",
    "moved",
    "narrowed",
    "with_covariance",
    "with_noise",
    "with_orthogonal_query",
    "with_query_covariance",
    "with_query_in_context",
    "with_random_covariance",
    "with_response",
    "with_rotated_covariates",
    "with_scaled_covariates",
    "with_scaled_weights",
]
