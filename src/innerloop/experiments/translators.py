"""Trained translators: opened with their tokeniser alone, and the pairs to measure them on."""

from __future__ import annotations

from pathlib import Path

import torch

from innerloop.corpora import Corpus, Pair, Tokeniser
from innerloop.corpora.store import Part
from innerloop.experiments.catalogue import MODELS, TASKS
from innerloop.experiments.experiment import WEIGHTS, Experiment, dtype_of
from innerloop.experiments.spec import Spec
from innerloop.models import Translator
from innerloop.tasks import Translation
from innerloop.training import CheckpointError, load_weights, read_checkpoint

TOKENISER = "tokeniser.json"


def held_out(task: Spec) -> Spec:
    """The same task, with the pairs that a translator is not trained on."""
    return task.with_options({"split": "validation"}, TASKS)


def pairs_in_tokens_of(trained: Translation, own: Spec, asked: Spec) -> Translation:
    """The pairs that a spec asks for, of any corpus, in the tokens that a translator knows.

    Args:
        trained: the task that the translator was trained on.
        own: the spec of that task.
    """
    options = asked.options
    for name in ("vocabulary", "dtype"):
        if options[name] != own.options[name]:
            raise ValueError(
                f"{name} must be {own.options[name]}, as the translator was trained, got "
                f"{options[name]}"
            )
    if options["n"] > trained.n:
        raise ValueError(
            f"n must be at most {trained.n}, the tokens that the translator was trained to read, "
            f"got {options['n']}"
        )
    return Translation.of(
        Corpus.open(options["corpus"]),
        Tokeniser(trained.tokeniser),
        options["n"],
        split=options["split"],
        dtype=getattr(torch, options["dtype"]),
    )


def open_translator(path: Path | str) -> tuple[Translator, Tokeniser]:
    """From the folder of a run of the task translation, or from its checkpoint file."""
    path = Path(path)
    file = path / WEIGHTS if path.is_dir() else path
    header, tensors = read_checkpoint(file)
    experiment = Experiment.from_json(header["config"])
    if experiment.task.name != "translation":
        raise ValueError(
            f"{path} was trained on the task {experiment.task.name}; only a run of the task "
            "translation can translate"
        )
    words = file.parent / TOKENISER
    if not words.is_file():
        raise CheckpointError(f"there is no {words}, which says what the tokens of the run mean")
    tokeniser = Tokeniser(words.read_text(encoding="utf-8", errors="replace"))
    if not tokeniser.readable:
        raise CheckpointError(
            f"{words} is no tokeniser any more; remove it, and the same command that trained the "
            "run writes it anew"
        )
    # Of the task, the model is told the numbers of tokens alone: any pair will do.
    one = Corpus("none", [Pair("a", "b", "none")], [], [Part("none", "")], {})
    options = experiment.task.options
    dtype = getattr(torch, options["dtype"])
    task = Translation.of(one, tokeniser, options["n"], dtype=dtype)
    model = experiment.model.build(MODELS, task, torch.Generator()).to(dtype_of(task))
    load_weights(model, tensors, file)
    assert isinstance(model, Translator)
    return model.eval(), tokeniser
