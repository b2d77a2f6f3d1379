"""The sum over pairings behind Lemma A.2: Eq. 16 to 19 of Gatmiry et al. (2024), and its graphs.

A pairing p of the 2k vectors in (x x^T)^k joins them two by two. G_p has a node for every factor
x x^T, (1, 2), (3, 4), ...; G'_p has one for every place where two factors meet, (2, 3), (4, 5),
..., and (1, 2k). A pair is an edge in both. Here all pairings are enumerated.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import comb, factorial

import torch
from scipy.special import roots_hermitenorm
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import DTYPE
from innerloop.papers.gatmiry2024.settings import apart, identity, normal
from innerloop.papers.quantity import INEQUALITY, ROUNDING, Cases, Quantity, at_most
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict

Pairing = tuple[tuple[int, int], ...]


def pairings(numbers: tuple[int, ...]) -> Iterator[Pairing]:
    """All ways to join the numbers two by two."""
    if not numbers:
        yield ()
        return
    first, *rest = numbers
    for i, other in enumerate(rest):
        for left in pairings((*rest[:i], *rest[i + 1 :])):
            yield ((first, other), *left)


def of_power(k: int) -> list[Pairing]:
    """P(2k), of the positions 0 .. 2k - 1; the paper counts from 1."""
    return list(pairings(tuple(range(2 * k))))


def node(position: int, k: int, *, meeting: bool) -> int:
    """Of which node of G_p, or of G'_p, this position is part."""
    return ((position + 1) % (2 * k) if meeting else position) // 2


def cycles(p: Pairing, *, meeting: bool) -> int:
    """C(G_p), or C(G'_p): the number of components, since every node has degree two."""
    k = len(p)
    component = list(range(k))
    for a, b in p:
        i, j = (component[node(position, k, meeting=meeting)] for position in (a, b))
        component = [i if c == j else c for c in component]
    return len(set(component))


def self_loops(p: Pairing) -> int:
    """Of G_p."""
    return sum(node(a, len(p), meeting=False) == node(b, len(p), meeting=False) for a, b in p)


def unrolled(p: Pairing, d: int) -> Tensor:
    """The right side of Eq. 18, the indices running to d: sum of e_i1 e_i2^T e_i3 ... e_i2k^T."""
    k, total = len(p), torch.zeros(d, d, dtype=DTYPE)
    for values in product(range(d), repeat=k):
        index = [0] * (2 * k)
        for (a, b), value in zip(p, values, strict=True):
            index[a] = index[b] = value
        if all(index[j] == index[j + 1] for j in range(1, 2 * k - 1, 2)):
            total[index[0], index[-1]] += 1
    return total


def equation17() -> Cases:
    """Its four lines for a dense A and v, the expectation by a product of Gauss-Hermite rules."""
    points, weights = (torch.as_tensor(v, dtype=DTYPE) for v in roots_hermitenorm(4))
    x = torch.cartesian_prod(points, points)
    weight = torch.cartesian_prod(weights, weights).prod(-1) / weights.sum() ** 2
    a, v, alpha = normal(0, 2, 2), normal(1, 2), 0.7

    def mean(values: Tensor) -> Tensor:
        return torch.einsum("b,b...->...", weight, values)

    sides = {
        "tr A": (mean(torch.einsum("bi,ij,bj->b", x, a, x)), a.trace()),
        "v": (mean(x * (x @ v)[:, None]), v),
        "alpha I": (alpha * mean(x[:, :, None] * x[:, None, :]), alpha * identity(2)),
    }
    return Quantity[float](
        "largest relative difference of the expectations of Eq. 17 from tr A, v, v^T, alpha I",
        lambda factor: max(apart(factor * right, left) for left, right in sides.values()),
        ROUNDING,
    ).of({"as printed": 1.0, "times 1.01": 1.01})


