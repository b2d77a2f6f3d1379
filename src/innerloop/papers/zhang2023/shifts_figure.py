"""The trained layer under every standard shift, beside least squares, ridge and zero."""

import numpy as np
import torch
from matplotlib.figure import Figure as Picture
from torch import Tensor

from innerloop import theory
from innerloop.algorithms import GradientDescent, Learner, LeastSquares, Ridge, Zero
from innerloop.analysis import one_step_risk, shift_table, standard_shifts
from innerloop.papers.common import DTYPE
from innerloop.papers.plots import where
from innerloop.papers.quantity import SAMPLING, at_least, checks
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.zhang2023.settings import as_stated
from innerloop.tasks import LinearRegression

D, N = 6, 40
SHOWN = {
    "trained layer, exact": ("trained layer, exact", "|", "#0072b2", 15),
    "trained layer": ("sampled", "o", "#0072b2", 5),
    "least squares": ("least squares", "s", "#009e73", 5),
    "ridge": ("ridge", "D", "#aa4499", 5),
}
"""Label, marker, colour and size of each column."""
FLOOR = 1e-3
"""Where the picture's axis begins; noiseless least squares is at 1e-29."""
DOUBLED, CUBED = "covariates × 2", "labels <w, x>³"


def by_hand(other: Tensor, m: float) -> dict[str, float]:
    """Losses on M examples of the layer a I with a = N / (N + d + 1), trained on N; Lambda = I.

    `other` is the spectrum of the other covariance. NaN for labels that are no polynomial.
    """
    d, a, ones = D, N / (N + D + 1), torch.ones(D, dtype=DTYPE)

    def gaussian(spectrum: Tensor) -> float:
        """Examples and query of this spectrum: tr E[(I - a S) T (I - a S)]."""
        one, two, three = (float((spectrum**k).sum()) for k in (1, 2, 3))
        return one - 2 * a * two + a**2 * (three + (three + one * two) / m)

    def query(power: float) -> float:
        """Query of E |x_q|^2 = power, examples of covariance I."""
        return power * (1 - 2 * a + a**2 * (1 + (d + 1) / m))

    third = d * (m**2 + d**2 + 3 * m * d + 3 * m + 3 * d + 4) / m**2  # tr E S^3
    return {
        "as trained": query(d),
        "label noise, half of the labels' std": query(d) + a**2 * (d / 4) * d / m,
        "weights × 3": 9 * query(d),
        "labels tanh <w, x>": np.nan,
        # E y x = 3 |w|^2 w, E y^2 = 15 |w|^6, E y^2 |x|^2 = (15 d + 90) |w|^6
        CUBED: d * (d + 2) * (d + 4) * (15 - 18 * a + a**2 * (9 + (15 * d + 90 - 9) / m)),
        "query of another covariance": query(float(other.sum())),
        "query × 3": query(9 * d),
        "query among the examples": d - 2 * a * d * (m + d + 1) / m + a**2 * third,
        "query orthogonal to 3 examples": d - 3,
        "covariates × 1/2": gaussian(ones / 4),
        DOUBLED: gaussian(4 * ones),
        "covariates of another covariance": gaussian(other),
        "covariates rotated": query(d),
        # E l = 1, E l^2 = 2, E l^3 = 6
        "variances × Exp(1), new for every prompt": d
        * (1 - 4 * a + a**2 * (6 + (12 + 2 * (d - 1)) / m)),
    }


def judge(tables: Tables) -> Verdict:
    table = where(tables["losses"])
    exact, known = table["trained layer, exact"], np.isfinite(table["by hand"])
    # Cubed labels make the loss of degree 8 in the covariates: never judged by sampling.
    sampled = table["shift"] != CUBED
    mean, spread = (table[key][sampled] for key in ("trained layer", "trained layer, error"))
    row = list(table["shift"]).index(DOUBLED)
    share = exact / table["zero"]
    hand = as_stated(
        "relative difference of the exact losses from those by hand",
        table["by hand"],
        {"M + 1 for M": table["by hand, M + 1"]},
        lambda stated: np.abs(exact[known] / stated[known] - 1).max(),
    )
    z = as_stated(
        "largest |z| of sampled losses, without cubed labels",
        exact[sampled],
        {"the loss without a shift": exact[:1]},
        lambda stated: np.abs((mean - stated) / spread).max(),
        SAMPLING,
    )
    worse = checks(
        "loss over that of predicting 0",
        at_least(1.0, "above 1, predicting nothing would be better"),
        {DOUBLED: share[row]},
        unlike={
            "covariates × 1/2": share[row - 1],
            "least squares, covariates × 2": table["least squares"][row] / table["zero"][row],
        },
    )
    return Verdict([*hand, *z, *worse])


def draw(tables: Tables) -> Picture:
    table = where(tables["losses"])
    rows = range(len(table["shift"]))
    picture = Picture(figsize=(8.2, 4.4))
    axes = picture.subplots()
    for i in np.flatnonzero(table["kind"][1:] != table["kind"][:-1]):
        axes.axhline(i + 0.5, color="#9ca3af", linewidth=0.8)
    for column, (label, marker, colour, size) in SHOWN.items():
        values = np.maximum(table[column] / table["zero"], FLOOR)
        axes.plot(values, rows, marker, color=colour, label=label, markersize=size)
    axes.axvline(1.0, color="#333333", linestyle="--", linewidth=1, label="zero predictor")
    axes.set_yticks(list(rows), table["shift"])
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="loss / loss of the zero predictor   (left edge: 0.001 or less)")
    axes.set_xlim(FLOOR * 0.8, None)
    picture.legend(loc="outside upper center", ncols=5, frameon=False, columnspacing=1.2)
    return picture


@figure(
    "zhang2023/shifts",
    "The trained layer's loss under task, query and covariate shifts, exact and sampled; with "
    "covariates twice as long it is worse than predicting 0, which least squares is not",
    source="Section 4.2, as a table",
    judge=judge,
    draw=draw,
    ours="measured",
)
def shifts(scale: Scale) -> Numbers:
    task = LinearRegression.isotropic(D, N)
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
    (other,) = (s.task for s in every if s.name == "covariates of another covariance")
    assert isinstance(other, LinearRegression)
    spectrum = torch.linalg.eigvalsh(other.covariance)
    table: dict[str, list[float | int | str]] = {
        "kind": [shift.kind for shift in every],
        "shift": [shift.name for shift in every],
        "trained layer, exact": [one_step_risk(shift.task, best) for shift in every],
        "by hand": [by_hand(spectrum, N)[shift.name] for shift in every],
        "by hand, M + 1": [by_hand(spectrum, N + 1)[shift.name] for shift in every],
        "trained layer, error": [row.losses["trained layer"].standard_error for row in rows],
    }
    table |= {name: [row.losses[name].mean for row in rows] for name in learners}
    caption = (
        f"Loss under each shift relative to predicting zero, d = {D}, N = M = {N}. Bars are exact, "
        "points are sampled. With covariates twice as long the trained layer's predictions are "
        "four times too large and worse than nothing; least squares does not notice."
    )
    return Numbers({"losses": table}, caption, {"task": task, "prompts": samples, "seed": 0})
