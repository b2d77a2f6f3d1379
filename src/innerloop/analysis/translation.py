"""How well a translator translates: its loss on held-out pairs, BLEU and chrF."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.algorithms import Learner, answers
from innerloop.analysis.risk import Estimate
from innerloop.corpora import Tokeniser
from innerloop.models import Translator, translate
from innerloop.tasks import Translation

CHUNK = 32
"""Pairs at one time."""
EVERYTHING = "all"


def cross_entropies(
    learner: Learner,
    task: Translation,
    *,
    rows: Int[Tensor, " some"] | None = None,
    chunk: int = CHUNK,
) -> dict[str, Estimate]:
    """Nats per target over these pairs of a task, or every one, of all and of each origin.

        R = sum_i nats_i / sum_i targets_i,     error of R = |nats - R targets| / sum_i targets_i

    A ratio of sums, as the loss that is trained: long translations count for more. The error is
    that of pairs drawn from a larger corpus.
    """
    rows = torch.arange(len(task)) if rows is None else rows.cpu()
    return by_origin(task, rows, *pair_nats(learner, task, rows, chunk=chunk))


def by_origin(
    task: Translation,
    rows: Int[Tensor, " some"],
    nats: Float[Tensor, " some"],
    targets: Float[Tensor, " some"],
) -> dict[str, Estimate]:
    """Nats per target of all these pairs and of each origin, from what each pair takes."""
    origin = task.origin.cpu()[rows]
    found = {EVERYTHING: _ratio(nats, targets)}
    for number, name in enumerate(task.origins):
        own = origin == number
        if own.any():
            found[name] = _ratio(nats[own], targets[own])
    return found


@torch.no_grad()
def pair_nats(
    learner: Learner, task: Translation, rows: Int[Tensor, " some"], *, chunk: int = CHUNK
) -> tuple[Float[Tensor, " some"], Float[Tensor, " some"]]:
    """The nats that each of these pairs takes, and how many targets it has."""
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    targets = (task.lengths - task.middles - 1).double().cpu()[rows]
    nats = torch.empty_like(targets)
    for places in task.lengths.cpu()[rows].argsort(stable=True).split(chunk):  # alike in length
        pairs = task.pairs(rows[places].to(task.tokens.device))
        nats[places] = pairs.total_nats(answers(learner, pairs)).double().cpu()
    return nats, targets


def target_entropy(task: Translation) -> float:
    """The entropy of the task's own targets: no learner without context can go below it."""
    frequencies = task.target_frequencies().double()
    return -(frequencies * frequencies.clamp_min(1e-300).log()).sum().item()


@dataclass(frozen=True)
class Score:
    """A score of translations, from 0 to 100, and how exactly it was computed."""

    name: str
    value: float
    signature: str


def translation_scores(translations: Sequence[str], references: Sequence[str]) -> list[Score]:
    """BLEU and chrF of the whole list, by sacrebleu (Post 2018) with its signatures."""
    if len(translations) != len(references) or not references:
        raise ValueError(
            f"there must be a reference for each translation, got {len(translations)} "
            f"translations and {len(references)} references"
        )
    scores = []
    for name, metric in _metrics().items():
        value = metric.corpus_score(list(translations), [list(references)]).score
        scores.append(Score(name, value, str(metric.get_signature())))
    return scores


def random_rows(task: Translation, most: int, seed: int) -> Int[Tensor, " some"]:
    """At most so many rows of the task, each once; fewer are the first of more."""
    return torch.randperm(len(task), generator=torch.Generator().manual_seed(seed))[:most]


def greedy_scores(model: Translator, task: Translation, rows: Sequence[int]) -> list[Score]:
    """BLEU and chrF of the greedy translations of these rows, against their references."""
    _metrics()  # refused before the sentences are translated, if it is not there
    texts = task.texts(rows)
    said = translate(model, Tokeniser(task.tokeniser), [sentence for sentence, _ in texts])
    return translation_scores(said, [reference for _, reference in texts])


def _metrics() -> dict[str, Any]:
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError as error:
        raise ValueError(
            "BLEU and chrF need sacrebleu: pip install 'innerloop[translation]'"
        ) from error
    return {"BLEU": BLEU(), "chrF": CHRF()}


def _ratio(nats: Float[Tensor, " pairs"], targets: Float[Tensor, " pairs"]) -> Estimate:
    ratio = (nats.sum() / targets.sum()).item()
    count = len(nats)
    residual = (nats - ratio * targets).square().sum() * count / max(count - 1, 1)
    return Estimate(ratio, (residual.sqrt() / targets.sum()).item(), count)
