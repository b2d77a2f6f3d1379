"""Section 5.1: the prediction as a quadratic form in the weights, Lemma 5.1."""

import torch
from torch import Tensor

from innerloop.models.conventions import ZHANG
from innerloop.papers.common import DTYPE, generator, normal, relative, rotated
from innerloop.papers.quantity import at_least, at_most
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.papers.zhang2023.settings import as_stated
from innerloop.prompt import Prompt
from innerloop.tasks import LinearRegression


def column_vector(matrix: Tensor) -> Tensor:
    """Vec: columns one below the other."""
    return matrix.mT.flatten(-2)


def quadratic_form(x_query: Tensor, gram: Tensor) -> Tensor:
    """H of Eq. 5.1, from the query and E E^T / N."""
    d = len(x_query)
    x = torch.zeros(d + 1, d + 1, dtype=DTYPE)
    x[:d, d] = x[d, :d] = x_query
    return torch.kron(x, gram) / 2


def forms(prompt: Prompt, divisor: int, tokens: int) -> list[Tensor]:
    """H of every prompt, with E E^T of this many tokens divided by this."""
    e = prompt.token_matrix()[..., :tokens]
    grams = e @ e.mT / divisor
    return [quadratic_form(x, g) for x, g in zip(prompt.x_query[:, 0], grams, strict=True)]


@claim(
    "zhang2023/lemma5.1",
    "The prediction of a layer is a quadratic form in its weights",
    source="Lemma 5.1, Eq. 5.1",
    formula=r"\hat y_{\mathrm{query}} = u^\top H u,\qquad H = \frac{1}{2} X \otimes"
    r" \left(\frac{E E^\top}{N}\right),\quad X = \begin{bmatrix} 0 & x_{\mathrm{query}} \\"
    r" x_{\mathrm{query}}^\top & 0 \end{bmatrix},\quad u = \mathrm{Vec}"
    r" \begin{bmatrix} U_{11} & u_{12} \\ u_{21}^\top & u_{-1} \end{bmatrix}",
)
def prediction_is_quadratic(scale: Scale) -> Verdict:
    d, n = 4, 9
    task = LinearRegression(rotated([1.5, 1.0, 0.6, 0.3], seed=0), n)
    prompt = task.sample(20, generator=generator(0))
    pv, kq = normal(1, 2, d + 1, d + 1)
    predicted = ZHANG.predict(pv.unsqueeze(0), kq.unsqueeze(0), prompt)[:, 0]
    # U takes its last column from W^PV, the rest from W^KQ.
    u = torch.cat([kq[:, :d], pv[d].unsqueeze(-1)], dim=1)

    def error(case: tuple[Tensor, int, int]) -> float:
        vector, divisor, tokens = case
        stated = [vector @ h @ vector for h in forms(prompt, divisor, tokens)]
        return relative(torch.stack(stated), predicted)

    vec = column_vector(u)
    wrong = {
        "N + 1 for N": (vec, n + 1, n + 1),
        "E without the query": (vec, n, n),
        "Vec by rows": (u.flatten(), n, n + 1),
    }
    name = "relative difference of u^T H u from the layer's prediction"
    found = as_stated(name, (vec, n, n + 1), wrong, error)
    return Verdict(found, settings={"task": task, "prompts": 20, "weights": "dense, normal"})


def negative_count(form: Tensor) -> int:
    spectrum = torch.linalg.eigvalsh(form)
    return int((spectrum < -1e-10 * spectrum.abs().max()).sum())


@claim(
    "zhang2023/lemma5.1-eigenvalues",
    "The matrix of the quadratic form has at least d + 1 negative eigenvalues",
    source="Section 5.1, after Lemma 5.1",
    formula=r"\#\{i : \lambda_i(H) < 0\} \ge d + 1 \text{ almost surely}",
)
def negative_eigenvalues(scale: Scale) -> Verdict:
    d, counts, squared = 4, {}, []
    for n in (1, 2, 3, 4, 9):
        prompt = LinearRegression.isotropic(d, n).sample(5, generator=generator(n))
        found = forms(prompt, n, n + 1)
        counts[n] = [negative_count(form) for form in found]
        squared += [negative_count(form @ form) for form in found]
    integer = "an integer; eigenvalues count from 1e-10 of the largest, rounding is at 1e-16"
    fewest, other = min(map(min, counts.values())), {"of H^2": max(squared)}
    bound = at_least(d + 1, integer)
    return Verdict(
        printed=as_stated("fewest negative eigenvalues", fewest, other, tolerance=bound),
        corrected=as_stated(
            "largest difference of the number of negative eigenvalues from min(d, N) + 1",
            lambda n: min(d, n) + 1,
            {"from min(d, N)": lambda n: min(d, n), "from d + 1": lambda n: d + 1},
            lambda of: max(abs(c - of(n)) for n, found in counts.items() for c in found),
            at_most(0, integer),
        ),
        correction=Correction(
            r"\#\{i : \lambda_i(H) < 0\} \ge d + 1",
            r"\#\{i : \lambda_i(H) < 0\} = \min(d, N) + 1",
            "X/2 has one negative eigenvalue, so H has as many as E has rank: min(d, N) from the "
            "examples, as labels are linear, and one from the query. That the form is not convex, "
            "which is what the paper uses, is true for every N.",
            Kind.STATEMENT,
            f"d = 4, N = 1: {counts[1][0]} negative eigenvalues, not 5",
        ),
        settings={"d": d, "N": "1, 2, 3, 4, 9", "prompts each": 5},
    )
