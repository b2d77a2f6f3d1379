"""`innerloop bench sequence`: training steps of transformers, against plain code and the machine.

The rivals are Hugging Face's GPT-2 in a plain loop (with `pip install innerloop[hub]`), and a loop
that reads out after every pass and back-propagates through all of them. The machine's peak is that
of a large product of matrices in the same run.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from innerloop.algorithms.learner import example_by_example
from innerloop.benchmarks.timing import in_turn, seconds
from innerloop.models import BlockShape, Decoder, InContext, Looped
from innerloop.models.gpt2_weights import as_hugging_face
from innerloop.sequence import TokenSequence
from innerloop.tasks import LinearRegression


@dataclass(frozen=True)
class Sizes:
    """Of a decoder and its batch, by default those of Garg et al. (2022)."""

    layers: int = 12
    width: int = 256
    heads: int = 8
    d: int = 20
    n: int = 40
    batch: int = 64

    @property
    def length(self) -> int:
        return 2 * self.n + 1

    @property
    def tokens(self) -> int:
        return self.batch * self.length

    @property
    def step_flops(self) -> float:
        """Of matrix products in a training step: 2 for each weight and token forward, twice that
        backward, and the same for the logits and the mix of values of attention. Of y tokens
        nothing is read, and the last layer's feed-forward network leaves them out."""
        weights, feed_forward = 12 * self.width**2, 8 * self.width**2
        attention = 2 * self.length * self.width
        whole = self.layers * self.tokens * (weights + attention)
        return 6.0 * (whole - self.batch * self.n * feed_forward)

    def shape(self) -> BlockShape:
        return BlockShape(self.width, self.heads)

    def decoder(self) -> Decoder:
        return Decoder(
            self.d + 1,
            1,
            self.shape(),
            layers=self.layers,
            length=self.length,
            generator=_generator(),
        )

    def looped(self, loops: int) -> Looped:
        return Looped(
            self.d + 1,
            1,
            self.shape(),
            loops=loops,
            length=self.length,
            generator=_generator(),
        )

    def task(self) -> LinearRegression:
        return LinearRegression.isotropic(self.d, self.n, dtype=torch.float32)

    def sequences(self) -> TokenSequence:
        return self.task().sample(self.batch, generator=_generator(1)).interleave()


GARG = Sizes()
ONE_LAYER, SMALLER = replace(GARG, layers=1), replace(GARG, layers=4, width=128)
LOOPS, WINDOW = 20, 15
CHANGES = {
    "layers": [replace(GARG, layers=layers) for layers in (3, 6, 12)],
    "width": [replace(GARG, width=width) for width in (64, 128, 256)],
    "length": [replace(GARG, n=n) for n in (10, 20, 40)],
}


def run(console: Console) -> None:
    """All tables, one after another."""
    console.print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, float32")
    for table in (training_step, loops, curves, growth):
        console.print(table())


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def training_step(sizes: Sizes = GARG) -> Table:
    """A step of Adam: ours, Hugging Face's, and what the machine's products of matrices allow."""
    table = Table(
        title=f"training step, {sizes.layers} layers of width {sizes.width}, batch {sizes.batch}, "
        f"{sizes.length} tokens"
    )
    for column in ("", "ms", "times as long", "tokens/s", "share of the GEMM peak"):
        table.add_column(column, justify="right")
    batch, decoder = sizes.sequences(), sizes.decoder()
    peak = gemm_peak()
    rows = {"innerloop": stepper(decoder, batch)}
    rows["innerloop"]()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # before there is any other
    table.caption = f"peak memory of the process, with innerloop's alone: {memory:.2f} GiB"
    try:
        theirs = HuggingFace(sizes.decoder())
        rows["Hugging Face, plain loop"] = stepper(theirs, batch)
    except ImportError:
        table.caption += "; without transformers, there is no other code to compare with"
    times = in_turn(rows)
    for name, elapsed in times.items():
        share = sizes.step_flops / elapsed / peak
        table.add_row(
            name,
            f"{1e3 * elapsed:.0f}",
            f"{elapsed / times['innerloop']:.2f}",
            f"{sizes.tokens / elapsed:.0f}",
            f"{share:.0%}",
        )
    return table


