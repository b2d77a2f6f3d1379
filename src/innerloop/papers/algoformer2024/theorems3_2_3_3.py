"""Lemma A.3, Theorems 3.2 and 3.3: autoregression and chains of thought."""

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from innerloop import compiled
from innerloop.papers.algoformer2024.settings import (
    EXACT,
    SOFTMAX,
    descent,
    largest,
    meets_counts,
    read_last,
    rows_after,
)
from innerloop.papers.common import generator
from innerloop.papers.quantity import checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.tasks import Autoregression, ChainOfThought, LeakyNetwork

D, Q, N, STEP = 3, 3, 14, 0.1


def system() -> tuple[LeakyNetwork, Tensor]:
    """phi, and trajectories of x_{t+1} = A phi(last Q points)."""
    phi = LeakyNetwork.drawn(
        Q * D, 2, orthogonal=True, slope=0.5, outputs=D, generator=generator(0)
    )
    return phi, Autoregression(phi, N).sample(6, generator=generator(1)).tokens


@claim(
    "algoformer2024/lemmaA.3",
    "One layer with q heads copies the q tokens before into every token",
    source="Lemma A.3",
)
def copies(scale: Scale) -> Verdict:
    phi, tokens = system()
    program = compiled.autoregression(phi, N, loops=1, step_size=STEP)

    def error(case: tuple[str, int]) -> float:
        """Of rows that should hold the token so many places before (or, negative, after)."""
        rows, back = case
        got = rows_after(program, read_last(tokens, D), 0, rows)
        moved = tokens.roll(back, dims=1)
        inner = slice(max(back, 0), tokens.shape[1] + min(back, 0))
        return largest((got - moved)[:, inner])

    return Verdict(
        checks(
            "largest difference of the copied rows from the tokens they are copies of",
            EXACT,
            {"1 back": ("back1", 1), "2 back": ("back2", 2), "the next": ("next", -1)},
            unlike={"2 back, against 1 back": ("back2", 1)},
            measure=error,
        ),
        settings={"q": Q, "tokens": tokens.shape[1]},
        remarks=[
            "Here q heads copy q - 1 tokens before and the next one.",
            "At the beginning there is nothing to copy, and softmax gives the mean of all tokens, "
            "not 0: the feed-forward network must close those tokens.",
        ],
    )


@claim(
    "algoformer2024/theorem3.2",
    "An AlgoFormer fits AR(q) with representation by gradient descent",
    source="Theorem 3.2 and its proof",
    formula=r"\min_A \sum_{t} \|x_{t+1} - A \Phi^*([x_{t+1-q}, \dots, x_t])\|_2^2",
)
def autoregression(scale: Scale) -> Verdict:
    phi, tokens = system()
    features = phi(tokens.unfold(1, Q, 1).mT.flatten(2))  # of the windows ending at Q, Q + 1, ...
    labels = tokens[:, Q:]
    steps = scale.pick(smoke=(1, 50), quick=(1, 100), paper=(1, 100))
    program = compiled.autoregression(phi, N, loops=1, step_size=STEP)

    def wanted(loops: int) -> Tensor:
        count = labels.shape[1]
        rate = STEP * count / N  # the compiled step is for N examples
        return descent(features[:, :-1], labels, features[:, -1], loops, rate)

    def error(case: tuple[int, float]) -> float:
        loops, longer = case
        made = compiled.autoregression(phi, N, loops=loops, step_size=longer * STEP).model()
        with torch.no_grad():
            return largest(made(read_last(tokens, D))[:, 0] - wanted(loops))

    def by_columns(loops: int) -> float:
        """Descent on what stands in one printed column: phi of a window and its own last point."""
        count = features.shape[1] - 1
        own = tokens[:, Q - 1 : Q - 1 + count]
        got = descent(features[:, :-1], own, features[:, -1], loops, STEP * count / N)
        return largest(got - wanted(loops))

    name = "largest difference of predictions from explicit descent on (phi_t, x_{t+1})"
    near = {f"T = {steps[-1]}, a step 0.1% longer": error((steps[-1], 1.001))}
    columns = by_columns(steps[-1])
    return Verdict(
        checks(name, SOFTMAX, {"the printed columns (phi_t, x_t)": columns}, unlike=near),
        checks(
            name, SOFTMAX, {f"T = {t}, (phi_t, x_{{t+1}})": error((t, 1.0)) for t in steps},
            unlike=near,
        ),
        Correction(
            r"\begin{bmatrix} x_t \\ \Phi^*(x_{t+1-q:t}) \end{bmatrix}",
            r"\begin{bmatrix} x_t \\ \Phi^*(x_{t+1-q:t}) \\ x_{t+1} \end{bmatrix},"
            r"\quad x_{N+1} := 0",
            "The columns before the loop hold a window and its own last point; the label of the "
            "window is in the next column, and Lemma A.2 needs both in one. One of the q heads "
            "copies it from there. The last token, which has no next, is the query.",
            Kind.PROOF,
            f"d = {D}, q = {Q}: descent on the printed columns predicts {columns:.2g} off after "
            f"{steps[-1]} steps.",
        ),
        settings={"d": D, "q": Q, "points": N, "layers of phi": 2, "step": STEP},
        remarks=[
            meets_counts(program),
            "The lemma counts from x_0, the theorem from x_1.",
            "The estimator that section 3.2 calls Bayesian has no prior: it is least squares, the "
            "maximum of the likelihood.",
        ],
    )  # fmt: skip


@claim(
    "algoformer2024/theorem3.3",
    "An AlgoFormer finds the next step of a chain of thought, with 7, 1 and 1 layers",
    source="Theorem 3.3 and its proof",
    formula=r"\hat s^{\ell+1} = \sigma(W^{\ell+1} \hat s^{\ell})",
)
def chain_of_thought(scale: Scale) -> Verdict:
    d, n, levels, slope = 3, 8, 3, 0.2
    loops = scale.pick(smoke=50, quick=300, paper=300)
    tokens = ChainOfThought(d, n, levels, slope).sample(5, generator=generator(2)).tokens
    padded = torch.cat([tokens, torch.zeros_like(tokens[:, :1])], dim=1)
    chains = padded.unflatten(1, (n + 1, levels + 1))
    program = compiled.chain_of_thought(d, n, levels, slope, loops=loops, step_size=STEP)
    model = program.model()

    def error(case: tuple[int, bool]) -> float:
        """At this level; without inverting the activation it is a near miss."""
        level, inverted = case
        shown = tokens[:, : n * (levels + 1) + level + 1]
        after = chains[:, :n, level + 1]
        y = leaky_relu(after, 1 / slope) if inverted else after
        fitted = descent(chains[:, :n, level], y, chains[:, n, level], loops, STEP)
        with torch.no_grad():
            return largest(model(read_last(shown, d))[:, 0] - leaky_relu(fitted, slope))

    return Verdict(
        checks(
            "largest difference of predictions from explicit descent on this level",
            SOFTMAX,
            {f"level {k} to {k + 1}": (k, True) for k in range(levels)},
            unlike={"labels without the inverse of the activation": (0, False)},
            measure=error,
        ),
        settings={"d": d, "chains": n, "levels": levels, "slope": slope, "T": loops},
        remarks=[
            meets_counts(program),
            "Two layers before the loop are enough: one finds the level and the next tokens, one "
            "gates.",
            "The theorem goes from level l to l + 1, its proof from l - 1 to l. The activation "
            "must have an inverse: a plain ReLU has none.",
        ],
    )
