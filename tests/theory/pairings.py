"""Expectations of Gaussian polynomials by brute force: Isserlis' sum over all pairings.

With W = Z Z^T, Z of shape [d, n] with standard normal entries, a trace of a word is

    tr(W B_1 ... W B_k) = sum Z[r_1, c_1] Z[s_1, c_1] B_1[s_1, r_2] Z[r_2, c_2] ... B_k[s_k, r_1],

and E of the 2k factors Z is the sum over all (2k - 1)!! ways to pair them, each pair making the two
row indices equal and the two column indices equal.
"""

import numpy as np


def pairings(items):
    """All ways to split a list of even length into pairs."""
    if not items:
        yield []
        return
    first, *rest = items
    for i, partner in enumerate(rest):
        for others in pairings(rest[:i] + rest[i + 1 :]):
            yield [(first, partner), *others]


class Classes:
    """Indices that a pairing has made equal."""

    def __init__(self, count):
        self.parent = list(range(count))

    def find(self, i):
        while self.parent[i] != i:
            i = self.parent[i]
        return i

    def join(self, i, j):
        self.parent[self.find(i)] = self.find(j)

    def labels(self):
        roots = [self.find(i) for i in range(len(self.parent))]
        order = {root: label for label, root in enumerate(dict.fromkeys(roots))}
        return [order[root] for root in roots]


def power_sum_expectation(powers, n, d):
    """E prod tr W^k over the powers, as an integer."""
    total_degree = sum(powers)
    rows_of = []  # the rows of the two factors of the i-th W; rows are numbered 0, 1, ...
    start = 0
    for k in powers:
        rows_of += [(start + i, start + (i + 1) % k) for i in range(k)]
        start += k
    total = 0
    for pairing in pairings(list(range(2 * total_degree))):
        rows, columns = Classes(total_degree), Classes(total_degree)
        for one, other in pairing:
            rows.join(rows_of[one // 2][one % 2], rows_of[other // 2][other % 2])
            columns.join(one // 2, other // 2)
        total += d ** len(set(rows.labels())) * n ** len(set(columns.labels()))
    return total


def word_expectation(letters, n):
    """E tr(W B_1 W B_2 ... W B_k) for a list of k matrices as numpy arrays."""
    k = len(letters)
    total = 0.0
    for pairing in pairings(list(range(2 * k))):
        # Factor 2i has row 2i and factor 2i + 1 row 2i + 1; both have column i. The letter B_i
        # stands between row 2i + 1 and row 2i + 2.
        rows, columns = Classes(2 * k), Classes(k)
        for one, other in pairing:
            rows.join(one, other)
            columns.join(one // 2, other // 2)
        label = rows.labels()
        operands = []
        for i, letter in enumerate(letters):
            operands += [letter, [label[2 * i + 1], label[(2 * i + 2) % (2 * k)]]]
        total += n ** len(set(columns.labels())) * float(np.einsum(*operands, []))
    return total
