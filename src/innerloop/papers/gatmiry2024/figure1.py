"""Figure 1 of Gatmiry et al. (2024): where looped training ends for few and for many examples."""

from matplotlib.figure import Figure as Picture

from innerloop.papers import Correction, Kind, Numbers, Scale, Tables, Verdict, figure
from innerloop.papers.gatmiry2024 import figure_parts as parts
from innerloop.papers.gatmiry2024.training import looped_transformer, prompt_trained
from innerloop.papers.plots import as_rows, as_table
from innerloop.papers.quantity import at_most, checks

D, LOOPS = 5, 5


def judge(tables: Tables) -> Verdict:
    ends, exact = tables["ends"], as_rows(tables["exact"])
    trained, first, last = as_rows(ends, training="symmetric"), exact[0], exact[-1]
    return Verdict(
        checks(
            "|A - I|_F / |I|_F",
            at_most(0.1, "very close is read as within a tenth"),
            {"trained, n < d, largest": max(e["distance"] for e in trained if e["n"] < D) / D**0.5},
            unlike={"A = 0.8 I": 0.2},
        ),
        parts.lands_on_the_best_step(trained, tables["exact"], D)
        + checks(
            "|u|",
            at_most(1e-3, "u* = 0, and the loss is quadratic in u: a loss within 1e-6 allows this"),
            {"trained, largest": max(end["shift"] for end in trained)},
            unlike={"at the start, smallest": min(end["shift at the start"] for end in trained)},
        ),
        Correction(
            r"A \to A^{opt} \approx I \text{ even for } n < d",
            r"A \to a^* I, \quad a^* = \mathrm{argmin}_a\, \mathbf{E}\,\mathrm{tr}\,"
            r"(I - a W/n)^{2L}",
            "A becomes a multiple of the identity, but not the identity: with few examples a full "
            "step overshoots along large eigenvalues of the sample covariance.",
            Kind.SENTENCE,
            f"d = {D}, L = {LOOPS}: a* is {first['step size']:.3f} at n = {first['n']} and "
            f"{last['step size']:.3f} at n = {last['n']}. With A = I the loss at n = {first['n']} "
            f"would be {first['loss of A = I']:.3g} in place of {first['loss']:.3f}.",
        ),
    )


def draw(tables: Tables) -> Picture:
    exact, picture = tables["exact"], Picture(figsize=(11.5, 3.1))
    panels = picture.subplots(1, 4)
    titles = {
        "step size": ("(a) step size tr$(A)/d$", "exact $a^*$"),
        "distance": (r"(b) $\|A - I\|_F$", r"exact $(1 - a^*)\sqrt{d}$"),
        "dist": ("(c) Dist to multiples of $I$", ""),
        "loss": ("(d) loss", "exact optimum"),
    }
    for axes, (key, (title, line)) in zip(panels, titles.items(), strict=True):
        for kind, marker, colour, label in (
            ("symmetric", "o", parts.BLUE, "trained, symmetric $A$"),
            ("prompts", "x", parts.RED, "Adam on fresh prompts"),
        ):
            if (kind, key) != ("prompts", "loss"):  # of a batch: rare prompts carry it
                rows = as_rows(tables["ends"], training=kind)
                x, y = ([row[column] for row in rows] for column in ("n", key))
                axes.plot(x, y, marker, color=colour, label=label)
        if line:
            axes.plot(exact["n"], exact[key], color="black", linewidth=0.9, label=line, zorder=1)
        axes.set(title=title, xscale="log", xlabel="examples $n$")
        axes.set_xticks([2, 5, 10, 20, 50, 100], ["2", "5", "10", "20", "50", "100"])
    panels[0].axhline(1, color=parts.GREY, linestyle=":", linewidth=1, label="$A = I$")
    panels[0].set_ylim(0, 1.08)
    panels[1].set_ylim(0, None)
    for axes in panels[2:]:
        axes.set_yscale("log")
    for axes in panels[::3]:
        axes.legend(fontsize=7)
    return picture


@figure(
    "gatmiry2024/figure1",
    "Looped training converges for every number of examples, to an A very close to the identity "
    "even when n < d",
    source="Figure 1, section 5.2",
    judge=judge,
    draw=draw,
)
def figure1(scale: Scale) -> Numbers:
    every_size = (2, 3, 5, 10, 20, 50, 100)
    sizes = scale.pick(smoke=(2, 20), quick=every_size, paper=every_size)
    seeds, prompt_seeds = parts.starts(scale)
    prompts = [prompt_trained(D, n, LOOPS, s, scale) for n in sizes for s in prompt_seeds]
    runs = [("symmetric", looped_transformer(D, n, LOOPS, s)) for n in sizes for s in seeds]
    runs += [("prompts", run) for run in prompts]
    off = [run.step / run.best.steps[0].item() - 1 for run in prompts]
    return Numbers(
        {
            "ends": as_table(
                run.row(kind) | {"shift at the start": run.history["shift"][0]}
                for kind, run in runs
            ),
            "exact": as_table(parts.exact_row(LOOPS, n, D) for n in sizes),
        },
        f"Where looped training ends with n examples (d = {D}, {LOOPS} loops); black: the exact "
        f"optimum. Blue: symmetric A, {len(seeds)} starts, which fall on each other. Red: free A, "
        f"Adam on fresh prompts, {len(prompt_seeds)} starts, as the paper may have done it: "
        f"{min(off):+.0%} to {max(off):+.0%} from the best step, since rare prompts carry the "
        f"loss. {parts.PROCEDURE}",
    )
