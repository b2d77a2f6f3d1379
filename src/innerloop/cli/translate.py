"""`innerloop translate`: sentences through a trained translator."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import tyro

from innerloop.cli.console import say
from innerloop.corpora.pairs import text_lines
from innerloop.experiments import open_translator
from innerloop.models import translate as translations


def translate(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    sentences: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="SENTENCE ...")],
    beams: int = 1,
) -> None:
    """Translates German sentences with a run of the task translation.

    For example:
      innerloop translate runs/translator "Der Hund schläft im Garten." "Wo ist die Datei?"
      innerloop translate runs/translator "Wählen Sie eine Datei aus." --beams 4
      innerloop translate runs/translator < sentences.txt

    Args:
        run: the folder of the run; the corpus that it was trained on need not be there.
        sentences: one or more, each in quotes; without any, the lines of the standard input.
        beams: beginnings that are kept at each word; 1 always takes the most likely one.
    """
    given = [_as_utf8(number, text) for number, text in enumerate(sentences, start=1)]
    given = given or _lines_of_input()
    if not given:
        raise ValueError(
            "translate takes one or more sentences, each in quotes, or as lines of its input, got "
            "none"
        )
    model, tokeniser = open_translator(run)
    for sentence in translations(model, tokeniser, given, beams=beams):
        say(sentence)


def _lines_of_input() -> list[str]:
    """None of a terminal: nobody who forgot the sentences is left waiting."""
    if sys.stdin is None or sys.stdin.isatty():
        return []
    return text_lines(sys.stdin.buffer.read(), "the standard input")


def _as_utf8(number: int, sentence: str) -> str:
    """Bytes of an argument that are no UTF-8 come as halves of letters that nothing can write."""
    try:
        sentence.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"sentence {number} must be UTF-8, got {sentence!r}") from error
    return sentence
