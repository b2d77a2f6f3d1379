"""Figures 2b and 5 of Yang et al. (2024): four layers, trained as `encoder_training` says."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure as Picture

from innerloop import theory
from innerloop.papers.common import SAMPLING
from innerloop.papers.registry import FigureData, Table, figure
from innerloop.papers.verdict import Check, Scale, Verdict
from innerloop.papers.yang2024.encoder_training import (
    IN_DOMAIN,
    OUT_OF_DOMAIN,
    TEST_PROMPTS,
    Dictionary,
    dictionary,
    encoder,
    plan,
    step_seconds,
    trained,
)

COLUMNS = {
    "out of domain": ("#009E73", "inference, out of domain"),
    "in domain": ("#D55E00", "inference, in domain"),
    "training": ("#0072B2", "training loss"),
}
UNTRAINED = "the untrained encoder"


def linear_limit(features: int) -> int:
    """The most by which a predictor linear in the labels can be worse out of domain than in domain.

    Its inference loss is tr(D^T (Z^T M Z + tau tr(M) I) D) / K with D = A - A*. In domain M = I;
    out of domain M = 1 1^T + 4 I <= (m + 4) I, and its trace is 5 m <= (m + 4) m.
    """
    return features + 4


def one_layer_ratio(made: Dictionary, heads: int, steps: int) -> float:
    """Inference loss out of domain over in domain of the one-layer transformer, exactly."""
    matrix = made.one_layer(heads, steps).attention(made.task.tokens, made.task.shown).detach()
    moment = OUT_OF_DOMAIN.second_moment(made.task.features.shape[1])
    outside = theory.softmax.DictionaryRisk.of(
        made.task.features, made.task.shown, made.task.tau, moment
    )
    best = made.risk.optimum
    return (outside.distance(matrix, best) / made.risk.distance(matrix, best)).item()


def copying_loss(made: Dictionary, second_moment: torch.Tensor) -> float:
    """Inference loss of a learner that repeats the shown labels and answers 0 otherwise."""
    task, best = made.task, made.risk.optimum
    copied = torch.zeros_like(best)
    copied[:, : task.shown] = best[:, : task.shown]
    risk = theory.softmax.DictionaryRisk.of(task.features, task.shown, task.tau, second_moment)
    return risk.distance(copied, best).item()


def draw_figure2b(tables: Mapping[str, Table]) -> Picture:
    table, lines = tables["training"], tables["references"]
    picture = Picture(figsize=(9.2, 3.6))
    losses, ratio = picture.subplots(1, 2)
    steps = np.asarray(table["step"], dtype=float)
    for name, (colour, label) in COLUMNS.items():
        losses.plot(steps, np.asarray(table[name], dtype=float), color=colour, label=label)
    losses.axhline(
        float(lines["infimum"][0]),
        color="black",
        linewidth=0.8,
        linestyle=":",
        label="infimum $L^*$",
    )
    losses.set(title="four layers", xlabel="steps of Adam", ylabel="loss", yscale="log")
    losses.legend(fontsize=8)
    values = np.asarray(table["out of domain"]) / np.asarray(table["in domain"])
    ratio.plot(steps, values, color="#333333", label="four layers")
    ratio.axhline(
        float(lines["one layer"][0]), color="#AA4499", linestyle="--", label="one layer, trained"
    )
    ratio.axhline(
        float(lines["linear limit"][0]),
        color="black",
        linewidth=0.8,
        linestyle=":",
        label="limit if linear in the labels",
    )
    ratio.set(
        title="inference loss, out of domain / in domain",
        xlabel="steps of Adam",
        ylabel="ratio",
        ylim=(0, None),
    )
    ratio.legend(fontsize=8)
    return picture


@figure(
    "yang2024/figure2b",
    "The training loss and both inference losses of the four-layer transformer descend, out of "
    "domain above in domain: it generalises to unseen examples and unseen functions",
    source="Figure 2 (b), section 4",
    draw=draw_figure2b,
    shares="encoders",
)
def figure2b(scale: Scale) -> FigureData:
    chosen, prompts = plan(scale), scale.pick(smoke=1000, quick=2000, paper=2000)
    made, heads, m = dictionary(chosen), chosen.sizes.heads, chosen.sizes.features
    model, history = trained(chosen, heads, chosen.steps)
    untrained = encoder(chosen, heads)
    domains = {"in domain": IN_DOMAIN, "out of domain": OUT_OF_DOMAIN}
    copying = {name: copying_loss(made, c.second_moment(m)) for name, c in domains.items()}
    final, first = (
        {name: made.inference(learner, c, prompts) for name, c in domains.items()}
        for learner in (model, untrained)
    )
    inside, outside = final["in domain"], final["out of domain"]
    repeating = made.risk.infimum + copying["in domain"] / 2
    one_layer = one_layer_ratio(made, 2 * chosen.sizes.shown, chosen.steps)
    one_sign = 2 * made.one_head_floor
    knows_nothing = "a learner that knows nothing of unseen tokens answers 0 for them and has 1"
    verdict = Verdict(
        [
            Check(
                "training loss at the end, relative to that of repeating the shown labels",
                history["training"][-1] / repeating,
                1.0,
                history["training"][0] / repeating,
                knows_nothing,
                UNTRAINED,
            )
        ]
        + [
            Check(
                f"inference loss {name}, and four standard errors, relative to that of repeating "
                "the shown labels",
                (final[name].mean + SAMPLING * final[name].standard_error) / copying[name],
                tolerance,
                first[name].mean / copying[name],
                why,
                UNTRAINED,
            )
            for name, tolerance, why in (
                (
                    "in domain",
                    one_sign / copying["in domain"],
                    "the least that one softmax head in one layer can have, with weights of one "
                    "sign: to come near y* is to be below it",
                ),
                ("out of domain", 1.0, knows_nothing),
            )
        ],
        settings={
            **chosen.description,
            "dictionary": f"seed {made.seed}, see Figure 5",
            "H": heads,
            "steps": chosen.steps,
            "inference losses at the end": f"{inside} in domain, {outside} out of domain, on "
            f"{prompts} prompts each",
            "infimum of the training loss": round(made.risk.infimum, 4),
            "out of domain / in domain": f"{outside.mean / inside.mean:.1f} at the end, "
            f"{first['out of domain'].mean / first['in domain'].mean:.1f} before training",
            "same trend": "all three curves fall, but not alike: one layer is linear in the "
            "labels, and its ratio out of domain / in domain is at most m + 4 = "
            f"{linear_limit(m)}; here out of domain lags behind",
        },
    )
    caption = (
        f"Losses of the four-layer encoder with {heads} heads on {TEST_PROMPTS} prompts each, at "
        f"{chosen.reduction} sizes (d_model = {chosen.width}, {chosen.steps} steps). Inference "
        "loss is the squared distance to ridge regression, (1/K) |. - y*|^2. Right: out of domain, "
        f"lambda ~ N(1, 4I), it is {outside.mean / inside.mean:.0f} times that in domain at the "
        f"end; a model linear in the labels cannot be above {linear_limit(m)}, and one "
        f"layer is at {one_layer:.1f}."
    )
    references: Table = {
        "infimum": [made.risk.infimum],
        "one layer": [one_layer],
        "linear limit": [linear_limit(m)],
    }
    return FigureData({"training": history.columns, "references": references}, caption, verdict)


def draw_figure5(tables: Mapping[str, Table]) -> Picture:
    table, final = tables["training"], tables["final"]
    picture = Picture(figsize=(12, 3.6))
    against_heads, against_time, against_steps = picture.subplots(1, 3)
    heads = np.asarray(final["heads"], dtype=float)
    for name, (colour, label) in COLUMNS.items():
        for suffix, style in (("at equal time", "o-"), ("at equal steps", "s:")):
            values = np.asarray(final[f"{name} {suffix}"], dtype=float)
            shown = f"{label}" if style == "o-" else None
            against_heads.plot(heads, values, style, color=colour, label=shown, alpha=0.9)
    against_heads.set_xscale("log", base=2)
    against_heads.set_xticks(heads, [f"{h:g}" for h in heads])
    against_heads.set(
        title="(a) final losses", xlabel="number of heads H", ylabel="loss", yscale="log"
    )
    against_heads.plot([], [], "o-", color="#6b7280", label="at equal time")
    against_heads.plot([], [], "s:", color="#6b7280", label="at equal steps")
    against_heads.legend(fontsize=7)
    owner = np.asarray(table["heads"], dtype=float)
    colours = colormaps["viridis"](np.linspace(0, 0.85, len(heads)))
    budget = float(final["budget"][0])
    for h, colour in zip(heads, colours, strict=True):
        steps, seconds, loss = (
            np.asarray(table[c], dtype=float)[owner == h] for c in ("step", "seconds", "training")
        )
        within = seconds <= budget * (1 + 1e-9)
        against_time.plot(seconds[within], loss[within], color=colour, label=f"H = {h:g}")
        against_steps.plot(steps, loss, color=colour)
        against_steps.plot(steps[within][-1], loss[within][-1], "o", color=colour)
    floor = float(final["floor"][0])
    for axes in (against_time, against_steps):
        axes.axhline(
            floor, color="black", linewidth=0.8, linestyle=":", label="one layer, H = 1: floor"
        )
        axes.set(yscale="log", ylabel="training loss")
    against_time.sharey(against_steps)
    against_time.set(title="(b) training loss, equal time", xlabel="process time in seconds")
    against_steps.set(title="(c) the same, equal steps", xlabel="steps (dot: end of the time)")
    against_time.legend(fontsize=7)
    return picture


@figure(
    "yang2024/figure5",
    "Four layers do not need many heads to converge, unlike one; within a fixed time, more heads "
    "complete fewer iterations",
    source="Figure 5, section 4",
    draw=draw_figure5,
    shares="encoders",
)
def figure5(scale: Scale) -> FigureData:
    chosen, prompts = plan(scale), scale.pick(smoke=1000, quick=2000, paper=2000)
    made, steps = dictionary(chosen), chosen.compared_steps
    runs = {h: trained(chosen, h, steps) for h in chosen.heads}
    fewest, most = chosen.heads[0], chosen.heads[-1]
    *measured, again = step_seconds(
        chosen, (*chosen.heads, fewest), rounds=scale.pick(smoke=12, quick=20, paper=3)
    )
    seconds = dict(zip(chosen.heads, measured, strict=True))
    budget = steps * seconds[fewest]
    done = {h: min(float(steps), budget / seconds[h]) for h in chosen.heads}
    one_head = made.inference(runs[fewest][0], IN_DOMAIN, prompts)
    attention = made.one_layer(fewest, 300).attention(made.task.tokens, made.task.shown).detach()
    floor = made.one_head_floor

    def losses(name: str, at: Mapping[int, float]) -> list[float]:
        """The curve of every number of heads, read off at its own step."""
        return [
            float(np.interp(at[h], history["step"], history[name]))
            for h, (_, history) in runs.items()
        ]

    equal_steps = dict.fromkeys(chosen.heads, float(steps))
    at_time, at_steps = (losses("in domain", at) for at in (done, equal_steps))
    verdict = Verdict(
        [
            Check(
                f"H = {fewest}: half the inference loss in domain, and four standard errors, "
                "relative to the floor of one layer",
                (one_head.mean + SAMPLING * one_head.standard_error) / 2 / floor,
                1.0,
                made.risk.gap(attention).item() / floor,
                "one head of one layer cannot be below the floor of non-negative least squares",
                "the one-layer transformer with one head, trained on the exact loss",
            ),
        ],
        settings={
            **chosen.description,
            "dictionary": f"seed {made.seed}, the first with a floor of at least a tenth of the "
            f"gap {made.start:.3f} at w = 0: {floor:.3f}",
            "H": ", ".join(map(str, chosen.heads)),
            f"time of a step relative to H = {fewest}, timed in turn": ", ".join(
                f"{seconds[h] / seconds[fewest]:.2f}" for h in chosen.heads
            )
            + f" (a second encoder with H = {fewest}: {again / seconds[fewest]:.2f})",
            "steps within equal time": ", ".join(f"{done[h]:.0f}" for h in chosen.heads),
            "inference losses in domain at equal time": ", ".join(f"{v:.3f}" for v in at_time),
            "at equal steps": ", ".join(f"{v:.3f}" for v in at_steps),
            "not judged": "how much longer a step with more heads takes, and which H is best "
            "within the time: both depend on the machine, and one seed of the weights was "
            "trained. The paper adds that the curves of large H descend "
            f"more slowly per iteration; here, at equal steps, the loss of H = {most} is "
            f"{at_steps[-1] / at_steps[0]:.2f} times that of H = {fewest}",
            "printed setting": 'K = 200 and "the same as in Figure 3", which has no transformer: '
            "read as Figure 2",
        },
    )
    caption = (
        f"Four-layer encoders at {chosen.reduction} sizes (d_model = {chosen.width}). Equal time "
        f"is what H = {fewest} needs for {steps} steps, {budget:.0f} s of one core here; "
        "process time is the shortest measured step times the number of steps. (a) Losses at the "
        "end, solid at equal time, dotted at equal steps. (b), (c) Training loss against time "
        "and against steps. The dotted line, the infimum plus the floor of one head, is where a "
        "one-layer transformer with one head must stay above."
    )
    table: dict[str, list[float]] = {}
    for h, (_, history) in runs.items():
        rows = {"heads": [h] * len(history), "seconds": [s * seconds[h] for s in history["step"]]}
        for name, column in (rows | history.columns).items():
            table.setdefault(name, []).extend(column)
    final: dict[str, list[float]] = {
        "heads": list(chosen.heads),
        "steps at equal time": list(done.values()),
        "budget": [budget] * len(runs),
        "floor": [made.risk.infimum + floor] * len(runs),
    }
    for name in COLUMNS:
        final[f"{name} at equal time"] = losses(name, done)
        final[f"{name} at equal steps"] = losses(name, equal_steps)
    return FigureData({"training": table, "final": final}, caption, verdict)
