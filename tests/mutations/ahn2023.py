"""Deliberate errors that the claims of ahn2023 must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import torch

from tests.mutations.mutation import Mutation, after, instead, times

PAPER = "papers.ahn2023"
CONVENTION = "models.conventions:AHN"
LAYERS = "models.conventions:Convention.layers"
PREDICT = "models.conventions:Convention.predict"
TRAINED = ("figure1", "figure2")
TRANSFORMED = ("figure3", "layers", "context-length")


def ids(*names: str) -> tuple[str, ...]:
    return tuple(f"ahn2023/{name}" for name in names)


def changed(**parts: Any) -> Callable[[Any], Any]:
    """The dataclass with these parts in place of its own."""
    return lambda right: replace(right, **parts)


def called_with(change: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]) -> Any:
    """The function, called with other arguments."""

    def wrong(right: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(right)
        def function(*arguments: Any, **named: Any) -> Any:
            new, new_named = change(*arguments, **named)
            return right(*new, **new_named)

        return function

    return wrong


def named(**parts: Any) -> Any:
    return called_with(lambda *arguments, **old: (arguments, {**old, **parts}))


def layers(convention: Any, p: Any, q: Any, z: Any, *, count: int = 0, turned: bool = False) -> Any:
    """The paper's layers, over n + count instead of n, or with Q transposed."""
    for p_layer, q_layer in zip(p, q.mT if turned else q, strict=True):
        seen = z[:, :, :-1]
        z = z + p_layer @ seen @ seen.mT @ q_layer @ z / (z.shape[-1] - 1 + count)
    return z


def off_diagonal(matrices: torch.Tensor) -> torch.Tensor:
    return matrices + 0.01 * matrices.mean() * (1 - torch.eye(matrices.shape[-1]))


def whitened(right: property) -> property:
    return property(lambda run: off_diagonal(right.fget(run)))


def ray_error(steps: Any, spectrum: Any, transforms: Any = None) -> Any:
    """Without the square at the covariance."""
    error, g = torch.ones_like(spectrum), spectrum
    for layer in range(steps.shape[-1]):
        a = steps[..., layer, None]
        error = error * (1 - a * g)
        if transforms is not None:
            g = g * (1 - a * transforms[..., layer, None] * g)
    return error


