"""The algorithms of the theorems, written as their formulas stand."""

import torch


def descent(f, y, f_query, steps, step, penalty=0.0):
    """A f_query, [batch, outputs], after A <- A - step (sum_i (A f_i - y_i) f_i^T + penalty A)."""
    a = f.new_zeros(len(f), y.shape[-1], f.shape[-1])
    for _ in range(steps):
        a = a - step * ((f @ a.mT - y).mT @ f + penalty * a)
    return (a @ f_query.unsqueeze(-1)).squeeze(-1)


def newton(prompt, steps, alpha):
    """Eq. 4, with sums: M_0 = (alpha / n^2) S, M <- 2M - MSM, w = M X^T y; [batch, 1]."""
    if prompt.n == 0:
        return torch.zeros_like(prompt.y_query)
    s = prompt.x.mT @ prompt.x
    m = alpha / prompt.n**2 * s
    for _ in range(steps):
        m = 2 * m - m @ s @ m
    w = m @ prompt.x.mT @ prompt.y.unsqueeze(-1)
    return (prompt.x_query @ w).squeeze(-1)
