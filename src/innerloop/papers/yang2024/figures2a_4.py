"""Figures 2 (a) and 4: how one layer is trained, its losses, and different numbers of heads.

The paper has no public code, and leaves tau and the meaning of an iteration open. Here tau = 0.01,
as in its Figure 3. At the paper's scale an iteration is an epoch of 10,000 functions, 39 batches of
256, and Adam has the printed learning rate 0.0001. The smaller scales have a hundredth of these
steps or so, on the exact loss, at a hundred times that rate.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure as Picture

from innerloop import theory
from innerloop.analysis import Estimate
from innerloop.papers.common import generator, mean_log
from innerloop.papers.plots import as_table, history_table, plot_runs, where
from innerloop.papers.quantity import SAMPLING, at_least, at_most, checks
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.papers.yang2024 import settings
from innerloop.papers.yang2024.lemmas1_to_6 import infimum, loss_75
from innerloop.papers.yang2024.sections3_2_3 import ridge
from innerloop.papers.yang2024.settings import FULL, OUT_OF_DOMAIN, Instance, Sizes, instance
from innerloop.tasks import GaussianCoefficients, TabulatedCoefficients
from innerloop.training import History, Metric, Objective, train

UNIT, GAUSSIAN, FEW = "tokens of norm 1", "Gaussian tokens", ", N/3 heads"
PRINTED_RATE, QUICK_RATE, EPOCH, TEST_PROMPTS = 1e-4, 1e-2, 39, 200
LOSSES = ("population loss", "in domain", "out of domain")
LEARNED = "final gap relative to the least of w alone, Q at its start, Gaussian tokens"
BELOW = at_most(1.0, "the least itself: with Q at rest nothing is below it")
ABOVE = at_least(
    4.0, "the loss is linear in E lambda lambda^T = 1 1^T + 4 I >= 4 I and its trace 5 m >= 4 m"
)
SUBTRACTED = at_most(1e-6, "float64: the difference of two losses of order 1, down to 1e-5")
HALF = at_most(0.5, "descending: more than half is gone")
WHY_FAR = "far from the minimum: a hundredth of the gap at the start; mean over the starts"
STOPS, GOES_ON = at_least(math.log(1e-2), WHY_FAR), at_most(math.log(1e-2), WHY_FAR)
WHY_LOST = "instability: what was gained is lost again, by a factor of 2"
BOUND = at_least(1.0, "the floor is a lower bound")


@dataclass(frozen=True)
class Recipe:
    """Sizes, steps of Adam and their rate; each seed has a dictionary and a start of its own."""

    sizes: Sizes
    steps: int
    rate: float
    seeds: int

    @property
    def in_words(self) -> str:
        """For a caption: the training, and how it differs from the printed one."""
        if self.rate == PRINTED_RATE:
            return f"An iteration, which the paper leaves open, is an epoch of {EPOCH} steps here."
        return (
            f"{self.sizes}; Adam has the learning rate {self.rate:g}, a hundred times the printed "
            f"one, for {self.steps} steps. The scale `paper` has that."
        )

    def made(self, heads: int, tokens: str, seed: int) -> Instance:
        return instance(self.sizes.with_heads(heads), seed, unit=tokens == UNIT)

    def train(self, made: Instance, objective: Objective, every: int, **metrics: Metric) -> History:
        return train(
            made.model,
            objective,
            torch.optim.Adam(made.model.parameters(), self.rate, fused=True),
            steps=self.steps,
            generator=generator(1),
            every=every,
            metrics=metrics,
        )


def inference(made: Instance, coefficients: GaussianCoefficients, model: object = None) -> float:
    """E (1/K) |prediction - y*|^2, exactly; y* by the features, not as the risk's optimum."""
    risk = settings.risk(made.task, coefficients.second_moment(made.m))
    return risk.distance(made.attention(), ridge(made, made.noise)).item()


def population_loss(made: Instance, model: object) -> float:
    return loss_75(made, made.attention())


def summary(made: Instance, history: History) -> dict[str, float]:
    """What is judged of a run; every number is compared with a bound."""
    loss, inside, outside = (np.asarray(history[name]) for name in LOSSES)
    low, printed = infimum(made, made.k), infimum(made, made.n)
    task = replace(made.task, coefficients=OUT_OF_DOMAIN)
    labels = task.sample(TEST_PROMPTS, generator=generator(3)).y
    error = labels @ (made.attention() - ridge(made, made.noise))
    sampled = Estimate.of(error.square().mean(1))
    return {
        "infimum": low,
        "population loss left": (loss[-1] - low) / (loss[0] - low),
        "in domain left": inside[-1] / inside[0],
        "out of domain left": outside[-1] / outside[0],
        "N(1, 4 I), out of domain": (outside / inside).min(),
        "N(0, I/4)": inference(made, GaussianCoefficients(std=0.5)) / inside[-1],
        "L*": np.abs(2 * (loss - low) / inside - 1).max(),
        "L* of Lemma 5 as printed": np.abs(2 * (loss - printed) / inside - 1).max(),
        "its expectation": abs(sampled.z(outside[-1])),
        "that in domain": abs(sampled.z(inside[-1])),
    }


