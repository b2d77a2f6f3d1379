"""The trained layer on new prompts: Eq. 4.3, Eq. 4.4, Theorem 4.2 and its proof (appendix B).

The layer is the paper's own: tokens with the query among them, divided by the test length, weights
of Eq. 4.1 for the training length. Its error is found in three ways that share nothing: formula
(4.6), sampled prompts, and quadrature over every number of a small prompt.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from innerloop import theory
from innerloop.analysis import Estimate
from innerloop.models import ZHANG
from innerloop.papers.common import ALGEBRA, DTYPE, SAMPLING, WHY_SAMPLING, generator, rotated
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Scale, Verdict
from innerloop.papers.zhang2023.labels import LABELS, Labels, as_prompt
from innerloop.papers.zhang2023.settings import gamma
from innerloop.prompt import Prompt

SPECTRUM = [1.5, 0.8, 0.4]
LAMBDA = rotated(SPECTRUM, seed=0)
SMALL = rotated(SPECTRUM[:2], seed=1)
"""Two dimensions, where quadrature over a whole prompt is possible."""
TRAIN, TEST, SMALL_TEST = 12, 9, 2
SETTINGS = {"Lambda": "eigenvalues 1.5, 0.8, 0.4, rotated", "N": TRAIN, "M": TEST}


def trained_matrices(preconditioner: Tensor) -> tuple[Tensor, Tensor]:
    """W^PV and W^KQ of Eq. 4.1 around Gamma^-1, or of Eq. 4.12 around its counterpart."""
    size = preconditioner.norm().sqrt()
    d = len(preconditioner)
    value, key = torch.zeros(2, d + 1, d + 1, dtype=DTYPE)
    value[-1, -1] = size
    key[:-1, :-1] = preconditioner / size
    return value, key


def predict(matrices: tuple[Tensor, Tensor], prompt: Prompt) -> Tensor:
    value, key = matrices
    return ZHANG.predict(value.unsqueeze(0), key.unsqueeze(0), prompt)[:, 0]


def stated_prediction(preconditioner: Tensor, prompt: Prompt) -> Tensor:
    """x_q^T A (1/M) sum_i y_i x_i."""
    m = torch.einsum("bnd,bn->bd", prompt.x, prompt.y) / prompt.n
    return torch.einsum("bi,ij,bj->b", prompt.x_query[:, 0], preconditioner, m)


def random_prompts(batch: int, length: int, seed: int) -> Prompt:
    """Labels that are no function of the covariates: an identity has to hold for them too."""
    z = torch.randn(batch, length + 1, 4, generator=generator(seed), dtype=DTYPE)
    return as_prompt(z[..., :3] @ torch.linalg.cholesky(LAMBDA).mT, z[..., 3] ** 2)


@claim(
    "zhang2023/eq4.3",
    "The trained layer predicts with one preconditioned step, whatever the labels are",
    source="Eq. 4.2 and 4.3; Corollary 4.3, first display",
    formula=r"\hat y_{\mathrm{query}} = x_{\mathrm{query}}^\top \Gamma^{-1} \left("
    r"\frac{1}{M} \sum_{i=1}^{M} y_i x_i \right)",
)
def prediction_of_the_trained_layer(scale: Scale) -> Verdict:
    inverse = torch.linalg.inv(gamma(LAMBDA, TRAIN))
    value, key = trained_matrices(inverse)
    prompt = random_prompts(200, TEST, seed=0)
    stated = stated_prediction(inverse, prompt)
    # With an entry in the covariates' part of the last row, the query's own token is read too.
    dense = value.clone()
    dense[-1, 0] = 0.1

    def difference(value: Tensor) -> float:
        return ((predict((value, key), prompt) - stated).abs().max() / stated.abs().max()).item()

    return Verdict(
        [
            Check(
                "largest difference between the layer (3.3) with weights (4.1) and the stated "
                "prediction, relative to the largest prediction",
                difference(value),
                1e-12,
                difference(dense),
                ALGEBRA,
                "the same layer with 0.1 in the first entry of the last row of W^PV",
            )
        ],
        settings=SETTINGS | {"prompts": "200, labels independent of the covariates", "seed": 0},
    )


@claim(
    "zhang2023/eq4.4",
    "With long training and test prompts the trained layer is the best linear predictor, also of "
    "labels that are not linear",
    source="Eq. 4.4",
    formula=r"\hat y_{\mathrm{query}} \approx x_{\mathrm{query}}^\top \Lambda^{-1} "
    r"\mathbb{E}[y x] = x_{\mathrm{query}}^\top \left( \mathrm{argmin}_{w} "
    r"\mathbb{E}\left[(y - \langle w, x\rangle)^2\right] \right)",
)
def best_linear_limit(scale: Scale) -> Verdict:
    moments = LABELS["cubic"].moments(LAMBDA)
    short, long = 10**4, 10**6

    def excess(preconditioner: Tensor, length: int) -> float:
        parts = theory.linear.error_parts(preconditioner, moments, length)
        return parts.variance + parts.bias

    def rate(first: float, second: float) -> float:
        return math.log(second / first) / math.log(long / short)

    trained = [excess(torch.linalg.inv(gamma(LAMBDA, n)), n) for n in (short, long)]
    identity = torch.eye(3, dtype=DTYPE)
    plain = [excess(identity, n) for n in (short, long)]
    best = theory.linear.error_parts(identity, moments, 1).best_linear
    k = 1 + sum(SPECTRUM) / min(SPECTRUM)
    return Verdict(
        [
            Check(
                "distance from -1 of the exponent of the excess over the best linear predictor, "
                f"N = M from {short} to {long}",
                abs(rate(*trained) + 1),
                2 * k / short / math.log(long / short),
                abs(rate(*plain) + 1),
                "exact errors; as Lambda <= Gamma <= (1 + k/N) Lambda with k = 1 + tr(Lambda) / "
                f"l_min = {k:.4g}, the term in 1/M is below its limit by at most the share 2k/N; "
                "the bias, of order 1/N^2, has the other sign",
                "one step without preconditioner, whose bias stays (footnote 2)",
            )
        ],
        settings={
            "Lambda": SETTINGS["Lambda"],
            "labels": "x_1^3 - x_2 x_3 + 0.3 x_3",
            "error of the best linear predictor": round(best, 4),
            f"excess of the trained layer at N = M = {long}": f"{trained[1]:.2e}",
            "excess without preconditioner": round(plain[1], 4),
        },
    )


def brackets(
    moments: theory.linear.JointMoments, covariance: Tensor, train: int | float, test: int | float
) -> dict[str, float]:
    """The terms of Eq. 4.6 as printed, |v|_A^2 meaning v^T A v."""
    lam, trace = covariance, covariance.trace()
    a = torch.linalg.solve(lam, moments.cross)
    inverse = torch.linalg.inv(gamma(lam, train))
    squared = inverse @ inverse  # Gamma^-2, which commutes with Lambda

    def norm(matrix: Tensor) -> Tensor:
        return a @ matrix @ a

    terms = {
        "best linear predictor": moments.label_power - a @ lam @ a,
        "1/M": (moments.spread @ squared @ lam).trace() / test,
        "1/N^2, first": norm(squared @ lam @ lam @ lam) / train**2,
        "1/N^2, second": 2 * trace * norm(squared @ lam @ lam) / train**2,
        "1/N^2, third": trace**2 * norm(squared @ lam) / train**2,
    }
    return {name: term.item() for name, term in terms.items()}


def stated_error(
    moments: theory.linear.JointMoments, covariance: Tensor, train: int | float, test: int | float
) -> float:
    return sum(brackets(moments, covariance, train, test).values())


def sampled_error(labels: Labels, samples: int, chunk: int = 50_000) -> Estimate:
    """The layer's squared error on sampled prompts."""
    matrices, source = trained_matrices(torch.linalg.inv(gamma(LAMBDA, TRAIN))), generator(0)
    errors = []
    for start in range(0, samples, chunk):
        prompt = labels.sample(min(chunk, samples - start), TEST, LAMBDA, generator=source)
        errors.append((predict(matrices, prompt) - prompt.y_query[:, 0]).square())
    return Estimate.of(torch.cat(errors))


