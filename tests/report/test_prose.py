"""Plain text with formulas in it, as HTML."""

import pytest

from innerloop.report.prose import prose


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("Sigma*^-1/2 x_q", "Σ*<sup>−1/2</sup> x<sub>q</sub>"),
        ("lambda_max(S) >= 2", "λ<sub>max</sub>(S) ≥ 2"),
        (
            "u_{-1} tends to xi_i^2/gamma_i",
            "u<sub>−1</sub> tends to ξ<sub>i</sub><sup>2</sup>/γ<sub>i</sub>",
        ),
        ("|U|_F^2 and (1 - a*)^(2L)", "|U|<sub>F</sub><sup>2</sup> and (1 − a*)<sup>2L</sup>"),
        ("|x| / sqrt 2 + sqrt(n)", "|x| / √2 + √n"),
        ("w^T A w, N^{-1}", "w<sup>T</sup> A w, N<sup>−1</sup>"),
        ("Sigma_out <= 3 Sigma*", "Σ<sub>out</sub> ≤ 3 Σ*"),
    ],
)
def test_formulas_are_set(text, html):
    assert prose(text) == html


@pytest.mark.parametrize(
    "text",
    [
        "the best multiple of the identity, at 1e-06",
        "rerun gatmiry2024/theorem4.5 --scale quick",
        "in_domain and step_size stay names",
        "deltas, etas and the alphabet stay words",
    ],
)
def test_other_text_is_left_alone(text):
    assert prose(text) == text


def test_html_in_the_text_is_escaped():
    assert prose("a < b & <script>^2") == "a &lt; b &amp; &lt;script&gt;<sup>2</sup>"