def draw_figure2a(tables: Tables) -> Picture:
    picture, colours = Picture(figsize=(9.2, 3.6)), ("#0072B2", "#D55E00", "#009E73")
    labels = ("training loss", "inference, in domain", "inference, out of domain")
    for axes, name in zip(picture.subplots(1, 2), (UNIT, GAUSSIAN), strict=True):
        for column, colour, label in zip(LOSSES, colours, labels, strict=True):
            plot_runs(axes, tables["training"], name, column, colour, label)
        settings.dotted(axes, where(tables["runs"])["infimum"].mean(), "infimum")
        axes.set(title=name, xlabel="steps of Adam", yscale="log", ylim=(5e-5, 200))
    picture.axes[0].set_ylabel("loss")
    picture.axes[0].legend()
    return picture


def judge_figure2a(tables: Tables) -> Verdict:
    kinds = {name: where(tables["runs"], training=name) for name in tables["runs"]["training"]}

    def of_both(column: str) -> np.ndarray:
        return np.concatenate([kinds[name][column] for name in (UNIT, GAUSSIAN)])

    def worst(column: str) -> dict[str, float]:
        return {column: kinds[UNIT][column].max()}

    learned = {name: rows[LEARNED].max() for name, rows in kinds.items()}
    stuck = kinds[GAUSSIAN][LEARNED].min()
    twice = "largest relative error of: in domain is twice the training loss above L*"
    falls = "largest share of what a loss has above its infimum that is left"
    left = {name: of_both(f"{name} left").max() for name in LOSSES}
    ratio = "smallest ratio of the inference loss to that in domain"
    z = f"largest |z| of the out-of-domain loss on {TEST_PROMPTS} prompts"
    unit, few = ({name: learned[name]} for name in (UNIT, UNIT + FEW))
    gaussian, gaussian_few = {GAUSSIAN: stuck}, {GAUSSIAN + FEW: learned[GAUSSIAN + FEW]}
    outside, narrow = ({c: of_both(c).min()} for c in ("N(1, 4 I), out of domain", "N(0, I/4)"))
    return Verdict(
        printed=checks(LEARNED, BELOW, gaussian, unlike=gaussian_few),
        corrected=[
            *checks(LEARNED, BELOW, unit, unlike=few),
            *checks(falls, HALF, left, unlike={"a loss at its start": 1.0}),
            *checks(ratio, ABOVE, outside, unlike=narrow),
            *checks(twice, SUBTRACTED, worst("L*"), unlike=worst("L* of Lemma 5 as printed")),
            *checks(z, SAMPLING, worst("its expectation"), unlike=worst("that in domain")),
        ],
        correction=Correction(
            r"v_k \sim \mathcal{N}(0, I_d):\quad \hat{y} \to \hat{y}^\star",
            r"\|v_k\|_2 = 1:\quad \hat{y} \to \hat{y}^\star",
            "Section 4 draws tokens from a standard Gaussian in d = 100 dimensions, with logits "
            "v_i^T Q v_k of standard deviation 100: every softmax is one token, Q hardly moves, "
            "and all three curves fall and stop. With the tokens of norm 1 of section 2 training "
            "goes on to ridge regression.",
            kind=Kind.SENTENCE,
            counterexample=f"With Gaussian tokens the gap stays {stuck:.1f} times above what w "
            "could reach alone with Q as it starts, or more; with tokens of norm 1 it comes to "
            f"{learned[UNIT]:.2g} of that, or less.",
        ),
    )