def averaged_error(labels: Labels, train: int, test: int) -> float:
    """The layer's squared error over every prompt of the small setting, by quadrature."""
    matrices = trained_matrices(torch.linalg.inv(gamma(SMALL, train)))
    prompt, weights = labels.every_prompt(test, SMALL)
    return (weights * (predict(matrices, prompt) - prompt.y_query[:, 0]).square()).sum().item()


@claim(
    "zhang2023/theorem4.2",
    "The trained layer's error on new prompts is that of the best linear predictor plus terms in "
    "1/M and 1/N^2, whatever the labels are",
    source="Theorem 4.2, Eq. 4.6",
    formula=r"\begin{aligned} \mathbb{E}(\hat y - y)^2 = \min_{w} \mathbb{E}(\langle w, x\rangle "
    r"- y)^2 &+ \frac{1}{M} \mathrm{tr}\left[\Sigma \Gamma^{-2} \Lambda\right] \\ &+ \frac{1}{N^2}"
    r"\left[ \|a\|_{\Gamma^{-2}\Lambda^3}^2 + 2\,\mathrm{tr}(\Lambda)\|a\|_{\Gamma^{-2}\Lambda^2}^2"
    r" + \mathrm{tr}(\Lambda)^2 \|a\|_{\Gamma^{-2}\Lambda}^2 \right] \end{aligned}",
)
def error_on_new_prompts(scale: Scale) -> Verdict:
    samples = scale.pick(smoke=20_000, quick=200_000, paper=1_500_000)
    terms = {
        name: brackets(labels.moments(LAMBDA), LAMBDA, TRAIN, TEST)
        for name, labels in LABELS.items()
    }
    averaged = {name: averaged_error(labels, TRAIN, SMALL_TEST) for name, labels in LABELS.items()}
    sampled = {name: sampled_error(labels, samples) for name, labels in LABELS.items()}

    def gaps(train: int) -> list[float]:
        return [
            abs(stated_error(labels.moments(SMALL), SMALL, train, SMALL_TEST) / averaged[name] - 1)
            for name, labels in LABELS.items()
        ]

    def largest_z(dropped: str = "none") -> float:
        stated = {
            name: sum(v for term, v in values.items() if not term.startswith(dropped))
            for name, values in terms.items()
        }
        return max(abs(sampled[name].z(stated[name])) for name in LABELS)

    return Verdict(
        [
            Check(
                "largest relative difference between (4.6) and the layer's error averaged over "
                f"every prompt by quadrature, d = 2, M = {SMALL_TEST}",
                max(gaps(TRAIN)),
                1e-11,
                min(gaps(SMALL_TEST)),
                ALGEBRA,
                "(4.6) with the test length in place of N",
            ),
            Check(
                f"largest |z| of the error on {samples} sampled prompts, d = 3",
                largest_z(),
                SAMPLING,
                largest_z(dropped="1/N^2"),
                WHY_SAMPLING,
                "(4.6) without its terms in 1/N^2",
            ),
        ],
        settings=SETTINGS
        | {
            f"{name} labels": "; ".join(f"{term}: {value:.4f}" for term, value in values.items())
            + f"; sum {sum(values.values()):.4f}, sampled {sampled[name]}"
            for name, values in terms.items()
        }
        | {
            "label functions": "<w, x>, w = (1, -0.5, 0.8); the same with noise of variance "
            "0.49, also on the query's label; x_1^3 - x_2 x_3 + 0.3 x_3",
            "assumption left out": "E y^2 finite. The listed ones do not imply it: for d = 1 and "
            "y = |x|^(-3/4), E y, E xy and E x^2 y^2 are finite, E y^2 and both sides of (4.6) "
            "are not",
        },
    )


