"""`innerloop translate`: sentences through a trained translator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from innerloop.cli.console import say
from innerloop.experiments import open_translator
from innerloop.models import translate as translations


def translate(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    sentences: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="SENTENCE ...")],
    beams: int = 1,
) -> None:
    """Translates German sentences with a run of the task translation.

    Examples:
      innerloop translate runs/translator "Der Hund schläft im Garten." "Wo ist die Datei?"
      innerloop translate runs/translator "Wählen Sie eine Datei aus." --beams 4

    Args:
        run: the folder of the run; the corpus that it was trained on need not be there.
        sentences: one or more, each in quotes.
        beams: beginnings that are kept at each word; 1 always takes the most likely one.
    """
    if not sentences:
        raise ValueError("translate takes one or more sentences, each in quotes, got none")
    model, tokeniser = open_translator(run)
    for sentence in translations(model, tokeniser, sentences, beams=beams):
        say(sentence)
