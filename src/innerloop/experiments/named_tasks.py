"""Tasks by name. Arguments are the options of a spec, the docstring is its line in `list`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import torch

from innerloop.corpora import Corpus
from innerloop.memory import FLOAT64, require_memory
from innerloop.tasks import (
    Autoregression,
    ChainOfThought,
    DictionaryRegression,
    Exponential,
    Functions,
    GaussianCovariates,
    LeakyNetwork,
    LinearFunctions,
    LinearRegression,
    PooledLinearFunctions,
    Regression,
    ReluNetworkFunctions,
    RepresentedFunctions,
    SparseLinearFunctions,
    Task,
    Translation,
    TreeFunctions,
    moved,
    with_random_covariance,
)
from innerloop.tasks.checks import require_at_least, require_seed
from innerloop.tasks.translation import Split

DType = Literal["float64", "float32"]
WIDEST = 5_000
"""Coordinates of x; the eigenvalues of a larger covariance take minutes."""


def linear(
    d: int = 5,
    n: int = 20,
    noise_std: float = 0.0,
    prior: Literal["identity", "inverse"] = "identity",
    spectrum: tuple[float, ...] | None = None,
    dtype: DType = "float64",
) -> LinearRegression:
    """linear regression with Gaussian covariates; spectrum=1/0.5/0.25 sets their d variances"""
    _require_sizes(d, n)
    if spectrum is not None and len(spectrum) != d:
        raise ValueError(
            f"spectrum must give d = {d} variances, got {len(spectrum)}; set d={len(spectrum)}"
        )
    covariance = torch.diag(torch.tensor(spectrum or [1.0] * d, dtype=getattr(torch, dtype)))
    if prior == "inverse":
        return LinearRegression.with_inverse_prior(covariance, n, noise_std)
    return LinearRegression(covariance, n, noise_std=noise_std)


def sparse(
    d: int = 20, n: int = 20, nonzero: int = 3, noise_std: float = 0.0, dtype: DType = "float64"
) -> Regression:
    """linear regression in which only `nonzero` of the d coordinates matter (Garg 2022)"""
    return _white(SparseLinearFunctions(d, nonzero, getattr(torch, dtype)), n, noise_std, dtype)


def random_covariance(
    d: int = 5, n: int = 20, scale: float = 1.0, noise_std: float = 0.0, dtype: DType = "float64"
) -> Regression:
    """linear regression; the variances of each prompt are scale times Exp(1) (Zhang 2023)"""
    if not scale > 0:
        raise ValueError(f"scale must be positive, got {scale}")
    functions = LinearFunctions(torch.eye(d, dtype=getattr(torch, dtype)))
    return with_random_covariance(_white(functions, n, noise_std, dtype), Exponential(d, scale))


def pool(
    d: int = 5,
    n: int = 20,
    tasks: int = 16,
    noise_std: float = 0.1,
    seed: int = 0,
    dtype: DType = "float64",
) -> Regression:
    """linear regression with only `tasks` weight vectors, drawn by `seed` (Raventos 2023)"""
    require_at_least("tasks", tasks, 1)
    require_memory(f"{tasks} weight vectors", FLOAT64 * tasks * d)
    weights = torch.randn(tasks, d, generator=_generator(seed), dtype=torch.float64)
    return _white(PooledLinearFunctions(weights.to(getattr(torch, dtype))), n, noise_std, dtype)


def relu_network(
    d: int = 5, n: int = 20, hidden: int = 100, noise_std: float = 0.0, dtype: DType = "float64"
) -> Regression:
    """two-layer ReLU networks with random weights (Garg 2022)"""
    require_memory(f"networks of {hidden} units", FLOAT64 * hidden * (d + 1))
    functions = ReluNetworkFunctions(d, hidden, getattr(torch, dtype))
    return _white(functions, n, noise_std, dtype)


def tree(
    d: int = 5, n: int = 100, depth: int = 4, noise_std: float = 0.0, dtype: DType = "float64"
) -> Regression:
    """decision trees that ask for signs of coordinates (Garg 2022)"""
    return _white(TreeFunctions(d, depth, getattr(torch, dtype)), n, noise_std, dtype)


Weights = Literal["orthogonal", "random"]


def representation(
    d: int = 5,
    n: int = 20,
    layers: int = 3,
    weights: Weights = "orthogonal",
    slope: float = 0.5,
    noise_std: float = 0.0,
    seed: int = 0,
    dtype: DType = "float64",
) -> Regression:
    """linear regression on a fixed leaky-ReLU network of x, drawn by `seed` (Gao 2024)"""
    network = _network(d, layers, d, weights, slope, seed, dtype)
    return _white(RepresentedFunctions(network), n, noise_std, dtype)


def autoregression(
    d: int = 5,
    n: int = 20,
    q: int = 3,
    layers: int = 3,
    weights: Weights = "orthogonal",
    slope: float = 0.5,
    noise_std: float = 0.0,
    scaled: bool = True,
    seed: int = 0,
    dtype: DType = "float64",
) -> Autoregression:
    """trajectories x_{t+1} = A phi(last q points), a fresh rotation A in each (Gao 2024)"""
    require_at_least("q", q, 1)
    _require_sizes(q * d, n)
    network = _network(q * d, layers, d, weights, slope, seed, dtype)
    return Autoregression(network, n, noise_std, scaled)


def chain_of_thought(
    d: int = 5, n: int = 10, layers: int = 3, slope: float = 0.1, dtype: DType = "float64"
) -> ChainOfThought:
    """x and the steps of a leaky-ReLU network, fresh in each prompt, n chains shown (Gao 2024)"""
    _require_sizes(d, n)
    return ChainOfThought(d, n, layers, slope, getattr(torch, dtype))


def dictionary(
    tokens: int = 20,
    shown: int = 6,
    d: int = 8,
    features: int = 4,
    tau: float = 0.01,
    seed: int = 0,
    dtype: DType = "float64",
) -> DictionaryRegression:
    """a dictionary of `tokens` unit tokens, `shown` of their labels given (Yang 2024)"""
    require_memory(f"{tokens} tokens of d = {d}", FLOAT64 * tokens * (d + features))
    source = _generator(seed)
    task = DictionaryRegression.gaussian(d, features, tokens, shown, tau, generator=source)
    kind = getattr(torch, dtype)
    return DictionaryRegression(
        task.tokens.to(kind), task.features.to(kind), shown, tau, task.coefficients
    )


def translation(
    corpus: str = "small",
    vocabulary: int = 4000,
    n: int = 64,
    split: Split = "training",
    dtype: DType = "float32",
) -> Translation:
    """sentence pairs of a corpus, see `innerloop data translation`; at most n tokens (Gao 2024)"""
    return _translation(Corpus.open(corpus), vocabulary, n, split, dtype)


TASKS: dict[str, Callable[..., Task]] = {
    "linear": linear,
    "sparse": sparse,
    "random-covariance": random_covariance,
    "pool": pool,
    "relu-network": relu_network,
    "tree": tree,
    "representation": representation,
    "autoregression": autoregression,
    "chain-of-thought": chain_of_thought,
    "dictionary": dictionary,
    "translation": translation,
}
REFERENCES: dict[str, tuple[str, ...]] = {
    "linear": ("zero", "ols", "one-step"),
    "sparse": ("zero", "ols", "lasso"),
    "random-covariance": ("zero", "averaging", "ols"),
    "pool": ("zero", "ridge", "pool-posterior"),
    "relu-network": ("zero", "ols", "neighbours", "network"),
    "tree": ("zero", "neighbours", "tree"),
    "representation": ("zero", "ols", "feature-ridge"),
    "autoregression": ("zero", "feature-ridge"),
    "chain-of-thought": ("zero", "feature-ridge"),
    "dictionary": ("zero", "shown-labels", "feature-ridge"),
    "translation": ("zero", "unigram"),
}
"""What each task is compared with unless asked otherwise."""


def _white(functions: Functions, n: int, noise_std: float, dtype: DType) -> Regression:
    """Functions of covariates N(0, I)."""
    _require_sizes(functions.d, n)
    white = torch.eye(functions.d, dtype=getattr(torch, dtype))
    return Regression(GaussianCovariates(white), functions, n, noise_std=noise_std)


def _network(
    inputs: int, layers: int, outputs: int, kind: Weights, slope: float, seed: int, dtype: DType
) -> LeakyNetwork:
    require_memory(f"{layers} layers of {inputs} units", FLOAT64 * layers * inputs**2)
    made = LeakyNetwork.drawn(
        inputs,
        layers,
        orthogonal=kind == "orthogonal",
        slope=slope,
        outputs=outputs,
        generator=_generator(seed),
    )
    return moved(made, dtype=getattr(torch, dtype))


@lru_cache(maxsize=4)  # cutting a corpus into pieces takes seconds, and a run asks more than once
def _translation(
    corpus: Corpus,
    vocabulary: int,
    n: int,
    split: Split,
    dtype: DType,
) -> Translation:
    tokeniser = corpus.tokeniser(vocabulary)
    return Translation.of(corpus, tokeniser, n, split=split, dtype=getattr(torch, dtype))


def _generator(seed: int) -> torch.Generator:
    require_seed(seed)
    return torch.Generator().manual_seed(seed)


def _require_sizes(d: int, n: int) -> None:
    require_at_least("d", d, 1)
    require_at_least("n", n, 1)
    if d > WIDEST:
        raise ValueError(
            f"d must be at most {WIDEST}, got {d}; the eigenvalues of a larger covariance take "
            "minutes"
        )
    require_memory(f"a prompt of n = {n} examples", 3 * FLOAT64 * (n + 1) * (d + 1))