def proof_terms(
    labels: Labels, covariance: Tensor, best: float = 1.0
) -> tuple[dict[str, float], dict[str, float]]:
    """Terms I to VI of appendix B by quadrature over every prompt, and as the proof states them.

    `best` multiplies the best linear predictor a, to see what the proof owes to the choice of it.
    """
    moments = labels.moments(covariance)
    inverse = torch.linalg.inv(gamma(covariance, TRAIN))
    a = best * torch.linalg.solve(covariance, moments.cross)
    b = inverse @ moments.cross
    prompt, weights = labels.every_prompt(SMALL_TEST, covariance)
    x, y = prompt.x_query[:, 0], prompt.y_query[:, 0]
    best_y, mean_y = x @ a, x @ b
    seen = predict(trained_matrices(inverse), prompt)
    integrands = {
        "I": (best_y - y) ** 2,
        "II": (seen - mean_y) ** 2,
        "III": (mean_y - best_y) ** 2,
        "IV": 2 * (seen - mean_y) * (best_y - y),
        "V": 2 * (seen - mean_y) * (mean_y - best_y),
        "VI": 2 * (mean_y - best_y) * (best_y - y),
    }
    measured = {name: (weights * value).sum().item() for name, value in integrands.items()}
    terms = list(brackets(moments, covariance, TRAIN, SMALL_TEST).values())
    stated = dict(zip(("I", "II", "III"), (terms[0], terms[1], sum(terms[2:])), strict=True))
    return measured, stated | dict.fromkeys(("IV", "V", "VI"), 0.0)


@claim(
    "zhang2023/appendixB",
    "In the proof of Theorem 4.2 the three cross terms vanish and the other three are the terms of "
    "(4.6)",
    source="Appendix B, terms I to VI",
    formula=r"\mathrm{II} = \frac{1}{M}\mathrm{tr}\left[\Sigma\Gamma^{-2}\Lambda\right],\quad "
    r"\mathrm{III} = \frac{1}{N^2}\mathrm{tr}\left[(I_d + \mathrm{tr}(\Lambda)\Lambda^{-1})^2"
    r"\Gamma^{-2}\Lambda^3 a a^\top\right],\quad \mathrm{IV} = \mathrm{V} = \mathrm{VI} = 0",
)
def terms_of_the_proof(scale: Scale) -> Verdict:
    def gap(labels: Labels, names: str, best: float = 1.0) -> float:
        measured, stated = proof_terms(labels, SMALL, best)
        scale_of = sum(abs(value) for value in stated.values())
        return max(abs(measured[n] - stated[n]) for n in names.split()) / scale_of

    return Verdict(
        [
            Check(
                f"largest difference of {what} from the stated values, relative to the error",
                max(gap(labels, names) for labels in LABELS.values()),
                1e-11,
                min(gap(labels, controlled, best=1.1) for labels in LABELS.values()),
                ALGEBRA,
                f"{controlled} with 1.1 a in place of the best linear predictor a",
            )
            for what, names, controlled in (
                ("terms I, II and III", "I II III", "I III"),
                ("the cross terms IV, V and VI", "IV V VI", "VI"),
            )
        ],
        settings={
            "Lambda": "eigenvalues 1.5, 0.8, rotated",
            "N": TRAIN,
            "M": SMALL_TEST,
            "labels": "linear, linear with noise, cubic",
            "misprint": "the Hessian of R(w) is 2 Lambda, not Lambda; its minimum is the same",
        },
    )
