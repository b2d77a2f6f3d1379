"""Distribution shifts at test time: section 4.2 of Zhang et al. (2023), Eq. 4.7 and 4.8.

The learner is where gradient flow ends (Theorem 4.1): one step with the preconditioner Gamma^-1 of
the training length N. Its risk under every shift is exact (`theory.shifted_risk`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from matplotlib.figure import Figure as Picture
from torch import Tensor

from innerloop import theory
from innerloop.algorithms import GradientDescent, Learner, LeastSquares, Ridge, Zero
from innerloop.analysis import one_step_risk, shift_table, standard_shifts
from innerloop.papers.common import ALGEBRA, DTYPE, SAMPLING, WHY_SAMPLING, generator, rotated
from innerloop.papers.registry import FigureData, Table, claim, figure
from innerloop.papers.verdict import Check, Correction, Scale, Verdict
from innerloop.tasks import (
    LinearRegression,
    OrthogonalQuery,
    OtherQuery,
    with_noise,
    with_scaled_covariates,
    with_scaled_weights,
)

SPECTRUM = [1.5, 0.8, 0.4]
LONG = 1_000_000
"""Examples in a prompt, in training and at test, where a statement is about the limit."""
TASK = LinearRegression(rotated(SPECTRUM, seed=0), LONG)


def excess(task: LinearRegression | OtherQuery, preconditioner: Tensor) -> float:
    """The exact risk over E y_q^2: what is left of the label's power."""
    risk = one_step_risk(task, preconditioner)
    assert risk is not None
    base = task.task if isinstance(task, OtherQuery) else task
    query = task.covariance
    return risk / (base.prior @ query).trace().item()


def order_one_over_m(task: LinearRegression) -> float:
    """((d + 1) tr + d noise^2) / M + (1 + 2d + d^2 kappa) tr / N^2, over tr.

    The bound below Theorem 4.2, for weights from N(0, I), with the noise that the theorem adds.
    """
    d, n = task.d, task.n
    kappa = max(SPECTRUM) / min(SPECTRUM)
    noise = d * task.noise_std**2 / (task.prior @ task.covariance).trace().item()
    return (d + 1 + noise) / n + (1 + 2 * d + d**2 * kappa) / n**2


@claim(
    "zhang2023/task-shift",
    "Task shifts are tolerated: with noise on the labels, or weights of any size, the trained "
    "layer still predicts the label as prompts grow long",
    source="Section 4.2, task shifts",
    formula=r"\widehat{y}_{\mathrm{query}} \approx x_{\mathrm{query}}^\top \Lambda^{-1}\left("
    r"\frac{1}{M}\sum_{i=1}^M x_i x_i^\top\right) w + x_{\mathrm{query}}^\top \Lambda^{-1}\left("
    r"\frac{1}{M}\sum_{i=1}^M \varepsilon_i x_i\right) \approx x_{\mathrm{query}}^\top w",
)
def task_shift(scale: Scale) -> Verdict:
    best = theory.one_step_preconditioner(TASK.covariance, TASK.n)
    shifted = [with_noise(TASK, 1.0), with_noise(TASK, 3.0), with_scaled_weights(TASK, 10.0)]
    ratios = [excess(task, best) / order_one_over_m(task) for task in shifted]
    control = excess(with_scaled_covariates(TASK, 2.0), best) / order_one_over_m(TASK)
    return Verdict(
        [
            Check(
                "exact risk over E y², relative to the bound of order 1/M, largest of three shifts",
                max(ratios),
                1.0,
                control,
                "the bound below Theorem 4.2: it vanishes as M and N grow",
                "covariates × 2, a shift that is not tolerated",
            )
        ],
        settings={
            "Lambda": f"eigenvalues {SPECTRUM}, random eigenvectors",
            "N = M": LONG,
            "shifts": "noise of std 1 and 3, weights × 10",
        },
    )