@claim(
    "gatmiry2024/equations16-19",
    "The moments of a white sample as a sum over pairings, by the cycles of two graphs",
    source="Eq. 16 to 19 and the display after them",
    formula=r"\begin{aligned} & \mathbb{E}\left[x_1^{(1)}(p) x_1^{(1)}(p)^\top \cdots x_1^{(k)}(p) "
    r"x_1^{(k)}(p)^\top\right] = n^{C(\mathcal{G}'_p)} I, \\ & \mathbb{E}\left[\left(\sum_i x_i "
    r"x_i^\top\right)^k\right] = \sum_p n^{C(\mathcal{G}_p)} d^{C(\mathcal{G}'_p) - 1} I "
    r"\end{aligned}",
)
def sum_over_pairings(scale: Scale) -> Verdict:
    most = scale.pick(smoke=4, quick=5, paper=6)
    n, d = 5, 3
    every = {k: of_power(k) for k in range(1, most + 1)}
    terms = {p: unrolled(p, d) for k in range(1, 4) for p in every[k]}

    def closed(base: int, less: int) -> float:
        """Largest distance of base^(C(G'_p) - less) I from the unrolled expectation."""
        return max(
            apart(base ** (cycles(p, meeting=True) - less) * identity(d), term)
            for p, term in terms.items()
        )

    single = Quantity[tuple[int, int]](
        f"largest relative difference of the term of a pairing, k <= 3, n = {n}, d = {d}, from",
        lambda case: closed(*case),
        ROUNDING,
    ).of({"n^C(G') I": (n, 0), "d^(C(G') - 1) I": (d, 1), "d^C(G') I": (d, 0)})

    def total(k: int, n: int) -> int:
        """d times the sum over pairings."""
        return sum(n ** cycles(p, meeting=False) * d ** cycles(p, meeting=True) for p in every[k])

    def unrolled_total(k: int) -> float:
        """The same with Eq. 18 for every term."""
        return sum(n ** cycles(p, meeting=False) * terms[p].trace().item() for p in every[k])

    def worst(values: dict[int, float]) -> float:
        return max(apart(v, theory.wishart.trace_moment(k, n, d)) for k, v in values.items())

    sums = Quantity[dict[int, float]](
        f"largest relative difference of tr E[(sum x x^T)^k] from the sum over pairings, n = {n}, "
        f"d = {d}",
        worst,
        ROUNDING,
    ).of(
        {
            f"k <= {most}": {k: total(k, n) for k in every},
            "by Eq. 16 and 18, k <= 3": {k: unrolled_total(k) for k in range(1, 4)},
            "n + 1 for n": {k: total(k, n + 1) for k in every},
        }
    )
    lines = equation17().check("as printed", unlike="times 1.01")
    right = [sums.check(f"k <= {most}", unlike="n + 1 for n"), lines]
    return Verdict(
        [single.check("n^C(G') I", unlike="d^C(G') I"), *right],
        [
            single.check("d^(C(G') - 1) I", unlike="d^C(G') I"),
            sums.check("by Eq. 16 and 18, k <= 3", unlike="n + 1 for n"),
            *right,
        ],
        Correction(
            r"\mathbb{E}\left[x_1^{(1)}(p) \cdots x_1^{(k)}(p)^\top\right] = "
            r"n^{C(\mathcal{G}'_p)} I",
            r"\mathbb{E}\left[x_1^{(1)}(p) \cdots x_1^{(k)}(p)^\top\right] = "
            r"d^{C(\mathcal{G}'_p) - 1} I",
            "The indices of (18) run over the d coordinates, not over the n examples, and the "
            "cycle through the first and the last index makes the identity and counts for "
            "nothing. The next display, where (16) and (19) are combined, has the right power, so "
            "nothing follows from the misprint. Its sum over P(k) is over P(2k).",
            Kind.MISPRINT,
            "k = 1: E[x x^T] = I, where (19) has n I.",
        ),
        settings={"n": n, "d": d, "pairings": sum(len(group) for group in every.values())},
    )


