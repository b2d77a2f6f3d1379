"""The sum over pairings behind Lemma A.2: Eq. 16 to 19 of Gatmiry et al. (2024), and its graphs.

A pairing p of the 2k vectors in (x x^T)^k joins them two by two. G_p has a node for every factor
x x^T, (1, 2), (3, 4), ...; G'_p has one for every place where two factors meet, (2, 3), (4, 5),
..., and (1, 2k). A pair is an edge in both. Here all pairings are enumerated, positions from 0.
"""

from collections.abc import Iterator
from itertools import product
from math import comb, factorial

import torch
from scipy.special import roots_hermitenorm
from torch import Tensor

from innerloop import theory
from innerloop.papers import Check, Correction, Kind, Scale, Verdict, claim
from innerloop.papers.common import DTYPE, identity, normal, relative
from innerloop.papers.quantity import INEQUALITY, ROUNDING, at_most, checks

Pairing = tuple[tuple[int, int], ...]
FACTORS = r"x_1^{(1)}(p) x_1^{(1)}(p)^\top \cdots x_1^{(k)}(p) x_1^{(k)}(p)^\top"
TERM = r"\mathbb{E}\left[" + FACTORS + r"\right] = "


def pairings(numbers: tuple[int, ...]) -> Iterator[Pairing]:
    if not numbers:
        yield ()
        return
    first, *rest = numbers
    for i, other in enumerate(rest):
        for left in pairings((*rest[:i], *rest[i + 1 :])):
            yield ((first, other), *left)


def by_power(most: int) -> dict[int, list[Pairing]]:
    """P(2k) for k up to this."""
    return {k: list(pairings(tuple(range(2 * k)))) for k in range(1, most + 1)}