@claim(
    "zhang2023/query-shift",
    "Query shifts are tolerated as long as the query does not depend on the examples",
    source="Section 4.2, query shifts, Eq. 4.8",
    formula=r"\widehat{y}_{\mathrm{query}} \approx x_{\mathrm{query}}^\top \Lambda^{-1} \Lambda w "
    r"= x_{\mathrm{query}}^\top w",
)
def query_shift(scale: Scale) -> Verdict:
    best = theory.one_step_preconditioner(TASK.covariance, TASK.n)
    queries = {
        "another covariance": rotated([0.1, 1.0, 5.0], seed=1),
        "10 times longer": 100 * TASK.covariance,
        "almost one direction only": torch.diag(torch.tensor([1.0, 1e-6, 1e-6], dtype=DTYPE)),
    }
    shifted = [excess(OtherQuery(TASK, covariance), best) for covariance in queries.values()]
    # Over any query the relative bias and variance are largest along one direction, where Gamma^-1
    # is at most 1/lambda_min.
    worst = (TASK.d + 1) * max(SPECTRUM) / min(SPECTRUM) / LONG
    short = OrthogonalQuery(LinearRegression.isotropic(3, 1))
    orthogonal = one_step_risk(short, torch.eye(3, dtype=DTYPE))
    assert orthogonal is not None
    return Verdict(
        [
            Check(
                "exact risk over E y², largest of three query distributions",
                max(shifted),
                2 * worst,
                orthogonal / 2,
                "of order 1/M: (d + 1) kappa / M for every direction of the query, twice for 1/N²",
                "a query orthogonal to the examples, which depends on them: all of E y² is left",
            )
        ],
        settings={
            "Lambda": f"eigenvalues {SPECTRUM}, random eigenvectors",
            "N = M": LONG,
            "queries": ", ".join(queries),
        },
    )


def largest_prediction(task: LinearRegression, *, whitened: bool, prompts: int) -> float:
    """Largest |prediction| over the label's std, for queries orthogonal to the examples.

    With `whitened`, it is Gamma^-1 x_q that is orthogonal to them instead of x_q.
    """
    best = theory.one_step_preconditioner(task.covariance, task.n)
    prompt = OrthogonalQuery(task).sample(prompts, generator=generator(0))
    if whitened:
        prompt = replace(prompt, x_query=prompt.x_query @ best.inverse())
    label_std = (prompt.x_query.square().sum(-1)).mean().sqrt()
    return (GradientDescent([best])(prompt).abs().max() / label_std).item()


@claim(
    "zhang2023/orthogonal-query",
    "If the query is orthogonal to all examples, the prediction is zero",
    source="Section 4.2, below Eq. 4.8",
    formula=r"x_{\mathrm{query}} \perp x_1, \dots, x_M \;\Rightarrow\; "
    r"\widehat{y}_{\mathrm{query}} = 0",
)
def orthogonal_query(scale: Scale) -> Verdict:
    prompts = scale.pick(smoke=200, quick=2000, paper=20_000)
    skew = LinearRegression(rotated(SPECTRUM, seed=0), 2)
    round_ = LinearRegression.isotropic(3, 2)
    printed = largest_prediction(skew, whitened=False, prompts=prompts)
    return Verdict(
        printed=[
            Check(
                "largest |prediction| over the label's std, Lambda not a multiple of I",
                printed,
                1e-10,
                1.0,
                ALGEBRA,
                "a learner that predicts labels has 1",
            )
        ],
        corrected=[
            Check(
                "the same with Gamma⁻¹ x_query orthogonal to the examples",
                largest_prediction(skew, whitened=True, prompts=prompts),
                1e-10,
                printed,
                ALGEBRA,
                "x_query itself orthogonal to them",
            ),
            Check(
                "the same with x_query orthogonal, Lambda = I",
                largest_prediction(round_, whitened=False, prompts=prompts),
                1e-10,
                printed,
                ALGEBRA,
                "Lambda not a multiple of I",
            ),
        ],
        correction=Correction(
            r"x_{\mathrm{query}} \perp x_i \;\Rightarrow\; \widehat{y}_{\mathrm{query}} = 0",
            r"\Gamma^{-1} x_{\mathrm{query}} \perp x_i \;\Rightarrow\; "
            r"\widehat{y}_{\mathrm{query}} = 0",
            "By Eq. 4.3 the prediction is the inner product of Γ⁻¹ x_query with a combination of "
            "the examples, so it is Γ⁻¹ x_query that has to be orthogonal to them. The two "
            "conditions are one only if Γ, and so Λ, is a multiple of the identity, as in the "
            "experiments the paper refers to. With eigenvalues 1.5, 0.8 and 0.4 predictions for "
            f"orthogonal queries reach {printed:.2g} times the standard deviation of the label.",
        ),
        settings={
            "Lambda": f"eigenvalues {SPECTRUM}, random eigenvectors",
            "N = M": 2,
            "prompts": prompts,
        },
    )


