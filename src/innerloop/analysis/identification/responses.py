"""How answers respond to the prompt: to the query, and to every label.

*Implicit weights*, d f / d x_q (Akyurek et al. 2022 regress them from many queries; a derivative is
exact): the w of a learner that answers <w, x_q>. *Linearity in the query* is the share of the
prediction that <d f / d x_q, x_q> reproduces: 1 for every such learner. Limit: a learner that is
homogeneous of degree one in x_q, such as |x_q|, has the value 1 as well (Euler).

*Response to labels*, d f / d y_i: for a learner that is linear in its labels, f = sum_i y_i d f / d
y_i, these n numbers describe it completely on a prompt's covariates, whatever the labels;
*linearity in the labels* is the share that the sum reproduces. Limit: the same as above.

Two learners are compared by the concordance of these vectors, as predictions are by their share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms import Learner, answers
from innerloop.analysis.identification import measures
from innerloop.analysis.identification.bootstrap import Bootstrap, Interval
from innerloop.analysis.identification.candidates import Candidate
from innerloop.prompt import Prompt
from innerloop.tables import TextTable

PROMPTS = 300
"""Derivatives keep all that a learner does in memory."""


class NotDifferentiable(ValueError):
    """The learner's answers carry no derivatives; the message says so."""


@dataclass(frozen=True)
class Response:
    """Of the answers to the first query of every prompt."""

    answers: Float[Tensor, " batch"]
    to_query: Float[Tensor, "batch d"]
    to_labels: Float[Tensor, "batch n"]
    from_query: Float[Tensor, " batch"]
    """<d f / d x_q, x_q>."""
    from_labels: Float[Tensor, " batch"]
    """sum_i y_i d f / d y_i."""


def response(learner: Learner, prompt: Prompt) -> Response:
    """Derivatives by automatic differentiation, in double precision after that."""
    batch = len(prompt)
    query = prompt.x_query[:, :1].expand(batch, -1, -1).detach().clone().requires_grad_()
    labels = prompt.y.detach().clone().requires_grad_()
    # NaN: nothing but a loss reads the queries' labels.
    asked = replace(prompt, x_query=query, y=labels, y_query=prompt.y_query[:, :1], y_clean=None)
    try:
        with torch.enable_grad():
            found = answers(learner, asked)
            # A derivative of 0 everywhere is a derivative: of the learner that answers 0.
            to_query, to_labels = torch.autograd.grad(
                found.sum(), (query, labels), allow_unused=True, materialize_grads=True
            )
    except RuntimeError as error:
        raise NotDifferentiable(
            "the learner's answers have no derivatives that PyTorch knows of, so its implicit "
            f"weights are not measured ({str(error).splitlines()[0]})"
        ) from error
    to_query, to_labels = to_query[:, 0].double(), to_labels.double()
    return Response(
        found.detach()[:, 0].double(),
        to_query,
        to_labels,
        (to_query * query.detach()[:, 0].double()).sum(1),
        (to_labels * labels.detach().double()).sum(1),
    )


@dataclass(frozen=True)
class ResponseRow:
    """How alike a candidate's responses are to the learner's."""

    candidate: Candidate
    to_query: Interval
    to_labels: Interval


@dataclass(frozen=True)
class ResponseTable:
    """Linearity of the learner, and its responses beside those of candidates."""

    linear_in_query: Interval
    linear_in_labels: Interval
    rows: Sequence[ResponseRow]
    prompts: int

    def as_text(self) -> TextTable:
        table = TextTable(
            f"responses on {self.prompts} prompts",
            ["candidate", "implicit weights", "response to labels"],
        )
        for row in self.rows:
            table.add(str(row.candidate), row.to_query.percent(), row.to_labels.percent())
        return table

    @property
    def sentence(self) -> str:
        return (
            f"linear in the query: {self.linear_in_query.percent()}; linear in the labels: "
            f"{self.linear_in_labels.percent()}"
        )


def compare_responses(
    learner: Learner,
    prompt: Prompt,
    candidates: Sequence[Candidate],
    *,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> ResponseTable:
    """The learner's responses beside those of every candidate that has derivatives.

    Args:
        prompt: in double precision, of which the first are used; the learner is asked in `dtype`.
    """
    prompt = prompt.part(slice(PROMPTS))
    own = response(learner, prompt.to(dtype=dtype))

    def share(f: Tensor, g: Tensor) -> Interval:
        f, g = f.reshape(len(f), -1), g.reshape(len(g), -1)
        values = measures.squares(f, g, torch.zeros_like(f))
        return Bootstrap.of(values, generator=generator).interval(measures.prediction_share)

    rows = []
    for candidate in candidates:
        try:
            its = response(candidate.learner, prompt)
        except NotDifferentiable:
            continue
        rows.append(
            ResponseRow(
                candidate, share(own.to_query, its.to_query), share(own.to_labels, its.to_labels)
            )
        )
    return ResponseTable(
        share(own.answers, own.from_query), share(own.answers, own.from_labels), rows, len(prompt)
    )
