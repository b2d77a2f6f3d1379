"""Pairs in files of one's own, corpora on disk, cleaning, the split and the tokeniser."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from innerloop.corpora import Corpus, CorpusError, Pair, Tokeniser, build_from_files, store
from innerloop.corpora.cleaning import FILTERS, TWICE, clean, tidy
from innerloop.corpora.pairs import read_files
from innerloop.corpora.split import MOST_SHARED, split, trigrams
from innerloop.corpora.tokeniser import END, FEWEST, PAD, SPECIAL, TO
from innerloop.runs import write_atomic
from tests.corpora.repository import statements


def written(folder, **files):
    for name, text in files.items():
        data = text if isinstance(text, bytes) else text.encode()
        (folder / name.replace("_", ".")).write_bytes(data)


@pytest.fixture
def parallel(tmp_path):
    """Twenty pairs as Moses has them, and the arguments that name them."""
    pairs = statements()
    written(
        tmp_path,
        train_de="".join(f"{de}\n" for de, _ in pairs),
        train_en="".join(f"{en}\n" for _, en in pairs),
    )
    return [tmp_path / "train.de", tmp_path / "train.en"]


def test_parallel_files_and_a_file_with_tabs_are_the_same_pairs(parallel, tmp_path):
    table = "".join(f"{de}\t{en}\r\n" for de, en in statements())
    written(tmp_path, pairs_tsv=("\ufeff" + table))
    expected = [Pair(de, en, "mine") for de, en in statements()]
    assert read_files(parallel, "mine") == expected
    assert read_files([tmp_path / "pairs.tsv"], "mine") == expected


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"a": "eins\nzwei\n", "b": "one\n"}, "a has 2 lines and .*b has 1; line k of one"),
        ({"a": "eins\n\ndrei\n", "b": "one\ntwo\nthree\n"}, "line 2 of .*a is empty"),
        ({"a": "eins\nzwei\n", "b": "one\n  \n"}, "line 2 of .*b is empty"),
        ({"a": "ja\nM\xfcll\n".encode("latin-1"), "b": "a\nb\n"}, "a must be UTF-8, and line 2 is"),
        ({"a": "", "b": ""}, "a is empty"),
        ({"a": "eins\tone\nzwei\n"}, "line 2 of .*a must have two columns .* got 1"),
        ({"a": "eins\tone\n\ttwo\n"}, "line 2 of .*a is empty"),
        ({"a": "x", "b": "x", "c": "x"}, "two parallel files, or in one with tabs, got 3 files"),
    ],
)
def test_what_is_wrong_with_files_is_said_with_its_line(files, sentence, tmp_path):
    written(tmp_path, **files)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(CorpusError, match=sentence):
        build_from_files("mine", [tmp_path / name for name in files], root=tmp_path / "corpora")
    assert sorted(tmp_path.iterdir()) == before, "nothing is left of a refused corpus"


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CorpusError, match=r"there is no file .*nothing\.de"):
        read_files([tmp_path / "nothing.de", tmp_path / "nothing.en"], "mine")


def test_a_corpus_is_found_again_by_its_name(parallel, tmp_path):
    root = tmp_path / "corpora"
    made = build_from_files("mine", parallel, root=root)
    again = Corpus.open("mine", root)
    assert again == made
    assert len(made.training) + len(made.validation) == 20
    assert made.manifest["parts"][0]["training"] == len(made.training)
    with pytest.raises(CorpusError, match=r"no corpus 'mein' below .*nearest are mine"):
        Corpus.open("mein", root)


def test_all_of_validation_files_is_held_out_each_pair_in_one_line(parallel, tmp_path):
    """Tabs, form feeds and U+2028 stand inside lines of files, and would end a line of ours."""
    written(
        tmp_path,
        dev_de="Ja.\nEins\tzwei\x0cdrei\u2028vier.\nSo\x1c<b>und</b>\x85so.\n",
        dev_en="Yes.\nOne\ttwo\x0cthree\u2028four.\nThis &amp;\x0b that.\n",
    )
    held_out = [tmp_path / "dev.de", tmp_path / "dev.en"]
    made = build_from_files("mine", parallel, held_out, root=tmp_path / "corpora")
    assert [pair[:2] for pair in made.validation] == [
        ("Ja.", "Yes."),
        ("Eins zwei drei vier.", "One two three four."),
        ("So und so.", "This & that."),
    ]
    assert len(made.training) == 20


def test_training_pairs_that_nearly_repeat_a_validation_file_are_left_out(parallel, tmp_path):
    (de, en), *others = statements()
    written(tmp_path, dev_tsv=f"Und {de}\t{en.upper()}\n")
    made = build_from_files("mine", parallel, [tmp_path / "dev.tsv"], root=tmp_path / "corpora")
    assert [pair[:2] for pair in made.training] == others
    assert made.left_out["nearly held out"] == 1
    assert near_duplicates(made.validation, made.training) == 0


def test_a_held_out_line_of_markup_alone_is_refused_with_its_number(parallel, tmp_path):
    written(tmp_path, dev_tsv="Ja.\tYes.\n<br>\tNo.\n")
    with pytest.raises(CorpusError, match=r"line 2 of .*dev\.tsv is markup on one of its sides"):
        build_from_files("mine", parallel, [tmp_path / "dev.tsv"], root=tmp_path / "corpora")


def test_pairs_that_cannot_be_written_leave_the_corpus_that_was_there(parallel, tmp_path):
    root = tmp_path / "corpora"
    made = build_from_files("mine", parallel, root=root)
    for text in ("a\tb", "a\nb"):
        broken = replace(made, validation=[Pair(text, "c", "mine")])
        with pytest.raises(CorpusError, match="in one line, without tabs of its own, got Pair"):
            broken.save(root)
    assert Corpus.open("mine", root) == made
    kept = replace(made, validation=[Pair("a\x0cb\u2028c\r", "d", "mine")]).save(root)
    assert kept.validation[0].source == "a\x0cb\u2028c\r"


def test_a_disk_that_is_full_leaves_the_corpus_that_was_there(parallel, tmp_path, monkeypatch):
    root = tmp_path / "corpora"
    made = build_from_files("mine", parallel, root=root)
    made.tokeniser(300)

    def full(path, text):
        if path.name == "validation.tsv":
            raise OSError(28, "No space left on device")
        write_atomic(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(store, "write_atomic", full)
        with pytest.raises(OSError, match="No space left"):
            replace(made, training=made.training[1:]).save(root)
    assert Corpus.open("mine", root) == made
    assert (root / "mine" / "tokeniser-300.json").is_file()
    assert len(replace(made, training=made.training[1:]).save(root).training) + 1 == len(
        made.training
    )
    assert sorted(path.name for path in (root / "mine").iterdir() if path.is_dir()) == []


def test_a_damaged_corpus_is_refused_and_can_be_built_again(parallel, tmp_path):
    root = tmp_path / "corpora"
    build_from_files("mine", parallel, root=root)
    file = root / "mine" / "training.tsv"
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(CorpusError, match=r"training\.tsv is not as it was written"):
        Corpus.open("mine", root)
    assert Corpus.open(build_from_files("mine", parallel, root=root).name, root).training
    manifest = root / "mine" / "manifest.json"
    without = {**json.loads(manifest.read_text()), "sha256": {}}
    for damaged in ("", "{}", manifest.read_text()[:-7], json.dumps(without)):
        manifest.write_text(damaged)
        with pytest.raises(CorpusError, match=r"manifest\.json is not as it was written"):
            Corpus.open("mine", root)
    assert Corpus.open(build_from_files("mine", parallel, root=root).name, root).training


def test_a_corpus_without_a_pair_that_can_be_used_says_what_was_left_out(tmp_path):
    written(tmp_path, pairs_tsv="Ja\tYes\nNein\tNo\n")
    with pytest.raises(CorpusError, match=r"no training pair is left of 2; .* 2 \(too short\)"):
        build_from_files("mine", [tmp_path / "pairs.tsv"], root=tmp_path / "corpora")
    written(tmp_path, pairs_tsv=f"{GOOD.source}\t{GOOD.target}\n")
    with pytest.raises(CorpusError, match="no training pair is left of 1; some are held out"):
        build_from_files("mine", [tmp_path / "pairs.tsv"], root=tmp_path / "corpora")
    alike = [f"{GOOD.source[:-1]} {x}.\t{GOOD.target[:-1]} {x}.\n" for x in "abcdefghijklmnopqrstu"]
    written(tmp_path, pairs_tsv="".join(alike))
    with pytest.raises(CorpusError, match=r"none of the 21 pairs .* nearly repeats another; give"):
        build_from_files("mine", [tmp_path / "pairs.tsv"], root=tmp_path / "corpora")


GOOD = Pair("Die Datei wird nicht gespeichert.", "The file is not being saved.", "a")


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (GOOD.source, "The file %1 is not saved.", "a placeholder or markup"),
        ("Datei nicht", "The file is not saved.", "too short"),
        ("Das ist " + "so " * 80, "It is " + "so " * 80, "too long"),
        ("LibreOffice Writer Calc 1", "LibreOffice Writer Calc 2", "not translated"),
        ("a b c = 1234567890 + 99", "a d c = 1234567890 + 99", "signs and numbers"),
        (GOOD.source, "The file is not saved " + "because of all the others " * 3, "lengths"),
        ("The file is not saved here", "The file is never saved", "another language"),
        (GOOD.source.upper(), "A file, in other words, remains unsaved.", TWICE),
    ],
)
def test_every_filter_has_its_reason(source, target, reason):
    kept, left_out = clean([GOOD, Pair(source, target, "a")])
    assert kept == [GOOD]
    (found,) = left_out
    assert found.startswith(reason)
    assert found == TWICE or found in FILTERS


def test_text_is_tidied():
    assert tidy(" Die&nbsp;<b>Datei</b>  wird\n ge&ouml;ffnet ") == "Die Datei wird geöffnet"
    assert tidy("u\u0308ber &lt;i&gt;alles&lt;/i&gt;") == "über alles"
    assert tidy("Eins.<br/>Zwei.</p><p class='a'>Drei.") == "Eins. Zwei. Drei."
    assert tidy("Wenn a < b ist und c > d gilt") == "Wenn a < b ist und c > d gilt"
    assert tidy("Der Operator &lt;&gt; vergleicht.") == "Der Operator <> vergleicht."


def near_duplicates(held_out, training):
    """By comparing each sentence with each: not the way of the split itself."""
    found = 0
    for pair in held_out:
        shares = (
            len(trigrams(pair[side]) & trigrams(other[side])) / len(trigrams(pair[side]))
            for other in training
            for side in (0, 1)
        )
        found += max(shares) >= MOST_SHARED
    return found


def test_no_held_out_pair_is_nearly_repeated_in_training():
    subjects = ["Der Hund", "Die alte Katze", "Das kleine Kind", "Ein Mann", "Unser Nachbar"]
    ends = ["schläft heute im Garten", "liest ein dickes Buch", "geht bald nach Hause"]
    twins = [Pair(f"{s} {e}.", f"EN {s} {e}.", "twins") for s in subjects for e in ends]
    lone = [Pair(de, en, "lone") for de, en in statements()]
    everything = [*twins, *lone]
    training, held_out = split(everything, 10, seed=1)
    assert sorted(training + held_out) == sorted(everything)
    assert {pair.origin for pair in held_out} >= {"lone"}
    assert near_duplicates(held_out, training) == 0
    assert near_duplicates(everything[:5], everything[5:]) > 0
    assert split(everything, 10, seed=1) == (training, held_out)


SMALL = Corpus.open("small")


def test_the_pairs_that_ship_are_many_and_clean():
    assert len(SMALL.training) > 200
    assert len(SMALL.validation) > 20
    assert not set(SMALL.training) & set(SMALL.validation)
    _, left_out = clean([*SMALL.training, *SMALL.validation])
    assert set(left_out) <= {TWICE}
    assert near_duplicates(SMALL.validation, SMALL.training) == 0


def test_the_tokeniser_is_trained_on_training_pairs_alone_and_always_the_same():
    sides = [side for pair in SMALL.training for side in pair[:2]]
    assert Tokeniser.trained(sides, 400) == SMALL.tokeniser(400)
    everything = [*sides, *(side for pair in SMALL.validation for side in pair[:2])]
    assert Tokeniser.trained(everything, 400) != SMALL.tokeniser(400)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_any_text_comes_back(text):
    import unicodedata

    tokeniser = SMALL.tokeniser(400)
    (pieces,) = tokeniser.encode([text])
    assert tokeniser.decode(pieces) == unicodedata.normalize("NFC", text).strip()
    assert not {PAD, TO, END} & set(pieces)


def test_a_text_that_spells_a_special_piece_is_text():
    tokeniser = SMALL.tokeniser(400)
    for special in SPECIAL:
        (pieces,) = tokeniser.encode([special])
        assert tokeniser.decode(pieces) == special


def test_a_vocabulary_must_hold_every_byte():
    with pytest.raises(ValueError, match=f"vocabulary must be at least {FEWEST} pieces, got 100"):
        SMALL.tokeniser(100)
    assert SMALL.tokeniser(400).size == 400


def test_a_tokeniser_is_kept_with_its_corpus_and_goes_with_its_text(parallel, tmp_path):
    root = tmp_path / "corpora"
    made = build_from_files("mine", parallel, root=root)
    tokeniser = made.tokeniser(300)
    file = root / "mine" / "tokeniser-300.json"
    assert json.loads(file.read_text()) == json.loads(tokeniser.text)
    file.write_text(file.read_text()[:-9])
    again = build_from_files("mine", parallel, root=root / "other")  # not what is remembered
    (root / "other" / "mine" / file.name).write_bytes(file.read_bytes())
    assert again.tokeniser(300) == tokeniser, "what is damaged is made again"
    build_from_files("mine", parallel, root=root)
    assert not file.exists()


def test_what_is_no_tokeniser_is_refused():
    with pytest.raises(CorpusError, match="this is no tokeniser"):
        Tokeniser("{}").size  # noqa: B018