def double_factorial(m: int) -> int:
    """(2m)!! = 2 4 6 ... 2m."""
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
    every = {k: of_power(k) for k in range(1, most + 1)}
    flat = [p for group in every.values() for p in group]
    loops = {p: self_loops(p) for p in flat}
    own, meeting = ({p: cycles(p, meeting=m) for p in flat} for m in (False, True))

    def room(bound: str, fewer: int) -> int:
        """By how much the largest count exceeds its bound, minus `fewer`."""
        values = {
            "C(G)": lambda p, k, r: own[p] - r - (k - r) // 2,
            "C(G')": lambda p, k, r: meeting[p] - (k - r),
            "C(G'), + 1": lambda p, k, r: meeting[p] - (k - r + 1),
            "sum": lambda p, k, r: own[p] + meeting[p] - (k + 1),
        }[bound]
        return max(values(p, len(p), loops[p]) for p in flat) + fewer

    none = at_most(0, "the bound itself, in whole numbers")
    excess = Quantity[tuple[str, int]](
        "largest count of cycles minus its bound", lambda case: room(*case), none
    ).of(
        {
            "C(G) <= r + [(k - r)/2]": ("C(G)", 0),
            "C(G') <= k - r": ("C(G')", 0),
            "C(G') <= k - r + 1": ("C(G'), + 1", 0),
            "C(G) + C(G') <= k + 1": ("sum", 0),
            "C(G) <= r + [(k - r)/2] - 1": ("C(G)", 1),
            "C(G') <= k - r, by one less": ("C(G')", 1),
            "C(G) + C(G') <= k": ("sum", 1),
        }
    )

    def share(case: int) -> float:
        """Pairings with r self-loops or more over binom(k, r) (2m - 1)!!, m = k - r - case."""
        return max(
            sum(loops[p] >= r for p in group) / (comb(k, r) * number_of_pairings(k - r - case))
            for k, group in every.items()
            for r in range(k - case + 1)
        )

    many = Quantity[int]("largest share of the pairings allowed", share, INEQUALITY).of(
        {"binom(k, r) (2k - 2r - 1)!!": 0, "binom(k, r) (2k - 2r - 3)!!": 1}
    )
    number = Quantity[list[int]](
        "largest relative difference from the number of pairings of 2m",
        lambda counts: max(abs(c / len(every[m]) - 1) for m, c in zip(every, counts, strict=True)),
        ROUNDING,
    ).of(
        {
            "(2m)!!": [double_factorial(m) for m in every],
            "(2m - 1)!!": [number_of_pairings(m) for m in every],
            "m!": [factorial(m) for m in every],
        }
    )
    kept = [
        excess.check("C(G) <= r + [(k - r)/2]", unlike="C(G) <= r + [(k - r)/2] - 1"),
        excess.check("C(G) + C(G') <= k + 1", unlike="C(G) + C(G') <= k"),
        many.check("binom(k, r) (2k - 2r - 1)!!", unlike="binom(k, r) (2k - 2r - 3)!!"),
    ]
    return Verdict(
        [
            *kept,
            excess.check("C(G') <= k - r", unlike="C(G') <= k - r, by one less"),
            number.check("(2m)!!", unlike="m!"),
        ],
        [
            *kept,
            excess.check("C(G') <= k - r + 1", unlike="C(G') <= k - r"),
            number.check("(2m - 1)!!", unlike="m!"),
        ],
        Correction(
            r"C(\mathcal{G}'_p) \le k - r,\quad C_m = (2m)!!",
            r"C(\mathcal{G}'_p) \le k - r + 1,\quad C_m = (2m - 1)!!",
            "There are 1 3 5 ... (2m - 1) ways to pair 2m things; (2m)!! is more, so that what is "
            "bounded with it stays bounded. The text bounds the cycles of G' by k - r and then by "
            "k - r + 1 ('i.e.'); the pairing of every vector with its own transpose has r = k and "
            "one cycle, so it is the second. (That a pair is a self-loop in at most one of the "
            "graphs fails for k = 1.)",
            Kind.PROOF,
            "m = 2: {1, 2, 3, 4} has 3 pairings, and 4!! = 8.",
        ),
        settings={"k": f"1 to {most}", "pairings": len(flat)},
    )
