"""What a reader should know first: a few findings in plain words, with the numbers measured.

The words belong to a verdict, the numbers to a result. Where a claim was not measured, or its
verdict is another one, there is nothing to say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from innerloop.papers.verdict import Check, Outcome
from innerloop.reproduction.reproduce import Result


@dataclass(frozen=True)
class Finding:
    """One thing worth knowing, and the claim or figure that measures it."""

    id: str
    """Of the claim or figure."""
    headline: str
    """The finding in plain words, without numbers."""
    sentence: Callable[[Result], str]
    """The numbers that say so, all of them read from the result."""
    outcome: Outcome = Outcome.CORRECTED
    """The verdict with which the words are true."""


def findings(results: Sequence[Result]) -> list[tuple[Finding, Result]]:
    """The findings that these results bear out, in the order of `FINDINGS`."""
    by_id = {result.id: result for result in results}
    return [
        (finding, by_id[finding.id])
        for finding in FINDINGS
        if finding.id in by_id and by_id[finding.id].outcome == finding.outcome
    ]


def check_of(result: Result, words: str) -> Check:
    """The one check of the result whose quantity, or quantity and case, begin with these words."""
    checks = [*result.verdict.printed, *result.verdict.corrected]
    matches = [check for check in checks if check.name.startswith(words)]
    if len(matches) != 1:
        raise LookupError(
            f"{result.id} must have one check that begins with {words!r}, has {len(matches)}: "
            + "; ".join(check.name for check in checks)
        )
    return matches[0]


def rounded(value: float) -> str:
    """Three significant digits, written out: 0.0123, 1.66, 241, 58,900,000."""
    value = float(f"{value:.3g}")
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _longer_loops(result: Result) -> str:
    table = result.tables["loops"]
    counts = [int(loops) for loops in table["loops"]]
    median: dict[tuple[object, ...], dict[int, float]] = {}
    for i, line in enumerate(table["line"]):
        if line == "median":
            model = tuple(table[key][i] for key in ("where", "n", "trained", "seed"))
            median.setdefault(model, {})[counts[i]] = float(table["value"][i])
    last = max(counts)
    left = max(curve[last] / curve[int(str(model[2]))] for model, curve in median.items())
    trained = " or ".join(f"{loops}" for loops in dict.fromkeys(table["trained"]))
    least = check_of(result, f"after {last} loops over the minimum: exact mean").measured
    largest = check_of(result, f"mean after {last} loops over its minimum").measured
    return (
        f"Looped {last} times instead of the {trained} of training, a model has a median squared "
        f"error of at most {left:.1%} of what it was. But the exact mean is {rounded(least)} to "
        f"{rounded(largest)} times its minimum: on a few prompts every loop makes the error "
        "larger, and in the end they carry the mean."
    )


def _loops_or_layers(result: Result) -> str:
    ratio = "ratio of the loss of L loops to that of L layers: "
    two, most = (check_of(result, ratio + case).measured for case in ("L = 2", "largest"))
    return (
        f"Two loops have {rounded(two)} times the loss of two layers, and up to "
        f"{max(result.tables['exact']['loops'], key=int)} loops have up to {rounded(most)} times "
        "the loss of as many layers: different steps can be the best polynomial of their degree, "
        "one step repeated cannot."
    )


def _skew_part(result: Result) -> str:
    added = check_of(result, "relative change of the loss when K/sqrt(n) is added").measured
    found = check_of(result, "lowest relative change of the forward pass's loss").measured
    return (
        "A multiple of the inverse covariance is best among symmetric matrices only. A small "
        f"skew-symmetric part lowers the loss by {-added:.1%} where the prompt is as long as the "
        f"theorem asks, and descent over all matrices gains {-found:.1%} with a short one."
    )


def _more_heads(result: Result) -> str:
    rate = check_of(result, "mean log ratio of certified rates").measured
    steps = check_of(result, "mean log ratio of steps of w").measured
    return (
        f"The certified rate is {rounded(math.exp(rate))} times as high with 128 heads as with 8, "
        f"and with the attention at rest they need {math.exp(steps):.1%} of the steps (geometric "
        "means over paired starts). Where the attention is trained as well, the order depends on "
        "the start."
    )


def _random_covariance(result: Result) -> str:
    printed = check_of(result, "distance of the slope of the prediction on <w, x_q> from 1/3")
    return (
        f"The slope of its prediction on the true label is {rounded(1 / 3 + printed.measured)} "
        "where a third is printed: the query is drawn with the covariance of its own prompt, and "
        "tells of it."
    )


def _loss_left(result: Result) -> str:
    left = check_of(result, "final loss relative to the loss of zero weights").measured
    return (
        f"{left:.2%} of the loss of zero weights is left, where 0 is printed: the best that is "
        f"known for {result.verdict.settings['layers']} layers, and training reaches it."
    )


def _decoder_step(result: Result) -> str:
    name = "largest difference of any entry of w from one explicit step: "
    printed, ours = (check_of(result, name + case) for case in ("the printed heads", "k = 0"))
    return (
        "The printed heads hear the token that asks, and miss a step of descent by "
        f"{rounded(printed.measured)}; with mirror images of the examples two heads are exact to "
        f"{ours.measured:.0e}."
    )


def _translators(result: Result) -> str:
    table = result.tables["losses"]
    rows = zip(table["architecture"], table["origin"], table["cross_entropy"], strict=True)
    losses: dict[str, list[float]] = {}
    for architecture, origin, nats in rows:
        if origin == "all":
            losses.setdefault(str(architecture), []).append(float(nats))
    models = result.tables["models"]
    parameters = dict(zip(models["architecture"], models["parameters"], strict=True))
    means = {name: sum(values) / len(values) for name, values in losses.items()}
    share = float(parameters["AlgoFormer"]) / float(parameters["standard"])
    return (
        f"Of held-out German-English pairs a standard transformer has {means['standard']:.2f} nats "
        f"for a token, AlgoFormer {means['AlgoFormer']:.2f} with {share:.0%} of its parameters, "
        f"and one layer looped {means['looped']:.2f}."
    )


FINDINGS = (
    Finding(
        "gatmiry2024/figure3",
        "Looping a model longer than in training helps on most prompts and ruins the mean.",
        _longer_loops,
    ),
    Finding(
        "gatmiry2024/figure2",
        "One layer looped is far from as good as layers with weights of their own.",
        _loops_or_layers,
    ),
    Finding(
        "gatmiry2024/asymmetric",
        "The best weights of a looped layer are not symmetric.",
        _skew_part,
        Outcome.HOLDS,
    ),
    Finding(
        "ahn2023/figure3",
        "Training finds the preconditioners that theory predicts, but the loss does not go to 0.",
        _loss_left,
    ),
    Finding(
        "zhang2023/eq4.13-limit",
        "A layer trained on random covariances predicts two thirds of the label, not one.",
        _random_covariance,
    ),
    Finding(
        "yang2024/rate-heads",
        "More heads raise the proven rate of training, which the paper says they lower.",
        _more_heads,
    ),
    Finding(
        "algoformer2024/lemmaA.5",
        "A decoder can descend at every example, but not as the proof has it.",
        _decoder_step,
    ),
    Finding(
        "algoformer2024/table1",
        "Translators do not come out in the order that is printed.",
        _translators,
        Outcome.FAILS,
    ),
)
