"""Two looped models side by side, loop by loop; and what the heads of one attend to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.models import Trace
from innerloop.tasks import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage


@torch.no_grad()
def loop_distances(
    one: Any,
    other: Any,
    task: Task,
    *,
    loops: tuple[int, int],
    batch: int,
    generator: torch.Generator,
) -> Float[Tensor, "loops others"]:
    """Root mean square difference of predictions, after i loops of one and j of the other.

    On the same prompts, of any two models with `after_loops(batch, counts)`: a trained model that
    runs a compiled one's algorithm has a small entry in every row, further right from row to row.
    """
    for count in loops:
        if count < 1:
            raise ValueError(f"loops must be at least 1 for both models, got {loops}")
    prompts = task.sample(batch, generator=generator)
    first, second = (
        model.after_loops(prompts, range(1, count + 1)).flatten(1).double()
        for model, count in zip((one, other), loops, strict=True)
    )
    return (first[:, None] - second[None]).square().mean(-1).sqrt()


def plot_loop_distances(
    distances: Float[Tensor, "loops others"], *, names: tuple[str, str], title: str = ""
) -> Figure:
    """The distances as a map, with the nearest loop of the other model marked in every row."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(6.4, 4.6))
    axes = picture.subplots()
    shown = draw_loop_distances(axes, distances)
    axes.set(xlabel=f"loops of {names[1]}", ylabel=f"loops of {names[0]}", title=title)
    picture.colorbar(shown, ax=axes, label="root mean square difference of predictions")
    return picture


def draw_loop_distances(axes: Axes, distances: Float[Tensor, "loops others"]) -> AxesImage:
    """The map itself, on a logarithmic scale; exact zeros are drawn as the least of the others."""
    from matplotlib.colors import LogNorm

    rows, columns = distances.shape
    positive = distances[distances > 0]
    least = float(positive.min()) if len(positive) else 1.0
    shown = axes.imshow(
        distances.clamp_min(least).numpy(),
        norm=LogNorm(),
        extent=(0.5, columns + 0.5, rows + 0.5, 0.5),
        aspect="auto",
        cmap="viridis",
    )
    nearest = (distances.argmin(1) + 1).tolist()
    axes.plot(nearest, range(1, rows + 1), "o", color="white", markersize=3)
    axes.grid(visible=False)
    return shown


def plot_attention(
    trace: Trace, layers: Sequence[int], *, titles: Sequence[Sequence[str]], tokens: Sequence[str]
) -> Figure:
    """Attention maps of the first prompt: a row for each of these layers, a panel for each head.

    Of two heads their difference is drawn as well: those of a product differ by very little, and
    what they compute is in it.

    Args:
        titles: of every head of every layer; heads without a title are not drawn.
        tokens: their names, on both axes; a row of a map is a token that listens.
    """
    from matplotlib.figure import Figure

    pair = [len(heads) == 2 for heads in titles]
    widest = max(len(heads) + two for heads, two in zip(titles, pair, strict=True))
    picture = Figure(figsize=(3.4 * widest, 3.4 * len(layers)))
    panels = picture.subplots(len(layers), widest, squeeze=False)
    for row, layer, heads, two in zip(panels, layers, titles, pair, strict=True):
        maps = trace.attention[layer][0].numpy()
        for axes in row[len(heads) + two :]:
            axes.set_axis_off()
        for axes, title, shown in zip(row, heads, maps, strict=False):
            axes.imshow(shown, cmap="Blues", vmin=0)
            axes.set_title(f"{trace.names[layer]}\n{title}", fontsize=8)
        if two:
            difference = maps[0] - maps[1]
            size = float(abs(difference).max())
            row[2].imshow(difference, cmap="RdBu_r", vmin=-size or -1, vmax=size or 1)
            row[2].set_title(f"the first minus the second head\nwithin {size:.1e}", fontsize=8)
        for axes in row[: len(heads) + two]:
            axes.set_xticks(range(len(tokens)), tokens, fontsize=7)
            axes.set_yticks(range(len(tokens)), tokens, fontsize=7)
    picture.tight_layout()
    return picture
