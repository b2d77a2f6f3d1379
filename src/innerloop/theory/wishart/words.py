"""Exact expectations of traces of words in a Wishart matrix and other matrices.

A *word* is tr(W B_1 W B_2 ... W B_k) with W = sum_{i=1}^n z_i z_i^T, z_i ~ N(0, I), and every B a
product of fixed matrices, its *letters*. `expected_trace` takes a polynomial in W and the letters
and returns its expected trace as a polynomial in traces of the letters alone, with exact
coefficients. That step sees no numbers, only names; the result is then evaluated for any values
of the letters, in batches, and differentiated.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.theory.checks import TooLargeError, require_count, require_tensor

WISHART = -1
"""The symbol of W in a polynomial; letters are numbered 0, 1, 2, ..."""

Letter = tuple[int, bool]  # (number, transposed)
Product = tuple[Letter, ...]  # of letters; () is the identity
Word = tuple[Product, ...]  # (B_1, ..., B_k) stands for tr(W B_1 W B_2 ... W B_k)
State = tuple[tuple[Word, ...], tuple[Product, ...]]  # a product of words and of plain traces


class MatrixPolynomial:
    """A polynomial in W and letters that do not commute: {(symbol, ...): coefficient}.

    Coefficients are fractions, or whole numbers; nothing here rounds.
    """

    def __init__(self, terms: Mapping[Product, Fraction]) -> None:
        for c in terms.values():
            _require_exact("a coefficient", c)
        self.terms = {symbols: c for symbols, c in terms.items() if c != 0}

    @classmethod
    def letter(cls, number: int) -> MatrixPolynomial:
        """The matrix with this number, from 0 on."""
        return cls._symbol(require_count("number", number, least=0))

    @classmethod
    def wishart(cls) -> MatrixPolynomial:
        return cls._symbol(WISHART)

    @classmethod
    def _symbol(cls, number: int) -> MatrixPolynomial:
        return cls({((number, False),): Fraction(1)})

    @classmethod
    def identity(cls) -> MatrixPolynomial:
        return cls({(): Fraction(1)})

    def __add__(self, other: MatrixPolynomial) -> MatrixPolynomial:
        total = defaultdict(Fraction, self.terms)
        for symbols, c in other.terms.items():
            total[symbols] += c
        return MatrixPolynomial(total)

    def __sub__(self, other: MatrixPolynomial) -> MatrixPolynomial:
        return self + other.scaled(-1)

    def __matmul__(self, other: MatrixPolynomial) -> MatrixPolynomial:
        total: dict[Product, Fraction] = defaultdict(Fraction)
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                total[left + right] += a * b
        return MatrixPolynomial(total)

    def scaled(self, factor: int | Fraction) -> MatrixPolynomial:
        _require_exact("factor", factor)
        return MatrixPolynomial({symbols: factor * c for symbols, c in self.terms.items()})

    @property
    def mT(self) -> MatrixPolynomial:
        return MatrixPolynomial({_transpose(symbols): c for symbols, c in self.terms.items()})


def expected_trace(
    polynomial: MatrixPolynomial,
    n: int,
    *,
    symmetric: Iterable[int] = (),
    limit: int = 400_000,
) -> TracePolynomial:
    """E tr polynomial(W, letters), for W of n degrees of freedom.

    One Gaussian vector at a time is integrated by parts. For M = B_1 W B_2 ... W B_k and O the
    other factors,

        E[tr(W M) O] = n E[tr(M) O]
            + sum_{m=1}^{k-1} ( E[tr(W L_m R_m^T) O] + E[tr(W L_m) tr(R_m) O] )
            + sum_{V in O} sum_r E[tr(W M (K_r + K_r^T)) O / V],

    L_m = B_1 W ... W B_m, R_m = B_{m+1} W ... W B_k, and K_r is V opened at its r-th W. Each step
    removes one W, so the states form layers; weights are pushed down them, states that are equal
    up to rotation and transposition are merged, and what is left holds no W.

    Args:
        symmetric: numbers of the letters that equal their transpose; fewer terms are kept apart.
        limit: refuse when a layer has more states than this; at least 1.
    """
    n, limit = require_count("n", n), require_count("limit", limit)
    fixed = frozenset(require_count("symmetric", number, least=0) for number in symmetric)
    layers: dict[int, dict[State, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for symbols, c in polynomial.terms.items():
        word = _as_word(symbols, fixed)
        layers[len(word[0][0]) if word[0] else 0][word] += c
    for degree in range(max(layers, default=0), 0, -1):
        for state, c in layers.pop(degree, {}).items():
            for next_state, factor in _integrate(state, n, fixed):
                layers[degree - 1][next_state] += factor * c
        if len(layers[degree - 1]) > limit:
            raise TooLargeError(
                f"the exact expectation needs more than {limit} terms at degree {degree - 1} in W; "
                "use a sampled objective instead"
            )
    return TracePolynomial({traces: c for (_, traces), c in layers[0].items() if c != 0})


def _require_exact(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, Fraction)):
        raise ValueError(f"{name} must be an int or a Fraction, to stay exact, got {value!r}")


def _integrate(state: State, n: int, fixed: frozenset[int]) -> list[tuple[State, int]]:
    words, traces = state
    *others, word = words
    terms: Counter[State] = Counter()

    def add(
        new_words: Iterable[Word] = (),
        new_traces: Iterable[Product] = (),
        factor: int = 1,
        kept: list[Word] = others,
    ) -> None:
        all_words = tuple(sorted([*kept, *(_canonical_word(w, fixed) for w in new_words)]))
        all_traces = tuple(sorted([*traces, *(_canonical_trace(t, fixed) for t in new_traces)]))
        terms[all_words, all_traces] += factor

    def opened(segments: Word) -> tuple[list[Word], list[Product]]:
        """tr(B_1 W B_2 ... W B_k) as a word, or as a plain trace when it holds no W."""
        if len(segments) == 1:
            return [], [segments[0]]
        return [(*segments[1:-1], segments[-1] + segments[0])], []

    k = len(word)
    add(*opened(word), factor=n)
    for m in range(1, k):
        left, right = word[:m], word[m:]
        flipped = [_transpose(segment) for segment in reversed(right)]
        add([(*left[:-1], left[-1] + flipped[0], *flipped[1:])])
        new_words, new_traces = opened(right)
        add([left, *new_words], new_traces)
    for i, other in enumerate(others):
        kept = others[:i] + others[i + 1 :]
        for r in range(len(other)):
            cut = other[r:] + other[:r]
            flipped_cut = tuple(_transpose(segment) for segment in reversed(cut))
            for joined in (cut, flipped_cut):
                add([(*word[:-1], word[-1] + joined[0], *joined[1:])], kept=kept)
    return list(terms.items())


@lru_cache(maxsize=1 << 18)
def _transpose(product: Product) -> Product:
    return tuple(
        (number, transposed if number == WISHART else not transposed)
        for number, transposed in reversed(product)
    )


def _plain(product: Product, fixed: frozenset[int]) -> Product:
    """The same product, with a symmetric letter never marked as transposed."""
    return tuple((number, transposed and number not in fixed) for number, transposed in product)


@lru_cache(maxsize=1 << 18)
def _canonical_trace(product: Product, fixed: frozenset[int]) -> Product:
    """Of all products with the same trace, the first: rotations, and rotations of the transpose."""
    turns = [_plain(product, fixed), _plain(_transpose(product), fixed)]
    return min((t[r:] + t[:r] for t in turns for r in range(len(t))), default=())


@lru_cache(maxsize=1 << 18)
def _canonical_word(word: Word, fixed: frozenset[int]) -> Word:
    forward = tuple(_plain(segment, fixed) for segment in word)
    backward = tuple(_plain(_transpose(segment), fixed) for segment in reversed(word))
    return min(t[r:] + t[:r] for t in (forward, backward) for r in range(len(t)))


def _as_word(symbols: Product, fixed: frozenset[int]) -> State:
    cuts = [i for i, (number, _) in enumerate(symbols) if number == WISHART]
    if not cuts:
        return (), (_canonical_trace(symbols, fixed),)
    turned = symbols[cuts[0] :] + symbols[: cuts[0]]
    segments: list[list[Letter]] = []
    for letter in turned:
        if letter[0] == WISHART:
            segments.append([])
        else:
            segments[-1].append(letter)
    return (_canonical_word(tuple(map(tuple, segments)), fixed),), ()


@dataclass(frozen=True)
class _Program:
    """Indices that evaluate a `TracePolynomial` in a few batched operations."""

    letters: int  # how many of them occur, counted up to the last one
    levels: list[tuple[Tensor, Tensor]]  # products of length l + 1 = products[i] @ letters[j]
    halves: tuple[Tensor, Tensor]  # trace = sum(products[i] * products[j]^T)
    monomials: Tensor  # [terms, factors] of traces; index 0 is the number 1
    coefficients: Tensor  # [terms]


class TracePolynomial:
    """sum_t c_t prod_f tr(product_{t,f}) of the letters, with exact coefficients c_t."""

    def __init__(self, terms: Mapping[tuple[Product, ...], Fraction]) -> None:
        self.terms = dict(terms)
        self._program = self._compile()

    def __len__(self) -> int:
        return len(self.terms)

    def __call__(self, letters: Float[Tensor, "*batch letters d d"]) -> Float[Tensor, "*batch"]:
        """The value for these letters (float64 throughout; differentiable in them).

        The terms alternate in sign. The relative error is about 1e-16 times the ratio of the
        largest term to the value, which the exact risks of up to three layers keep below 1e-10.
        """
        program, d = self._program, letters.shape[-1] if letters.ndim else 0
        require_tensor("letters", letters, (None, d, d), batched=True)
        if letters.shape[-3] < program.letters:
            raise ValueError(
                f"letters must hold the {program.letters} matrices of the polynomial, got "
                f"{letters.shape[-3]}"
            )
        letters = letters[..., : program.letters, :, :]
        identity = torch.eye(d).to(letters).expand(*letters.shape[:-3], 1, d, d)
        both = torch.stack([letters, letters.mT], dim=-3).flatten(-4, -3)  # a, a^T, b, b^T, ...
        products = torch.cat([identity, both], dim=-3)
        for prefix, letter in program.levels:
            longer = products[..., prefix, :, :] @ both[..., letter, :, :]
            products = torch.cat([products, longer], dim=-3)
        left, right = program.halves
        traces = (products[..., left, :, :] * products[..., right, :, :].mT).sum((-2, -1))
        traces = torch.cat([torch.ones_like(traces[..., :1]), traces], dim=-1)
        values = program.coefficients
        for factor in program.monomials.unbind(1):
            values = values * traces[..., factor]
        return values.sum(-1)

    def _compile(self) -> _Program:
        traces = sorted({trace for monomial in self.terms for trace in monomial})
        halves = [(t[: (len(t) + 1) // 2], t[(len(t) + 1) // 2 :]) for t in traces]
        needed = {half[:i] for pair in halves for half in pair for i in range(1, len(half) + 1)}
        letters = 1 + max((number for t in traces for number, _ in t), default=-1)
        index: dict[Product, int] = {(): 0}
        for number in range(letters):
            index[(number, False),] = 1 + 2 * number
            index[(number, True),] = 2 + 2 * number
        levels = []
        for length in range(2, max(map(len, needed), default=0) + 1):
            level = sorted(product for product in needed if len(product) == length)
            prefix = [index[product[:-1]] for product in level]
            letter = [2 * product[-1][0] + product[-1][1] for product in level]
            index.update({product: len(index) + i for i, product in enumerate(level)})
            levels.append((torch.tensor(prefix), torch.tensor(letter)))
        position = {trace: 1 + i for i, trace in enumerate(traces)}
        factors = max(map(len, self.terms), default=0)
        monomials = torch.zeros(len(self.terms), factors, dtype=torch.long)
        for row, monomial in enumerate(self.terms):
            for column, trace in enumerate(monomial):
                monomials[row, column] = position[trace]
        return _Program(
            letters,
            levels,
            (
                torch.tensor([index[left] for left, _ in halves], dtype=torch.long),
                torch.tensor([index[right] for _, right in halves], dtype=torch.long),
            ),
            monomials,
            torch.tensor([float(c) for c in self.terms.values()], dtype=torch.float64),
        )
