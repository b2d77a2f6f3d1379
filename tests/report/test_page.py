"""The page as a reader's browser gets it."""

from __future__ import annotations

import base64
import csv
import io
import re
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Picture

from innerloop import index
from innerloop.papers.verdict import Check, Correction, Kind, Outcome, Verdict
from innerloop.report import FormulaError, write_report
from innerloop.report.inside import draw_shares, shares_table
from innerloop.report.page import MEANINGS
from innerloop.reproduction.inside import Inside
from innerloop.reproduction.reproduce import Result
from innerloop.runs import OutputError
from innerloop.tables import TextTable, as_csv

from .conftest import AWKWARD, CORRECTED, PRINTED, check, claim_result, failed, figure_result

VOID = {"meta", "img", "br", "input", "link", "hr"}
ASYMMETRIC = Verdict(
    [
        replace(
            check(measured, tolerance=-1e-3),
            quantity=quantity,
            control=0.5,
        )
        for measured, quantity in (
            (-0.0434, "relative change of the loss when K/sqrt(n) is added, n = 7"),
            (-0.031, "lowest relative change of the forward pass's loss that descent finds"),
        )
    ]
)


@dataclass
class Parsed(HTMLParser):
    """Elements with their attributes, and whether they are nested properly."""

    text: str
    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    open_tags: list[str] = field(default_factory=list)
    misnested: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.open_tags.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self.open_tags or self.open_tags.pop() != tag:
            self.misnested.append(tag)

    def values(self, attribute: str) -> list[str]:
        return [attrs[attribute] for _, attrs in self.elements if attribute in attrs]