def edges(p: Pairing, *, meeting: bool) -> list[tuple[int, int]]:
    """Of G_p, or of G'_p, between numbered nodes."""
    return [((a + meeting) % (2 * len(p)) // 2, (b + meeting) % (2 * len(p)) // 2) for a, b in p]


def cycles(p: Pairing, *, meeting: bool) -> int:
    """C(G_p), or C(G'_p): the number of components, since every node has degree two."""
    component = list(range(len(p)))
    for a, b in edges(p, meeting=meeting):
        component = [component[a] if c == component[b] else c for c in component]
    return len(set(component))


def self_loops(p: Pairing) -> int:
    return sum(a == b for a, b in edges(p, meeting=False))


def unrolled(p: Pairing, d: int) -> Tensor:
    """The right side of Eq. 18, the indices running to d: sum of e_i1 e_i2^T e_i3 ... e_i2k^T."""
    k, total = len(p), torch.zeros(d, d, dtype=DTYPE)
    for values in product(range(d), repeat=k):
        index = [0] * (2 * k)
        for (a, b), value in zip(p, values, strict=True):
            index[a] = index[b] = value
        if index[1:-1:2] == index[2::2]:
            total[index[0], index[-1]] += 1
    return total


def one_vector() -> list[Check]:
    """Eq. 17, the mean over one Gaussian vector."""
    points, weights = (torch.as_tensor(v, dtype=DTYPE) for v in roots_hermitenorm(4))
    x = torch.cartesian_prod(points, points)
    weight = torch.cartesian_prod(weights, weights).prod(-1) / weights.sum() ** 2
    a, v = normal(0, 2, 2), normal(1, 2)
    means = [
        torch.einsum("b,bi,ij,bj->", weight, x, a, x),
        torch.einsum("b,bi,j,bj->i", weight, x, v, x),
        torch.einsum("b,bi,bj->ij", weight, x, x),
    ]
    return checks(
        "largest relative difference of Eq. 17, by a product of Gauss-Hermite rules, from",
        ROUNDING,
        {"tr A, v, I": a.trace()},
        unlike={"the sum of A, v, I": a.sum()},
        measure=lambda first: max(map(relative, (first, v, identity(2)), means)),
    )


@claim(
    "gatmiry2024/equations16-19",
    "The moments of a white sample as a sum over pairings, by the cycles of two graphs",
    source="Eq. 16 to 19 and the display after them",
    formula=r"\begin{aligned} & "
    + TERM
    + r"n^{C(\mathcal{G}'_p)} I, \\ & \mathbb{E}\left[\left(\sum_i x_i x_i^\top\right)^k\right] = "
    r"\sum_p n^{C(\mathcal{G}_p)} d^{C(\mathcal{G}'_p) - 1} I \end{aligned}",
)
def sum_over_pairings(scale: Scale) -> Verdict:
    n, d, most = 5, 3, scale.pick(smoke=4, quick=5, paper=6)
    every = by_power(most)
    flat = [p for group in every.values() for p in group]
    stated = {p: d ** cycles(p, meeting=True) for p in flat}
    terms = {p: unrolled(p, d) for p in flat if len(p) <= 3}
    traces = {p: term.trace().item() for p, term in terms.items()}

    def term(base: int, less: int) -> float:
        """Largest distance of base^(C(G'_p) - less) I from the unrolled expectation."""
        return max(
            relative(base ** (cycles(p, meeting=True) - less) * identity(d), matrix)
            for p, matrix in terms.items()
        )

    def total(base: int, values: dict[Pairing, float], most: int) -> float:
        """Largest distance of the sum over pairings, times d, from the exact moment."""

        def summed(k: int) -> float:
            return sum(base ** cycles(p, meeting=False) * values[p] for p in every[k])

        def moments(k: int) -> tuple[int, int]:
            """By zonal polynomials, and by integrating one Gaussian vector by parts."""
            recursion = theory.wishart.expected_power_sums((k,), n, d)
            return theory.wishart.trace_moment(k, n, d), recursion

        powers = range(1, most + 1)
        return max(relative(summed(k), moment) for k in powers for moment in moments(k))

    printed, corrected = checks(
        f"largest relative difference of the term of a pairing, k <= 3, n = {n}, d = {d}, from",
        ROUNDING,
        {"n^C(G') I": term(n, 0), "d^(C(G') - 1) I": term(d, 1)},
        unlike={"d^C(G') I": term(d, 0)},
    )
    right = checks(
        f"largest relative difference of the sum over pairings from the moment, n = {n}, d = {d}",
        ROUNDING,
        {
            f"n^C(G) d^(C(G') - 1), k <= {most}": total(n, stated, most),
            "by Eq. 16 and 18, k <= 3": total(n, traces, 3),
        },
        unlike={"n + 1 for n": total(n + 1, stated, most)},
    )
    right += one_vector()
    return Verdict(
        [printed, *right],
        [corrected, *right],
        Correction(
            TERM + r"n^{C(\mathcal{G}'_p)} I",
            TERM + r"d^{C(\mathcal{G}'_p) - 1} I",
            "The indices of (18) run over the d coordinates, not the n examples, and the cycle "
            "through the first and the last makes the identity. The next display has the right "
            "power; its sum over P(k) is over P(2k).",
            Kind.MISPRINT,
            "k = 1: E[x x^T] = I, where (19) has n I.",
        ),
    )


def double_factorial(m: int) -> int:
    return 2**m * factorial(m)


def number_of_pairings(m: int) -> int:
    """(2m - 1)!! = 1 3 5 ... (2m - 1)."""
    return factorial(2 * m) // double_factorial(m)


@claim(
    "gatmiry2024/cycle-counts",
    "How many cycles the two graphs of a pairing can have, and how many pairings there are",
    source="Proof of Lemma A.2, after Eq. 19",
    formula=r"\begin{aligned} & C(\mathcal{G}_p) \le r + \left\lfloor \tfrac{k-r}{2} "
    r"\right\rfloor,\quad C(\mathcal{G}'_p) \le k - r,\quad C(\mathcal{G}_p) + C(\mathcal{G}'_p) "
    r"\le k + 1, \\ & \#\{p : r \text{ self-loops or more}\} \le \binom{k}{r} (2k - 2r)!!,\quad "
    r"C_m = (2m)!! \end{aligned}",
)
def cycle_counts(scale: Scale) -> Verdict:
    most = scale.pick(smoke=5, quick=6, paper=7)
    every = by_power(most)
    graphs = [
        (len(p), self_loops(p), cycles(p, meeting=False), cycles(p, meeting=True))
        for group in every.values()
        for p in group
    ]
    own = max(c - r - (k - r) // 2 for k, r, c, _ in graphs)
    meets = max(c - (k - r) for k, r, _, c in graphs)
    both = max(c + meeting - k for k, _, c, meeting in graphs)
    in_graph, together, longer, shorter = checks(
        "largest count of cycles minus its bound",
        at_most(0, "the bound itself, in whole numbers"),
        {
            "C(G) <= r + [(k - r)/2]": own,
            "C(G) + C(G') <= k + 1": both - 1,
            "C(G') <= k - r + 1": meets - 1,
            "C(G') <= k - r": meets,
        },
        unlike={"C(G) + C(G') <= k": both},
    )

    def share(less: int) -> float:
        """Pairings with r self-loops or more over binom(k, r) (2m - 1)!!, m = k - r - less."""
        return max(
            sum(size == k and loops >= r for size, loops, *_ in graphs)
            / (comb(k, r) * number_of_pairings(k - r - less))
            for k in every
            for r in range(k - less + 1)
        )

    many = checks(
        "largest share of the pairings with r self-loops in",
        INEQUALITY,
        {"binom(k, r) (2k - 2r - 1)!!": share(0)},
        unlike={"binom(k, r) (2k - 2r - 3)!!": share(1)},
    )
    even, odd = checks(
        "largest relative difference from the number of pairings of 2m",
        ROUNDING,
        {"(2m)!!": double_factorial, "(2m - 1)!!": number_of_pairings},
        unlike={"m!": factorial},
        measure=lambda count: max(abs(count(m) / len(every[m]) - 1) for m in every),
    )
    kept = [in_graph, together, *many]
    return Verdict(
        [*kept, shorter, even],
        [*kept, longer, odd],
        Correction(
            r"C(\mathcal{G}'_p) \le k - r,\quad C_m = (2m)!!",
            r"C(\mathcal{G}'_p) \le k - r + 1,\quad C_m = (2m - 1)!!",
            "(2m)!! is more than the pairings of 2m, so what it bounds stays bounded. The text has "
            "k - r and then ('i.e.') k - r + 1: where every vector is paired with its own "
            "transpose, r = k and G' has one cycle. (For k = 1 a pair is a self-loop in both.)",
            Kind.PROOF,
            "m = 2: {1, 2, 3, 4} has 3 pairings, and 4!! = 8.",
        ),
        settings={"k": f"1 to {most}", "pairings": len(graphs)},
    )
