from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure as Picture

from innerloop.papers.registry import Table
from innerloop.report.plot_style import PALETTE, drawn, plot_style

from .conftest import draw_loss

TABLES: dict[str, Table] = {"loss": {"n": [1, 2, 3], "risk": [0.5, 0.3, 0.01]}}


def test_a_drawing_has_no_date_and_no_font_to_be_found_elsewhere() -> None:
    svg = drawn(draw_loss, TABLES).svg
    assert "dc:date" not in svg
    assert "<text" not in svg


def test_a_drawing_ignores_and_leaves_alone_the_users_settings() -> None:
    before = drawn(draw_loss, TABLES)
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 7}):
        assert drawn(draw_loss, TABLES) == before
        assert matplotlib.rcParams["font.size"] == 20


def test_lines_take_the_palette_in_order() -> None:
    with plot_style():
        axes = Picture().subplots()
        colors = [axes.plot([0, 1])[0].get_color() for _ in PALETTE]
    assert tuple(colors) == PALETTE


def test_a_drawing_that_is_kept_is_drawn_again_only_if_its_numbers_change(tmp_path: Path) -> None:
    calls = []

    def counted(tables: Mapping[str, Table]) -> Picture:
        calls.append(tables)
        return draw_loss(tables)

    path = tmp_path / "kept.svg"
    first = drawn(counted, TABLES, kept=path)
    path.write_text(first.svg)
    assert drawn(counted, TABLES, kept=path) == first
    assert len(calls) == 1
    other: dict[str, Table] = {"loss": {"n": [1, 2, 3], "risk": [0.5, 0.3, 0.02]}}
    assert drawn(counted, other, kept=path) != first
    assert len(calls) == 2


@pytest.mark.parametrize("damage", [lambda svg: svg[:-300], lambda svg: "", lambda svg: "\udcff"])
def test_a_damaged_file_is_no_drawing(tmp_path: Path, damage: Callable[[str], str]) -> None:
    path = tmp_path / "kept.svg"
    first = drawn(draw_loss, TABLES)
    path.write_bytes(damage(first.svg).encode("utf-8", "surrogateescape"))
    assert drawn(draw_loss, TABLES, kept=path) == first


def test_the_shape_is_width_over_height() -> None:
    def wide(tables: Mapping[str, Table]) -> Picture:
        return Picture(figsize=(9, 3))

    assert drawn(wide, TABLES).aspect == 3.0
