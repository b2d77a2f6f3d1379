"""The claims and figures of Zhang et al. (2023), at the smallest scale."""

import pytest
import torch

from innerloop import theory
from innerloop.papers import Outcome, Scale, entries
from innerloop.papers.zhang2023 import corollary4_3, prompts, settings, theorem4_2
from innerloop.papers.zhang2023.flows import fixed_starts, random_starts
from innerloop.papers.zhang2023.lemmas5_2_C1_C3 import coefficients
from innerloop.tasks import Exponential
from innerloop.theory.linear import CovarianceLaw, JointMoments
from tests.papers.contract import assert_as_trained, assert_measured, assert_typeset
from tests.samples import assert_means, relative_error, seeded

CORRECTED = {"lemma5.1-eigenvalues", "lemmaC.8", "orthogonal-query", "eq4.13-limit"}
HOLDING = {
    *("footnote2", "eq4.3", "eq4.4", "theorem4.2", "appendixB", "theorem4.2-linear"),
    *("corollary4.3", "task-shift", "query-shift", "covariate-shift", "eq4.13"),
    *("theorem4.1", "theorem4.1-any-scale", "theorem4.5", "theorem4.5-nondiagonal"),
    *("lemma5.1", "lemma5.2", "lemma5.3", "lemma5.4", "lemma5.4-decay"),
    *("lemmaA.1", "corollaryA.2", "lemmaA.3", "lemmaA.4", "lemmaA.5"),
    *("lemmaC.1", "corollaryC.2", "lemmaC.3", "lemmaC.4", "lemmaC.5", "lemmaC.6", "lemmaC.7"),
    *("lemmaC.8-decay", "lemmaD.1", "lemmaD.2", "lemmaD.3", "lemmaD.4"),
    *("gradient-flow", "error-lengths", "shifts", "random-covariance"),
}
AS_TRAINED = dict.fromkeys(("figure1", "figure1-d20", "figure1-positions"), Outcome.INCONCLUSIVE)
"""Figures whose trainings do not show all that is said of them."""


def test_every_entry_has_an_expected_verdict():
    found = {id.removeprefix("zhang2023/") for id in entries() if id.startswith("zhang2023/")}
    assert found == CORRECTED | HOLDING | AS_TRAINED.keys()


@pytest.mark.parametrize("name", sorted(CORRECTED | HOLDING))
def test_the_verdict_is_the_known_one_and_every_control_is_told_apart(name, tmp_path):
    entry = entries()[f"zhang2023/{name}"]
    assert_measured(entry, Outcome.CORRECTED if name in CORRECTED else Outcome.HOLDS, tmp_path)
    assert_typeset(entry)


@pytest.mark.parametrize("name", AS_TRAINED)
def test_what_trainings_do_not_show_is_not_said(name, tmp_path):
    assert_as_trained(entries()[f"zhang2023/{name}"], AS_TRAINED[name], tmp_path)


def printed_bounds(start):
    """The largest sigma, the least v and the rate, typed in again; Eq. A.13, A.14, 5.7 or C.10 on.

    By covariance and probability, where the theory has moments.
    """
    law, root, fixed = start.law, start.law.d**0.5, len(start.law.covariances) == 1
    mean, square = law.mean(lambda c: c), law.mean(lambda c: c @ c)
    seen = (mean @ start.direction @ mean).trace()

    def heavy(c):
        size = torch.linalg.matrix_norm(settings.gamma(c, start.n), 2)
        return size * (seen if fixed else c.norm() ** 2)

    largest = (2 * seen / (root * law.mean(heavy))).sqrt()
    sigma = start.fraction * largest
    size = torch.linalg.matrix_norm(square, 2)
    room = 2 * seen - root * sigma**2 * law.mean(heavy)
    least = (sigma**2 / (2 * root * size) * room).sqrt()
    if not fixed:
        return (
            largest,
            least,
            coefficients(law, start.n)[1].min() / 2 * sigma**2 * room / root / size,
        )
    inverse = torch.linalg.inv(mean)
    traces = (settings.inverse_gamma(mean, start.n) @ inverse).trace() * inverse.trace()
    return largest, least, sigma**2 / (root * size * traces) * room


@pytest.mark.parametrize("starts", [fixed_starts, random_starts])
def test_the_bounds_of_the_theory_are_those_printed(starts):
    for start in starts(Scale.SMOKE):
        model, of = start.model, start.direction
        found = model.largest_scale(of), model.smallest_v(of, start.sigma), start.rate
        assert found == pytest.approx([bound.item() for bound in printed_bounds(start)], rel=1e-9)


@pytest.mark.parametrize("law", [settings.fixed(2), settings.crossing(2)])
def test_the_loss_of_the_layer_itself_is_the_closed_form(law):
    theta = settings.normal(3, 9)
    closed = theory.flow.whole_layer_loss(*law, 2)(theta)
    assert prompts.layer_loss(law, 2)(theta).item() == pytest.approx(closed.item(), rel=1e-11)


def test_two_points_have_the_moments_of_exponential_entries():
    means = (1.0, 0.5)
    mixture = CovarianceLaw.mixture(*settings.exponential(means))
    exact = CovarianceLaw.exponential(torch.tensor(means, dtype=torch.float64))
    for name in ("mean", "square", "square_and_self", "pair_and_trace"):
        assert relative_error(getattr(mixture, name), getattr(exact, name)) < 1e-12


@pytest.mark.parametrize("name", prompts.LABELS)
def test_every_prompt_has_the_moments_of_the_distribution(name):
    labels, sigma = prompts.LABELS[name], settings.fixed(2).covariances[0]
    prompt, weights = labels.every_prompt(1, sigma)
    x, y = prompt.x_query[:, 0], prompt.y_query[:, 0]
    exact = labels.moments(sigma)
    assert weights.sum().item() == pytest.approx(1, rel=1e-12)
    assert relative_error(torch.einsum("p,pi,pj->ij", weights, x, x), exact.second) < 1e-12
    assert relative_error(torch.einsum("p,pi->i", weights * y, x), exact.cross) < 1e-12
    assert (weights * y**2).sum().item() == pytest.approx(exact.label_power.item(), rel=1e-12)


def test_the_display_for_linear_labels_is_quadratic_in_the_weight():
    w, lam = settings.normal(0, 3), settings.fixed(3).covariances[0]
    once = corollary4_3.displayed_error((w, lam, 7, 5))
    assert corollary4_3.displayed_error((3 * w, lam, 7, 5)) == pytest.approx(9 * once)


def test_the_terms_of_the_theorem_add_up_to_the_error():
    lam = settings.fixed(3).covariances[0]
    moments = JointMoments.linear(lam, torch.ones(3, dtype=torch.float64))
    best = torch.linalg.inv(settings.gamma(lam, 12))
    exact = theory.linear.prediction_error(best, moments, 9).item()
    assert theorem4_2.stated_error(moments, lam, 12, 9) == pytest.approx(exact, rel=1e-12)


def test_the_mean_variance_given_a_coordinate_matches_sampled_pairs():
    variances = Exponential(1)(200_000, seeded(4))
    x = variances.sqrt() * torch.randn(200_000, 1, generator=seeded(5), dtype=torch.float64)
    assert_means(variances, 1.0)
    for low, high in ((0.1, 0.3), (0.9, 1.1), (2.0, 2.5)):
        inside = (x.abs() > low) & (x.abs() < high)
        stated = x.abs() / 2**0.5 + 0.5
        assert_means((variances - stated)[inside], 0.0)
