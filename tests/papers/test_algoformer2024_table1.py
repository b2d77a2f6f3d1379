"""Section 5.5's table from tiny records in a temporary folder: study, tables, verdict."""

from dataclasses import replace

import numpy as np
import pytest

from innerloop.corpora import Corpus, Pair
from innerloop.corpora.debian import SOURCES
from innerloop.corpora.store import DATA, Part
from innerloop.experiments import MissingRecords, Study
from innerloop.experiments.study import RECORDS
from innerloop.papers.algoformer2024 import table1, table1_trainings
from innerloop.papers.plots import as_rows, as_table
from innerloop.papers.verdict import Outcome, Scale
from innerloop.tasks import Translation
from tests.mutations.algoformer2024_figures import TABLE1_MUTATIONS
from tests.mutations.mutation import applied

TINY = table1_trainings.Setting(
    *(8, 2),
    steps=3,
    rate=1e-2,
    vocabulary=1000,
    n=64,
    batch=4,
    seeds=2,
    depth=2,
    window=1,
    corpus="small",
)

SPOKEN = 3


@pytest.fixture(scope="module", autouse=True)
def few_sentences():
    """Untrained translators do not come to an end: three sentences are enough of that."""
    assert table1_trainings.SPOKEN == 10
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table1_trainings, "SPOKEN", SPOKEN)
        patch.setattr(table1_trainings, "SCORED", 2)
        yield