def upper(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda task, j, x: right(task, j, x.triu() + 0.9 * x.tril(-1))


def no_prior(covariance: Any, n: int, noise_std: float = 0.0) -> Any:
    from innerloop.tasks import LinearRegression

    return LinearRegression(covariance, n, noise_std=noise_std)


FORWARD = ("lemma2", "theorem1", "theorem3", "theorem4", "theorem5", "theorem5-gd++", "lemma8")

MUTATIONS = [
    # The conventions of the paper.
    Mutation("the residual's sign", CONVENTION, changed(residual_sign=-1), ids(*FORWARD)),
    Mutation(
        "the readout's sign", CONVENTION, changed(readout_sign=1), ids(*FORWARD[1:], "lemma9")
    ),
    Mutation(
        "the query's token in the sum",
        CONVENTION,
        changed(masked=False),
        ids(*FORWARD, "lemma9", "lemma10", "figure4"),
    ),
    Mutation("a layer without 1/n", CONVENTION, changed(normalised=False), ids(*FORWARD)),
    Mutation(
        "1/(n + 1) for 1/n in a layer",
        LAYERS,
        instead(lambda *a: layers(*a, count=1)),
        ids(*FORWARD, "figure4"),
    ),
    Mutation(
        "Q transposed", LAYERS, instead(lambda *a: layers(*a, turned=True)), ids("eq7", "theorem1")
    ),
    Mutation(
        "a covariate's slot is read out",
        PREDICT,
        instead(
            lambda c, p, q, x: (
                -c.layers(p, q, x.each_query().token_matrix())[:, -2, -1].view_as(x.y_query)
            )
        ),
        ids("eq7", "theorem1", "theorem4", "theorem5"),
    ),
    Mutation(
        "weights to the paper's, 10% larger",
        "models.conventions:Convention.weights_to",
        times(1.1),
        ids("figure4"),
    ),
    # Printed formulas, as typed in.
    Mutation(
        "Eq. 8 times 1.01", f"{PAPER}.theorem1:eq8", times(1.01), ids("theorem1", "theorem1-d1")
    ),
    Mutation(
        "n for n + 1 in Eq. 8",
        f"{PAPER}.theorem1:eq8",
        named(examples=0),
        ids("theorem1", "theorem1-d1"),
    ),
    Mutation(
        "0.99 of the trace in Eq. 8",
        f"{PAPER}.theorem1:eq8",
        named(traces=0.99),
        ids("theorem1", "theorem1-d1"),
    ),
    Mutation("X_j times 1.01", f"{PAPER}.theorem1:at_entry", times(1.01), ids("lemma6", "lemma7")),
    Mutation(
        "n for n + 1 in Lemma 7", f"{PAPER}.theorem1:lemma7", named(examples=0), ids("lemma7")
    ),
    Mutation(
        "C not symmetric in f_j",
        f"{PAPER}.theorem1:component",
        upper,
        ids("lemma6", "lemma7", "lemma7-unique"),
    ),
    Mutation(
        "Eq. 10 times 1.01",
        f"{PAPER}.section5:eq10",
        times(1.01),
        ids("lemma2", "section5.2-hessian"),
    ),
    Mutation(
        "weights (9) that move the covariates",
        f"{PAPER}.settings:weights9",
        after(lambda pq: (pq[0] + 0.01 * torch.eye(pq[0].shape[-1]).to(pq[0]), pq[1])),
        ids("lemma2", "theorem3", "lemma8"),
    ),
    Mutation(
        "P 1% larger in weights (13)",
        f"{PAPER}.settings:weights13",
        after(lambda pq: (1.01 * pq[0], pq[1])),
        ids("theorem4", "theorem5", "theorem5-gd++", "lemma8"),
    ),
    Mutation(
        "r_i 1% larger",
        f"{PAPER}.theorem4:rates",
        times(1.01),
        ids("theorem4-direction", "theorem5-direction"),
    ),
    Mutation("r_i of Eq. 26 over 2.04", f"{PAPER}.theorem4:rates", times(0.49), ids("eq26")),
    Mutation(
        "GD++ of von Oswald times 1.01",
        f"{PAPER}.theorem5:gd_plus_plus",
        times(1.01),
        ids("theorem5-gd++"),
    ),
    Mutation(
        "innerloop's GD++ times 1.01",
        "algorithms.gradient_descent:GDPlusPlus.predictions",
        times(1.01),
        ids("theorem5-gd++"),
    ),
    # The setting.
    Mutation(
        "w ~ N(0, I) for N(0, Sigma^-1)",
        "tasks.linear:LinearRegression.with_inverse_prior",
        lambda right: lambda cls, *a, **k: no_prior(*a, **k),
        ids("theorem4", "theorem4-direction", "theorem5", "theorem5-direction", "lemma8", *TRAINED),
    ),
    Mutation(
        "W^T W for W W^T",
        "tasks.linear:LinearRegression.distorted_view",
        called_with(lambda cls, w, n: ((cls, w.mT, n), {})),
        ids("section5.2-view"),
    ),
    # Theory that the claims rest on.
    Mutation(
        "E[SBS] without the trace",
        "theory.linear.layers:_sandwich",
        instead(lambda b, sigma, n: sigma @ b @ sigma + sigma @ b.mT @ sigma / n),
        ids("theorem1", "theorem1-d1"),
    ),
    Mutation(
        "the covariance on the ray without its square",
        "theory.linear.ray:ray_error",
        instead(ray_error),
        ids("theorem5", "theorem5-direction", *TRANSFORMED),
    ),
    Mutation(
        "the best steps of n + 1",
        "theory.linear.ray:untied_optimum",
        called_with(lambda k, n, d: ((k, n + 1, d), {})),
        ids("theorem3-scalar", "theorem4", *TRAINED),
    ),
    Mutation(
        "GD++ of n + 1",
        "theory.linear.ray:transformed_optimum",
        called_with(lambda k, n, d, **named: ((k, n + 1, d), named)),
        ids("figure3"),
    ),
    Mutation(
        "one degree of freedom more in the quadrature",
        "theory.wishart.nodes:wishart_nodes",
        called_with(lambda n, d, degree: ((n + 1, d, degree), {})),
        ids("theorem1", "lemma6", "lemma7", "theorem3", "theorem4", "theorem5", "lemma8"),
    ),
    # What the figures measure.
    Mutation(
        "Dist with the trace over d - 1",
        "analysis.distances:distance_to_identity",
        instead(
            lambda m: (
                torch.linalg.matrix_norm(
                    m
                    - m.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
                    / (m.shape[-1] - 1)
                    * torch.eye(m.shape[-1])
                )
                / torch.linalg.matrix_norm(m)
            )
        ),
        ids("figure1", "figure3"),
    ),
    Mutation(
        "whitened matrices with 1% off the diagonal",
        f"{PAPER}.training:Trained.white_preconditioners",
        whitened,
        ids("figure2"),
    ),
    Mutation(
        "reference distances 1% larger",
        f"{PAPER}.training:reference_distances",
        times(1.01),
        ids("figure1", "figure3"),
    ),
    Mutation(
        "transforms of the other sign",
        f"{PAPER}.figures3_4:spectra",
        called_with(lambda n, a, b, draws: ((n, a, -b, draws), {})),
        ids("section6.1-trend"),
    ),
    Mutation(
        "the ray's part of a loss 1% larger",
        "training.controlled:ControlledWishart.ray_risk",
        times(1.01),
        ids(*TRANSFORMED),
    ),
]

NODES = "theory.wishart.wishart_nodes times 1.01"
ANY_LAW = "true of every rotation-invariant law of W, so also of 1.01 W"
SAME_PLACE = "a loss that is scaled has its minimum in the same place"
WIDE = "inequalities with much room"
CONTROL = "in a control, a line far above or a normaliser alone"
ALIKE = "what is trained and what it is compared with rest on it alike; theorem5 notices, exactly"
ROUTES = "two searches, the better of which counts: one that is off loses to the other"
VANISHES = "sampled is only what is off the ray, and that vanishes at the end of training"


def automatic(why: str, names: tuple[str, ...], claims: tuple[str, ...]) -> dict[Any, str]:
    """The reason, for each of these functions of theory in each of these claims."""
    pairs = ((f"theory.{name} times 1.01", id) for name in names for id in ids(*claims))
    return dict.fromkeys(pairs, why)


CURVES = ("layers", "context-length")
POLYNOMIALS = ("linear.layered_risk_polynomial", "wishart.expected_trace")
RAY = ("linear.ray_error", "linear.ray_risk")
SPECTRA = ("linear.ray_spectrum", "wishart.mean_spectrum")
SAMPLES = ("wishart.sample_wishart",)

EXCUSED: dict[tuple[str, str], str] = {
    **automatic(ANY_LAW, ("wishart.wishart_nodes",), ("eq26", "theorem4-direction")),
    (NODES, "ahn2023/lemma7-unique"): "C is symmetric under every law of W",
    (NODES, "ahn2023/theorem1-d1"): "quoted in the counterexample alone, where both losses change",
    **automatic(SAME_PLACE, ("linear.single_layer_risk",), ("theorem1-d1",)),
    **automatic(SAME_PLACE, RAY, ("theorem5-direction", "figure4")),
    **automatic(SAME_PLACE, ("linear.layered_risk",), ("theorem3-scalar", "figure2")),
    **automatic(SAME_PLACE, ("wishart.trace_moment",), ("figure2",)),
    **automatic(SAME_PLACE, POLYNOMIALS, ("theorem3-scalar", "figure2")),
    **automatic(CONTROL, POLYNOMIALS, CURVES),
    **automatic(CONTROL, (*RAY, *SPECTRA, "linear.looped_optimum"), ("figure1",)),
    **automatic(CONTROL, ("linear.one_step_preconditioner",), ("figure1", "figure3")),
    **automatic(CONTROL, ("flow.descend",), ("figure3", "figure4")),
    **automatic(CONTROL, ("linear.ray_risk",), ("figure3",)),
    **automatic(CONTROL, ("linear.layered_risk", "linear.untied_optimum"), CURVES),
    **automatic(CONTROL, ("wishart.recurrence",), CURVES),
    **automatic(ALIKE, SPECTRA, ("figure3", "figure4", *CURVES)),
    **automatic(ALIKE, ("wishart.trace_moment",), CURVES),
    **automatic(VANISHES, SAMPLES, ("figure3", "figure4", *CURVES)),
    **automatic(ROUTES, ("linear.transformed_optimum",), ("figure3", *CURVES)),
    **automatic(SAME_PLACE, ("linear.ray_risk",), ("section6.1-trend",)),
    **automatic(WIDE, ("flow.descend",), ("section6.1-trend",)),
    **automatic(WIDE, ("linear.ray_error", *SPECTRA, *SAMPLES), ("section6.1-trend",)),
    **automatic(
        WIDE,
        ("linear.transformed_optimum", "linear.untied_optimum", "wishart.recurrence"),
        ("section6.1-trend",),
    ),
}
"""Mutations that a claim rightly does not notice, and why: (what, id) to the reason."""
