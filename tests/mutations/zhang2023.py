"""Deliberate errors that the claims of zhang2023 must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from tests.mutations.mutation import Mutation, after, times

PAPER = "papers.zhang2023"
FLOWS = "theory.flow.single_layer_flow:SingleLayerFlow"


def ids(names: str) -> tuple[str, ...]:
    return tuple(f"zhang2023/{name}" for name in names.split())


def changed(**parts: Any) -> Callable[[Any], Any]:
    """A dataclass with other values."""
    return lambda right: replace(right, **parts)


def property_times(factor: float) -> Callable[[Any], Any]:
    """A property, cached or not, of another size."""

    def wrong(right: Any) -> Any:
        read = getattr(right, "fget", None) or right.func
        return property(lambda self: factor * read(self))

    return wrong


def calling(change: Callable[..., Any]) -> Callable[[Any], Any]:
    """The function, called by another one: change(right, *arguments)."""

    def wrong(right: Any) -> Any:
        return lambda *arguments, **named: change(right, *arguments, **named)

    return wrong


def layers_over_all_tokens(self: Any, p: Any, q: Any, z: Any) -> Any:
    for p_layer, q_layer in zip(p, q, strict=True):
        z = z + p_layer @ z @ z.mT @ q_layer @ z / z.shape[-1]
    return z


LAYER = "lemma5.1 lemma5.2 lemmaA.1 lemmaC.1 eq4.3 eq4.13 theorem4.1 theorem4.2"
MUTATIONS: list[Mutation] = [
    # The paper's conventions.
    Mutation(
        "zhang2023: a minus before the attention",
        "models.conventions:ZHANG",
        changed(residual_sign=-1),
        ids(f"{LAYER} appendixB covariate-shift eq4.13-limit error-lengths random-covariance"),
    ),
    Mutation(
        "zhang2023: the prediction is minus the label slot",
        "models.conventions:ZHANG",
        changed(readout_sign=-1),
        ids(f"{LAYER} theorem4.5 theorem4.2-linear"),
    ),
    Mutation(
        "zhang2023: the query's token masked",
        "models.conventions:ZHANG",
        changed(masked=True),
        ids("lemma5.1"),
    ),
    Mutation(
        "zhang2023: 1/(N + 1) for 1/N",
        "models.conventions:Convention.layers",
        calling(lambda right, *of: layers_over_all_tokens(*of)),
        ids(f"{LAYER} theorem4.5 lemma5.3 corollaryA.2 lemmaC.4 lemmaC.3 corollaryC.2"),
    ),
    Mutation(
        "zhang2023: the loss without its half",
        "models.conventions:ZHANG",
        changed(loss_factor=1.0),
        ids("lemma5.2 lemmaA.1 lemmaC.1 corollaryC.2 lemmaC.3 corollaryA.2"),
    ),
    # Formulas of the paper.
    Mutation(
        "Gamma with N + 1 for N",
        f"{PAPER}.settings:gamma",
        calling(lambda right, covariance, n: right(covariance, n + 1)),
        ids(
            "lemma5.2 lemmaA.1 lemmaC.1 lemma5.3 corollaryA.2 theorem4.1 theorem4.1-any-scale "
            "theorem4.5 theorem4.5-nondiagonal eq4.3 theorem4.2 appendixB lemma5.4 eq4.13 "
            "gradient-flow theorem4.2-linear"
        ),
    ),
    Mutation(
        "Gamma without tr(Lambda)/N",
        f"{PAPER}.settings:gamma",
        calling(lambda right, covariance, n: (1 + 1 / n) * covariance),
        ids("theorem4.1 theorem4.5 theorem4.2 lemmaC.8 error-lengths"),
    ),
    Mutation(
        "Gamma 0.1 % larger",
        f"{PAPER}.settings:gamma",
        times(1.001),
        ids("eq4.4 task-shift query-shift covariate-shift eq4.3 theorem4.1 theorem4.5 eq4.13"),
    ),
    Mutation(
        "Eq. 5.4 and C.1 1 % slower",
        f"{PAPER}.lemmas5_2_C1_C3:velocity",
        times(0.99),
        ids("lemma5.2 lemmaA.1 lemmaC.1"),
    ),
    Mutation(
        "l~ 1 % larger", f"{PAPER}.lemmas5_2_C1_C3:printed_loss", times(1.01), ids("lemmaA.1")
    ),
    Mutation(
        "zeta_ji for zeta_ij",
        f"{PAPER}.lemmas5_2_C1_C3:coefficients",
        after(lambda found: (found[0], found[1].mT)),
        ids("corollaryC.2 lemmaC.3 lemmaC.4"),
    ),
    Mutation(
        "gamma_i and zeta_ij with N + 1 for N",
        f"{PAPER}.lemmas5_2_C1_C3:coefficients",
        calling(lambda right, law, n: right(law, n + 1)),
        ids("corollaryC.2 lemmaC.3 lemmaC.4 lemmaC.8"),
    ),
    Mutation(
        "Eq. C.4 1 % faster",
        f"{PAPER}.lemmas5_2_C1_C3:entry_velocity",
        times(1.01),
        ids("corollaryC.2 lemmaC.3"),
    ),
    Mutation(
        "l_rdm 1 % larger", f"{PAPER}.lemmas5_2_C1_C3:entry_loss", times(1.01), ids("lemmaC.3")
    ),
    Mutation(
        "Corollary A.2 with another factor",
        f"{PAPER}.lemmas5_3_C4:printed_excess",
        times(1.01),
        ids("corollaryA.2"),
    ),
    Mutation(
        "Eq. C.7 with another factor",
        f"{PAPER}.lemmas5_3_C4:entry_excess",
        times(1.01),
        ids("lemmaC.4"),
    ),
    Mutation(
        "the largest sigma 1 % larger",
        f"{FLOWS}.largest_scale",
        times(1.01),
        ids("lemmaA.4 lemmaC.6"),
    ),
    Mutation(
        "the bounds of v 1 % higher",
        f"{FLOWS}.smallest_v",
        times(1.01),
        ids("lemmaA.5 lemmaC.7"),
    ),
    Mutation(
        "mu and nu 4.1 times as large",
        f"{FLOWS}.pl_constant",
        times(4.1),
        ids("lemma5.4 lemma5.4-decay lemmaC.8 lemmaC.8-decay"),
    ),
    Mutation(
        "mu and nu 30 times as large",
        f"{FLOWS}.pl_constant",
        times(30.0),
        ids("gradient-flow"),
    ),
    Mutation(
        "minima with |D|_F for its root",
        f"{PAPER}.prompts:minimum_around",
        calling(
            lambda right, product: torch.cat(
                [
                    right(product)[: len(product)] * 0,
                    product.norm().view(1),
                    (product / product.norm()).flatten(),
                    right(product)[: len(product)] * 0,
                ]
            )
        ),
        ids("theorem4.1 theorem4.1-any-scale theorem4.5 theorem4.5-nondiagonal lemma5.4 lemmaC.8"),
    ),
    Mutation(
        "starts 1 % out of balance",
        f"{PAPER}.flows:Start.from_direction",
        calling(lambda right, self, u: right(self, 1.01 * u)),
        ids("lemmaA.3 lemmaC.5 lemma5.4 lemmaC.8 theorem4.1-any-scale gradient-flow"),
    ),
    Mutation(
        "H without its half",
        f"{PAPER}.lemma5_1:quadratic_form",
        times(2.0),
        ids("lemma5.1"),
    ),
    Mutation(
        "H squared",
        f"{PAPER}.lemma5_1:quadratic_form",
        after(lambda form: form @ form),
        ids("lemma5.1-eigenvalues"),
    ),
    Mutation(
        "Vec by rows",
        f"{PAPER}.lemma5_1:column_vector",
        calling(lambda right, matrix: matrix.flatten(-2)),
        ids("lemma5.1 lemmaD.1"),
    ),
    Mutation(
        "pairs of twice the covariance",
        "theory.linear.prediction_error:gaussian_pairs",
        calling(lambda right, lam, *rest, **named: right(2 * lam, *rest, **named)),
        ids("theorem4.2"),
    ),
    Mutation(
        "Eq. 4.6 with 1 for the 2 before tr(Lambda)",
        f"{PAPER}.theorem4_2:brackets",
        after(lambda terms: terms | {"1/N^2, second": terms["1/N^2, second"] / 2}),
        ids("theorem4.2 error-lengths"),
    ),
    Mutation(
        "Eq. 4.3 1 % larger",
        f"{PAPER}.theorem4_2:stated_prediction",
        times(1.01),
        ids("footnote2 eq4.3"),
    ),
    Mutation(
        "Eq. 4.1 around another matrix",
        f"{PAPER}.prompts:layer_around",
        calling(lambda right, product: right(product @ product)),
        ids("theorem4.2 appendixB theorem4.2-linear orthogonal-query covariate-shift eq4.13"),
    ),
    Mutation(
        "the display below Theorem 4.2 1 % larger",
        f"{PAPER}.corollary4_3:displayed_error",
        times(1.01),
        ids("theorem4.2-linear"),
    ),
    Mutation(
        "the bound below Theorem 4.2 1 % smaller",
        f"{PAPER}.corollary4_3:displayed_bound",
        times(0.99),
        ids("theorem4.2-linear"),
    ),
    Mutation(
        "the averaged bounds 1 % smaller",
        f"{PAPER}.corollary4_3:averaged_bounds",
        times(0.99),
        ids("theorem4.2-linear"),
    ),
    Mutation(
        "Corollary 4.3 with 0.9 N",
        f"{PAPER}.corollary4_3:printed_train",
        times(0.9),
        ids("corollary4.3"),
    ),
    Mutation(
        "Corollary 4.3 with 0.9 M",
        f"{PAPER}.corollary4_3:printed_test",
        times(0.9),
        ids("corollary4.3"),
    ),
    Mutation(
        "Eq. 4.13 with a preconditioner 1 % larger",
        f"{PAPER}.settings:product_at_minimum",
        times(1.01),
        ids("eq4.13 eq4.13-limit"),
    ),
    Mutation(
        "E[l | x] 1 % larger",
        f"{PAPER}.eq4_13:mean_variance_given",
        times(1.01),
        ids("eq4.13-limit"),
    ),
    Mutation(
        "Gamma^-1 x_query is x_query",
        f"{PAPER}.section4_2_shifts:turned",
        calling(lambda right, prompt, matrix: prompt),
        ids("orthogonal-query"),
    ),
    Mutation(
        "Lemma D.2 1 % larger", f"{PAPER}.appendixD:printed_moment", times(1.01), ids("lemmaD.2")
    ),
    Mutation(
        "Lemma D.3 with a last side 1 % smaller",
        f"{PAPER}.appendixD:printed_chain",
        after(lambda sides: sides * torch.tensor([1.0, 1.0, 1.0, 0.99])),
        ids("lemmaD.3"),
    ),
    Mutation(
        "Lemma D.4: eigenvalues 1e-6 lower",
        f"{PAPER}.appendixD:smallest_eigenvalue",
        after(lambda value: value - 1e-6),
        ids("lemmaD.4"),
    ),
    Mutation(
        "losses by hand 1 % larger", f"{PAPER}.shifts_figure:by_hand", times(1.01), ids("shifts")
    ),
    # What the claims rest on.
    Mutation(
        "SingleLayerFlow: curvature 1 % larger",
        f"{FLOWS}.curvature",
        property_times(1.01),
        ids("lemma5.4 lemmaC.8 theorem4.1-any-scale gradient-flow random-covariance"),
    ),
    Mutation(
        "the loss of all weights 1 % larger",
        "theory.flow.single_layer_flow:whole_layer_loss",
        after(lambda loss: lambda theta: 1.01 * loss(theta)),
        ids("lemma5.2 lemmaA.1 lemmaC.1"),
    ),
    Mutation(
        "CovarianceLaw.mixture: E Lambda Lambda tr(Lambda) 1 % larger",
        "theory.linear.covariance_law:CovarianceLaw.mixture",
        after(lambda law: replace(law, pair_and_trace=1.01 * law.pair_and_trace)),
        ids("lemma5.4 lemmaC.8 theorem4.1-any-scale random-covariance"),
    ),
    Mutation(
        "CovarianceLaw.exponential: E l^3 = 6.06",
        "theory.linear.covariance_law:CovarianceLaw.exponential",
        after(lambda law: replace(law, square_and_self=1.01 * law.square_and_self)),
        ids("eq4.13-limit random-covariance shifts"),
    ),
    Mutation(
        "JointMoments: Cov(x y) not centred",
        "theory.linear.prediction_error:JointMoments._from_raw",
        after(lambda m: replace(m, spread=m.spread + torch.outer(m.cross, m.cross))),
        ids("eq4.4 theorem4.2 appendixB error-lengths"),
    ),
    Mutation(
        "JointMoments: noise on the query's label only",
        "theory.linear.prediction_error:JointMoments.with_noise",
        calling(lambda right, self, noise: replace(right(self, noise), spread=self.spread)),
        ids("task-shift theorem4.2 error-lengths appendixB"),
    ),
    Mutation(
        "JointMoments.linear: Cov(x y) without Lambda w w^T Lambda",
        "theory.linear.prediction_error:JointMoments.linear",
        after(lambda m: replace(m, spread=m.spread - torch.outer(m.cross, m.cross))),
        ids("task-shift"),
    ),
    Mutation(
        "SampleComplexity.error 1 % larger",
        "theory.linear.sample_complexity:SampleComplexity.error",
        times(1.01),
        ids("theorem4.2-linear corollary4.3"),
    ),
    Mutation(
        "E[S B S] without the trace",
        "theory.linear.layers:_sandwich",
        calling(lambda right, b, c, n: right(b, c, n) - (b @ c).trace() * c / n),
        ids("lemma5.2 lemmaC.1 theorem4.1 query-shift covariate-shift shifts"),
    ),
    Mutation(
        "ratios of errors the other way round",
        f"{PAPER}.figure1_gpt2:mean_log",
        after(lambda estimate: replace(estimate, mean=-estimate.mean)),
        ids("figure1 figure1-positions"),
    ),
    Mutation(
        "ratios of errors so uncertain that nothing is decided",
        f"{PAPER}.figure1_gpt2:mean_log",
        after(lambda estimate: replace(estimate, standard_error=10.0)),
        ids("figure1 figure1-positions"),
    ),
]

FLOW, START = "theory.flow.gradient_flow times 1.01", "theory.flow.balanced_direction times 1.01"
WHOLE = "theory.flow.whole_layer_loss times 1.01"
RISK = "theory.linear.single_layer_risk times 1.01"


def excuses(what: str, names: str, why: str) -> dict[tuple[str, str], str]:
    return {(what, id): why for id in ids(names)}


EXCUSED: dict[tuple[str, str], str] = {
    **excuses(
        "theory.linear.gaussian_pairs times 1.01",
        "theorem4.2",
        "it returns a function, left as it is; the table has pairs of another covariance",
    ),
    **excuses(
        "theory.linear.random_covariance_risk times 1.01",
        "figure1",
        "GPT-2 has a fiftieth of the linear layer's error; random-covariance judges that error",
    ),
    **excuses(
        START,
        "eq4.3 eq4.13",
        "a start out of balance ends at another v and U with the same product, and so prediction",
    ),
    **excuses(
        START,
        "lemma5.4-decay lemmaC.8-decay",
        "an inequality with room: the constants are off by a factor of 2 and of 4",
    ),
    **excuses(FLOW, "lemmaA.3 lemmaC.5", "v and U of the path are scaled alike"),
    **excuses(FLOW, "lemmaA.4 lemmaC.6", "a positive v stays positive"),
    **excuses(
        WHOLE,
        "lemma5.2 lemmaA.1 lemmaC.1",
        "it returns a function, which is left as it is; the table has a loss that is larger",
    ),
    **excuses(
        WHOLE,
        "theorem4.1 theorem4.5 theorem4.5-nondiagonal",
        "it returns a function, left as it is",
    ),
    **excuses(
        RISK,
        "theorem4.1 theorem4.5 theorem4.5-nondiagonal",
        "where a flow ends, and the ratio of two losses, do not depend on the scale of the loss",
    ),
}
"""Mutations that a claim rightly does not notice, and why: (what, id) to the reason."""