def limiting_slope(factor: float) -> float:
    """E[prediction y_q] / E y_q^2 on covariates times the factor, exactly."""
    shifted = with_scaled_covariates(TASK, factor)
    best = theory.one_step_preconditioner(TASK.covariance, TASK.n)
    t = shifted.covariance
    return ((t @ best.mT @ t).trace() / t.trace()).item()


@claim(
    "zhang2023/covariate-shift",
    "Covariate shifts are not tolerated: where all covariates are multiplied by c, predictions are "
    "multiplied by c squared",
    source="Section 4.2, covariate shifts",
    formula=r"\widehat{y}_{\mathrm{query}} \approx x_{\mathrm{query}}^\top \Lambda^{-1} c^2 "
    r"\Lambda w = c^2 x_{\mathrm{query}}^\top w",
)
def covariate_shift(scale: Scale) -> Verdict:
    factors = (0.5, 2.0, 3.0)
    slopes = [abs(limiting_slope(c) / c**2 - 1) for c in factors]
    best = theory.one_step_preconditioner(TASK.covariance, TASK.n)
    # Gamma Lambda^-1 - I is (1 + tr(Lambda) / lambda) / N along an eigenvector.
    order = (1 + sum(SPECTRUM) / min(SPECTRUM)) / LONG
    risks, fooled = [], []
    for c in factors:
        limit = (c**2 - 1) ** 2
        allowed = c**4 * (TASK.d + 1) / LONG + 2 * c**2 * abs(c**2 - 1) * order
        risks.append(abs(excess(with_scaled_covariates(TASK, c), best) - limit) / allowed)
        fooled.append(limit / allowed)
    return Verdict(
        [
            Check(
                "distance of the slope of the prediction on the label from c², relative, largest "
                "of three c",
                max(slopes),
                order,
                abs(1 / 2.0**2 - 1),
                "Gamma differs from Lambda by (1 + tr Lambda / lambda_min) / N",
                "least squares at c = 2, whose slope stays 1",
            ),
            Check(
                "distance of the exact risk over E y² from (c² - 1)², over what finite M and N "
                "allow, largest of three c",
                max(risks),
                1.0,
                max(fooled),
                "c⁴ (d + 1) / M of variance, and 2 c² |c² - 1| times the slope's error of bias",
                "a learner that is not fooled, of risk 0",
            ),
        ],
        settings={
            "Lambda": f"eigenvalues {SPECTRUM}, random eigenvectors",
            "N = M": LONG,
            "c": factors,
            "misprint": "the paper's display leaves w out of its first expression",
        },
    )


D, EXAMPLES = 6, 40
LEARNERS = {
    "trained layer": ("o", "#0072b2"),
    "least squares": ("s", "#009e73"),
    "ridge": ("D", "#aa4499"),
    "zero": ("|", "#333333"),
}
FLOOR = 1e-3
"""Where the picture's axis begins; noiseless least squares is at 1e-29."""


