"""The constants of Theorem 1, against numbers found without them: Hessians, eigenvalues, runs."""

import math

import pytest
import torch

from innerloop.theory.softmax import (
    DescentConstants,
    DictionaryRisk,
    iterations,
    smallest_eigenvalue,
)
from tests.samples import DOUBLE, normal

HEADS, SHOWN, TOKENS, M, D, TAU = 3, 2, 4, 2, 2, 0.5
TOKEN_ROWS = torch.nn.functional.normalize(normal(TOKENS, D, seed=1), dim=1)
FEATURES = normal(TOKENS, M, seed=2)
RISK = DictionaryRisk.of(FEATURES, SHOWN, TAU)


def softmaxes(q):
    logits = torch.einsum("nd,hde,ke->hnk", TOKEN_ROWS[:SHOWN], q, TOKEN_ROWS)
    return logits.softmax(1)


def constants(q):
    return DescentConstants.of(RISK, softmaxes(q))


def test_the_smallest_eigenvalue_is_that_of_the_paper():
    c = softmaxes(normal(HEADS, D, D))
    b = torch.einsum("ij,hjk->kih", RISK.root, c)
    exact = torch.linalg.eigvalsh(b @ b.mT).min()
    torch.testing.assert_close(smallest_eigenvalue(RISK, c), exact, rtol=1e-10, atol=0)


def test_fewer_heads_than_shown_tokens_never_have_full_rank():
    assert smallest_eigenvalue(RISK, softmaxes(normal(SHOWN - 1, D, D))) == 0


def test_norms_are_those_of_their_matrices():
    found = constants(normal(HEADS, D, D))
    z, everything = FEATURES[:SHOWN].mT, FEATURES.mT
    gram = z.mT @ z + M * TAU * torch.eye(SHOWN, dtype=DOUBLE)
    assert found.root_norm**2 == pytest.approx(torch.linalg.eigvalsh(gram).max().item())
    # Columns of a symmetric root: their squared norms are the diagonal of its square.
    assert found.column_norm**2 == pytest.approx(gram.diagonal().max().item())
    bound = 1 + torch.linalg.svdvals(z.mT @ everything).max().item() / (M * TAU)
    assert found.target_bound == pytest.approx(bound)
    assert found.target_norm <= found.target_bound
    assert (found.heads, found.shown, found.tokens) == (HEADS, SHOWN, TOKENS)


@pytest.mark.parametrize("gamma", [1.0, 30.0])
@pytest.mark.parametrize("alpha", [0.01, 1.0, 20.0])
def test_no_hessian_within_the_bound_on_alpha_exceeds_the_smoothness_constant(gamma, alpha):
    def loss(vector):
        q, a = vector[: HEADS * D * D].view(HEADS, D, D), vector[HEADS * D * D :]
        weights = gamma * a.view(HEADS, 1, TOKENS)
        return RISK.gap((weights * softmaxes(q)).sum(0))

    for seed in range(5):
        q = normal(HEADS * D * D, seed=seed)
        a = alpha * normal(HEADS * TOKENS, seed=10 + seed).clamp(-1, 1)
        hessian = torch.autograd.functional.hessian(loss, torch.cat([q, a]))
        largest = torch.linalg.eigvalsh(hessian).abs().max().item()
        found = constants(q.view(HEADS, D, D))
        assert largest <= found.smoothness(gamma, alpha)


def test_the_least_gamma_makes_the_bound_on_the_movement_of_b_tight():
    # Eq. 48: 16 sqrt(2) |Zbar| sqrt(H) gamma alpha f_max sqrt(gap) / sigma, sigma = zeta gamma^2/K,
    # must not exceed (1 - 1/sqrt(2)) sqrt(zeta).
    found = constants(normal(HEADS, D, D))
    gamma = found.least_gamma
    moved = 16 * math.sqrt(2 * found.heads * found.gap) * found.root_norm * found.column_norm
    moved *= gamma * found.alpha_bound(gamma) * found.tokens / (found.zeta * gamma**2)
    assert moved == pytest.approx((1 - 1 / math.sqrt(2)) * math.sqrt(found.zeta))