class HuggingFace(nn.Module):
    """The same decoder with Hugging Face's layers."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.read_in, self.read_out = decoder.read_in, decoder.read_out
        self.body = as_hugging_face(decoder).train()

    def forward(self, batch: TokenSequence) -> Tensor:
        hidden = self.body(inputs_embeds=self.read_in(batch.tokens)).last_hidden_state
        return self.read_out(hidden)[:, batch.readout]

    def looped(self, batch: TokenSequence) -> Tensor:
        """Its own output added to the tokens and given to it again, as one would write it."""
        embedded = self.read_in(batch.tokens)
        z, read = torch.zeros_like(embedded), []
        for _ in range(LOOPS):
            z = self.body(inputs_embeds=z + embedded).last_hidden_state
            read.append(self.read_out(z))
        return torch.stack(read[-WINDOW:])[:, :, batch.readout]


def stepper(
    model: nn.Module, batch: TokenSequence, predict: Callable[[], Tensor] | None = None
) -> Callable[[], None]:
    """One step of Adam on the squared error of every prediction, by default the model's."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        predictions = model(batch) if predict is None else predict()
        (predictions - batch.targets).square().mean().backward()
        optimizer.step()

    return step


def gemm_peak(size: int = 2048) -> float:
    """Operations in a second of a product of two large matrices, here and now."""
    a, b = (torch.randn(size, size, generator=_generator(seed)) for seed in (0, 1))
    return 2.0 * size**3 / seconds(lambda: a @ b)


def loops(sizes: Sizes = ONE_LAYER) -> Table:
    """The window loss of a looped transformer, and the same by a plain loop."""
    table = Table(title=f"training step of a looped transformer, T = {LOOPS}, window {WINDOW}")
    for column in ("", "ms", "times as long"):
        table.add_column(column, justify="right")
    batch, model = sizes.sequences(), sizes.looped(LOOPS)
    counts = range(LOOPS - WINDOW + 1, LOOPS + 1)

    def window() -> Tensor:
        return model.predictions(batch, counts, without_gradient=LOOPS - WINDOW)

    def through_all() -> Tensor:
        return model.predictions(batch, counts)

    rows = {
        "the first loops without gradient": stepper(model, batch, window),
        "gradient through every loop": stepper(model, batch, through_all),
        "plain loop": stepper(model, batch, lambda: plain_loop(model, batch)),
    }
    try:
        theirs = HuggingFace(sizes.decoder())
        rows["plain loop of Hugging Face's GPT-2"] = stepper(
            theirs, batch, lambda: theirs.looped(batch)
        )
    except ImportError:
        table.caption = "without transformers, there is no other code to compare with"
    times = in_turn(rows)
    first = next(iter(times.values()))
    for name, elapsed in times.items():
        table.add_row(name, f"{1e3 * elapsed:.0f}", f"{elapsed / first:.2f}")
    return table


def plain_loop(model: Looped, batch: TokenSequence) -> Tensor:
    """Reads every token out after every pass, and keeps the graph of all of them."""
    embedded = model.positions(model.read_in(batch.tokens))
    z, read = torch.zeros_like(embedded), []
    for _ in range(LOOPS):
        z = model.loop_norm(model.inside(z + embedded, causal=True))
        read.append(model.read_out(z))
    return torch.stack(read[-WINDOW:])[:, :, batch.readout]


def curves(sizes: Sizes = SMALLER) -> Table:
    """A learning curve in one pass, and by n + 1 of them."""
    table = Table(title=f"learning curve of a decoder, {sizes.n + 1} points")
    for column in ("", "ms", "times as long"):
        table.add_column(column, justify="right")
    learner = InContext(sizes.decoder()).eval()
    prompt = sizes.task().sample(sizes.batch, generator=_generator(1))
    with torch.no_grad():
        one = seconds(lambda: learner.learning_curve(prompt))
        many = seconds(lambda: example_by_example(learner, prompt))
    table.add_row("one pass", f"{1e3 * one:.0f}", "1.00")
    table.add_row(f"{sizes.n + 1} passes", f"{1e3 * many:.0f}", f"{many / one:.2f}")
    return table


def growth() -> Table:
    """How a training step grows when one size is changed."""
    table = Table(title="training step relative to the first of its kind")
    for column in ("", "size", "times as long", "times the products of matrices"):
        table.add_column(column, justify="right")
    for name, settings in CHANGES.items():
        first: tuple[float, float] | None = None
        for sizes in settings:
            elapsed = seconds(stepper(sizes.decoder(), sizes.sequences()), repeats=3)
            first = first or (elapsed, sizes.step_flops)
            size = {"layers": sizes.layers, "width": sizes.width, "length": sizes.length}[name]
            ratio, flops = elapsed / first[0], sizes.step_flops / first[1]
            table.add_row(name, str(size), f"{ratio:.2f}", f"{flops:.2f}")
    return table
