"""The trainings behind Figures 2 to 5: standard, looped and AlgoFormer, on four tasks.

Here they are of a size that one core trains in minutes: three coordinates and twelve examples for
the paper's 20 and 40, width 32 for 256, (T, dT) = (8, 6) for (20, 15), 3,000 steps of Muon for
500,000 of Adam. `paper` is the paper's own, with its unstated choices as said in each function.
"""

from __future__ import annotations

from itertools import product

from innerloop.experiments import Experiment

SEEDS = (0, 1, 2)
LOOPS, WINDOW = 8, 6
"""T and dT of Eq. 6, unless a figure varies them; AlgoFormer applies 1 + T + 1 layers in all."""
TASKS = {
    "figure2a": "representation:d=3,n=12,dtype=float32",
    "figure2b": "autoregression:d=3,n=20,q=2,dtype=float32",
    "figure2c": "chain-of-thought:d=2,n=7,layers=3,dtype=float32",
}
"""Phi has orthogonal weights and slope 0.5: with random ones it nearly loses directions."""
PRINTED_TASKS = {
    "figure2a": "representation:d=20,n=40,weights=random,slope=0.01,dtype=float32",
    "figure2b": "autoregression:d=20,n=40,q=3,weights=random,slope=0.01,noise_std=1,dtype=float32",
    "figure2c": "chain-of-thought:d=20,n=40,layers=6,slope=0.01,dtype=float32",
}
"""The slope is PyTorch's default; weights are He's, the dynamics of (b) bounded, and the network of
(c) fresh in each prompt: none of which the paper states."""
ARCHITECTURES = {
    "algoformer": f"algoformer:loops={LOOPS}",
    "looped": f"looped-transformer:loops={LOOPS}",
    "looped-3-layers": f"looped-transformer:loops={LOOPS},layers=3",
    "standard-3-layers": "gpt2:layers=3",
    "standard-10-layers": f"gpt2:layers={LOOPS + 2}",
}
"""Three layers have AlgoFormer's parameters, ten its depth."""
REPRESENTATION = TASKS["figure2a"]
NOISES = (0.0, 0.1, 1.0)
"""Standard deviations of the labels' noise."""


def figure2(panel: str, scale: str) -> dict[str, Experiment]:
    """Architectures on one task; the paper's own are the first three, and the others have as many
    layers as AlgoFormer has and applies."""
    if scale == "paper":
        task = PRINTED_TASKS[panel]
        return {
            "algoformer": as_printed("algoformer:loops=20", task, 20, 15),
            "looped": as_printed("looped-transformer:loops=20", task, 20, 15),
            "standard": as_printed("gpt2:layers=12", task),
            "standard-3-layers": as_printed("gpt2:layers=3", task),
            "standard-22-layers": as_printed("gpt2:layers=22", task),
        }
    every = {
        f"{name}-seed{seed}": small(model, TASKS[panel], seed=seed)
        for seed, (name, model) in product(SEEDS, ARCHITECTURES.items())
    }
    if panel == "figure2a":
        collapsed = TASKS[panel] + ",weights=random,slope=0.1"
        for name in ("algoformer", "looped", "standard-3-layers"):
            every[f"{name}-random-weights"] = small(ARCHITECTURES[name], collapsed)
        for noise in NOISES[1:]:
            noisy = f"{TASKS[panel]},noise_std={noise}"
            every[f"algoformer-noise-{noise}"] = small(ARCHITECTURES["algoformer"], noisy)
    return every


def figure2a_d20(scale: str) -> dict[str, Experiment]:
    """Two architectures with as many parameters at the paper's d = 20 and 40 examples, the same at
    every scale; width 128 for 256."""
    task = "representation:d=20,n=40,dtype=float32"
    return {
        name: small(
            ARCHITECTURES[name], task, width=128, curriculum="grow:dims=5,every=100", steps=2500
        )
        for name in ("algoformer", "standard-3-layers")
    }


WINDOWS = {"quick": ((8, 1), (8, 6), (4, 4), (2, 2)), "paper": ((20, 5), (20, 15), (10, 10))}
"""(T, dT) of Figure 3; the paper's values stand in its picture alone."""


