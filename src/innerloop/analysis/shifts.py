"""How learners fare on prompts they were not trained for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop import theory
from innerloop.algorithms import Learner
from innerloop.analysis.risk import Estimate, estimate_risk
from innerloop.tables import TextTable
from innerloop.tasks import (
    ContextQueries,
    DictionaryRegression,
    Exponential,
    FreshQueries,
    GaussianCoefficients,
    GaussianCovariates,
    LinearRegression,
    NoClosedForm,
    OrthogonalQueries,
    OtherQueries,
    Regression,
    ScaledCovariates,
    Task,
    TransformedFunctions,
    gaussian_linear,
    law_of,
    moved,
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


@dataclass(frozen=True)
class Shift:
    """A task to test on, and what about it is new."""

    kind: str
    """none, task, query, covariate or random covariance."""
    name: str
    task: Task


def standard_shifts(task: Task) -> list[Shift]:
    """The task itself, and the shifts of Zhang 2023, section 4.2, that make sense for it.

    For a regression on a dictionary, other coefficients and other noise (Yang 2024, section 4).
    """
    first = Shift("none", "as trained", task)
    if isinstance(task, DictionaryRegression):
        return [first, *_dictionary_shifts(task)]
    if not isinstance(task, Regression | LinearRegression):
        raise ValueError(
            "shifts are known for regressions composed of covariates, functions and queries, and "
            f"for dictionaries, got {type(task).__name__}"
        )
    return [first, *_function_shifts(task), *_query_shifts(task), *_covariate_shifts(task)]


def _dictionary_shifts(task: DictionaryRegression) -> list[Shift]:
    others = {
        "N(1, 4 I)": GaussianCoefficients(1.0, 2.0),
        "N(0, 9 I)": GaussianCoefficients(0.0, 3.0),
    }
    shifts = [
        Shift("task", f"coefficients {name}", replace(task, coefficients=law))
        for name, law in others.items()
    ]
    return [*shifts, Shift("task", "noise variance × 4", replace(task, tau=4 * task.tau))]


def _function_shifts(task: Regression | LinearRegression) -> list[Shift]:
    f = "<w, x>" if isinstance(task, LinearRegression) else "f(x)"
    noisy = with_noise(task, label_std(task) / 2)
    return [
        Shift("task", "label noise, half of the labels' std", noisy),
        Shift("task", "weights × 3", with_scaled_weights(task, 3.0)),
        Shift("task", f"labels tanh {f}", with_response(task, torch.tanh)),
        Shift("task", f"labels {f}³", with_response(task, _cube)),
    ]


def _query_shifts(task: Regression | LinearRegression) -> list[Shift]:
    covariates = law_of(task).covariates
    shifts = [Shift("query", "query among the examples", with_query_in_context(task))]
    if isinstance(covariates, GaussianCovariates):
        other = _graded(covariates.covariance)
        shifts[:0] = [
            Shift("query", "query of another covariance", with_query_covariance(task, other)),
            Shift("query", "query × 3", with_query_covariance(task, 9 * covariates.covariance)),
        ]
    if task.d > 1:
        short = replace(task, n=min(task.n, task.d // 2))
        name = f"query orthogonal to {short.n} examples"
        shifts.append(Shift("query", name, with_orthogonal_query(short)))
    return shifts


def _covariate_shifts(task: Regression | LinearRegression) -> list[Shift]:
    covariates, shifts = law_of(task).covariates, []
    if isinstance(covariates, GaussianCovariates):
        covariance = covariates.covariance
        rotated = with_rotated_covariates(task, _rotation(covariance))
        shifts = [
            Shift("covariate", "covariates × 1/2", with_scaled_covariates(task, 0.5)),
            Shift("covariate", "covariates × 2", with_scaled_covariates(task, 2.0)),
            Shift(
                "covariate",
                "covariates of another covariance",
                with_covariance(task, _graded(covariance)),
            ),
            Shift("covariate", "covariates rotated", rotated),
        ]
    name = "variances × Exp(1), new for every prompt"
    return [*shifts, Shift("random covariance", name, with_random_covariance(task))]


def label_std(task: Regression | LinearRegression) -> float:
    """Of a clean label: exact where it is known, else from prompts of a fixed seed."""
    if isinstance(task, LinearRegression):
        return (task.prior @ task.covariance).trace().sqrt().item()
    prompts = moved(task, "cpu").sample(10_000, generator=torch.Generator().manual_seed(0))
    return prompts.y_query.std().item()


def _graded(covariance: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """From half to one and a half times the variance, coordinate by coordinate."""
    graded = torch.linspace(0.5, 1.5, len(covariance), dtype=torch.float64).sqrt().to(covariance)
    return graded[:, None] * covariance * graded


def _cube(s: Tensor) -> Tensor:
    return s**3


def _rotation(covariance: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """A fixed orthogonal matrix that mixes all coordinates: the discrete cosine transform."""
    d = len(covariance)
    i = torch.arange(d, dtype=torch.float64)
    matrix = torch.cos(torch.pi / d * (i + 0.5) * i[:, None])
    return (matrix / matrix.norm(dim=1, keepdim=True)).to(covariance)


@dataclass(frozen=True)
class ShiftRow:
    """The losses of all learners under one shift, on the same prompts."""

    shift: Shift
    losses: Mapping[str, Estimate]
    best_step: float | None
    """The exact loss of the best single step for the unshifted task, where it is known."""


@dataclass(frozen=True)
class ShiftTable:
    """What `shift_table` measured; prints as a table."""

    rows: Sequence[ShiftRow]
    samples: int

    def as_text(self) -> TextTable:
        names = list(self.rows[0].losses) if self.rows else []
        known = any(row.best_step is not None for row in self.rows)
        table = TextTable(
            f"loss under shifts, ± standard error, {self.samples} prompts",
            ["shift", *names, *(["best step, exact"] if known else [])],
        )
        for row in self.rows:
            exact = "" if row.best_step is None else f"{row.best_step:.4g}"
            table.add(row.shift.name, *map(str, row.losses.values()), *([exact] if known else []))
        return table

    def __str__(self) -> str:
        return str(self.as_text())


def shift_table(
    learners: Mapping[str, Learner],
    shifts: Sequence[Shift],
    *,
    samples: int,
    seed: int,
    device: torch.device | str = "cpu",
    chunk: int | None = None,
    watch: Callable[[Shift], None] = lambda shift: None,
) -> ShiftTable:
    """The expected loss of every learner under every shift, on the same fresh prompts.

    `watch` is called with each shift before it is measured.
    """
    step = _best_step(shifts[0].task) if shifts else None
    rows = []
    for shift in shifts:
        watch(shift)
        losses = {
            name: estimate_risk(
                learner,
                shift.task,
                samples=samples,
                generator=torch.Generator(device).manual_seed(seed),
                chunk=chunk,
            )
            for name, learner in learners.items()
        }
        rows.append(ShiftRow(shift, losses, _exact_or_none(shift.task, step)))
    return ShiftTable(rows, samples)


def _best_step(task: Task) -> Float[Tensor, "d d"] | None:
    try:
        base = gaussian_linear(task)
    except NoClosedForm:
        return None
    return theory.linear.one_step_preconditioner(
        base.covariance, base.n, base.prior, base.noise_std
    )


def _exact_or_none(task: Task, step: Float[Tensor, "d d"] | None) -> float | None:
    if step is None:
        return None
    try:
        return one_step_risk(task, step)
    except NoClosedForm:
        return None


def one_step_risk(task: Task, preconditioner: Float[Tensor, "d d"]) -> float:
    """The exact loss of one step x_q^T A m; NoClosedForm where none is known of the task's law."""
    law = law_of(task)
    covariates, functions = law.covariates, law.functions
    if type(covariates) is ScaledCovariates:
        return _random_covariance_risk(law, covariates, preconditioner)
    if type(functions) is TransformedFunctions:
        return _response_risk(law, functions, preconditioner)
    # What is left to differ from a Gaussian-linear regression is the query.
    base = gaussian_linear(replace(law, queries=FreshQueries()))
    setting = (base.covariance, base.n, base.prior, base.noise_std)
    kind, query = type(law.queries), None
    if kind is OrthogonalQueries:
        return _orthogonal_risk(base, preconditioner)
    if kind is ContextQueries:
        return theory.linear.in_context_query_risk(preconditioner, *setting).item()
    if isinstance(law.queries, OtherQueries) and kind is OtherQueries:
        query = gaussian_linear(
            replace(law, covariates=law.queries.covariates, queries=FreshQueries())
        ).covariance
    elif kind is not FreshQueries:
        raise NoClosedForm(f"no closed form is known for queries of {kind.__name__}")
    return theory.linear.one_step_risk(preconditioner, *setting, query_covariance=query).item()


