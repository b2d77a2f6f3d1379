"""The corpus out of Debian packages, with the real apt-get on a repository in a folder."""

import os
import shutil
import subprocess

import pytest

from innerloop.cli import main
from innerloop.corpora import Corpus, CorpusError, build_debian
from innerloop.corpora import build as building
from innerloop.corpora.debian import catalogue, sentences
from innerloop.corpora.store import DATA
from tests.corpora import repository

pytestmark = pytest.mark.skipif(
    shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None,
    reason="needs apt-get and dpkg-deb, as every Debian has them",
)


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """Builds a repository, and makes it the one that apt-get knows."""

    def offer(**how):
        folder = tmp_path / "mirror"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        monkeypatch.setenv("APT_CONFIG", str(repository.build(folder, **how)))
        return folder

    return offer


def built(tmp_path):
    return build_debian(tmp_path / "corpora")


def test_every_source_gives_the_sentences_that_were_put_into_it(mirror, tmp_path):
    mirror()
    corpus = built(tmp_path)
    pairs = repository.statements()
    found = {(p.source, p.target): p.origin for p in (*corpus.training, *corpus.validation)}
    expected = {
        **dict.fromkeys(pairs[:8], "help"),
        **dict.fromkeys(pairs[8:12], "dictionary"),
        **dict.fromkeys(pairs[12:16], "windows"),
        **dict.fromkeys(pairs[16:20], "descriptions"),
    }
    assert found == expected
    assert corpus.validation
    parts = {part.name: part for part in corpus.parts}
    assert list(parts["dictionary"].packages) == ["trans-de-en 1:1.0"]
    assert parts["descriptions"].licence == "no licence is stated"


def test_it_is_built_again_without_the_mirror_and_is_the_same(mirror, tmp_path):
    folder = mirror()
    first = built(tmp_path)
    shutil.rmtree(folder / "pool")
    shutil.rmtree(folder / "dists")
    again = built(tmp_path)
    assert again.digest == first.digest
    assert Corpus.open("debian", tmp_path / "corpora").training == first.training


