"""Calls that have no answer, by group of theory: name, call and the sentence that refuses it."""

import math
from functools import partial

import torch

from innerloop.theory import flow, linear, softmax, wishart
from tests.samples import seeded

DOUBLE = torch.float64
I3 = torch.eye(3, dtype=DOUBLE)
I2 = torch.eye(2, dtype=DOUBLE)
NAN = I3 * math.nan
LOPSIDED = I3 + torch.diag(torch.ones(2, dtype=DOUBLE), 1)
INDEFINITE = torch.diag(torch.tensor([1.0, 1.0, -1.0], dtype=DOUBLE))
SINGULAR = torch.diag(torch.tensor([1.0, 1.0, 0.0], dtype=DOUBLE))
FLOAT = I3.float()
TWO = torch.full((2,), 0.5, dtype=DOUBLE)
STACK = I3.expand(2, 3, 3)
LAW = linear.CovarianceLaw.fixed(I3)
MOMENTS = linear.JointMoments.linear(I3, I3[0])
FLOW = flow.SingleLayerFlow(LAW, 5)
FEATURES = torch.randn(4, 3, generator=seeded(), dtype=DOUBLE)
RISK = softmax.DictionaryRisk.of(FEATURES, 2, 0.1)
SOFTMAXES = torch.rand(3, 2, 4, generator=seeded(), dtype=DOUBLE)
CONSTANTS = softmax.DescentConstants.of(RISK, SOFTMAXES)
COMPLEXITY = linear.SampleComplexity((1.0, 2.0))
QUADRATURE = wishart.Quadrature(TWO, TWO)
WORD = wishart.MatrixPolynomial.wishart() @ wishart.MatrixPolynomial.letter(1)


def first_column(x):
    return x[:, 0]


def as_a_column(x):
    return x[:, :1]


draw = partial(wishart.sample_wishart, generator=seeded())
rest = partial(flow.gradient_flow, torch.sum)
steps = partial(
    softmax.iterations, CONSTANTS, tau=0.1, failure=0.1, radius=1.0, features=FEATURES[:2]
)
step_risk = partial(linear.one_step_risk, I3)
step_error = partial(linear.response_risk, 1.0, torch.tanh, prior_variance=1.0, length=5)

