"""The terms of the gradient: Eq. 25 and 26 of Gatmiry et al. (2024) and what is made of them.

They stand between Lemmas A.9 and A.10. Sigma* = I, and A = sum_j lambda_j u_j u_j^T is positive.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import product
from math import comb

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers import Check, Correction, Kind, Scale, Verdict, claim
from innerloop.papers.common import DTYPE, identity, relative, rotated
from innerloop.papers.gatmiry2024.settings import accuracy, average, between, power, white
from innerloop.papers.quantity import INEQUALITY, ROUNDING, checks

SPECTRA = ((1.5, 0.4), (20.0, 0.01))
"""Of A; the second one is where lambda_j for lambda_1 matters."""


@cache
def sandwiched_eigenvalues(spectrum: tuple[float, ...], n: int, loops: int, i: int) -> list[float]:
    """gamma_j of E[(I - S A)^i S (I - S A)^{2L-1-i}], by the expansion in words.

    It is diagonal with A = diag(spectrum): flipping the sign of a coordinate of every x leaves
    their distribution alone. Entry j is the trace of e_j e_j^T times it.
    """
    a, unit = (theory.wishart.MatrixPolynomial.letter(number) for number in (0, 1))
    s = theory.wishart.MatrixPolynomial.wishart().scaled(Fraction(1, n))
    factor = theory.wishart.MatrixPolynomial.identity() - s @ a
    term = unit
    for position in range(2 * loops):
        term = term @ (s if position == i else factor)
    trace = theory.wishart.expected_trace(term, n, symmetric=[0, 1])
    diagonal = torch.diag(torch.tensor(spectrum, dtype=DTYPE))
    units = [torch.outer(e, e) for e in identity(len(spectrum))]
    return trace(torch.stack([torch.stack([diagonal, unit]) for unit in units])).tolist()


def expanded(a: Tensor, loops: int, i: int, *, swapped: bool) -> Callable[[Tensor], Tensor]:
    """The right side of (26); `swapped` has the binomial coefficients as printed."""
    half, inverse_half, inverse = power(a, 0.5), power(a, -0.5), power(a, -1)
    rest = 2 * loops - 1 - i

    def formula(s: Tensor) -> Tensor:
        powers = [torch.linalg.matrix_power(between(a, s), k) for k in range(2 * loops + 1)]
        total = torch.zeros_like(s)
        for l1, l2 in product(range(i + 1), range(rest + 1)):
            count = comb(rest, l1) * comb(i, l2) if swapped else comb(i, l1) * comb(rest, l2)
            word = inverse_half @ powers[l1 + 1] @ inverse @ powers[l2] @ half
            total = total + count * (-1) ** (l1 + l2) * word
        return total

    return formula


def expansions() -> list[Check]:
    """The two sides of (26) for L = i = 2, as printed and not, and the spectral form."""
    task, a = white(2, 6), rotated([1.5, 0.4], seed=3)
    vectors = torch.linalg.eigh(a).eigenvectors

    def left(s: Tensor) -> Tensor:
        residual = identity(2) - s @ a
        return residual @ residual @ s @ residual

    def right(*, swapped: bool) -> Tensor:
        return average(expanded(a, 2, 2, swapped=swapped), task, 6)

    def spectral(i: int) -> Tensor:
        gammas = torch.tensor(sandwiched_eigenvalues((0.4, 1.5), task.n, 2, i), dtype=DTYPE)
        return vectors @ gammas.diag() @ vectors.mT

    return checks(
        "relative difference from the expectation by quadrature, L = 2, i = 2, n = 6",
        ROUNDING,
        {
            "(26) as printed": right(swapped=True),
            "(26) with binom(i, l1) binom(2L-1-i, l2)": right(swapped=False),
            "sum_j gamma_j u_j u_j^T": spectral(2),
        },
        unlike={"gamma_j of i + 1": spectral(3)},
        measure=lambda matrix: relative(matrix, average(left, task, 4)),
    )


def largest_use(depths: tuple[int, ...], n: int, *, sign: int, largest: bool) -> float:
    """Of the room around (sign (lambda_j - 1))^{2L-1}, printed with lambda_j above and lambda_1
    below; `largest` has lambda_1 in both."""
    worst = 0.0
    for loops, spectrum in product(depths, SPECTRA):
        odd, delta = 2 * loops - 1, accuracy(loops, n, len(spectrum)) ** (2 * loops)
        for i in range(2 * loops):
            values = sandwiched_eigenvalues(spectrum, n, loops, i)
            for value, v in zip(values, spectrum, strict=True):
                excess = value - (sign * (v - 1)) ** odd
                top = max(spectrum) if largest or excess < 0 else v
                worst = max(worst, abs(excess) / (delta * (top + 1) ** odd))
    return worst


@claim(
    "gatmiry2024/equation26",
    "The terms of the gradient, expanded, are close to those for an infinite prompt",
    source="Eq. 25 and 26 and the bounds after them (the lemma they belong to is missing)",
    formula=r"\begin{aligned} & \mathbb{E}_X\left[(I - \Sigma A)^i \Sigma (I - \Sigma "
    r"A)^{2L-1-i}\right] = \sum_{\ell_1 \le i,\, \ell_2 \le 2L-1-i} \binom{2L-1-i}{\ell_1} "
    r"\binom{i}{\ell_2} (-1)^{\ell_1 + \ell_2} \mathbb{E}\left[A^{-1/2} \tilde\Sigma^{\ell_1 + 1} "
    r"A^{-1} \tilde\Sigma^{\ell_2} A^{1/2}\right] = \sum_j \gamma_j u_j u_j^\top, \\ & (\lambda_j "
    r"- 1)^{2L-1} - \delta^{2L} (\lambda_1 + 1)^{2L-1} \le \gamma_j \le (\lambda_j - 1)^{2L-1} + "
    r"\delta^{2L} (\lambda_j + 1)^{2L-1},\quad \tilde\Sigma = A^{1/2} \Sigma A^{1/2} \end{aligned}",
)
def gradient_terms(scale: Scale) -> Verdict:
    depths = scale.pick(smoke=(1, 2, 3), quick=(1, 2, 3), paper=(1, 2, 3, 4))
    shortest, long = 16 * max(depths) ** 2 * len(SPECTRA[0]) ** 2, 10**10
    corrected = largest_use(depths, shortest, sign=-1, largest=True)
    off, right = checks(
        f"largest |gamma_j - power| over what is allowed, L <= {max(depths)}, i = 0 to 2L - 1",
        INEQUALITY,
        {
            "as printed, n = 1e10": largest_use(depths, long, sign=+1, largest=False),
            f"(1 - lambda_j), room of lambda_1, n = {shortest}": corrected,
        },
        unlike={"printed room, n = 1e4": largest_use(depths, 10**4, sign=-1, largest=False)},
    )
    first, second = sandwiched_eigenvalues((1.5, 0.4), long, 2, 0)
    large = sandwiched_eigenvalues((20.0, 0.01), 10**4, 3, 4)[1]
    allowed = (1 - 0.01) ** 5 + accuracy(3, 10**4, 2) ** 6 * 1.01**5
    swapped, *terms = expansions()
    return Verdict(
        [swapped, off],
        [*terms, right],
        Correction(
            r"\gamma_j \le (\lambda_j - 1)^{2L-1} + \delta^{2L} (\lambda_j + 1)^{2L-1}",
            r"\begin{aligned} & \left|\gamma_j - (1 - \lambda_j)^{2L-1}\right| \le \delta^{2L} "
            r"(\lambda_1 + 1)^{2L-1} \\ & \text{if } n \ge 16 L^2 d^2 \end{aligned}",
            "For an infinite prompt the matrix is (I - A)^(2L-1), an odd power; only squares are "
            "used later. The room above is printed with lambda_j, but the cycles that pass by A^-1 "
            "sum over all eigenvalues. In (26) the binomial coefficients have each other's upper "
            "number. As corrected it holds wherever we looked.",
            Kind.STATEMENT,
            f"L = 2, n = 1e10, i = 0, A = diag(1.5, 0.4): the terms are {first:.4f} and "
            f"{second:.4f}, the printed powers 0.1250 and -0.2160. With the sign mended, L = 3, "
            f"n = 1e4, i = 4, A = diag(20, 0.01): {large:.2f}, and {allowed:.2f} is allowed.",
        ),
    )