def in_this_process(jobs):
    for job in jobs:
        job.train()
        yield job.name, ""


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Of all three architectures, two seeds each."""
    folder = tmp_path_factory.mktemp("table1")
    study = replace(
        table1.STUDY,
        experiments=lambda scale: TINY.experiments(),
        prepare=lambda scale, notify: None,  # its pairs ship; nothing is to be fetched
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DATA, str(folder / "data"))
        patch.setenv(RECORDS, str(folder / "records"))
        with pytest.raises(MissingRecords, match="6 of 6 trainings"):
            study.results("quick")
        outcomes = list(
            study.retrain("quick", folder / "runs", folder / "records", engine=in_this_process)
        )
        assert [o.error for o in outcomes] == [""] * 6
        assert not (folder / "data").exists()
        return study.results("quick")


@pytest.fixture(scope="module")
def tables(records):
    return table1.tables(records)


def losses_of(tables, other=5.5, **means):
    """The same tables with these cross-entropies, a little apart between the seeds."""
    blocks = as_rows(tables["blocks"])
    for row in blocks:
        mean = means[row["architecture"]] if row["sentence"] == table1.OWN else other
        row["nats"] = row["targets"] * (mean + 0.001 * row["seed"])
    models = {**tables["models"], "entropy of the targets": [6.0] * len(tables["models"]["seed"])}
    return {**tables, "blocks": as_table(blocks), "models": models}


def test_there_are_three_architectures_by_seeds_of_the_same_data_and_steps():
    experiments = table1_trainings.QUICK.experiments()
    assert len(experiments) == 9
    assert all(e.task == experiments["looped-0"].task for e in experiments.values())
    assert {e.objective.options["batch"] for e in experiments.values()} == {
        table1_trainings.QUICK.batch
    }
    assert table1.STUDY.cost("quick") == pytest.approx(6, rel=0.25)
    printed = table1_trainings.PAPER.experiments()["AlgoFormer-0"]
    assert printed.model.options | {"width": 256, "heads": 8, "loops": 12} == printed.model.options
    assert printed.objective.options | {"loops": 12, "window": 10} == printed.objective.options
    assert printed.optimizer.options["lr"] == 5e-5


def test_a_record_says_what_the_table_needs(records):
    record = records["AlgoFormer-1"]
    assert record.tables["losses"]["origin"] == ["all", "small"]
    facts = dict(zip(*record.tables["facts"].values(), strict=True))
    assert facts["tokens seen"] > 3 * 4 * 10
    assert facts["entropy of the targets"] < facts["log of the vocabulary"]
    assert facts[table1.ONCE] > 0
    assert [s["signature"] for s in as_rows(record.tables["scores"])]
    assert table1.ONCE not in records["standard-0"].tables["facts"]["fact"]


def test_the_sentences_of_a_record_are_held_out_and_may_be_quoted(records):
    small = Corpus.open("small")
    held_out = {pair.source: pair.target for pair in small.validation}
    for record in records.values():
        rows = as_rows(record.tables["translations"])
        assert len({row["sentence"] for row in rows}) == SPOKEN
        for row in rows:
            assert held_out[row["sentence"]] == row["reference"]
            assert row["sentence"] not in {pair.source for pair in small.training}
            assert (row["source"], row["licence"]) == ("small", "MIT, as innerloop")


def test_no_text_without_a_licence_stands_in_a_record():
    """Every source of the Debian corpus that may not be quoted is passed over."""
    parts = [Part(source.name, source.licence) for source in SOURCES]
    pairs = [
        Pair(f"Das ist {source.name} {word}.", f"This is {source.name} {word}.", source.name)
        for source in SOURCES
        for word in ("eins", "zwei", "drei" * 40)
    ]
    corpus = Corpus("four", [], [*pairs, Pair("Nur ein Titel", "A title only", "help")], parts, {})
    tokeniser = Corpus.open("small").tokeniser(300)
    task = Translation.of(corpus, tokeniser, 64, split="validation")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table1_trainings, "SPOKEN", 10)
        rows = table1_trainings.quotable(parts, task)
    assert sorted(sentence for sentence, _ in task.texts(rows)) == [
        "Das ist help eins.",
        "Das ist help zwei.",
        "Das ist windows eins.",
        "Das ist windows zwei.",
    ]


def test_the_corpus_is_built_before_the_first_training_unless_it_is_there(tmp_path, monkeypatch):
    """Only that it is asked for: building it is tested with the corpora."""
    built = []
    monkeypatch.setenv(DATA, str(tmp_path / "data"))
    monkeypatch.setattr(table1_trainings, "build_debian", lambda watch: built.append("debian"))
    study = replace(table1.STUDY, experiments=lambda scale: {})
    assert list(study.retrain("quick", tmp_path / "runs", tmp_path / "records")) == []
    assert built == ["debian"]
    replace(Corpus.open("small"), name="debian").save()
    assert list(study.retrain("quick", tmp_path / "runs", tmp_path / "records")) == []
    assert built == ["debian"]


def test_untrained_translators_decide_nothing(tables):
    verdict = table1.judge(tables)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "the models did not learn to translate" in verdict.missing


@pytest.mark.parametrize(
    ("means", "outcome"),
    [
        ({"standard": 4.99, "looped": 4.73, "AlgoFormer": 4.61}, Outcome.HOLDS),
        ({"standard": 4.50, "looped": 4.73, "AlgoFormer": 4.61}, Outcome.FAILS),
        ({"standard": 4.99, "looped": 4.50, "AlgoFormer": 4.61}, Outcome.FAILS),
        ({"standard": 4.70, "looped": 4.73, "AlgoFormer": 4.61}, Outcome.FAILS),
    ],
)
def test_the_verdict_is_the_order_that_was_measured(means, outcome, tables):
    verdict = table1.judge(losses_of(tables, **means))
    assert verdict.outcome is outcome
    order = sorted(means, key=means.get)
    places = [verdict.remarks[0].index(f"{name} {means[name] + 0.0005:.2f}") for name in order]
    assert places == sorted(places)


def test_trainings_on_two_corpora_are_not_compared(tables):
    good = losses_of(tables, **table1.PRINTED)
    corpora = ["debian a", *["debian b"] * (len(good["models"]["seed"]) - 1)]
    verdict = table1.judge({**good, "models": {**good["models"], "corpus": corpora}})
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "the trainings are on debian a, debian b" in verdict.missing


@pytest.mark.parametrize("mutation", TABLE1_MUTATIONS, ids=lambda m: m.what)
def test_a_broken_formula_loses_the_verdict(mutation, tables):
    good = losses_of(tables, **table1.PRINTED)
    assert table1.judge(good).outcome is Outcome.HOLDS
    with applied(mutation.target, mutation.wrong):
        assert table1.judge(good).outcome is not Outcome.HOLDS


def test_a_difference_within_the_seeds_is_inconclusive(tables):
    close = losses_of(tables, standard=4.99, looped=4.611, AlgoFormer=4.61)
    rows = as_rows(close["blocks"])
    for row in rows:
        if row["architecture"] == "looped":
            row["nats"] += 0.02 * row["seed"] * row["targets"]
    assert table1.judge({**close, "blocks": as_table(rows)}).outcome is Outcome.INCONCLUSIVE


def test_a_difference_within_the_held_out_pairs_is_inconclusive(tables):
    good = losses_of(tables, **table1.PRINTED)
    rows = as_rows(good["blocks"])
    for row in rows:
        if row["architecture"] == "looped":  # far better in one block, and worse in another
            row["nats"] *= {0: 0.1, 1: 1.9}.get(row["block"], 1.0)
    assert table1.judge({**good, "blocks": as_table(rows)}).outcome is Outcome.INCONCLUSIVE


def losses(*nats):
    return table1.Losses(np.array(nats), np.array([1.0, 3.0]), spread=0.4)


def test_the_error_of_a_difference_is_of_seeds_and_of_what_pairs_do_not_share():
    above, below = losses([3.0, 7.0], [3.0, 7.0]), losses([2.0, 4.0], [2.0, 4.0])
    assert (above.mean, below.mean) == (2.5, 1.5)
    # Residuals: (3 - 2.5, 7 - 7.5) / 4 and (2 - 1.5, 4 - 4.5) / 4, the same.
    assert table1.lead(above, below).standard_error == pytest.approx(0.4)
    twice = losses([4.0, 6.0], [4.0, 6.0])  # 1.5 / 4 instead of 0.5 / 4
    found = table1.lead(twice, below)
    assert found.standard_error == pytest.approx((0.4**2 + 2 * 2 * 0.25**2) ** 0.5)
    assert found.mean == pytest.approx(1.0)


def test_blocks_have_the_losses_of_the_record(records):
    for record in records.values():
        (every,) = as_rows(record.tables["losses"], origin="all")
        own, other = (
            as_rows(record.tables["blocks"], sentence=which) for which in (table1.OWN, table1.OTHER)
        )
        nats, targets = (sum(row[key] for row in own) for key in ("nats", "targets"))
        assert nats / targets == pytest.approx(every["cross_entropy"], rel=1e-6)
        assert [row["nats"] for row in other] != [row["nats"] for row in own]


def test_a_model_that_does_not_read_the_sentence_decides_nothing(tables):
    blind = losses_of(tables, other=4.61, standard=4.99, looped=4.73, AlgoFormer=4.61)
    assert table1.judge(blind).outcome is Outcome.INCONCLUSIVE


def cells(table, row):
    (found,) = (cells for name, *cells in table.rows if name == row)
    return dict(zip(table.columns[1:], found, strict=True))


def test_the_papers_table_has_what_was_measured_beside_what_is_printed(tables, records):
    results, _ = table1.tabulate(losses_of(tables, other=5.5, **table1.PRINTED))
    assert cells(results, "printed, on other data")["looped"] == "4.726"
    measured = cells(results, "nats for a token, held-out pairs")
    mean, _, error = measured["looped"].split()
    assert float(mean) == pytest.approx(4.726 + 0.001 / 2, abs=0.001)
    # Two seeds that are 0.001 apart: a standard deviation of 0.001/sqrt 2, over the root of 2.
    assert float(error) == pytest.approx(0.001 / 2, abs=0.0006)
    losses = [
        as_rows(records[f"looped-{seed}"].tables["losses"], origin="small") for seed in (0, 1)
    ]
    mean = np.mean([row["cross_entropy"] for (row,) in losses])
    assert cells(results, "of small")["looped"] == f"{mean:.3f}"
    assert cells(results, "after another sentence")["standard"].startswith("5.50")
    assert cells(results, "after one loop")["standard"] == ""
    assert float(cells(results, "after one loop")["AlgoFormer"]) > 0
    assert set(cells(results, "words without context").values()) == {"6.000"}
    assert set(cells(results, "seeds").values()) == {"2"}
    facts = dict(zip(*records["looped-0"].tables["facts"].values(), strict=True))
    assert cells(results, "parameters")["looped"] == f"{facts['parameters']:,}"


def test_every_sentence_stands_with_its_reference_and_all_translations(tables):
    _, spoken = table1.tabulate(tables)
    rows = as_rows(tables["translations"])
    assert len(spoken.groups) == len({row["sentence"] for row in rows}) == SPOKEN
    for group in spoken.groups:
        text = {name: cell for name, cell in group}
        chosen = [row for row in rows if row["sentence"] == text["German"]]
        assert [text[row["architecture"]] for row in chosen] == [r["translation"] for r in chosen]
        assert {row["reference"] for row in chosen} == {text["reference"]}
        share = f"{chosen[0]['shared trigrams']:.0%}"
        assert text["seen"] == f"{share} of its trigrams in a training sentence"
    assert spoken.title.endswith("From small (MIT, as innerloop)")


def test_the_picture_is_drawn_from_the_tables(tables):
    left, right = table1.draw(tables).axes
    assert [t.get_text() for t in left.get_xticklabels()] == ["all", "small"]
    assert len(right.lines) == 6 + 1


def test_numbers_come_from_the_records_of_the_scale(records, monkeypatch):
    study = replace(table1.STUDY, experiments=lambda scale: {})
    monkeypatch.setattr(table1, "STUDY", study)
    monkeypatch.setattr(Study, "results", lambda self, scale: records)
    numbers = table1.numbers(Scale.QUICK)
    assert "Debian" in numbers.caption
    assert numbers.settings["steps"] == table1_trainings.QUICK.steps
    assert len(table1.tabulate(numbers.tables)) == 2
