from __future__ import annotations

from collections.abc import Mapping

import matplotlib
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


def test_the_shape_is_width_over_height() -> None:
    def wide(tables: Mapping[str, Table]) -> Picture:
        return Picture(figsize=(9, 3))

    assert drawn(wide, TABLES).aspect == 3.0