def visible(html: str) -> str:
    """The text of the page, without tags and with single spaces."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", html))


def part(page: str, id: str) -> str:
    """The article with this id."""
    return page.split(f' id="{id}"')[1].split("</article>")[0]


def test_the_page_asks_the_network_for_nothing(page: str) -> None:
    assert "http:" not in page
    assert "https:" not in page
    parsed = Parsed(page)
    assert not {"link", "iframe", "object"} & {tag for tag, _ in parsed.elements}
    assert all(source.startswith("data:") for source in parsed.values("src"))
    assert all(link.startswith(("#", "data:", "figures/")) for link in parsed.values("href"))
    assert "url(" not in page
    assert "@import" not in page


def test_elements_are_nested_and_ids_are_unique(page: str) -> None:
    parsed = Parsed(page)
    assert parsed.misnested == []
    assert parsed.open_tags == []
    ids = parsed.values("id")
    assert len(ids) == len(set(ids))


def test_every_result_has_an_anchor_and_every_link_inside_has_a_target(
    page: str, results: list[Result]
) -> None:
    parsed = Parsed(page)
    ids = set(parsed.values("id"))
    assert {result.id for result in results} <= ids
    assert {link[1:] for link in parsed.values("href") if link.startswith("#")} <= ids


def test_text_is_shown_and_never_run(page: str) -> None:
    assert AWKWARD not in page
    assert "<script>alert" not in page
    assert "for x &lt; y &amp; &#34;z&#34; &gt; &lt;script&gt;" in page


def test_outcomes_are_counted_in_words(page: str) -> None:
    assert 'aria-label="4 holds, 1 holds as corrected, 1 fails, 2 inconclusive"' in page


def test_a_claim_shows_its_numbers_and_how_to_measure_them_again(page: str) -> None:
    article = visible(part(page, "ahn2023/holds"))
    for words in ("0.01", "≤ 0.05", "1.5", "a plain step", "float64", "spectrum", "1, 0.25"):
        assert words in article
    assert "innerloop reproduce ahn2023/holds --scale smoke --force" in article


def test_the_rerun_command_is_the_callers(results: list[Result], tmp_path: Path) -> None:
    page = write_report(results, tmp_path, command="python -m innerloop reproduce").read_text()
    assert "python -m innerloop reproduce ahn2023/fails --scale smoke --force" in visible(page)


def test_numbers_of_claims_that_are_off_stand_open(page: str) -> None:
    for id, stands_open in {"holds": False, "off": True, "fails": True}.items():
        assert ("<details open>" in part(page, f"ahn2023/{id}")) is stands_open


def test_an_inconclusive_claim_says_what_is_missing(page: str) -> None:
    assert "The model kept still." in part(page, "ahn2023/missing")
    assert "could not have failed" in part(page, "ahn2023/blind")


def test_corrections_show_both_formulas_and_both_measurements(page: str) -> None:
    article = part(page, "corrections/ahn2023/off")
    alternatives = [attrs["alttext"] for _, attrs in Parsed(article).elements if "alttext" in attrs]
    assert alternatives == [PRINTED, CORRECTED]
    assert "The moment of a Gaussian counts i = j once." in article
    assert "0.31" in visible(article)
    assert "2 × 10⁻¹³" in visible(article)
    assert "ahn2023/off --scale smoke --force" in visible(article)


def test_corrections_list_what_is_off_or_fails_and_nothing_else(
    page: str, results: list[Result]
) -> None:
    listed = {
        id.removeprefix("corrections/")
        for id in Parsed(page).values("id")
        if id.startswith("corrections/")
    }
    wrong = {
        result.id
        for result in results
        if result.outcome in {Outcome.CORRECTED, Outcome.FAILS} or result.verdict.correction
    }
    assert listed == wrong


def test_without_anything_off_the_corrections_say_so(tmp_path: Path) -> None:
    fine = claim_result("ahn2023/fine", Verdict([check(0.01)]))
    page = write_report([fine], tmp_path).read_text()
    assert "Nothing that was measured here contradicts what is printed." in page


def test_numbers_that_are_not_finite_are_named(tmp_path: Path) -> None:
    odd = Verdict([check(float("nan")), check(float("-inf"), control=float("inf"))])
    page = write_report([claim_result("ahn2023/odd", odd)], tmp_path).read_text()
    article = visible(part(page, "ahn2023/odd"))
    for words in ("NaN", "−∞", "∞"):
        assert words in article


def test_the_page_opens_with_findings_that_link_to_their_claims(
    results: list[Result], tmp_path: Path
) -> None:
    told = claim_result("gatmiry2024/asymmetric", ASYMMETRIC)
    page = write_report([*results, told], tmp_path).read_text()
    opening = page.split('class="findings"')[1].split("</section>")[0]
    assert page.index('class="findings"') < page.index('class="summary"')
    assert "4.3%" in visible(opening)
    assert Parsed(opening).values("href") == ["#gatmiry2024/asymmetric"]


def test_without_a_finding_the_page_says_nothing_of_findings(page: str) -> None:
    assert "What to know first" not in page


def test_what_could_not_be_measured_is_named_counted_and_not_drawn(
    results: list[Result], tmp_path: Path
) -> None:
    errors = [failed(results[0], AWKWARD), failed(results[-1], "The worker was killed.")]
    page = write_report([*results[1:-1], *errors], tmp_path).read_text()
    assert "2 inconclusive, 2 error" in page
    assert "it could not be measured" in visible(page)
    for result, words in zip(errors, ("for x &lt; y", "The worker was killed."), strict=True):
        article = part(page, result.id)
        assert 'class="badge error"' in article
        assert "Not measured." in article
        assert words in article
        assert "<table" not in article
        assert "<img" not in article
        assert f"{result.id} --scale smoke --force" in visible(article)
    assert not (tmp_path / "figures" / "ahn2023-figure2.svg").exists()
    assert f'id="corrections/{errors[0].id}"' not in page
    assert Parsed(page).misnested == []


def test_every_outcome_has_a_meaning_an_icon_and_a_colour(page: str) -> None:
    assert set(MEANINGS) == set(Outcome)
    for outcome in Outcome:
        slug = outcome.rpartition(" ")[2]
        assert f'id="icon-{slug}"' in page
        assert f".{slug} {{ --tone: var(--{slug}); }}" in page


def test_without_errors_the_summary_does_not_speak_of_them(page: str) -> None:
    assert MEANINGS[Outcome.ERROR] not in page


def test_the_filter_offers_what_is_there_and_is_hidden_until_a_script_runs(page: str) -> None:
    form = page.split('<form class="filter"')[1].split("</form>")[0]
    assert form.split(">")[0].endswith(" hidden")
    options = re.findall(r"<option[^>]*>(.*?)</option>", form)
    verdicts = ["holds", "holds as corrected", "fails", "inconclusive"]
    assert options == ["all", "ahn2023", "all", *verdicts]
    assert "8 of 8" in form
    assert all("hidden" not in attrs for tag, attrs in Parsed(page).elements if tag == "article")


def test_everything_that_is_shown_of_a_result_can_be_filtered(
    page: str, results: list[Result]
) -> None:
    shown = [attrs for tag, attrs in Parsed(page).elements if tag == "article"]
    outcomes = {result.id: str(result.outcome) for result in results}
    assert {attrs["data-id"]: attrs["data-verdict"] for attrs in shown} == outcomes
    for attrs in shown:
        assert attrs["id"] in {attrs["data-id"], f"corrections/{attrs['data-id']}"}
        assert attrs["data-text"].startswith(attrs["data-id"])
        assert "relative error" in attrs["data-text"]
    entries = {a["data-id"] for tag, a in Parsed(page).elements if tag == "li" and "data-id" in a}
    assert entries == set(outcomes)


def test_figures_and_their_tables_lie_beside_the_page(
    page: str, results: list[Result], tmp_path: Path
) -> None:
    folder = tmp_path / "report" / "figures"
    svg = (folder / "ahn2023-figure2.svg").read_text()
    assert svg.rstrip().endswith("</svg>")
    tables = results[-1].tables
    assert {path.name for path in folder.glob("*.csv")} == {
        f"ahn2023-figure2-{name}.csv" for name in tables
    }
    for name, table in tables.items():
        text = (folder / f"ahn2023-figure2-{name}.csv").read_text()
        assert text == as_csv(table)
        header, *rows = csv.reader(io.StringIO(text))
        assert header == list(table)
        assert [list(column) for column in zip(*rows, strict=True)] == [
            [str(value) for value in column] for column in table.values()
        ]


def test_the_page_alone_holds_its_figures_and_tables(page: str, tmp_path: Path) -> None:
    parsed = Parsed(part(page, "ahn2023/figure2"))
    folder = tmp_path / "report" / "figures"
    (image,) = parsed.values("src")
    assert base64.b64decode(image.split(",")[1]) == (folder / "ahn2023-figure2.svg").read_bytes()
    for _, attrs in parsed.elements:
        if "download" in attrs:
            inside = base64.b64decode(attrs["href"].split(",")[1])
            assert inside == (folder / attrs["download"]).read_bytes()


def test_two_reports_of_the_same_numbers_have_equal_figures(
    results: list[Result], tmp_path: Path
) -> None:
    first, second = (write_report(results, tmp_path / name).parent for name in "ab")
    for path in sorted((first / "figures").iterdir()):
        assert path.read_bytes() == (second / "figures" / path.name).read_bytes()


def test_a_report_written_again_has_the_same_pictures_of_what_stayed_and_new_ones_of_what_changed(
    results: list[Result], tmp_path: Path
) -> None:
    *claims, figure = results
    path = write_report(results, tmp_path).parent / "figures" / "ahn2023-figure2.svg"
    before = path.read_text()
    write_report(results, tmp_path)
    assert path.read_text() == before
    tables = dict(figure.tables) | {"loss": {"n": [1, 2, 3], "risk": [5.0, 4.0, 3.0]}}
    changed = write_report([*claims, replace(figure, tables=tables)], tmp_path).read_text()
    assert path.read_text() != before
    assert base64.b64encode(path.read_bytes()).decode() in changed


def test_a_folder_that_cannot_be_written_is_refused(results: list[Result], tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(OutputError, match="taken"):
        write_report(results, tmp_path / "taken")


def test_a_formula_that_cannot_be_typeset_is_named_before_anything_is_written(
    results: list[Result], tmp_path: Path
) -> None:
    wrong = claim_result("ahn2023/wrong", Verdict([check(0.01)]), formula=r"\nosuchthing")
    with pytest.raises(FormulaError, match=r"ahn2023/wrong.*nosuchthing"):
        write_report([*results, wrong], tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_no_results_and_results_of_no_paper_are_refused(
    results: list[Result], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="results is empty"):
        write_report([], tmp_path)
    stranger = replace(results[0], entry=replace(results[0].entry, id="nobody1900/x"))
    with pytest.raises(ValueError, match="nobody1900/x"):
        write_report([stranger], tmp_path)


def test_a_figure_that_cannot_be_drawn_is_an_error_beside_the_others(tmp_path: Path) -> None:
    def broken(tables: object) -> Picture:
        raise KeyError("no such column")

    good = figure_result("ahn2023/good", Verdict([check(0.01)]))
    bad = replace(good, entry=replace(good.entry, id="ahn2023/bad", draw=broken))
    page = write_report([good, bad], tmp_path).read_text()
    assert "measured, but not drawn: KeyError" in page
    assert (tmp_path / "figures" / "ahn2023-good.svg").is_file()


def test_corrections_stand_in_the_order_of_their_weight(tmp_path):
    kinds = [Kind.MISPRINT, Kind.STATEMENT, Kind.CONSTANT]
    results = [
        claim_result(
            f"ahn2023/{kind.name.lower()}",
            Verdict(
                [check(1.0)],
                [check(0.01)],
                Correction(PRINTED, CORRECTED, "Why.", kind, "At n = 2 it is 3, not 4."),
            ),
        )
        for kind in kinds
    ]
    page = write_report(results, tmp_path).read_text()
    places = [page.index(f'id="corrections/ahn2023/{k.name.lower()}"') for k in kinds]
    assert places[1] < places[2] < places[0]
    for kind in kinds:
        assert f"{str(kind).capitalize()}." in page
    assert page.count("At n = 2 it is 3, not 4.") == 3


def test_a_card_shows_remarks_the_case_its_error_and_where_its_code_stands(tmp_path):
    sampled = Check("loss", 0.5, 1.0, 9.0, "why", "untrained", case="trained", standard_error=0.25)
    verdict = Verdict([sampled], remarks=["Eq. 6 has a misprint."])
    page = write_report([claim_result("ahn2023/theorem1", verdict)], tmp_path).read_text()
    assert "<small>trained</small>" in page
    assert "Eq. 6 has a misprint." in page
    assert "± 0.2<" in page
    assert "too near to its tolerance" in page
    entry = index.entries()["ahn2023/theorem1"]
    assert f"{entry.file}:{entry.line}" in page


def test_a_finding_of_our_own_is_marked(tmp_path):
    result = claim_result("ahn2023/holds", Verdict([check(0.01)]))
    ours = replace(result, entry=replace(result.entry, ours="measured"))
    assert "A finding of innerloop’s" in write_report([ours], tmp_path).read_text()
    assert "A finding of innerloop’s" not in write_report([result], tmp_path).read_text()


def test_what_is_inside_models_is_a_section_only_if_there_are_any(results, tmp_path, page):
    assert 'id="inside"' not in page
    answer = "none of these exactly; nearest is ridge <b>"
    found = Inside("toy/model", "gpt2", "linear:d=2", answer, "survives nothing", "recorded")
    text = write_report(results, tmp_path / "other", inside=[found]).read_text()
    assert "Enlarge what is inside" not in text  # without a number there is nothing to draw
    assert 'id="inside/toy/model"' in text
    assert "nearest is ridge &lt;b&gt;" in text
    assert "Under shifts.</b> survives nothing." in text
    assert '<a href="#inside">What is inside (1)</a>' in text


def test_what_is_inside_models_is_drawn_with_its_intervals(results, tmp_path):
    shares = {"error": [0.4, 0.3, 0.5], "prediction": [0.9, 0.8, 0.95]}
    models = [
        Inside(name, "gpt2", "linear:d=2", "near", "", "recorded", family, shares)
        for name, family in (("toy/one", "ridge"), ("toy/two", "gd"))
    ]
    (picture,) = draw_shares({"shares": shares_table(models)}).axes
    assert [label.get_text() for label in picture.get_yticklabels()] == ["toy/one", "toy/two"]
    assert [text.get_text() for text in picture.texts] == ["ridge", "gd"]
    for line, lines, interval in zip(
        picture.lines, picture.collections, shares.values(), strict=False
    ):
        assert line.get_xdata().tolist() == [interval[0]] * 2
        assert [segment[:, 0].tolist() for segment in lines.get_segments()] == [interval[1:]] * 2
    text = write_report(results[:1], tmp_path, inside=models).read_text()
    assert "Enlarge what is inside" in text
    assert "toy/two,gd,error,0.4,0.3,0.5" in (tmp_path / "figures/inside-shares.csv").read_text()


def test_a_table_to_be_read_is_shown_as_it_is_in_its_groups(tmp_path):
    table = TextTable("Said", ["", "text"], left=2, together=2)
    for cells in [("German", AWKWARD), ("standard", "x^2 -> sigma"), ("German", "Ja.")]:
        table.add(*cells)
    result = figure_result("ahn2023/figure2", Verdict([check(0.02)]))
    result = replace(result, entry=replace(result.entry, tabulate=lambda tables: [table]))
    page = write_report([result], tmp_path).read_text()
    shown = page.partition("<caption>Said</caption>")[2].partition("</table>")[0]
    assert shown.count("<tbody>") == 2
    assert "<td>x^2 -&gt; sigma</td>" in shown
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
