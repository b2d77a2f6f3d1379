"""The trainings behind section 5.5's table, and what is measured of each translator.

What is recorded of a training holds no text of the corpus but for ten short held-out sentences with
their references, drawn from sources whose licence lets them be quoted, and named beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice, product

import torch
from torch import Tensor

from innerloop.analysis import cross_entropies, greedy_scores, target_entropy
from innerloop.analysis.translation import EVERYTHING, by_origin, pair_nats, random_rows
from innerloop.corpora import Corpus, Tokeniser, build_debian
from innerloop.corpora.build import DEBIAN
from innerloop.corpora.cleaning import words
from innerloop.corpora.split import TrigramIndex
from innerloop.corpora.store import Part, names
from innerloop.experiments import TASKS, Experiment, Run, Study
from innerloop.experiments.translators import held_out as validation
from innerloop.models import Translator, translate
from innerloop.papers.plots import as_table
from innerloop.papers.registry import Table
from innerloop.papers.verdict import Scale
from innerloop.tasks import Translation

DEPTH, WINDOW = 12, 10
OWN = "after its own sentence"
OTHER, ONCE = "after another sentence", "after one loop"
"""Cross-entropies that a record has beside the one of the table."""
BLOCKS = 25
"""Of held-out pairs, whose losses a record keeps apart."""
SCORED, SEED = 200, 1
"""Held-out pairs that BLEU and chrF are computed of, drawn as `innerloop evaluate` draws them."""
SPOKEN, MOST_WORDS = 10, 12
"""Held-out sentences that a record shows, and how long they may be."""
QUOTABLE = ("MPL-2.0", "MIT")
"""How the licence begins of a source that a few sentences may be quoted from."""
OPERATIONS = 4e10
"""In a second on one core here, measured at width 96."""


@dataclass(frozen=True)
class Setting:
    """What the trainings of a scale have in common, and how many starts each architecture has."""

    width: int
    heads: int
    steps: int
    rate: float
    vocabulary: int = 4000
    n: int = 64
    batch: int = 32
    seeds: int = 3
    depth: int = DEPTH
    window: int = WINDOW
    corpus: str = "debian"

    def experiments(self) -> dict[str, Experiment]:
        """By architecture and seed, such as "looped-2"."""
        sizes = f"width={self.width},heads={self.heads}"
        counts = f"loops={self.depth}"
        looped = f"window:batch={self.batch},{counts},window={self.window}"
        chosen = {
            "standard": (f"layers={self.depth}", f"positions:batch={self.batch}"),
            "looped": (f"layers=1,{counts}", looped),
            "AlgoFormer": (f"layers=1,{counts},around=1", looped),
        }
        task = f"translation:corpus={self.corpus},vocabulary={self.vocabulary},n={self.n}"
        return {
            f"{name}-{seed}": Experiment(
                f"translator:{layers},{sizes}",
                task,
                objective,
                f"adam:lr={self.rate}",
                "stable-decay",
                steps=self.steps,
                clip=1.0,
                seed=seed,
            )
            for (name, (layers, objective)), seed in product(chosen.items(), range(self.seeds))
        }


QUICK = Setting(width=96, heads=4, steps=4000, rate=2e-3)
PAPER = Setting(256, 8, steps=100_000, rate=5e-5, vocabulary=10_000, n=128, batch=64)


def setting(scale: str) -> Setting:
    """At `smoke` the records of `quick` are shown: they are there."""
    return Scale(scale).pick(smoke=QUICK, quick=QUICK, paper=PAPER)


def seconds_per_step(experiment: Experiment) -> float:
    """From the matrix products: 6 for each weight and token, and as many read-outs as losses."""
    model, task = experiment.model.options, experiment.task.options
    objective = experiment.objective.options
    loops, counts = model["loops"] or 1, objective.get("window", 1)
    layers = model["layers"] * loops + model["around"] * (1 + counts)
    tokens = 0.55 * task["n"]  # of a pair on average, half of them targets
    inside = tokens * layers * 12 * model["width"] ** 2
    ends = tokens / 2 * counts * task["vocabulary"] * model["width"]
    return 6 * objective["batch"] * (inside + ends) / OPERATIONS


def measure(run: Run) -> dict[str, Table]:
    """Tables of a trained translator: losses by source, sizes, scores, and translations."""
    model, training = run.model, run.task
    assert isinstance(model, Translator)
    assert isinstance(training, Translation)
    held_out = validation(run.experiment.task).build(TASKS)
    assert isinstance(held_out, Translation)
    rows = torch.arange(len(held_out))
    said = pair_nats(model, held_out, rows)
    other, kept = held_out.mismatched()
    unread = pair_nats(model, other, torch.arange(len(other)))
    return {
        "losses": as_table(
            {
                "origin": name,
                "cross_entropy": loss.mean,
                "standard_error": loss.standard_error,
                "pairs": loss.samples,
            }
            for name, loss in by_origin(held_out, rows, *said).items()
        ),
        "blocks": as_table(
            [*_blocks(OWN, rows, *said), *_blocks(OTHER, torch.tensor(kept), *unread)]
        ),
        "facts": _facts(run.experiment, model, training, held_out),
        "scores": _scores(model, held_out),
        "translations": _translations(run.experiment, model, held_out),
    }


def _blocks(
    sentence: str, rows: Tensor, nats: Tensor, targets: Tensor
) -> list[dict[str, float | str]]:
    """Nats and targets of blocks of the held-out pairs, which stand in these rows: with them,
    errors of models that answered the same pairs can be compared."""
    return [
        {
            "sentence": sentence,
            "block": block,
            "nats": nats[rows % BLOCKS == block].sum().item(),
            "targets": targets[rows % BLOCKS == block].sum().item(),
        }
        for block in range(BLOCKS)
    ]


def _facts(
    experiment: Experiment, model: Translator, training: Translation, held_out: Translation
) -> Table:
    corpus = Corpus.open(experiment.task.options["corpus"])
    fed = (training.lengths - 1).double().mean().item()
    facts: dict[str, float | str] = {
        "corpus": corpus.name,
        "corpus digest": corpus.digest,
        "training pairs": len(training),
        "held-out pairs": len(held_out),
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens seen": round(experiment.steps * experiment.objective.options["batch"] * fed),
        "entropy of the targets": target_entropy(held_out),
        "log of the vocabulary": math.log(held_out.vocabulary),
    }
    if experiment.model.options["loops"] is not None:
        once = cross_entropies(partial(model, loops=1), held_out)
        facts[ONCE] = once[EVERYTHING].mean
    return {"fact": list(facts), "value": list(facts.values())}


def _scores(model: Translator, held_out: Translation) -> Table:
    scores = greedy_scores(model, held_out, random_rows(held_out, SCORED, SEED).tolist())
    return as_table(asdict(score) for score in scores)


def _translations(experiment: Experiment, model: Translator, held_out: Translation) -> Table:
    corpus = Corpus.open(experiment.task.options["corpus"])
    seen = TrigramIndex([pair.source for pair in corpus.training])
    rows = quotable(corpus.parts, held_out)
    texts = held_out.texts(rows)
    said = translate(model, Tokeniser(held_out.tokeniser), [sentence for sentence, _ in texts])
    parts = [corpus.parts[number] for number in held_out.origin[rows].tolist()]
    return as_table(
        {
            "sentence": sentence,
            "reference": reference,
            "translation": translation,
            "source": ", ".join(part.packages) or part.name,
            "licence": part.licence,
            "shared trigrams": seen.largest_share(sentence),
        }
        for (sentence, reference), translation, part in zip(texts, said, parts, strict=True)
    )


def quotable(parts: Sequence[Part], held_out: Translation) -> list[int]:
    """Rows of short sentences, at random, of the sources whose licence lets them be quoted."""
    free = [part.licence.startswith(QUOTABLE) for part in parts]
    origin = held_out.origin.tolist()
    every = random_rows(held_out, len(held_out), SEED).tolist()
    rows = [row for row in every if free[origin[row]]]
    texts = held_out.texts(rows)
    short = (row for row, pair in zip(rows, texts, strict=True) if all(map(_is_short, pair)))
    return list(islice(short, SPOKEN))


def _is_short(sentence: str) -> bool:
    """And a whole one: a heading or an entry of a menu has no full stop."""
    return sentence.endswith(".") and len(words(sentence)) <= MOST_WORDS


def prepare(scale: str, notify: Callable[[str], None]) -> None:
    """Builds the corpus, unless it is there."""
    if setting(scale).corpus == DEBIAN and DEBIAN not in names():
        build_debian(watch=lambda stage, done, of: notify(f"corpus, {stage} ({done} of {of})"))


STUDY = Study(
    "algoformer2024/table1",
    lambda scale: setting(scale).experiments(),
    measure,
    seconds_per_step,
    prepare=prepare,
)
