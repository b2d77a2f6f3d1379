"""What no formula of theory answers: every public name refuses with a sentence, never a number."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from innerloop.theory import flow, linear, softmax, wishart
from innerloop.theory.wishart import TooLargeError
from tests.samples import seeded
from tests.theory.refusal_table import COMPLEXITY, DOUBLE, I3, ROWS, STACK

pytestmark = pytest.mark.usefixtures("shapes_unchecked")

RESULTS = {
    "ErrorParts": "what error_parts returns",
    "Flow": "what gradient_flow returns; its methods are tested with it",
    "Lengths": "what SampleComplexity returns",
    "RayOptimum": "what the optima on the ray return",
    "SampledOptimum": "what sampled_looped_optimum returns",
    "TooLargeError": "a refusal itself",
}
GROUPS = {"wishart": wishart, "linear": linear, "flow": flow, "softmax": softmax}


@pytest.mark.parametrize(
    ("group", "name", "call", "sentence"),
    [(group, *row) for group, rows in ROWS.items() for row in rows],
)
def test_what_has_no_answer_is_refused_with_a_sentence(group, name, call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(getattr(GROUPS[group], name))


@pytest.mark.parametrize("group", GROUPS)
def test_every_public_name_is_in_the_table(group):
    tried = {name for name, *_ in ROWS[group]}
    assert not set(GROUPS[group].__all__) - tried - set(RESULTS)


def test_what_is_too_large_can_be_told_from_what_is_wrong():
    with pytest.raises(TooLargeError):
        wishart.trace_moment(301, 20, 5)
    with pytest.raises(TooLargeError):
        COMPLEXITY.stated(1e-300)


def test_whole_numbers_of_numpy_count_as_python_integers_do():
    n, d = np.int64(10**6), np.int32(5)
    assert wishart.trace_moment(np.int64(9), n, d) == wishart.trace_moment(9, 10**6, 5)
    assert linear.centred_moment(6, n, d) == linear.centred_moment(6, 10**6, 5)


def test_a_float_is_refused_also_after_the_same_whole_number_was_answered():
    wishart.recurrence(7, 3, 2)
    with pytest.raises(ValueError, match=r"n must be a whole number .* got 7.0"):
        wishart.recurrence(7.0, 3, 2)


def test_risks_may_still_be_mapped_over_their_weights():
    weights = torch.stack([I3, 2 * I3])
    tied = torch.func.vmap(lambda a: linear.tied_risk(a, I3, 5, loops=2))(weights)
    assert tied[0] == pytest.approx(linear.tied_risk(I3, I3, 5, loops=2).item())
    b, a = torch.ones(2, 4, dtype=DOUBLE), torch.ones(2, 4, 3, dtype=DOUBLE)
    mapped = torch.func.vmap(lambda b, a, s: linear.single_layer_risk(b, a, s, 5))(b, a, STACK)
    assert mapped[1] == pytest.approx(linear.single_layer_risk(b[1], a[1], I3, 5).item())


sizes = st.integers(1, 4)


@settings(max_examples=10)
@given(n=st.integers(1, 12), d=sizes, loops=sizes, noise_std=st.sampled_from([0.0, 0.5]))
def test_valid_sizes_are_always_answered(n, d, loops, noise_std):
    covariance = torch.diag(torch.arange(1, d + 1, dtype=DOUBLE))
    best = linear.one_step_preconditioner(covariance, n, covariance, noise_std)
    values = [
        linear.one_step_risk(best, covariance, n, covariance, noise_std),
        linear.in_context_query_risk(best, covariance, n, noise_std=noise_std),
        linear.mean_error_parts(best, covariance, math.inf).total,
        linear.layered_risk(best[None], covariance, n, noise_std=noise_std),
        linear.looped_optimum(loops, n, d).risk,
        linear.untied_optimum(loops, n, d).risk,
        linear.long_prompt_risk(Fraction(1, 2), loops, n, d),
        linear.expanding_probability(0.5, n, d),
        linear.random_covariance_risk(best, linear.CovarianceLaw.fixed(covariance), n),
        wishart.trace_moment(loops, n, d),
        wishart.expected_power_sums((loops, 0, 1), n, d),
        wishart.residual_eigenvalues(range(1, d + 1), n, loops)[0],
        flow.SingleLayerFlow(linear.CovarianceLaw.fixed(covariance), n).minimum,
    ]
    assert all(math.isfinite(value) for value in values)


@given(shown=sizes, features=sizes, tau=st.sampled_from([0.0, 0.1]))
def test_valid_dictionaries_are_always_answered(shown, features, tau):
    tokens = torch.randn(5, features, generator=seeded(), dtype=DOUBLE)
    risk = softmax.DictionaryRisk.of(tokens, shown, tau)
    assert math.isfinite(softmax.one_head_floor(risk))
    assert softmax.ridge_matrix(tokens, shown, tau + 0.1).isfinite().all()