def test_the_main_texts_constant_is_the_appendixs_with_its_substitutions():
    # With f_max <= |Zbar| = 1 and |A| bounded, Eq. 17 is Eq. 61 with the bounds |A| <= 2a + |A| and
    # a + |A| <= 2a + |A|.
    found = DescentConstants(3, 2, 4, 1.0, 1.0, 1.5, 1.5, 0.2, 0.7)
    gamma = 2.0
    alpha = found.alpha_bound(gamma)
    a, bracket = gamma * 3 * alpha, max(1, 16 * alpha**2)
    assert bracket > 1
    appendix = found.smoothness(gamma, alpha) ** 2
    appendix += 16 / 4 * gamma**2 * bracket * 8 * ((2 * a + 1.5) ** 2 - (a + 1.5) ** 2)
    assert found.main_text_smoothness(gamma) ** 2 == pytest.approx(appendix)


def test_certified_rates_are_the_inverse_smoothness_and_gamma_squared_times_it():
    found = constants(normal(HEADS, D, D))
    gamma = 2 * found.least_gamma
    query_rate, weight_rate = found.rates(gamma)
    assert weight_rate == pytest.approx(gamma**2 * query_rate)
    assert query_rate * found.smoothness(gamma, found.alpha_bound(gamma)) == pytest.approx(1)
    assert found.decrease(weight_rate) == pytest.approx(weight_rate * found.zeta / 8)
    assert 0 < found.decrease(weight_rate) < 1


def test_constants_that_need_full_rank_name_the_heads_they_need():
    few = constants(normal(SHOWN - 1, D, D))
    with pytest.raises(ValueError, match="needs H >= N heads, here H = 1 and N = 2"):
        few.least_gamma  # noqa: B018
    with pytest.raises(ValueError, match="needs H >= N heads"):
        few.alpha_bound(1.0)


def test_constants_need_noise():
    with pytest.raises(ValueError, match="risk must have tau > 0"):
        DescentConstants.of(DictionaryRisk.of(FEATURES, SHOWN, 0.0), softmaxes(normal(3, D, D)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decrease": 0.0}, "decrease must lie strictly between 0 and 1, got 0.0"),
        ({"decrease": 1.0}, "decrease must lie strictly between 0 and 1, got 1.0"),
        ({"failure": 0.0}, "failure must lie strictly between 0 and 1, got 0.0"),
        ({"tau": 0.0}, "tau must be positive and finite, got 0.0"),
    ],
)
def test_iterations_that_do_not_exist_are_refused(change, message):
    settings = dict(decrease=0.1, precision=0.1, failure=0.1, radius=1.0, tau=TAU)
    with pytest.raises(ValueError, match=message):
        iterations(constants(normal(HEADS, D, D)), features=FEATURES[:SHOWN], **(settings | change))


def test_the_iterations_of_theorem_2_bring_the_worst_prompt_to_the_precision():
    found = constants(normal(HEADS, D, D))
    decrease, precision, failure, radius = 0.01, 1e-3, 0.1, 3.0
    steps = iterations(
        found,
        decrease,
        precision=precision,
        failure=failure,
        radius=radius,
        tau=TAU,
        features=FEATURES[:SHOWN],
    )
    log = math.log(1 / failure)
    labels = radius * (
        torch.linalg.svdvals(FEATURES[:SHOWN]).max().item()
        + math.sqrt(TAU * (2 * math.sqrt(SHOWN * log) + 2 * log + SHOWN))
    )

    def error(step):
        return found.gap * (1 - decrease) ** step * labels**2 / (M * TAU)

    assert error(steps) <= precision < error(steps - 1)
