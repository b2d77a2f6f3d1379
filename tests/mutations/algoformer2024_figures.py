"""Deliberate errors that the figures of algoformer2024 from trained models must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from innerloop.papers.algoformer2024 import table1
from tests.mutations.mutation import Mutation, after, instead, times

TRAINED = "papers.algoformer2024.trained"
TABLE1 = "papers.algoformer2024.table1"
COMPARED = (
    *("figure2a", "figure2a-d20", "figure2b", "figure2c", "same-layers", "figure3", "figure4"),
    "figure4-loop",
)


def ids(*names: str) -> tuple[str, ...]:
    return tuple(f"algoformer2024/{name}" for name in names)


def the_other_way_round(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda of, to: right(to, of)


@after
def with_wider_errors(estimate: Any) -> Any:
    return replace(estimate, standard_error=100 * (estimate.standard_error + abs(estimate.mean)))


MUTATIONS = [
    Mutation(
        "the ratio of two errors the other way round",
        f"{TRAINED}.comparing:ratio",
        the_other_way_round,
        ids(*COMPARED, "figure5"),
    ),
    Mutation(
        "errors so uncertain that nothing is decided",
        f"{TRAINED}.comparing:ratio",
        with_wider_errors,
        ids(*COMPARED, "figure5"),
    ),
    Mutation(
        "learning curves read backwards",
        f"{TRAINED}.comparing:Curve.of",
        after(lambda curve: curve.backwards),
        ids("figure2a", "figure2a-d20", "figure2b", "figure2c"),
    ),
    Mutation(
        "gradient descent and Newton's method ten thousand times as good",
        f"{TRAINED}.figure5:over",
        times(1e4),
        ids("figure5"),
    ),
    Mutation(
        "an iteration that noise slows",
        f"{TRAINED}.iterations:contraction_table",
        after(lambda table: {**table, "change": [1e-3] * 4, "slower": [1e-3] * 4}),
        ids("figure5"),
    ),
    Mutation(
        "the error of least squares 10% off",
        f"{TRAINED}.iterations:limit_table",
        after(lambda table: {**table, "exact": [1.1 * table["exact"][0]]}),
        ids("figure5"),
    ),
]
TABLE1_MUTATIONS = [
    Mutation(
        "the difference of two cross-entropies the other way round",
        f"{TABLE1}:lead",
        the_other_way_round,
        ids("table1"),
    ),
    Mutation(
        "cross-entropies so uncertain that nothing is decided",
        f"{TABLE1}:lead",
        with_wider_errors,
        ids("table1"),
    ),
    Mutation(
        "a control that reads the sentence",
        f"{TABLE1}:after_another_sentence",
        instead(table1.after_own_sentence),
        ids("table1"),
    ),
    Mutation(
        "words without context half as uncertain",
        f"{TABLE1}:without_context",
        times(0.5),
        ids("table1"),
    ),
]
