"""Section 5.5 and its table: German-English translation by three architectures.

Printed: a standard transformer of 12 layers, 8 heads and width 256, the vanilla looped transformer
and AlgoFormer with one layer in each place, T = 12 and a window of 10 (Eq. 6), learning rate 5e-5,
on IWSLT 2015: validation cross-entropies 4.994, 4.726 and 4.609. Not printed: tokeniser, batch,
steps, seeds, in what the entropy is measured, and whether there is an encoder; the paper says of
all its experiments that they are decoder-based, and so are these. IWSLT 2015 cannot be fetched
without an account: pairs come from Debian packages, and the numbers are not to be compared with the
printed ones. Their order is the statement.

What is recorded of a training holds no text of the corpus; the sentences below were written for
this page, and how much of each a training sentence shares is recorded beside its translation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure as Picture

from innerloop.analysis import Estimate, cross_entropies, target_entropy, translation_scores
from innerloop.analysis.translation import EVERYTHING
from innerloop.corpora import Corpus, Tokeniser, build_debian
from innerloop.corpora.build import DEBIAN
from innerloop.corpora.split import TrigramIndex
from innerloop.corpora.store import names
from innerloop.experiments import TASKS, Experiment, Record, Run, Study
from innerloop.models import Translator, translate
from innerloop.papers.plots import as_rows, as_table, where
from innerloop.papers.quantity import at_least, measured
from innerloop.papers.registry import Numbers, Table, Tables
from innerloop.papers.verdict import Scale, Verdict
from innerloop.tasks import Translation

PRINTED = {"standard": 4.994, "looped": 4.726, "AlgoFormer": 4.609}
COLOURS = {"standard": "#0072b2", "looped": "#e69f00", "AlgoFormer": "#009e73"}
DEPTH, WINDOW = 12, 10
SENTENCES = {
    "Wählen Sie zuerst ein Bild und danach einen Rahmen aus.": "Select a picture first and then a "
    "frame.",
    "Dieses Programm zeigt alle Bilder eines Ordners.": "This program shows all pictures of a "
    "folder.",
    "Das Dokument wurde noch nicht gespeichert.": "The document has not been saved yet.",
    "Schreiben Sie den Titel in die oberste Zeile.": "Write the title into the top line.",
    "Die Bibliothek enthält Funktionen für lineare Gleichungen.": "The library contains functions "
    "for linear equations.",
    "Er hat den Brief gestern geschrieben.": "He wrote the letter yesterday.",
    "Wo ist der Schlüssel für die große Tür?": "Where is the key to the big door?",
    "Wir können heute nicht in die Stadt fahren.": "We cannot go to the city today.",
    "Die Schriftart wird im ganzen Absatz geändert.": "The font is changed in the whole paragraph.",
    "Ein kleines Werkzeug, um Texte zu vergleichen.": "A small tool to compare texts.",
}
"""With their references."""
OTHER, ONCE = "after another sentence", "after one loop"
"""Cross-entropies that a record has beside the one of the table."""
SCORED = 200
"""Held-out pairs that BLEU and chrF are computed of."""
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
    held_out = _held_out(run.experiment)
    losses = cross_entropies(model, held_out)
    return {
        "losses": as_table(
            {
                "origin": name,
                "cross_entropy": loss.mean,
                "standard_error": loss.standard_error,
                "pairs": loss.samples,
            }
            for name, loss in losses.items()
        ),
        "facts": _facts(run.experiment, model, training, held_out),
        "scores": _scores(model, held_out),
        "translations": _translations(run.experiment, model, held_out),
    }


def _held_out(experiment: Experiment) -> Translation:
    held_out = experiment.task.with_options({"split": "validation"}, TASKS).build(TASKS)
    assert isinstance(held_out, Translation)
    return held_out


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
        OTHER: cross_entropies(model, held_out.mismatched())[EVERYTHING].mean,
    }
    if experiment.model.options["loops"] is not None:
        once = cross_entropies(partial(model, loops=1), held_out)
        facts[ONCE] = once[EVERYTHING].mean
    return {"fact": list(facts), "value": list(facts.values())}


def _scores(model: Translator, held_out: Translation) -> Table:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randperm(len(held_out), generator=generator)[:SCORED].tolist()
    texts = held_out.texts(rows)
    tokeniser = Tokeniser(held_out.tokeniser)
    said = translate(model, tokeniser, [sentence for sentence, _ in texts])
    scores = translation_scores(said, [reference for _, reference in texts])
    return as_table(asdict(score) for score in scores)


def _translations(experiment: Experiment, model: Translator, held_out: Translation) -> Table:
    said = translate(model, Tokeniser(held_out.tokeniser), list(SENTENCES))
    corpus = Corpus.open(experiment.task.options["corpus"])
    seen = TrigramIndex([pair.source for pair in corpus.training])
    return {
        "sentence": list(SENTENCES),
        "reference": list(SENTENCES.values()),
        "translation": said,
        "shared trigrams": [seen.largest_share(sentence) for sentence in SENTENCES],
    }


def prepare(scale: str) -> None:
    """Builds the corpus, unless it is there."""
    if setting(scale).corpus == DEBIAN and DEBIAN not in names():
        build_debian()


STUDY = Study(
    "algoformer2024/table1",
    lambda scale: setting(scale).experiments(),
    measure,
    seconds_per_step,
    prepare=prepare,
)


def tables(records: Mapping[str, Record]) -> Tables:
    """What the figure shows, from records by architecture and seed."""
    losses, models, curves, spoken = [], [], [], []
    for name, record in records.items():
        architecture, _, seed = name.rpartition("-")
        which = {"architecture": architecture, "seed": int(seed)}
        losses += [{**which, **row} for row in as_rows(record.tables["losses"])]
        facts = dict(zip(*record.tables["facts"].values(), strict=True))
        scores = {row["name"]: row["value"] for row in as_rows(record.tables["scores"])}
        models.append(
            {
                **which,
                "parameters": facts["parameters"],
                "tokens seen": facts["tokens seen"],
                "minutes": record.seconds / 60,
                "entropy of the targets": facts["entropy of the targets"],
                OTHER: facts[OTHER],
                ONCE: facts.get(ONCE, float("nan")),
                "corpus": f"{facts['corpus']} {facts['corpus digest']}",
                **scores,
            }
        )
        history = zip(record.history["step"], record.history["loss"], strict=True)
        curves += [{**which, "step": step, "loss": loss} for step, loss in history]
        if which["seed"] == 0:
            rows = as_rows(record.tables["translations"])
            spoken += [{"architecture": architecture, **row} for row in rows]
    every = {"losses": losses, "models": models, "curves": curves, "translations": spoken}
    return {name: as_table(rows) for name, rows in every.items()}


def over_seeds(values: Sequence[float]) -> Estimate:
    """The mean, with the standard error that the starts give."""
    return Estimate.of(torch.tensor(values, dtype=torch.float64))


def judge(tables: Tables) -> Verdict:
    """The printed order: AlgoFormer below the standard and below the looped transformer.

    Differences are taken seed by seed. The control is AlgoFormer after the sentence of another
    pair: the same weights, which know English and not what they are to say, and must not pass.
    """
    losses = {name: _by_seed(tables, name) for name in PRINTED}
    models = where(tables["models"], architecture="AlgoFormer")
    other = dict(zip(models["seed"].tolist(), models[OTHER].tolist(), strict=True))
    rivals = [name for name in PRINTED if name != "AlgoFormer"]

    def ahead(of: str, by: Mapping[int, float]) -> Estimate:
        return over_seeds([losses[of][seed] - by[seed] for seed in losses[of]])

    cases = measured(
        "cross-entropy over AlgoFormer's",
        at_least(0.0, "the statement: AlgoFormer's is the lowest; the error is that over seeds"),
        {f"{name}": ahead(name, losses["AlgoFormer"]) for name in rivals}
        | {f"{name}, AlgoFormer {OTHER}": ahead(name, other) for name in rivals},
    )
    entropy = where(tables["models"])["entropy of the targets"].max()
    worst = max(value for found in losses.values() for value in found.values())
    missing = ""
    if not worst < entropy:
        missing = (
            "models that learned to translate: the largest cross-entropy is "
            f"{worst:.3f}, and words without context have {entropy:.3f}"
        )
    return Verdict(
        [cases.check(name, unlike=f"{name}, AlgoFormer {OTHER}") for name in rivals],
        missing=missing,
        remarks=[*_remarks(tables, losses, entropy), *_spoken(tables)],
    )


def _by_seed(tables: Tables, architecture: str) -> dict[int, float]:
    rows = as_rows(tables["losses"], architecture=architecture, origin=EVERYTHING)
    return {row["seed"]: row["cross_entropy"] for row in rows}


def _remarks(tables: Tables, losses: Mapping[str, Any], entropy: float) -> list[str]:
    sizes = where(tables["models"])
    found = []
    for name, printed in PRINTED.items():
        chosen = sizes["architecture"] == name
        found.append(
            f"{name}: {over_seeds(list(losses[name].values()))} nats for a token over "
            f"{len(losses[name])} seeds (printed, on other data: {printed}), "
            f"{sizes['parameters'][chosen][0]:,} parameters, "
            f"{sizes['tokens seen'][chosen][0]:,} tokens seen, "
            f"{sizes[OTHER][chosen].mean():.3f} {OTHER}{_once(sizes[ONCE][chosen])}, "
            f"BLEU {sizes['BLEU'][chosen].mean():.1f}, chrF {sizes['chrF'][chosen].mean():.1f}."
        )
    found.append(f"The entropy of held-out tokens without context is {entropy:.3f}.")
    return found


def _once(losses: np.ndarray) -> str:
    return "" if np.isnan(losses).any() else f", {losses.mean():.3f} {ONCE}"


def _spoken(tables: Tables) -> list[str]:
    """Every sentence, its reference, and what each architecture says."""
    lines = []
    for sentence, reference in SENTENCES.items():
        rows = as_rows(tables["translations"], sentence=sentence)
        said = "; ".join(f"{row['architecture']}: {row['translation']}" for row in rows)
        shared = max((row["shared trigrams"] for row in rows), default=0.0)
        lines.append(
            f"{sentence} ({reference}) {said} [{shared:.0%} of its trigrams in one training "
            "sentence]"
        )
    return lines


def draw(tables: Tables) -> Picture:
    picture = Picture(figsize=(10.5, 4.2))
    left, right = picture.subplots(1, 2, width_ratios=(3, 2))
    origins = list(dict.fromkeys(tables["losses"]["origin"]))
    for i, (name, colour) in enumerate(COLOURS.items()):
        for place, origin in enumerate(origins):
            found = where(tables["losses"], architecture=name, origin=origin)["cross_entropy"]
            x = np.full(len(found), place + 0.2 * (i - 1))
            label = name if place == 0 else None
            left.plot(x, found, "o", color=colour, markersize=4, label=label)
        curve = where(tables["curves"], architecture=name)
        for seed in np.unique(curve["seed"]):
            chosen = curve["seed"] == seed
            right.plot(curve["step"][chosen], curve["loss"][chosen], color=colour, linewidth=0.8)
    entropy = where(tables["models"])["entropy of the targets"].max()
    for axes in (left, right):
        axes.axhline(entropy, color="#555555", linestyle="--", label="words without context")
    left.set_xticks(range(len(origins)), origins)
    left.set_ylabel("cross-entropy on held-out pairs")
    left.set_title("by source, a dot for each seed")
    left.legend(fontsize=7.5)
    right.set(xlabel="step", ylabel="training loss (looped: mean of the window)")
    right.set_title("training")
    return picture


def numbers(scale: Scale) -> Numbers:
    """The study's records as tables."""
    chosen = setting(scale)
    caption = (
        "Cross-entropy on held-out German-English pairs, in nats for a token of the translation: "
        f"a standard transformer of {chosen.depth} layers, one layer looped {chosen.depth} times, "
        "and AlgoFormer with one layer before, in and after the loop; all see the same number of "
        f"pairs. Width {chosen.width} (printed 256), {chosen.heads} heads (8), "
        f"{chosen.vocabulary} tokens, Adam with learning rate {chosen.rate:g} (5e-5), "
        f"{chosen.steps} steps of {chosen.batch} pairs (not printed). Pairs are from Debian "
        "packages, since IWSLT 2015 cannot be fetched."
    )
    return Numbers(tables(STUDY.results(scale)), caption, asdict(chosen))
