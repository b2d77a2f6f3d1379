"""How close is arbitrarily close: the error of compiled descent for every c, C, T and precision."""

import math

import torch
from matplotlib.figure import Figure as Picture

from innerloop import compiled
from innerloop.models import InContext
from innerloop.papers.algoformer2024.settings import described, linear_prompts
from innerloop.papers.plots import as_rows, as_table
from innerloop.papers.quantity import at_most, checks
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Scale, Verdict

D, N, STEP = 4, 12, 0.3
FORMS: tuple[compiled.Form, ...] = ("printed", "sinks", "mirrored", "refined")
DTYPES = {"float64": torch.float64, "float32": torch.float32}
WITH_SINKS: tuple[compiled.Form, ...] = ("printed", "sinks")
SINKS = {"float64": range(5, 65, 5), "float32": range(3, 30, 3)}
"""C; larger ones make weights that float32 cannot hold in a square."""
STYLES = {"float64": "-", "float32": "--"}
COLOURS = {"printed": "tab:red", "sinks": "tab:orange", "mirrored": "tab:blue", "refined": "black"}
WITHIN = at_most(
    1.0, "errors of all loops are expected to add up at most: measured over expected, in the "
    "labels' size"
)  # fmt: skip


def measured(form: compiled.Form, dtype: str, loops: int, c: float, sink: float) -> float:
    """The largest error over prompts, relative to the largest label."""
    prompt = linear_prompts(D, N, 0.3)
    kind = DTYPES[dtype]
    program = compiled.gradient_descent(
        D, N, loops=loops, step_size=STEP, form=form, c=c, sink=sink or None, dtype=kind
    )
    with torch.no_grad():
        got = InContext(program.model(kind))(prompt.to(dtype=kind)).double()
    error = (got - described(prompt, loops, STEP)).abs().max() / prompt.y.abs().max()
    return error.item()


def judge(tables: Tables) -> Verdict:
    chosen = as_rows(tables["chosen"])
    ratios = {
        f"{row['form']}, {row['dtype']}, T = {row['T']}": row["error"] / row["expected"]
        for row in chosen
    }
    far = {
        f"{row['form']}, c a hundred times as large": row["error"] / row["expected"]
        for row in as_rows(tables["far"])
    }
    leaking = as_rows(tables["sinks"])[0]
    return Verdict(
        checks("error at the chosen c over the expected error", WITHIN, ratios, unlike=far)
        + checks(
            "error at the worst C over the error expected there",
            WITHIN,
            {
                f"{form}, {dtype}": max(
                    row["error"] / row["expected"]
                    for row in as_rows(tables["sinks"], form=form, dtype=dtype)
                )
                for form in WITH_SINKS
                for dtype in DTYPES
            },
            unlike={
                f"C = {leaking['C']}, as if sinks held all of the softmax": (
                    leaking["error"] / (leaking["expected"] - math.exp(-leaking["C"]))
                )
            },
        ),
        remarks=[
            "There is a best c: below it rounding grows as 1/c, above it the Taylor error grows as "
            "c with the printed heads, as c^2 with heads c and -c, as c^4 with four heads.",
            "C must only be large enough: what sinks do not hold is e^-C, and a larger C costs "
            "little, by rounding.",
        ],
    )


def draw(tables: Tables) -> Picture:
    picture = Picture(figsize=(13, 3.6))
    panels = picture.subplots(1, 3, sharey=True)
    for axes, dtype in zip(panels[:2], DTYPES, strict=True):
        for form in FORMS:
            rows = as_rows(tables["errors"], form=form, dtype=dtype)
            axes.plot(
                [row["c"] for row in rows], [row["error"] for row in rows], marker=".",
                color=COLOURS[form], label=form,
            )  # fmt: skip
            best = as_rows(tables["chosen"], form=form, dtype=dtype)[0]
            axes.plot(best["c"], best["error"], "o", color=COLOURS[form], fillstyle="none")
        axes.set(title=dtype, xscale="log", yscale="log", xlabel="$c$")
    for form in WITH_SINKS:
        for dtype, style in STYLES.items():
            rows = as_rows(tables["sinks"], form=form, dtype=dtype)
            panels[2].plot(
                [row["C"] for row in rows], [row["error"] for row in rows], style, marker=".",
                color=COLOURS[form], label=f"{form}, {dtype}",
            )  # fmt: skip
    panels[2].set(title="at the best $c$", yscale="log", xlabel="$C$, the logit of sinks")
    panels[2].legend(fontsize=8)
    panels[0].set_ylabel("error after one step")
    panels[0].legend(fontsize=8)
    return picture


@figure(
    "algoformer2024/accuracy",
    "Softmax multiplies to ten digits: the error for every c, C, T and precision",
    source="Lemma A.2, where it says arbitrarily close",
    judge=judge,
    draw=draw,
    ours="measured",
)
def accuracy(scale: Scale) -> Numbers:
    grid = scale.pick(smoke=range(-8, 0, 2), quick=range(-10, 0), paper=range(-10, 0))
    counts = scale.pick(smoke=(1, 50), quick=(1, 10, 100, 1000), paper=(1, 10, 100, 1000))
    errors, chosen, far, sinks = [], [], [], []
    for form in FORMS:
        for dtype, kind in DTYPES.items():
            best = compiled.precision(form, float(D), kind)
            for power in grid:
                error = measured(form, dtype, 1, 10.0**power, best.sink)
                errors.append({"form": form, "dtype": dtype, "c": 10.0**power, "C": best.sink,
                               "T": 1, "error": error})  # fmt: skip
            for loops in counts:
                chosen.append({
                    "form": form, "dtype": dtype, "c": best.c, "C": best.sink, "T": loops,
                    "error": measured(form, dtype, loops, best.c, best.sink),
                    "expected": loops * best.error,
                })  # fmt: skip
            for sink in SINKS[dtype] if form in WITH_SINKS else ():
                there = compiled.precision(form, float(D), kind, c=best.c, sink=float(sink))
                sinks.append({
                    "form": form, "dtype": dtype, "c": best.c, "C": sink,
                    "error": measured(form, dtype, 1, best.c, float(sink)),
                    "expected": there.error,
                })  # fmt: skip
        best = compiled.precision(form, float(D))
        error = measured(form, "float64", 1, 100 * best.c, best.sink)
        far.append({"form": form, "error": error, "expected": best.error})
    return Numbers(
        {
            "errors": as_table(errors),
            "chosen": as_table(chosen),
            "far": as_table(far),
            "sinks": as_table(sinks),
        },
        caption=(
            f"Largest error of one step of compiled descent against the explicit step, d = {D}, "
            f"{N} examples, relative to the largest label. Circles: the c that compile chooses. "
            "Right: with sinks, the same for every C."
        ),
        settings={"d": D, "examples": N, "step": STEP, "noise_std": 0.3},
    )
