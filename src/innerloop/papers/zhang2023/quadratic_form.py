"""The prediction of one layer as a quadratic form in its weights: section 5.1, Lemma 5.1."""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.models.conventions import ZHANG
from innerloop.papers.common import ALGEBRA, DTYPE, generator
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Correction, Scale, Verdict
from innerloop.tasks import LinearRegression


def column_vector(matrix: Tensor) -> Tensor:
    """Vec: columns one below the other."""
    return matrix.mT.flatten(-2)


def quadratic_form(x_query: Tensor, gram: Tensor) -> Tensor:
    """H of Eq. 5.1, from the query and E E^T / N."""
    d = len(x_query)
    x = torch.zeros(d + 1, d + 1, dtype=DTYPE)
    x[:d, d] = x[d, :d] = x_query
    return torch.kron(x, gram) / 2


@claim(
    "zhang2023/lemma5.1",
    "The prediction of a layer is a quadratic form in its weights",
    source="Lemma 5.1, Eq. 5.1",
    formula=r"\hat y_{\mathrm{query}} = u^\top H u,\qquad H = \frac{1}{2} X \otimes"
    r" \left(\frac{E E^\top}{N}\right),\quad X = \begin{bmatrix} 0 & x_{\mathrm{query}} \\"
    r" x_{\mathrm{query}}^\top & 0 \end{bmatrix},\quad u = \mathrm{Vec}"
    r" \begin{bmatrix} U_{11} & u_{12} \\ u_{21}^\top & u_{-1} \end{bmatrix}",
)
def prediction_is_quadratic(scale: Scale) -> Verdict:
    d, n = 4, 9
    prompt = LinearRegression.isotropic(d, n).sample(20, generator=generator(0))
    weights = torch.randn(2, d + 1, d + 1, generator=generator(1), dtype=DTYPE)
    pv, kq = weights
    predicted = ZHANG.predict(pv.unsqueeze(0), kq.unsqueeze(0), prompt)[:, 0]
    # U takes its last column from W^PV, the rest from W^KQ.
    u = torch.cat([kq[:, :d], pv[d].unsqueeze(-1)], dim=1)
    z = prompt.token_matrix()
    forms = [quadratic_form(x, g) for x, g in zip(prompt.x_query[:, 0], z @ z.mT / n, strict=True)]
    largest = predicted.abs().max()

    def error(vector: Tensor) -> float:
        values = torch.stack([vector @ form @ vector for form in forms])
        return ((values - predicted).abs().max() / largest).item()

    return Verdict(
        [
            Check(
                "largest relative difference of predictions",
                error(column_vector(u)),
                1e-12,
                error(u.flatten()),
                ALGEBRA,
                "Vec with rows instead of columns one below the other",
            )
        ],
        settings={"d": d, "N": n, "prompts": 20, "weights": "dense, normal"},
    )


def negative_count(form: Tensor) -> int:
    spectrum = torch.linalg.eigvalsh(form)
    return int((spectrum < -1e-10 * spectrum.abs().max()).sum())


@claim(
    "zhang2023/lemma5.1-eigenvalues",
    "The matrix of the quadratic form has at least d + 1 negative eigenvalues",
    source="Section 5.1, after Lemma 5.1",
    formula=r"\#\{i : \lambda_i(H) < 0\} \ge d + 1 \text{ almost surely}",
)
def negative_eigenvalues(scale: Scale) -> Verdict:
    d, lengths = 4, (2, 3, 4, 9)
    counts, none = {}, []
    for n in lengths:
        prompt = LinearRegression.isotropic(d, n).sample(5, generator=generator(n))
        z = prompt.token_matrix()
        forms = [
            quadratic_form(x, g) for x, g in zip(prompt.x_query[:, 0], z @ z.mT / n, strict=True)
        ]
        counts[n] = [negative_count(form) for form in forms]
        none += [negative_count(form @ form) for form in forms]
    exact = "an integer; eigenvalues count from 1e-10 of the largest, rounding is at 1e-16"
    fewest = min(min(values) for values in counts.values())
    off = max(abs(c - min(d, n) - 1) for n, values in counts.items() for c in values)
    blind = max(abs(c - d - 1) for values in counts.values() for c in values)
    return Verdict(
        printed=[
            Check(
                "fewest negative eigenvalues, over prompt lengths N",
                fewest,
                d + 1,
                min(none),
                exact,
                "H^2, which is positive semi-definite",
                at_least=True,
            )
        ],
        corrected=[
            Check(
                "largest difference of the number of negative eigenvalues from min(d, N) + 1",
                off,
                0,
                blind,
                exact,
                "the difference from d + 1",
            )
        ],
        correction=Correction(
            r"\#\{i : \lambda_i(H) < 0\} \ge d + 1",
            r"\#\{i : \lambda_i(H) < 0\} = \min(d, N) + 1",
            "The eigenvalues of H are products of those of X/2, of which one is negative, and of "
            "E E^T/N, so there are as many negative ones as E has rank. The first N columns of E "
            "have rank min(d, N), since the labels are a linear function of the covariates, and "
            "the query's column, with 0 for its label, adds one. With d = 4 there are "
            f"{counts[2][0]} for N = 2 and {counts[4][0]} for N = 4; d + 1 = 5 needs N >= d. That "
            "the form is not convex, which is what the paper uses, is true for every N.",
        ),
        settings={"d": d, "N": ", ".join(map(str, lengths)), "prompts each": 5},
    )