def figure3(scale: str) -> dict[str, Experiment]:
    """AlgoFormers that are trained with other T and dT, with the input at every loop or not.

    Eight loops as printed are grown from two: at once, two trainings of three stayed at 0.9 E y^2
    or more, with either window.
    """
    if scale == "paper":
        return {
            f"{loops}-{window}": as_printed(
                f"algoformer:loops={loops}", PRINTED_TASKS["figure2a"], loops, window
            )
            for loops, window in WINDOWS["paper"]
        }
    every = {}
    for seed, (loops, window), inject in product(SEEDS, WINDOWS["quick"], (True, False)):
        # Without injection a truncated gradient would not reach the layers before the loop.
        name = f"{loops}-{window}-{'injected' if inject else 'as-printed'}-seed{seed}"
        model = f"algoformer:loops={loops},inject={str(inject).lower()}"
        grown = "none" if inject or loops <= 4 else "grow:dims=3,loops=2,every=400"
        every[name] = small(
            model, REPRESENTATION, loops, window, seed=seed, truncate=inject, curriculum=grown
        )
    return every


SIZES = ((1, 1), (1, 4), (1, 16), (2, 4), (4, 4), (4, 16))
"""Layers and heads of Figure 4."""


def figure4(scale: str) -> dict[str, Experiment]:
    """Layers and heads: of the loop alone, as the text has it, or of all three parts, as the
    caption has it."""
    if scale == "paper":
        return {
            f"{layers}-layers-{heads}-heads{where}": as_printed(
                f"algoformer:loops=20,layers={layers},around={around}",
                PRINTED_TASKS["figure2a"],
                20,
                15,
                heads,
            )
            for layers, heads in product((1, 2, 4), (4, 8, 16))
            for where, around in arrangements(layers).items()
        }
    every = {}
    for layers, heads in SIZES:
        for where, around in arrangements(layers).items():
            model = f"algoformer:loops={LOOPS},layers={layers},around={around}"
            name = f"{layers}-layers-{heads}-heads{where}"
            seeds = SEEDS if layers * heads <= 8 else SEEDS[:1]
            for seed in seeds:
                every[f"{name}-seed{seed}"] = small(model, REPRESENTATION, heads=heads, seed=seed)
    return every


def arrangements(layers: int) -> dict[str, int]:
    """Layers around the loop that has so many, by the ending of the training's name."""
    return {"": layers} if layers == 1 else {"": layers, "-in-the-loop": 1}


def figure5(scale: str) -> dict[str, Experiment]:
    """AlgoFormers on linear regression, beside gradient descent and Newton's method."""
    if scale == "paper":
        return {
            f"{loops}-{window}-noise-{noise}": as_printed(
                f"algoformer:loops={loops}",
                f"linear:d=20,n=40,noise_std={noise},dtype=float32",
                loops,
                window,
            )
            for noise, (loops, window) in product(NOISES, ((20, 15), (10, 10)))
        }
    return {
        f"{loops}-{window}-noise-{noise}-seed{seed}": small(
            f"algoformer:loops={loops}",
            f"linear:d=3,n=12,noise_std={noise},dtype=float32",
            loops,
            window,
            seed=seed,
        )
        for seed, noise, (loops, window) in product(SEEDS, NOISES, ((8, 6), (4, 4)))
    }


def small(
    model: str,
    task: str,
    loops: int = LOOPS,
    window: int = WINDOW,
    *,
    heads: int = 4,
    width: int = 32,
    seed: int = 0,
    truncate: bool = True,
    curriculum: str = "none",
    steps: int = 3000,
) -> Experiment:
    return Experiment(
        f"{model},width={width},heads={heads}",
        task,
        _objective(model, loops, window, truncate=truncate),
        "muon",
        "stable-decay",
        curriculum,
        steps=steps,
        seed=seed,
    )


def as_printed(
    model: str, task: str, loops: int = 0, window: int = 0, heads: int = 8
) -> Experiment:
    """Batch, heads, initial scale and the truncated gradient are those of Yang et al. (2023), on
    which the paper says its training builds."""
    return Experiment(
        f"{model},width=256,heads={heads},start=gpt2",
        task,
        _objective(model, loops, window, truncate=True),
        "adam:lr=0.0001",
        "constant",
        steps=500_000,
        clip=None,
    )


def _objective(model: str, loops: int, window: int, *, truncate: bool) -> str:
    if model.startswith("gpt2"):
        return "positions:batch=64"
    kept = f"loops={loops},window={window},truncate={str(truncate).lower()}"
    return f"window:batch=64,{kept}"