ROWS = {
    "wishart": [
        ("MatrixPolynomial", lambda f: f.letter(-1), "number must be at least 0, got -1"),
        ("MatrixPolynomial", lambda f: f.identity().scaled(0.5), "factor must be an int or a Frac"),
        ("MatrixPolynomial", lambda f: f({(): 0.5}), "coefficient must be an int or a Fraction"),
        ("Quadrature", lambda f: f(TWO, I3[0]), r"weights must have the shape \[2\], got \[3\]"),
        ("Quadrature", lambda f: QUADRATURE(TWO[:1]), r"values must have the shape \[..., 2\]"),
        ("TracePolynomial", lambda f: wishart.expected_trace(WORD, 3)(I3[None]), "hold the 2 mat"),
        ("TracePolynomial", lambda f: wishart.expected_trace(WORD, 3)(I3), "letters must have the"),
        ("expected_power_sums", lambda f: f((2,), 0, 3), "n must be at least 1, got 0"),
        ("expected_power_sums", lambda f: f((2, -1), 5, 3), "powers must be at least 0, got -1"),
        ("expected_power_sums", lambda f: f((40, 6), 5, 3), "must sum to at most 45, got 46"),
        ("expected_trace", lambda f: f(WORD, 0), "n must be at least 1, got 0"),
        ("expected_trace", lambda f: f(WORD, 2.5), "n must be a whole number .* got 2.5"),
        ("expected_trace", lambda f: f(WORD, 3, limit=0), "limit must be at least 1, got 0"),
        ("largest_eigenvalue_exceeds", lambda f: f(1.0, -5, 3), "n must be at least 1, got -5"),
        ("largest_eigenvalue_exceeds", lambda f: f(1.0, 150, 150), r"at most 90 \(the smaller\)"),
        ("largest_eigenvalue_exceeds", lambda f: f(1.0, 10**9, 2), r"and 1e\+08 \(the larger\)"),
        ("largest_eigenvalue_exceeds", lambda f: f(math.nan, 5, 2), "value must be a number"),
        ("mean_spectrum", lambda f: f(20.0, 3, 4), "n must be a whole number .* got 20.0"),
        ("mean_spectrum", lambda f: f(True, 3, 4), "n must be a whole number .* got True"),
        ("mean_spectrum", lambda f: f(20, 3, -1), "degree must be at least 0, got -1"),
        (
            "mean_spectrum",
            lambda f: f(20, 3, 10**6),
            r"degree must be at most 159, got 1.00000e\+6",
        ),
        ("moment_eigenvalues", lambda f: f([1, math.nan], 5, 2), "must hold finite numbers"),
        ("moment_eigenvalues", lambda f: f([1, -1], 5, 2), "must hold numbers of 0 or more"),
        ("moment_eigenvalues", lambda f: f([1, 1], 5, 31), "k must be at most 30, got 31"),
        ("moment_eigenvalues", lambda f: f([1] * 1001, 5, 2), "at most 1000 eigenvalues, got 1001"),
        ("recurrence", lambda f: f(0, 3, 4), "n must be at least 1, got 0"),
        ("recurrence", lambda f: f(20, 3, 0), "count must be at least 1, got 0"),
        ("recurrence", lambda f: f(20, 3, 2).least_square_at_zero(2), "degree must be at most 1"),
        ("residual_eigenvalues", lambda f: f([1], 5, -1), "k must be at least 0, got -1"),
        ("residual_eigenvalues", lambda f: f([1], -5, 2), "n must be at least 1, got -5"),
        ("sample_wishart", lambda f: f(0, 5, 3, generator=seeded()), "batch must be at least 1"),
        ("sample_wishart", lambda f: f(1, 5, 10**5, generator=seeded()), "80 GB in float64"),
        ("sample_wishart", lambda f: f(1, 2**60, 3, generator=seeded()), "n must be at most 9007"),
        ("sample_wishart", lambda f: draw(1, 5, 3, dtype=torch.int64), "dtype must be a real"),
        ("trace_moment", lambda f: f(10**6, 20, 5), "k must be at most 300, got .*take minutes"),
        ("trace_moment", lambda f: f(2, 20, 2.5), "d must be a whole number .* got 2.5"),
        ("wishart_nodes", lambda f: f(2, 3, 2), "n must be at least d"),
        ("wishart_nodes", lambda f: f(5, 3, -2), "degree must be at least 0, got -2"),
        ("wishart_nodes", lambda f: f(343, 1, 2), "n must be at most 342, .* got 343"),
        ("wishart_nodes", lambda f: f(300, 300, 2), "d must be small"),
    ],
    "linear": [
        ("CovarianceLaw", lambda f: f.fixed(SINGULAR), "positive definite, got the eigenvalue 0"),
        ("CovarianceLaw", lambda f: f.fixed(torch.eye(200)), "d = 200 would take 1.6e.9 numbers"),
        (
            "CovarianceLaw",
            lambda f: f.mixture(STACK, TWO[:1]),
            r"probabilities must have the shape",
        ),
        ("CovarianceLaw", lambda f: f.mixture(STACK, -TWO), "must not be negative and sum to 1"),
        ("CovarianceLaw", lambda f: f.exponential(-TWO), "means must be positive and finite"),
        ("CovarianceLaw", lambda f: f(I3, I2, I3, I3), r"square must have the shape \[3, 3\]"),
        (
            "CovarianceLaw",
            lambda f: f.independent_diagonal(TWO, I3[0], TWO),
            "second must have the",
        ),
        ("JointMoments", lambda f: f.linear(LOPSIDED, I3[0]), "symmetric, got entries that differ"),
        (
            "JointMoments",
            lambda f: f.linear(I3, TWO),
            r"weight must have the shape \[3\], got \[2\]",
        ),
        ("JointMoments", lambda f: f(I3, I3[0], I2, I3[0, 0]), "spread must have the shape"),
        (
            "JointMoments",
            lambda f: f.of_function(as_a_column, I3),
            r"value of function .* \[125, 1\]",
        ),
        ("JointMoments", lambda f: f.of_function(first_column, I3, degree=10**9), "Sample instead"),
        ("JointMoments", lambda f: MOMENTS.with_noise(1e200), "to have a square, got 1e.200"),
        ("SampleComplexity", lambda f: f(()), "spectrum must be one or more positive"),
        ("SampleComplexity", lambda f: f((1e308, 1e308)), "spectrum must be one or more positive"),
        (
            "SampleComplexity",
            lambda f: f((1.0,), -1.0),
            "noise_std must be finite and not negative",
        ),
        ("SampleComplexity", lambda f: COMPLEXITY.error(2.5, 5), "train must be a whole number"),
        ("SampleComplexity", lambda f: COMPLEXITY.error(5, 0), "test must be at least 1 example"),
        ("SampleComplexity", lambda f: COMPLEXITY.frontier(0.1, 1), "points must be at least 2"),
        ("SampleComplexity", lambda f: COMPLEXITY.frontier(0.1, 10**9), "points must be at most"),
        (
            "SampleComplexity",
            lambda f: f((1.0, 1e-12), noise_std=10.0).equal_length(101.0),
            r"lengths are tried one by one",
        ),
        (
            "SampledMoments",
            lambda f: f.draw(linear.gaussian_pairs(I3, first_column), 10, generator=seeded()),
            "got 50 groups and 10 samples",
        ),
        (
            "SampledMoments",
            lambda f: f.draw(linear.gaussian_pairs(I3, as_a_column), 100, generator=seeded()),
            r"the value of function must have the shape \[2\], got \[2, 1\]",
        ),
        ("centred_moment", lambda f: f(-1, 20, 3), "k must be at least 0, got -1"),
        ("centred_moment", lambda f: f(2, 20.0, 3), "n must be a whole number .* got 20.0"),
        ("centred_moment", lambda f: f(10**6, 20, 3), "k must be at most 160"),
        ("context_losses", lambda f: f(1.0, -1, I3), "loops must be at least 0, got -1"),
        ("context_losses", lambda f: f(1.0, 10**9, I3), "losses of 1000000000 loops would take"),
        ("error_parts", lambda f: f(I2, MOMENTS, 5), "preconditioner must have the shape"),
        ("error_parts", lambda f: f(I3, MOMENTS, math.nan), "length must be at least 1 example"),
        ("expanding_probability", lambda f: f(1.0, 0, 3), "n must be at least 1, got 0"),
        ("expanding_probability", lambda f: f(math.inf, 5, 3), "step must be a finite number"),
        ("gap_constant", lambda f: f(2, -3), "d must be at least 1, got -3"),
        ("gap_constant", lambda f: f(31, 3), "loops must be at most 30, got 31"),
        (
            "gaussian_pairs",
            lambda f: f(INDEFINITE, first_column),
            "covariance must be positive def",
        ),
        ("gaussian_pairs", lambda f: f(NAN, first_column), "covariance must be finite"),
        ("in_context_query_risk", lambda f: f(I3, I3, 0), "length must be at least 1, got 0"),
        ("in_context_query_risk", lambda f: f(I3, I3, math.inf), "length must be a whole number"),
        ("layered_risk", lambda f: f(I3[None], I3, 0), "n must be at least 1, got 0"),
        ("layered_risk", lambda f: f(I3[None], I3, -5), "n must be at least 1, got -5"),
        (
            "layered_risk",
            lambda f: f(I3[None], I3, 5, loops=-1),
            "loops must be at least 1, got -1",
        ),
        ("layered_risk", lambda f: f(I3[None], I3, 5, noise_std=-1.0), "noise_std must be finite"),
        ("layered_risk", lambda f: f(I2[None], I3, 5), "preconditioners must have the shape"),
        ("layered_risk", lambda f: f(FLOAT[None], I3, 5), "must be torch.float64 on cpu .*float32"),
        ("layered_risk", lambda f: f(I3[None], INDEFINITE, 5), "covariance must be finite and pos"),
        ("layered_risk", lambda f: f(I3[None], I3, 5, I2), r"prior must have the shape \[3, 3\]"),
        ("layered_risk_polynomial", lambda f: f(0, 5), "layers must be at least 1, got 0"),
        ("layered_risk_polynomial", lambda f: f(1, 5, -1), "noise_variance must be a Fraction and"),
        (
            "layered_risk_polynomial",
            lambda f: f(1, 5, 0.5),
            "noise_variance must be a Fraction and",
        ),
        ("layered_risk_polynomial", lambda f: f(10**9, 5, transformed=True), "a degree above 10.9"),
        (
            "long_prompt_risk",
            lambda f: f(math.nan, 2, 20, 3),
            "gap must be a finite number, got nan",
        ),
        ("long_prompt_slope", lambda f: f(0.1, 10**9, 20, 3), "loops must be at most 80"),
        ("loop_risks", lambda f: f(1.0, -1, 20, 3), "loops must be at least 1, got -1"),
        ("loop_risks", lambda f: f(math.nan, 1, 20, 3), "step must be a finite number, got nan"),
        ("looped_optimum", lambda f: f(10**9, 20, 3), "60 loops is the most"),
        ("looped_optimum", lambda f: f(2, -20, 3), "n must be at least 1, got -20"),
        ("lower_bound", lambda f: f(I3, I3, 0, loops=1), "n must be at least 1, got 0"),
        ("lower_bound", lambda f: f(I3, NAN, 5, loops=1), "covariance must be finite and positive"),
        ("mean_error_parts", lambda f: f(I3, SINGULAR, 5), "covariance must be positive definite"),
        ("mean_error_parts", lambda f: f(I3, I3, 0), "length must be at least 1 example"),
        ("one_step_preconditioner", lambda f: f(I3, -5), "n must be at least 1, got -5"),
        ("one_step_preconditioner", lambda f: f(I3, 0), "n must be at least 1, got 0"),
        ("one_step_preconditioner", lambda f: f(torch.ones(2, 3), 5), "covariance must be square"),
        ("one_step_preconditioner", lambda f: f(NAN, 5), "covariance must be finite"),
        ("one_step_preconditioner", lambda f: f(LOPSIDED, 5), "covariance must be symmetric"),
        ("one_step_preconditioner", lambda f: f(I3, 5, INDEFINITE), "prior must be positive semi"),
        ("one_step_preconditioner", lambda f: f(I3, 5, FLOAT), "prior must be torch.float64"),
        ("one_step_preconditioner", lambda f: f(I3, 5, noise_std=-1.0), "noise_std must be finite"),
        ("one_step_preconditioner", lambda f: f(torch.eye(3).long(), 5), "floating-point numbers"),
        ("one_step_risk", lambda f: step_risk(I3, -5), "length must be at least 1 example"),
        (
            "one_step_risk",
            lambda f: step_risk(I3, 2.5),
            "length must be a whole number of examples",
        ),
        ("one_step_risk", lambda f: step_risk(I3, 5, query_covariance=I2), "query_covariance must"),
        ("optimal_gap", lambda f: f(2, 20, 3, digits=0), "digits must be at least 1, got 0"),
        ("optimal_gap", lambda f: f(2, 20, 3, digits=10**6), "digits must be at most 1000"),
        ("prediction_error", lambda f: f(I2, MOMENTS, 5), "preconditioner must have the shape"),
        ("prediction_error", lambda f: f(I3, MOMENTS, -1), "length must be at least 1 example"),
        ("random_covariance_risk", lambda f: f(I2, LAW, 5), "preconditioner must have the shape"),
        ("ray_error", lambda f: f(TWO[:0], I3[0]), r"steps must have the shape \[..., any\]"),
        ("ray_error", lambda f: f(TWO, I3[0], I3[0]), "transforms must have the shape"),
        ("ray_risk", lambda f: f(TWO, 0, 3), "n must be at least 1, got 0"),
        ("ray_spectrum", lambda f: f(-1, 20, 3), "layers must be at least 1, got -1"),
        ("ray_spectrum", lambda f: f(10**9, 20, 3, transformed=True), "layers must be at most 4"),
        ("residual_moment", lambda f: f(0.1, -2, 20, 3), "power must be at least 0, got -2"),
        ("response_risk", lambda f: step_error(variance=-1.0, d=3), "variance must be positive"),
        ("response_risk", lambda f: step_error(variance=1.0, d=343), "d must be at most 342"),
        (
            "response_risk",
            lambda f: f(1.0, torch.sum, variance=1.0, prior_variance=1.0, d=3, length=5),
            "the value of response must have the shape",
        ),
        (
            "sample_eigenvalues",
            lambda f: f(-1, 5, 3, generator=seeded()),
            "samples must be at least",
        ),
        (
            "sampled_looped_optimum",
            lambda f: f(2, 5, 3, samples=10**12, generator=seeded()),
            "1000000000000 Wishart matrices of d = 3 would take",
        ),
        ("single_layer_risk", lambda f: f(I3[0], I3, I2, 0), "n must be at least 1, got 0"),
        ("single_layer_risk", lambda f: f(I3[0], I3, I2, 5), r"a must have the shape \[3, 2\]"),
        ("tied_risk", lambda f: f(I3, I3, 5, loops=-1), "loops must be at least 1, got -1"),
        ("tied_risk", lambda f: f(I3, I3, -5, loops=1), "n must be at least 1, got -5"),
        ("tied_risk", lambda f: f(I3, I3, 5, loops=1, shift=TWO), "shift must have the shape"),
        (
            "transformed_optimum",
            lambda f: f(2, 20, 3, starts=0, generator=seeded()),
            "starts must be at least 1, got 0",
        ),
        ("untied_optimum", lambda f: f(10**9, 20, 3), "layers must be at most 79"),
        ("untied_optimum", lambda f: f(2, 20, 0), "d must be at least 1, got 0"),
        *(
            ("SampleComplexity", lambda f, m=method, e=eps: getattr(COMPLEXITY, m)(e), sentence)
            for method in ("train_length", "equal_length", "frontier", "stated")
            for eps, sentence in (
                (1e-300, "eps must be larger .* got 1e-300"),
                (5e-324, "eps must be larger .* got 5e-324"),
                (0.0, "eps must be finite and above noise_std"),
                (-1.0, "eps must be finite and above noise_std"),
                (math.inf, "eps must be finite and above noise_std"),
                (math.nan, "eps must be finite and above noise_std"),
            )
        ),
        ("SampleComplexity", lambda f: COMPLEXITY.test_length(1e-300, math.inf), "must be larger"),
    ],
    "flow": [
        ("SingleLayerFlow", lambda f: f(LAW, -5), "n must be at least 1 example"),
        ("SingleLayerFlow", lambda f: FLOW.start(I3 / I3.norm(), -1.0), "scale must be positive"),
        (
            "SingleLayerFlow",
            lambda f: FLOW.start(INDEFINITE, 1.0),
            "direction must be positive semi",
        ),
        ("SingleLayerFlow", lambda f: FLOW.loss(I2, I3[0, 0]), r"u must have the shape \[3, 3\]"),
        ("SingleLayerFlow", lambda f: FLOW.limit(math.nan), "imbalance must be a finite number"),
        ("balanced_direction", lambda f: f(0, seeded()), "d must be at least 1, got 0"),
        ("balanced_direction", lambda f: f(10**5, seeded()), "would take 1.0e.10 numbers, 80 GB"),
        ("descend", lambda f: f(lambda p: p.sum() * math.nan, TWO), "must be a finite scalar"),
        ("descend", lambda f: f(lambda p: p, TWO), "function must be a finite scalar"),
        ("descend", lambda f: f(torch.sum, TWO.float()), "start must be one vector of float64"),
        ("gradient_flow", lambda f: rest(TWO, most_steps=2.5), "most_steps must be a whole number"),
        ("gradient_flow", lambda f: rest(TWO, until=-1.0), "until must be positive and finite"),
        ("gradient_flow", lambda f: rest(TWO * math.nan), "start must be finite"),
        ("whole_layer_loss", lambda f: f(STACK, TWO, 0), "n must be at least 1, got 0"),
        ("whole_layer_loss", lambda f: f(STACK, I3[0], 5), "probabilities must have the shape"),
        ("whole_layer_loss", lambda f: f(NAN[None], TWO[:1] * 2, 5), "covariances must be finite"),
        ("whole_layer_loss", lambda f: f(torch.eye(40)[None], torch.ones(1), 5), "would take"),
    ],
    "softmax": [
        (
            "DescentConstants",
            lambda f: f.of(RISK, SOFTMAXES[:, :1]),
            "softmaxes must have the shape",
        ),
        ("DescentConstants", lambda f: CONSTANTS.alpha_bound(math.nan), "gamma must be positive"),
        ("DescentConstants", lambda f: CONSTANTS.smoothness(-1.0, 1.0), "gamma must be positive"),
        ("DescentConstants", lambda f: CONSTANTS.smoothness(1.0, -1.0), "alpha must be finite and"),
        ("DescentConstants", lambda f: CONSTANTS.decrease(-1.0), "weight_rate must be positive"),
        ("DictionaryRisk", lambda f: f.of(FEATURES, 0, 0.1), "shown must be at least 1, got 0"),
        (
            "DictionaryRisk",
            lambda f: f.of(FEATURES, 2, -0.1),
            "tau must be finite and not negative",
        ),
        (
            "DictionaryRisk",
            lambda f: f.of(FEATURES, 2, 0.1, LOPSIDED),
            "second_moment must be symm",
        ),
        (
            "DictionaryRisk",
            lambda f: f.of(FEATURES, 2, 0.1, FLOAT),
            "second_moment must be torch.f",
        ),
        (
            "DictionaryRisk",
            lambda f: RISK(I3),
            r"matrix must have the shape \[2, 4\], got \[3, 3\]",
        ),
        ("iterations", lambda f: steps(0.5, precision=-1.0), "precision must be positive"),
        ("iterations", lambda f: steps(1.5, precision=0.1), "decrease must lie strictly between"),
        ("iterations", lambda f: steps(0.5, precision=5e-324), "are more than float64 holds"),
        ("one_head_floor", lambda f: f(softmax.DictionaryRisk(I3, I2, TWO, 0.1)), "gram must have"),
        ("ridge_coefficients", lambda f: f(FEATURES, I2[0], 0.1), "labels must have the shape"),
        (
            "ridge_coefficients",
            lambda f: f(FEATURES[:2], I2, -1.0),
            "penalty must be finite and not",
        ),
        (
            "ridge_coefficients",
            lambda f: f(FEATURES[:2], I2, 0.0),
            "penalty must be positive where",
        ),
        ("ridge_matrix", lambda f: f(FEATURES, 5, 0.1), "shown must be between 1 and the 4 tokens"),
        ("ridge_matrix", lambda f: f(FEATURES, 2, -0.1), "penalty must be finite and not negative"),
        ("smallest_eigenvalue", lambda f: f(RISK, I3), "softmaxes must have the shape"),
    ],
}
