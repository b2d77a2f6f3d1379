"""The trained layer under every standard shift, beside least squares, ridge and zero.

Losses of the trained layer are exact (`analysis.one_step_risk`) and sampled, of the others sampled.
"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure as Picture

from innerloop import theory
from innerloop.algorithms import GradientDescent, Learner, LeastSquares, Ridge, Zero
from innerloop.analysis import one_step_risk, shift_table, standard_shifts
from innerloop.papers.common import SAMPLING, WHY_SAMPLING
from innerloop.papers.registry import FigureData, Table, figure
from innerloop.papers.verdict import Check, Scale, Verdict
from innerloop.tasks import LinearRegression

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
    best = theory.linear.one_step_preconditioner(task.covariance, task.n)
    learners: dict[str, Learner] = {
        "trained layer": GradientDescent([best]),
        "least squares": LeastSquares(),
        "ridge": Ridge(1.0),
        "zero": Zero(),
    }
    samples = scale.pick(smoke=2_000, quick=40_000, paper=400_000)
    every = standard_shifts(task)
    rows = shift_table(learners, every, samples=samples, seed=0).rows
    exact = [one_step_risk(shift.task, best) for shift in every]
    table: dict[str, list[float | int | str]] = {
        "kind": [shift.kind for shift in every],
        "shift": [shift.name for shift in every],
        "trained layer, exact": [*exact],
    }
    for name in learners:
        table[name] = [row.losses[name].mean for row in rows]
        table[f"{name}, standard error"] = [row.losses[name].standard_error for row in rows]
    # Cubed labels make the loss of degree 8 in the covariates: exact, never judged by sampling.
    judged = [i for i, shift in enumerate(every) if "³" not in shift.name]
    plain = exact[0]
    z, z_plain = [], []
    for i in judged:
        estimate = rows[i].losses["trained layer"]
        z.append(abs(estimate.z(exact[i])))
        z_plain.append(abs(estimate.z(plain)))

    def relative(shift: str, learner: str = "trained layer") -> float:
        (losses,) = (row.losses for row in rows if row.shift.name == shift)
        return losses[learner].mean / losses["zero"].mean

    doubled = "covariates × 2"
    return FigureData(
        {"losses": table},
        f"Loss under each shift relative to predicting zero, d = {D}, N = M = {EXAMPLES}. Bars are "
        "exact, points are sampled. Larger weights, and queries of another distribution that do "
        "not depend on the examples, leave the trained layer as good as where it was trained, at "
        f"{relative('as trained'):.2f}; label noise costs it little. Labels that are not linear "
        "cost every learner: no linear predictor explains all of tanh (here "
        f"{relative('labels tanh <w, x>'):.2f}) or of the cube. With covariates twice as long the "
        "layer's predictions are four times too large, and its loss is "
        f"{relative(doubled):.2g} times that of predicting nothing; least squares, which reads the "
        "covariance off the prompt, does not notice. Nobody can predict a query that no example "
        "has a component of.",
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
                    relative(doubled),
                    1.0,
                    relative(doubled, "least squares"),
                    "above 1, predicting nothing would be better",
                    "least squares on the same prompts",
                    at_least=True,
                ),
            ],
            settings={"d": D, "N = M": EXAMPLES, "prompts": samples, "seed": 0},
        ),
    )
