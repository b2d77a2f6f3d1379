"""`innerloop evaluate` of a translator: nats for a token of held-out pairs, BLEU and chrF."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from jaxtyping import Int
from torch import Tensor

from innerloop import analysis
from innerloop.algorithms import Learner
from innerloop.analysis.translation import EVERYTHING, random_rows
from innerloop.cli.console import console, print_table, say
from innerloop.cli.subject import Subject
from innerloop.models import Translator
from innerloop.tables import TextTable
from innerloop.tasks import Translation

LOSS = "nats for a token ± standard error"


def compare(
    subject: Subject,
    task: Translation,
    learners: Mapping[str, Learner],
    samples: int,
    translated: int,
    seed: int,
) -> None:
    """Prints the losses of the learners, in all and by source, and the scores of the model."""
    rows = random_rows(task, samples, seed)
    losses = {}
    with console().status("") as status:
        for name, learner in learners.items():
            status.update(f"{name}: {len(rows)} pairs")
            losses[name] = analysis.cross_entropies(learner, task, rows=rows)
    sources = [name for name in next(iter(losses.values())) if name != EVERYTHING]
    table = TextTable(
        f"{subject.task_spec}, {len(rows)} of {len(task)} pairs, {subject.note}",
        ["learner", LOSS, "perplexity", *(sources if len(sources) > 1 else [])],
    )
    for name, found in losses.items():
        by_source = [str(found[source]) for source in table.columns[3:]]
        loss = found[EVERYTHING]
        table.add(name, str(loss), f"{math.exp(loss.mean):.4g}", *by_source)
    print_table(table)
    say(
        "averaged over the tokens of the translations, their ends included; without context these "
        f"have an entropy of {analysis.target_entropy(task):.4g} nats"
    )
    if task.too_long:
        every = len(task) + task.too_long
        say(f"left out, more than {task.n} tokens: {task.too_long} of {every} pairs")
    if translated and isinstance(subject.learner, Translator):
        _scores(subject.learner, task, random_rows(task, translated, seed))


def loop_table(
    model: Any, task: Translation, loops: int, trained: int, samples: int, seed: int
) -> TextTable:
    """The loss after 1, 2, ... loops, on the pairs that `compare` takes."""
    analysis.require_loops(loops)
    rows = random_rows(task, samples, seed)
    table = TextTable(
        f"after each loop, {len(rows)} of {len(task)} pairs", ["loops", LOSS, "perplexity"]
    )
    for count in range(1, loops + 1):
        found = analysis.cross_entropies(partial(model, loops=count), task, rows=rows)
        mark = " (trained)" if count == trained else ""
        loss = found[EVERYTHING]
        table.add(f"{count}{mark}", str(loss), f"{math.exp(loss.mean):.4g}")
    return table


def _scores(model: Translator, task: Translation, rows: Int[Tensor, " some"]) -> None:
    with console().status(f"translating {len(rows)} sentences"):
        scores = analysis.greedy_scores(model, task, rows.tolist())
    for score in scores:
        say(f"{score.name} {score.value:.1f} of {len(rows)} greedy translations, {score.signature}")
