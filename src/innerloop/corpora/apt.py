"""Debian packages fetched and read, never installed; the machine's own lists are left alone.

apt-get works here in folders of its own, with the mirrors that the machine is set up for. What it
downloads it checks against the signed lists.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

from innerloop.corpora.pairs import CorpusError
from innerloop.runs import read_json, write_atomic

CONFIG = """\
#clear Acquire::Languages;
Acquire::Languages {{ {languages} }};
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
#clear Acquire::IndexTargets::deb::DEP-11;
Acquire::GzipIndexes "false";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
Acquire::Retries "1";
APT::Update::Error-Mode "any";
APT::Sandbox::User "root";
Dir::State "{folder}/state";
Dir::State::status "{folder}/state/status";
Dir::Cache "{folder}/cache";
"""
"""Lists in plain text, in these languages; no hooks of the machine; no waiting for ever; and no
other user than the one who asks, since the folders are theirs."""
ADDRESS = re.compile(r"\w+:/\S+|\[IP:[^\]]*\]|'[^' ]+\.[^' ]+'|(?<!\S)/\S+")
"""Of a mirror, in what apt-get says; and paths."""
UNKNOWN = re.compile(r"Unable to locate package (\S+)|No candidate version found for (\S+)")


class Packages:
    """Packages below a folder, fetched when they are first asked for."""

    def __init__(self, folder: Path, languages: Sequence[str] = ("de", "en")) -> None:
        self.folder = folder.resolve()
        self.config = self.folder / "apt.conf"
        self.debs = self.folder / "packages"
        self.digests = self.folder / "lists.json"
        self.languages = languages

    def fetch(self, names: Sequence[str]) -> None:
        """Fetches the lists and those of the packages that are not here yet."""
        for part in ("state/lists/partial", "cache/archives/partial", "packages"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        (self.folder / "state" / "status").touch()
        # Each time, since its paths are those of a folder that may have been moved.
        languages = " ".join(f'"{language}";' for language in self.languages)
        write_atomic(self.config, CONFIG.format(folder=self.folder, languages=languages))
        missing = [name for name in names if self._file(name) is None]
        if all(map(self._lists, self.languages)) and not missing:
            return
        self._fetch_lists()
        if missing:
            # Moved into place when apt-get has checked them all: what is there is whole.
            with tempfile.TemporaryDirectory(dir=self.folder) as arriving:
                self._apt("download", *missing, inside=Path(arriving))
                for file in Path(arriving).glob("*.deb"):
                    os.replace(file, self.debs / file.name)

    def _fetch_lists(self) -> None:
        known = self._known()
        for _, file in self._listed():
            if known.get(file.name) != _sha256(file):
                file.unlink()  # or apt-get, which has asked before, would leave it as it is
        self._apt("update")
        known = {file.name: _sha256(file) for _, file in self._listed()}
        write_atomic(self.digests, json.dumps(known, indent=1))
        for language in self.languages:
            if not self._lists(language):
                raise CorpusError(
                    f"the machine's package sources have no descriptions in {language!r}; they "
                    "must offer a release of Debian or of a relative with its main part"
                )

    def version(self, name: str) -> str:
        return unquote(self._present(name).name.split("_")[1])

    def files(self, name: str, suffix: str) -> Iterator[tuple[str, bytes]]:
        """Path and content of every file of a package whose path ends so, in their order."""
        deb = self._present(name)
        unpacked = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], capture_output=True)
        said = unpacked.stderr.decode(errors="replace").strip()
        if unpacked.returncode and not said:
            raise CorpusError(
                f"dpkg-deb ended without a word while it read the package {name} (code "
                f"{unpacked.returncode}); the package is kept, and the same command goes on"
            )
        try:
            if unpacked.returncode:
                raise tarfile.TarError(said)
            with tarfile.open(fileobj=io.BytesIO(unpacked.stdout)) as archive:
                for member in archive:
                    file = archive.extractfile(member) if member.isfile() else None
                    if file is not None and member.name.endswith(suffix):
                        yield member.name.removeprefix("./"), file.read()
        except tarfile.TarError as error:
            deb.unlink()
            reason = str(error).partition("\n")[0]
            raise CorpusError(
                f"the package {name} was damaged and has been removed; the same command fetches "
                f"it again ({reason})"
            ) from error

    def descriptions(self, language: str) -> str:
        """The text of all lists of package descriptions in that language."""
        lists = self._lists(language)
        return "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in lists)

    def digest(self, language: str) -> str:
        """Twelve letters that stand for the text of these lists."""
        return hashlib.sha256(self.descriptions(language).encode()).hexdigest()[:12]

    def _lists(self, language: str) -> list[Path]:
        """Those in that language; none if one of them is not as it was fetched."""
        files = [file for kind, file in self._listed() if kind == language]
        known = self._known()
        return files if all(known.get(file.name) == _sha256(file) for file in files) else []

    def _known(self) -> dict[str, str]:
        """The digests of the lists when they were fetched, by the names of their files."""
        found = read_json(self.digests)
        return found if isinstance(found, dict) else {}

    def _listed(self) -> list[tuple[str, Path]]:
        """Languages and files of the lists of descriptions that are here."""
        asked = ("--format", "$(LANGUAGE) $(FILENAME)", "Identifier: Translations")
        lines = (line.split(" ", 1) for line in self._apt("indextargets", *asked).splitlines())
        return [(language, Path(file)) for language, file in lines if Path(file).is_file()]

    def _file(self, name: str) -> Path | None:
        return next(iter(sorted(self.debs.glob(f"{name}_*.deb"))), None)

    def _present(self, name: str) -> Path:
        file = self._file(name)
        if file is None:
            raise CorpusError(f"the package {name} is not here; the same command fetches it")
        return file

    def _apt(self, *words: str, inside: Path | None = None) -> str:
        """Runs apt-get; what it refuses is a sentence, without the mirrors' addresses."""
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise CorpusError(
                "this corpus is made of Debian packages, and apt-get or dpkg-deb is not on this "
                "machine; build it on one that has them, or use files of your own with --files"
            )
        done = subprocess.run(
            ["apt-get", "--quiet=2", f"--config-file={self.config}", *words],
            cwd=inside or self.folder,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise CorpusError(_refused(words[0], done.stderr))
        return done.stdout


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _refused(command: str, said: str) -> str:
    unknown = UNKNOWN.search(said)
    if unknown:
        return (
            f"the machine's package sources have no {unknown[1] or unknown[2]}; they must offer "
            "a release of Debian or of a relative with its main part"
        )
    lines = [line[2:].strip() for line in said.splitlines() if line.startswith(("E:", "W:"))]
    reason = ADDRESS.sub("(address)", lines[0]) if lines else "no reason is given"
    return (
        f"apt-get {command} failed, perhaps for want of a network; what was there is kept, and "
        f"the same command goes on. It says: {reason}"
    )