def draw_shifts(tables: Mapping[str, Table]) -> Picture:
    table = tables["losses"]
    names = [str(name) for name in table["shift"]]
    picture = Picture(figsize=(8.2, 4.4))
    axes = picture.subplots()
    rows = range(len(names))
    kinds = [str(kind) for kind in table["kind"]]
    for i in rows:
        if i and kinds[i] != kinds[i - 1]:
            axes.axhline(i - 0.5, color="#9ca3af", linewidth=0.8)
    zero = [float(v) for v in table["zero"]]

    def relative(column: str) -> list[float]:
        return [max(float(v) / z, FLOOR) for v, z in zip(table[column], zero, strict=True)]

    axes.plot(
        relative("trained layer, exact"),
        rows,
        linestyle="none",
        marker="|",
        markersize=15,
        markeredgewidth=2,
        color="#0072b2",
        label="trained layer, exact",
    )
    for name, (marker, colour) in LEARNERS.items():
        if name == "zero":
            axes.axvline(1.0, color=colour, linestyle="--", linewidth=1, label="zero predictor")
            continue
        axes.plot(
            relative(name),
            rows,
            linestyle="none",
            marker=marker,
            markersize=5,
            color=colour,
            label=f"{name}, sampled",
        )
    axes.set_yticks(list(rows), names)
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="loss / loss of the zero predictor   (left edge: 0.001 or less)")
    axes.set_xlim(FLOOR * 0.8, None)
    picture.legend(loc="outside upper center", ncols=5, frameon=False, columnspacing=1.2)
    return picture


@figure(
    "zhang2023/shifts",
    "The trained layer under task, query and covariate shifts, next to least squares, ridge "
    "regression and the zero predictor",
    source="Section 4.2, as a table",
    draw=draw_shifts,
)
def shifts(scale: Scale) -> FigureData:
    task = LinearRegression.isotropic(D, EXAMPLES)
    best = theory.one_step_preconditioner(task.covariance, task.n)
    learners: dict[str, Learner] = {
        "trained layer": GradientDescent([best]),
        "least squares": LeastSquares(),
        "ridge": Ridge(1.0),
        "zero": Zero(),
    }
    samples = scale.pick(smoke=2_000, quick=40_000, paper=400_000)
    every = standard_shifts(task)
    rows = shift_table(learners, every, samples=samples, seed=0)
    exact = [one_step_risk(shift.task, best) for shift in every]
    table: dict[str, list[float | int | str]] = {
        "kind": [shift.kind for shift in every],
        "shift": [shift.name for shift in every],
        "trained layer, exact": [float("nan") if e is None else e for e in exact],
    }
    for name in learners:
        table[name] = [row.losses[name].mean for row in rows]
        table[f"{name}, standard error"] = [row.losses[name].standard_error for row in rows]
    # Cubed labels make the loss of degree 8 in the covariates: exact, never judged by sampling.
    judged = [i for i, shift in enumerate(every) if "³" not in shift.name]
    plain = exact[0]
    z, z_plain = [], []
    for i in judged:
        estimate, value = rows[i].losses["trained layer"], exact[i]
        assert value is not None
        assert plain is not None
        z.append(abs(estimate.z(value)))
        z_plain.append(abs(estimate.z(plain)))
    doubled = next(i for i, shift in enumerate(every) if shift.name == "covariates × 2")
    ratio = rows[doubled].losses["trained layer"].mean / rows[doubled].losses["zero"].mean
    return FigureData(
        {"losses": table},
        f"Loss under each shift relative to predicting zero, d = {D}, N = M = {EXAMPLES}. Bars are "
        "exact, points are sampled. The trained layer is as good under another task or query as "
        "where it was trained; with covariates twice as long its predictions are four times too "
        f"large and the loss is {ratio:.2g} times that of predicting nothing. Least squares, which "
        "reads the covariance off the prompt, does not notice. Nobody can predict a query that no "
        "example has a component of.",
        Verdict(
            [
                Check(
                    "largest |z| between the trained layer's exact and sampled loss, over all "
                    "shifts but cubed labels",
                    max(z),
                    SAMPLING,
                    max(z_plain),
                    WHY_SAMPLING,
                    "the exact loss without shift in place of each",
                ),
                Check(
                    "loss of the trained layer over that of zero, covariates × 2",
                    ratio,
                    1.0,
                    rows[doubled].losses["least squares"].mean / rows[doubled].losses["zero"].mean,
                    "above 1, predicting nothing would be better",
                    "least squares on the same prompts",
                    at_least=True,
                ),
            ],
            settings={"d": D, "N = M": EXAMPLES, "prompts": samples, "seed": 0},
        ),
    )
