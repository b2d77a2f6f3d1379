"""Expectations over Gaussian prompts without sampling, by quadrature in every random number.

A Wishart matrix is T T^T with T lower triangular, T_ii^2 chi-squared and normals below (Bartlett).
Polynomials of it are even in every column of T, so that Gauss-Laguerre nodes for T_ii^2 and
Gauss-Hermite nodes for the normals integrate them exactly. What is averaged is a learner's own
prediction: nothing of the theory that is tested enters.
"""

import torch
from scipy.special import roots_genlaguerre, roots_hermitenorm

from innerloop.prompt import Prompt
from tests.samples import DOUBLE


def normal_nodes(count, degree):
    """Nodes [points, count] and weights for polynomials of `count` standard normals."""
    nodes, weights = roots_hermitenorm(degree // 2 + 1)
    return _grid([(nodes, weights / weights.sum())] * count)


def wishart_factors(n, d, degree):
    """T [points, d, d] and weights [points]: exact for polynomials in T T^T up to this degree."""
    rules = []
    for i in range(d):
        nodes, weights = roots_genlaguerre(degree // 2 + 1, (n - i) / 2 - 1)
        rules.append(((2 * nodes) ** 0.5, weights / weights.sum()))
    nodes, weights = roots_hermitenorm(degree + 1)
    rules += [(nodes, weights / weights.sum())] * (d * (d - 1) // 2)
    points, weights = _grid(rules)
    factor = torch.diag_embed(points[:, :d])
    below = torch.tril_indices(d, d, -1)
    factor[:, below[0], below[1]] = points[:, d:]
    return factor, weights


def linear_learner_risk(learner, covariance, n, prior, noise_std, degree):
    """E (prediction - y_q)^2 of a learner that is linear in the labels, w = K m.

    K is read off the learner, by prompts of d examples with a given S and every unit vector as m.
    The error is then (I - K S) w* minus the noise's part, whose covariance given S is
    (noise_std^2 / n) K S K^T.
    """
    d = len(covariance)
    factor, weights = wishart_factors(n, d, degree)
    root = torch.linalg.cholesky(covariance) @ factor / n**0.5  # S = root root^T
    x = d**0.5 * root.mT.contiguous()
    k = torch.zeros_like(root)
    for j in range(d):
        # m = (1/d) X^T y = root y / sqrt(d) is the unit vector e_j.
        y = d**0.5 * torch.linalg.inv(root)[:, :, j]
        for i in range(d):
            query = torch.eye(d, dtype=DOUBLE)[i].view(1, 1, d)
            unknown = torch.zeros(len(x), 1, dtype=DOUBLE)
            k[:, i, j] = learner(Prompt(x, y, query, unknown))[:, 0]
    s = root @ root.mT
    error = torch.eye(d, dtype=DOUBLE) - k @ s
    risk = torch.einsum("bij,jk,blk,li->b", error, prior, error, covariance)
    noise = torch.einsum("bij,bjk,blk,li->b", k, s, k, covariance)
    return (weights * (risk + noise_std**2 / n * noise)).sum().item()


def single_layer_quadrature(model, covariance, n, prior, noise_std):
    """E (prediction - y_q)^2 of one layer of linear attention, from its answers to Gram matrices.

    Given w, the Gram matrix is F W F^T / n with F = [[R, 0], [w^T R, noise_std]]: degree 2 in W and
    4 in w. The prediction is of degree 3 in the query where that is not masked.
    """
    d = len(covariance)
    root = torch.linalg.cholesky(covariance)
    t, t_weights = wishart_factors(n, d + 1, 2)
    w, w_weights = normal_nodes(d, 4)
    w = w @ torch.linalg.cholesky(prior).mT
    queries, query_weights = normal_nodes(d, 6)
    queries = queries @ root.mT
    total = 0.0
    for one_w, w_weight in zip(w, w_weights, strict=True):
        factor = torch.zeros(d + 1, d + 1, dtype=DOUBLE)
        factor[:d, :d] = root
        factor[d, :d] = one_w @ root
        factor[d, d] = noise_std
        tokens = factor @ t
        gram = tokens @ tokens.mT / n
        for query, query_weight in zip(queries, query_weights, strict=True):
            seen = gram
            if not model.masked:
                token = torch.cat([query, torch.zeros(1, dtype=DOUBLE)])
                seen = gram + torch.outer(token, token) / n
            answers = model.answer(seen, query.expand(len(gram), 1, d)).squeeze(1)
            error = answers.detach() - one_w @ query
            total += (w_weight * query_weight * (t_weights * error**2).sum()).item()
    return total


def _grid(rules):
    """The product of one-dimensional rules: nodes [points, rules] and weights [points]."""
    nodes = torch.cartesian_prod(*(torch.as_tensor(x, dtype=DOUBLE) for x, _ in rules))
    weights = torch.cartesian_prod(*(torch.as_tensor(w, dtype=DOUBLE) for _, w in rules))
    return nodes.view(-1, len(rules)), weights.view(-1, len(rules)).prod(-1)
