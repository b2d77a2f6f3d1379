"""How long prompts must be for the trained single layer to reach a given error.

The layer is trained on noiseless prompts of N examples, w ~ N(0, I), x ~ N(0, Lambda), and tested
on prompts of M examples whose labels may carry noise (Zhang 2023, section 4.1). Averaged over w its
error splits over the eigenvalues l of Lambda: with k = 1 + tr(Lambda)/l and u = 1 / (1 + k/N),

    error(N, M) = s^2 + sum_l  l (1 - u)^2 + u^2 (l k + s^2) / M,     s = noise_std.

The first term is the error of the best linear predictor, the second falls as 1/N^2, the third as
1/M. Longer tests always help. Longer training does not: u grows with N, and with it the third term.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from innerloop.theory.checks import (
    TooLargeError,
    require_count,
    require_length,
    require_noise,
)

Length = int | float
"""A number of examples; math.inf is allowed."""
LONGEST = 2**53
"""The lengths that float64 counts one by one; an `eps` that needs longer ones is refused."""
MOST_TRIED = 10**7
"""Lengths that `equal_length` tries one after another."""


@dataclass(frozen=True)
class Lengths:
    """Examples in training and test prompts, and the exact error they give."""

    train: Length
    test: Length
    error: float


@dataclass(frozen=True)
class SampleComplexity:
    """The lengths that suffice, exact, for covariates of one spectrum.

    Attributes:
        spectrum: the eigenvalues of the covariance of x, all positive.
        noise_std: standard deviation of the noise on the labels of test prompts, the query's
            included; its square is the error that no lengths can undercut.
    """

    spectrum: tuple[float, ...]
    noise_std: float = 0.0

    def __post_init__(self) -> None:
        positive = all(0 < value < math.inf for value in self.spectrum)
        if not len(self.spectrum) or not positive or not sum(self.spectrum) < math.inf:
            raise ValueError(
                f"spectrum must be one or more positive finite numbers, got {list(self.spectrum)}"
            )
        require_noise(self.noise_std)

    @property
    def floor(self) -> float:
        """The error of the best linear predictor, approached as both lengths grow."""
        return self.noise_std**2

    def error(self, train: Length, test: Length) -> float:
        """The exact error after training on `train` examples, on prompts of `test` examples."""
        for name, length in (("train", train), ("test", test)):
            require_length(length, name)
        return float(self._errors(np.array([train], dtype=float), np.array([test], dtype=float))[0])

    def train_length(self, eps: float) -> int:
        """The smallest N for which some test length reaches `eps`: error(N, M -> inf) < eps.

        The bias l (k / (N + k))^2 falls in N for every eigenvalue: bisection is exact.
        """
        self._require_reachable(eps)
        return _first(lambda n: self.error(n, math.inf) < eps, eps)

    def test_length(self, eps: float, train: Length) -> int:
        """The smallest M with error(train, M) <= eps; the error is a constant plus one over M."""
        self._require_reachable(eps)
        least = self.error(train, math.inf)
        if least >= eps:
            raise ValueError(
                f"eps must be above {least:.6g}, which longer test prompts approach after training "
                f"on {train} examples, got {eps}; train on {self.train_length(eps)} or more"
            )
        return _first(lambda m: self.error(train, m) <= eps, eps)

    def equal_length(self, eps: float) -> int:
        """The smallest n with error(n, n) <= eps: tests as long as the training prompts.

        With v = s^2 / l, an eigenvalue's share (k^2/n^2 + (k + v)/n) / (1 + k/n)^2 has a derivative
        in 1/n of the sign of (k + v) + (k/n) (k - v). So it falls in n beyond k (v - k) / (k + v):
        always without noise or with v <= k, and otherwise only from there on, because a layer
        trained on fewer examples shrinks its prediction, and the noise in it, more. Below, every
        n is tried; above, bisection is exact.
        """
        self._require_reachable(eps)
        values, k = self._eigenvalues()
        v = self.noise_std**2 / values
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below
            turn = float((k * (v - k) / (k + v)).max())
        if not turn < MOST_TRIED:
            raise TooLargeError(
                f"with this spectrum and noise the error need not fall in n before n = {turn:.3g}, "
                f"and at most {MOST_TRIED:.0e} lengths are tried one by one"
            )
        rising = max(0, math.ceil(turn))
        block = 1 << 14
        for start in range(1, rising + 1, block):
            tried = np.arange(start, min(start + block, rising + 1), dtype=float)
            reached = np.flatnonzero(self._errors(tried, tried) <= eps)
            if len(reached):
                return start + int(reached[0])
        return _first(lambda n: self.error(n, n) <= eps, eps, start=rising + 1)

    def frontier(self, eps: float, points: int = 12) -> list[Lengths]:
        """For increasing N the smallest M that reaches `eps`, as long as longer training helps.

        At most `points` values of N (2 to 10,000 of them) at equal ratios are tried, and those are
        kept that allow a shorter test than all before them. None lies above n = `equal_length`.
        For suppose (N, M) reaches eps with N > n. If M >= n, (n, n) is shorter. If M < n < N: an
        eigenvalue's share is a parabola in u, lowest at u = l / (l + (l k + s^2) / M), which N = M
        is already at or beyond, so that it grows with N from there on; training on M examples
        would reach eps too, against the choice of n.
        """
        points = require_count("points", points, least=2, most=10_000, why="no curve needs more")
        first, last = self.train_length(eps), self.equal_length(eps)
        grid = np.unique(np.geomspace(first, max(first, last), points).round().astype(int))
        pairs: list[Lengths] = []
        for train in grid.tolist():
            try:
                test = self.test_length(eps, train)
            except TooLargeError:  # the shortest training may leave tests no room below eps
                continue
            if not pairs or test < pairs[-1].test:
                pairs.append(Lengths(train, test, self.error(train, test)))
        return pairs

    def stated(self, eps: float) -> Lengths:
        """The sufficient lengths of Zhang 2023, Corollary 4.3, rounded up, and the error they give.

            M = 2 (d+1) tr(Lambda) / eps,   N = sqrt(2 (1 + 2d + d^2 kappa) tr(Lambda) / eps)

        With noise, which is ours, eps becomes eps - s^2 and (d+1) tr(Lambda) becomes (d+1)
        tr(Lambda) + d s^2: noise adds (s^2 / M) tr(Gamma^-2 Lambda^2) <= d s^2 / M.
        """
        self._require_reachable(eps)
        d, trace, room = len(self.spectrum), sum(self.spectrum), eps - self.floor
        kappa = max(self.spectrum) / min(self.spectrum)
        exact_test = 2 * ((d + 1) * trace + d * self.floor) / room
        exact_train = math.sqrt(2 * (1 + 2 * d + d**2 * kappa) * trace / room)
        if not max(exact_test, exact_train) <= LONGEST:
            raise _too_long(eps)
        test, train = math.ceil(exact_test), math.ceil(exact_train)
        return Lengths(train, test, self.error(train, test))

    def _eigenvalues(self) -> tuple[np.ndarray, np.ndarray]:
        values = np.array(self.spectrum)
        return values, 1 + values.sum() / values

    def _errors(self, train: np.ndarray, test: np.ndarray) -> np.ndarray:
        """The error of every pair; no term is a difference, so that none loses digits."""
        values, k = self._eigenvalues()
        off = (k / train[:, None]) / (1 + k / train[:, None])  # 1 - u
        u = 1 / (1 + k / train[:, None])
        noisy = values * k + self.noise_std**2
        return self.floor + (values * off**2 + u**2 * noisy / test[:, None]).sum(-1)

    def _require_reachable(self, eps: float) -> None:
        if not self.floor < eps < math.inf:
            raise ValueError(
                f"eps must be finite and above noise_std^2 = {self.floor:.6g}, the error of the "
                f"best linear predictor, which no prompt length undercuts; got {eps}"
            )


def _first(reached: Callable[[int], bool], eps: float, start: int = 1) -> int:
    """The smallest integer from `start` on that is reached, if all after a reached one are."""
    bracket = next((pair for pair in _doubling(start) if reached(pair[1])), None)
    if bracket is None:
        raise _too_long(eps)
    below, above = bracket
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if reached(middle) else (middle, above)
    return above


def _doubling(start: int) -> Iterator[tuple[int, int]]:
    low, step = start - 1, 1
    while low + step <= LONGEST:
        yield low, low + step
        low, step = low + step, 2 * step


def _too_long(eps: float) -> TooLargeError:
    return TooLargeError(
        f"eps must be larger for this spectrum and noise: prompts of more than 2^53 "
        f"examples, which float64 does not count, would be needed, got {eps}"
    )
