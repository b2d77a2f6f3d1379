"""`innerloop data`: builds what tasks take from outside, once, into a cache."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from innerloop.cli.console import console, print_table, say
from innerloop.corpora import Corpus, CorpusError, build_debian, build_from_files, corpora_root
from innerloop.corpora.build import DEBIAN
from innerloop.corpora.store import SMALL, names
from innerloop.tables import TextTable


def data(
    kind: Annotated[Literal["translation"], tyro.conf.Positional, tyro.conf.arg(metavar="KIND")],
    files: tuple[Path, ...] = (),
    validation: tuple[Path, ...] = (),
    name: str = DEBIAN,
    rebuild: bool = False,
) -> None:
    """Builds a corpus of German-English sentence pairs, or shows the one that is there.

    Without --files, packages of Debian are fetched with apt-get into the cache (never installed)
    and pairs are read out of them. Once built, it works without a network.

    For example:
      innerloop data translation
      innerloop data translation --files train.de train.en --validation dev.de dev.en --name iwslt
      innerloop train translator --task translation:corpus=iwslt --recipe adam --batch 32

    Args:
        kind: what to build: translation.
        files: pairs of your own: two parallel text files, or one with tabs between the languages.
        validation: pairs to hold out, likewise, and training pairs that nearly repeat one are left
            out; without them some of the others are held out.
        name: of the corpus.
        rebuild: read and clean again, from the packages that are in the cache.
    """
    if validation and not files:
        raise CorpusError("--validation goes with --files")
    if files and name == DEBIAN:
        raise CorpusError(f"--files needs a --name for the corpus; {DEBIAN} is made of packages")
    if name in names() and not rebuild and not files:
        corpus = Corpus.open(name)
    elif files:
        with _progress() as watch:
            corpus = build_from_files(name, files, validation, watch=watch)
    elif name == DEBIAN:
        with _progress() as watch:
            corpus = build_debian(watch=watch)
    elif name == SMALL:
        raise CorpusError(f"{SMALL} ships with innerloop, and is not built")
    elif name in names():
        raise CorpusError(f"{name} is made of files, and made again from them: give its --files")
    else:
        raise CorpusError(
            f"there is no corpus {name!r} to show or rebuild; give its --files, or leave --name "
            f"out to build {DEBIAN}"
        )
    _show(corpus)


def _show(corpus: Corpus) -> None:
    table = TextTable(
        f"{corpus.name}, {len(corpus.training)} pairs to train on and {len(corpus.validation)} "
        f"held out, digest {corpus.digest}",
        ["source", "found", "training", "held out", "licence", "packages"],
    )
    for part in corpus.manifest["parts"]:
        table.add(
            part["name"],
            str(part["found"]),
            str(part["training"]),
            str(part["validation"]),
            part["licence"],
            ", ".join(part["packages"]) or "-",
        )
    print_table(table)
    for reason, count in sorted(corpus.left_out.items(), key=lambda item: -item[1]):
        say(f"left out, {reason}: {count}")
    say(f"corpus: {corpus.folder or 'in the package'}")
    if corpus.folder is not None:
        say(f"cache: {corpora_root()}")
    task = f"translation:corpus={corpus.name}"
    say(f"next: innerloop train translator --task {task} --recipe adam --batch 32")


class _progress:
    """A bar over the stages of a build."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=console()
        )
        self.bar = self.progress.add_task("", total=None)

    def __enter__(self) -> Any:
        self.progress.start()
        return self._update

    def _update(self, stage: str, done: int, of: int) -> None:
        self.progress.update(self.bar, description=stage, completed=done, total=of)

    def __exit__(self, *error: Any) -> None:
        self.progress.stop()