def _orthogonal_risk(base: LinearRegression, preconditioner: Tensor) -> float:
    """Without label noise and with A = a I the prediction is 0, and the loss E y_q^2."""
    variance, prior = _scalar("covariance", base.covariance), _scalar("prior", base.prior)
    _scalar("preconditioner", preconditioner)
    if base.noise_std:
        raise NoClosedForm("an orthogonal query is known in closed form without label noise only")
    return variance * prior * (base.d - base.n)


def _response_risk(
    law: Regression, functions: TransformedFunctions, preconditioner: Tensor
) -> float:
    base = gaussian_linear(replace(law, functions=functions.functions))
    return theory.linear.response_risk(
        _scalar("preconditioner", preconditioner),
        functions.response,
        variance=_scalar("covariance", base.covariance),
        prior_variance=_scalar("prior", base.prior),
        d=base.d,
        length=base.n,
        noise_std=base.noise_std,
    )


def _random_covariance_risk(
    law: Regression, covariates: ScaledCovariates, preconditioner: Tensor
) -> float:
    base = gaussian_linear(replace(law, covariates=covariates.covariates))
    scales, variances = covariates.law, base.covariance.diagonal()
    if type(scales) is not Exponential or base.noise_std or _scalar("prior", base.prior) != 1:
        raise NoClosedForm(
            "a random covariance is known in closed form for exponential scales, weights from "
            "N(0, I) and labels without noise only"
        )
    if not torch.equal(base.covariance, torch.diag(variances)):
        raise NoClosedForm("a random covariance is known in closed form if it is diagonal only")
    scaled = theory.linear.CovarianceLaw.exponential(scales.mean * variances)
    return theory.linear.random_covariance_risk(preconditioner, scaled, base.n).item()


def _scalar(name: str, matrix: Float[Tensor, "d d"]) -> float:
    """a, if the matrix is a I to rounding; there is no closed form for others here."""
    a = matrix.diagonal().mean()
    identity = torch.eye(len(matrix)).to(matrix)
    if not torch.allclose(matrix, a * identity, rtol=0, atol=1e-12):
        raise NoClosedForm(f"this closed form needs a {name} that is a multiple of the identity")
    return a.item()