def test_the_command_builds_it_and_shows_it_again_without_the_mirror(
    mirror, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv(DATA, str(tmp_path / "data"))
    folder = mirror()
    for _ in range(2):
        assert main(["data", "translation"]) == 0
        said = capsys.readouterr().out
        for words in ("no licence is stated", "GPL-2+", "trans-de-en 1:1.0", "debian, 16 pairs"):
            assert words in said
        shutil.rmtree(folder, ignore_errors=True)


def test_the_stages_are_told(mirror, tmp_path):
    mirror()
    stages = []
    build_debian(tmp_path / "corpora", watch=lambda *stage: stages.append(stage))
    assert [done for _, done, _ in stages] == list(range(8))
    assert {of for _, _, of in stages} == {7}
    assert stages[0][0] == "fetching packages"


def test_a_package_that_the_mirror_does_not_have_is_named(mirror, tmp_path):
    mirror(without=["trans-de-en"])
    with pytest.raises(CorpusError, match=r"sources have no trans-de-en; they must offer"):
        built(tmp_path)
    mirror()
    assert built(tmp_path).training


def test_no_mirror_is_a_sentence_without_its_address_and_the_next_call_goes_on(mirror, tmp_path):
    folder = mirror()
    shutil.move(folder / "dists", folder / "away")
    with pytest.raises(CorpusError, match="perhaps for want of a network") as refused:
        built(tmp_path)
    assert str(folder) not in str(refused.value)
    shutil.move(folder / "away", folder / "dists")
    assert built(tmp_path).training


def test_a_truncated_download_is_refused_and_fetched_again(mirror, tmp_path):
    folder = mirror()
    deb = folder / "pool" / "trans-de-en.deb"
    whole = deb.read_bytes()
    deb.write_bytes(whole[:-200])
    with pytest.raises(CorpusError, match="apt-get download failed"):
        built(tmp_path)
    kept = tmp_path / "corpora" / "debian" / "apt" / "packages"
    assert not list(kept.glob("trans-de-en*"))
    deb.write_bytes(whole)
    assert built(tmp_path).training


def test_a_package_that_is_damaged_in_the_cache_is_removed_and_fetched_again(mirror, tmp_path):
    mirror()
    built(tmp_path)
    (deb,) = (tmp_path / "corpora" / "debian" / "apt" / "packages").glob("libreoffice-l10n-de_*")
    deb.write_bytes(deb.read_bytes()[:-100])
    with pytest.raises(CorpusError, match="libreoffice-l10n-de was damaged and has been removed"):
        built(tmp_path)
    assert Corpus.open("debian", tmp_path / "corpora").training, "the old corpus is still there"
    assert built(tmp_path).training


def test_lists_that_are_damaged_are_fetched_again_and_named_in_the_manifest(mirror, tmp_path):
    mirror()
    first = built(tmp_path)
    lists = tmp_path / "corpora" / "debian" / "apt" / "state" / "lists"
    (german,) = lists.glob("*Translation-de")
    whole = german.read_bytes()
    german.write_bytes(whole[: len(whole) // 2])
    assert built(tmp_path) == first
    assert german.read_bytes() == whole
    german.unlink()
    assert built(tmp_path) == first
    (part,) = (part for part in first.parts if part.name == "descriptions")
    assert [name.split()[0] for name in part.packages] == ["Translation-de", "Translation-en"]


def test_a_cache_that_was_moved_is_built_again_without_the_mirror(mirror, tmp_path):
    folder = mirror()
    first = built(tmp_path)
    for part in ("pool", "dists"):
        shutil.rmtree(folder / part)
    shutil.move(tmp_path / "corpora", tmp_path / "moved")
    assert build_debian(tmp_path / "moved").training == first.training


def test_a_reader_that_is_killed_costs_no_package(mirror, tmp_path, monkeypatch):
    mirror()
    built(tmp_path)
    kept = sorted((tmp_path / "corpora" / "debian" / "apt" / "packages").iterdir())
    (tmp_path / "bin").mkdir()
    stub = tmp_path / "bin" / "dpkg-deb"
    stub.write_text("#!/bin/sh\nkill -9 $$\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent}:{os.environ['PATH']}")
    with pytest.raises(CorpusError, match=r"ended without a word .* the package is kept"):
        built(tmp_path)
    assert sorted(kept[0].parent.iterdir()) == kept


def test_without_apt_the_way_out_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CorpusError, match=r"apt-get or dpkg-deb is not on this machine.*--files"):
        built(tmp_path)


def test_the_machines_own_lists_are_left_alone(mirror, tmp_path):
    mirror()
    built(tmp_path)
    config = tmp_path / "corpora" / "debian" / "apt" / "apt.conf"
    said = subprocess.run(
        ["apt-config", f"--config-file={config}", "dump"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    own = str(config.parent)
    for name in ("Dir::State", "Dir::Cache", "Dir::State::status"):
        assert f'{name} "{own}' in said
    assert "Post-Invoke" not in said


def test_a_catalogue_is_read_in_both_byte_orders():
    little = repository.catalogue({"b\x04File": "Datei", "Page": "Seite"})
    words = [little[i : i + 4] for i in range(0, 28 + 32, 4)]
    big = b"".join(word[::-1] for word in words) + little[60:]
    expected = [("Page", "Seite"), ("File", "Datei")]
    assert list(catalogue(little, "a")) == list(catalogue(big, "a")) == expected
    for length in (10, 30):
        with pytest.raises(CorpusError, match=r"x\.mo is a gettext catalogue that was cut short"):
            list(catalogue(little[:length], "x.mo"))
    with pytest.raises(CorpusError, match=r"x\.mo is no gettext catalogue"):
        list(catalogue(b"nothing of the kind", "x.mo"))


def test_a_paragraph_is_cut_into_sentences_only_if_both_sides_agree():
    german = "Das ist der erste Satz. Das ist der zweite."
    english = "This is the first sentence. This is the second."
    assert list(sentences(german, english)) == [
        ("Das ist der erste Satz.", "This is the first sentence."),
        ("Das ist der zweite.", "This is the second."),
    ]
    together = "This is the first sentence, this is the second."
    assert list(sentences(german, together)) == [(german, together)]
    shifted = "This. " + "It goes on for very much longer than the other side does, on and on."
    assert list(sentences("Dies ist ein Satz. Und noch.", shifted)) == [
        ("Dies ist ein Satz. Und noch.", shifted)
    ]


def test_the_names_of_corpora_that_are_built_otherwise_are_taken(tmp_path):
    for name in ("debian", "small", "a b", "../x"):
        with pytest.raises(CorpusError, match="name must be letters"):
            building.build_from_files(name, [tmp_path / "a"], root=tmp_path)