@figure(
    "yang2024/figure2a",
    "The training loss and both inference losses of the one-layer transformer descend together, "
    "out of domain above in domain, and the prediction converges to ridge regression",
    source="Figure 2 (a), section 4",
    judge=judge_figure2a,
    draw=draw_figure2a,
)
def figure2a(scale: Scale) -> Numbers:
    # A third of everything but d, on which it depends what Gaussian tokens do.
    third = Sizes(100, 7, 10, 60, 0.01, 21)
    recipe = scale.pick(
        smoke=Recipe(third, 400, QUICK_RATE, 2),
        quick=Recipe(FULL, 600, QUICK_RATE, 3),
        paper=Recipe(FULL, 200 * EPOCH, PRINTED_RATE, 3),
    )
    sizes, histories = recipe.sizes, dict[str, list[tuple[int, History]]]()
    functions = GaussianCoefficients().draw(10_000, sizes.features, generator=generator(2))
    rows, kinds = [], [(tokens, "", recipe.seeds, sizes.heads) for tokens in (UNIT, GAUSSIAN)]
    kinds += [(tokens, FEW, 1, sizes.shown // 3) for tokens in (UNIT, GAUSSIAN)]
    for tokens, few, seeds, heads in kinds:
        for seed in range(seeds):
            made = recipe.made(heads, tokens, seed)
            training_set = replace(made.task, coefficients=TabulatedCoefficients(functions))
            sampled, exact = settings.SampledHalfLoss(training_set, 256), made.objective
            metrics: dict[str, Metric] = {
                "population loss": partial(population_loss, made),
                "in domain": partial(inference, made, GaussianCoefficients()),
                "out of domain": partial(inference, made, OUT_OF_DOMAIN),
            }
            objective = sampled if recipe.rate == PRINTED_RATE else exact
            history = recipe.train(made, objective, recipe.steps // 40, **metrics)
            histories.setdefault(tokens + few, []).append((seed, history))
            w_alone = recipe.made(sizes.heads, GAUSSIAN, seed).with_fitted_weights().gap
            learned = {LEARNED: made.gap / w_alone}
            rows.append({"training": tokens + few, **learned, **summary(made, history)})
    return Numbers(
        {"training": history_table(histories), "runs": as_table(rows)},
        "Means of several dictionaries and starts, their range shaded. The inference loss in "
        "domain is twice what the training loss has above its infimum, an identity. With tokens of "
        "norm 1 the prediction converges to ridge regression; with Gaussian tokens training ends "
        f"on a plateau. {recipe.in_words} The paper leaves tau open; 0.01 is that of Figure 3.",
        {"starts": recipe.seeds, "steps": recipe.steps},
    )


def draw_figure4(tables: Tables) -> Picture:
    table, runs = tables["training"], where(tables["runs"])
    counts, main = np.unique(runs["heads"]).tolist(), runs["rate"][0]
    shades = dict(zip(counts, colormaps["viridis"](np.linspace(0, 0.92, len(counts))), strict=True))
    picture = Picture(figsize=(9.6, 4.0))
    for axes, tokens in zip(picture.subplots(1, 2, sharey=True), (UNIT, GAUSSIAN), strict=True):
        rows = where(tables["runs"], tokens=tokens)
        for heads, rate in dict.fromkeys(zip(rows["heads"], rows["rate"], strict=True)):
            style = {"color": shades[heads], "linestyle": "-" if rate == main else "--"}
            label = f"H = {heads}" + (f", rate {rate:g}" if rate != main else "")
            curves = where(table, tokens=tokens, heads=heads, rate=rate)
            settings.lines(axes, curves, "step", "gap", label=label, **style)
        settings.dotted(axes, runs["floor"].mean(), "floor of one head")
        axes.set(xlabel="steps of Adam", yscale="log", title=f"{tokens}, N = {runs['N'][0]}")
        axes.legend(fontsize=7)
    picture.axes[0].set_ylabel(r"$L - L^*$")
    return picture


def judge_figure4(tables: Tables) -> Verdict:
    runs = where(tables["runs"])
    n, main, counts = runs["N"][0], runs["rate"][0], np.unique(runs["heads"]).tolist()
    many, below = counts[-1], max(heads for heads in counts if heads < n)

    def of(column: str, heads: int, tokens: str = UNIT, rate: float = main) -> np.ndarray:
        """For every start."""
        return where(tables["runs"], heads=heads, tokens=tokens, rate=rate)[column]

    enough = max((h for h in counts if n <= h < many), key=lambda heads: of("share", heads).mean())
    rates = np.unique(where(tables["runs"], heads=many)["rate"]).tolist()
    near, far = (mean_log(of("share", below, tokens)) for tokens in (UNIT, GAUSSIAN))
    few = {f"H = {below} < N": near}
    slow = {f"H = {enough} >= N, the most left": mean_log(of("share", enough))}
    stuck = {f"H = {below}, Gaussian tokens": far, "H = 1": mean_log(of("share", 1))}
    above, under = ({f"H = {heads}": of("to floor", heads).min()} for heads in (1, below))
    lost, kept = ({f"H = {heads}": of("rise", heads).min()} for heads in (many, n))
    calm, wild = (
        {f"learning rate {rate:g}": of("rise", many, rate=rate).max()}
        for rate in (rates[0], rates[-1])
    )
    left, floor = "mean logarithm of the share of the gap that is left", "lowest final gap / floor"
    rise = "the largest rise of the gap"
    return Verdict(
        printed=[
            *checks(left, STOPS, few, unlike=slow),
            *checks(f"smallest of {rise}", at_least(2.0, WHY_LOST), lost, unlike=kept),
        ],
        corrected=[
            *checks(f"{floor} of one head", BOUND, above, unlike=under),
            *checks(left, GOES_ON, few | slow, unlike=stuck),
            *checks(f"{rise}, H = {many}", at_most(2.0, WHY_LOST), calm, unlike=wild),
        ],
        correction=Correction(
            r"H < N:\; \text{the loss stops far from the minimum}",
            r"H = 1:\; L - L^\star \ge \text{floor} > 0;\qquad H \text{ somewhat below } N:\; "
            r"L \to L^\star \text{ nearly}",
            "With tokens of norm 1, somewhat fewer than N heads go nearly to the minimum, since Q "
            "is trained too; with the Gaussian tokens of section 4 it hardly moves. With very many "
            "heads the loss oscillates, where the text has it diverge, because of the learning "
            "rate: a step of Adam moves every attention weight by about H times it.",
            kind=Kind.SENTENCE,
            counterexample=f"{below} heads for N = {n} leave {math.exp(near.mean):.1e} of the gap "
            f"with tokens of norm 1 and {math.exp(far.mean):.2f} with Gaussian ones (geometric "
            "means over the starts).",
        ),
    )


@figure(
    "yang2024/figure4",
    "With fewer heads than shown labels the loss stops far from the minimum, with enough heads it "
    "converges, and with very many it becomes unstable",
    source="Figure 4, section 4",
    judge=judge_figure4,
    draw=draw_figure4,
)
def figure4(scale: Scale) -> Numbers:
    # Log shares scatter by 1, and six starts bring their mean four errors away from its tolerance.
    reduced = Sizes(20, 8, 10, 40, 0.01)
    recipe = scale.pick(
        smoke=Recipe(reduced, 600, QUICK_RATE, 6),
        quick=Recipe(reduced, 1500, QUICK_RATE, 4),
        paper=Recipe(FULL.with_heads(0), 600 * EPOCH, PRINTED_RATE, 3),
    )
    counts, gaussian, of_many = scale.pick(
        smoke=([1, 8, 10, 400], [8], replace(recipe, steps=300, seeds=3)),
        quick=([1, 2, 5, 8, 10, 20, 40, 400], [5, 8, 10], replace(recipe, steps=300)),
        paper=([1, 5, 10, 20, 30, 40, 50, 150, 400], [5, 20, 30, 50], recipe),
    )
    many, main, table, runs = counts[-1], recipe.rate, [], []
    kinds = [(UNIT, heads, main) for heads in counts]
    kinds += [(UNIT, many, QUICK_RATE if main < QUICK_RATE else main / 10)]
    kinds += [(GAUSSIAN, heads, main) for heads in gaussian]
    for tokens, heads, rate in kinds:
        used = replace(of_many if heads == many else recipe, rate=rate)
        for seed in range(used.seeds):
            made = recipe.made(heads, tokens, seed)
            floor = theory.softmax.one_head_floor(made.risk)
            history = used.train(made, made.objective, max(used.steps // 600, 1))
            gaps = [loss - made.risk.infimum for loss in history["loss"]]
            rise = max(gap / low for gap, low in zip(gaps, accumulate(gaps, min), strict=True))
            run = {"tokens": tokens, "heads": heads, "rate": rate, "seed": seed}
            judged = {"share": gaps[-1] / gaps[0], "rise": rise, "to floor": gaps[-1] / floor}
            runs.append({**run, "N": made.n, "floor": floor, **judged})
            at = zip(history["step"], gaps, strict=True)
            table += [{**run, "step": step, "gap": gap} for step, gap in at]
    # The tau for which the infimum is where the axis of Figure 4 ends, at 0.001.
    here, there = (
        instance(replace(recipe.sizes, tau=tau, heads=1), 0).risk.infimum for tau in (0.01, 4e-5)
    )
    return Numbers(
        {"training": as_table(table), "runs": as_table(runs)},
        "The training loss above its infimum, every line a dictionary and start of its own. Left: "
        "a few heads are stopped; from somewhat below H = N on, training converges; with many the "
        "loss oscillates, unless the learning rate is another (dashed). Right: with Gaussian "
        f"tokens fewer heads stop higher. {recipe.in_words} With {many} heads there are "
        f"{of_many.steps} steps.",
        {"starts of each": f"{recipe.seeds}, and {of_many.seeds} of {many} heads"},
        [
            f"L* = {here:.4f} with tau = 0.01; the axis of Figure 4 goes down to 0.001, where no "
            f"loss can be: either tau is about 4e-05 there (L* = {there:.4f}) or what is drawn is "
            "L - L*."
        ],
    )
