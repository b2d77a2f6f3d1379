"""Random inputs from a seed, and the distance of sampled means from exact ones."""

from dataclasses import replace

import torch

from innerloop.prompt import Prompt

DOUBLE = torch.float64


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0, dtype=DOUBLE):
    return torch.randn(shape, generator=seeded(seed), dtype=dtype)


def rotation(d, seed=0):
    return torch.linalg.qr(normal(d, d, seed=seed)).Q


def covariance(d, seed=0, smallest=0.4, largest=1.5):
    """Symmetric positive definite, with known extreme eigenvalues and random eigenvectors."""
    u = rotation(d, seed)
    matrix = u @ torch.diag(torch.linspace(smallest, largest, d, dtype=DOUBLE)) @ u.mT
    return (matrix + matrix.mT) / 2


def random_prompt(batch=3, n=5, d=4, seed=0, dtype=DOUBLE, queries=1):
    """Independent normals everywhere: the labels are no function of the covariates."""
    z = normal(batch, n + queries, d + 1, seed=seed, dtype=dtype)
    return Prompt(z[:, :n, :-1], z[:, :n, -1], z[:, n:, :-1], z[:, n:, -1])


def shared_prompt(batch=3, n=5, d=4, seed=0, queries=3):
    """One set of covariates for all prompts of the batch, as of a dictionary."""
    own = random_prompt(batch, n, d, seed, queries=queries)
    return replace(own, x=own.x[:1], x_query=own.x_query[:1])


def written_out(prompt):
    """The same prompt with shared covariates repeated for every member of the batch."""
    batch = len(prompt)
    return replace(
        prompt, x=prompt.x.expand(batch, -1, -1), x_query=prompt.x_query.expand(batch, -1, -1)
    )


def query(prompt, i):
    """The same prompt with its query i alone."""
    one = slice(i, i + 1)
    return replace(prompt, x_query=prompt.x_query[:, one], y_query=prompt.y_query[:, one])


def z_scores(samples, exact):
    """How many standard errors the means over the first axis lie above the exact values."""
    error = samples.std(0) / len(samples) ** 0.5
    return (samples.mean(0) - exact) / error


def assert_means(samples, exact):
    """Sample means within four of their own standard errors of the exact values."""
    z = z_scores(samples, torch.as_tensor(exact, dtype=samples.dtype))
    assert z.abs().max() < 4, f"standard errors away: {z.tolist()}"


def relative_error(value, exact):
    """Largest absolute difference over largest absolute value."""
    return ((value - exact).abs().max() / exact.abs().max()).item()
