"""Theorem 5: critical points with transforms of the covariates, its proof, GD++, Lemmas 9, 10."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from innerloop import theory
from innerloop.algorithms import GDPlusPlus
from innerloop.models import AHN
from innerloop.papers.ahn2023 import settings
from innerloop.papers.ahn2023.settings import ExactLoss, matrices, on_the_ray, vector, weights13
from innerloop.papers.ahn2023.theorem4 import excess, rates
from innerloop.papers.common import generator, identity, normal, relative, rotated, symmetric
from innerloop.papers.quantity import FROM_BELOW, ROUNDING, at_most, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.prompt import Prompt
from innerloop.tasks import LinearRegression

FLAT = at_most(1e-6, "descent stops where float64 sees no fall: the root of 1e-16, times 100")


def point(task: LinearRegression, place: Tensor) -> tuple[Tensor, Tensor]:
    """(A, B) of S, in the paper's sign, of steps and all transforms but the last."""
    layers = (len(place) + 1) // 2
    a = matrices(-place[:layers], task.covariance.inverse())
    return a, matrices(pad(place[layers:], (0, 1)), identity(2))


def gradients(task: LinearRegression, place: Tensor) -> tuple[Tensor, ...]:
    """In all entries of all A_i and B_i, symmetric or not."""
    a, b = point(task, place)
    return ExactLoss.of(task, 3 ** len(a) - 1).gradients(a, b)


@claim(
    "ahn2023/theorem5",
    "With transforms B_i, any number of layers has critical points A_i = a_i Sigma^-1, B_i = b_i I",
    source="Theorem 5, Eq. 14",
    formula=r"\inf_{(A,B) \in \mathcal{S}} \sum_{i=0}^{k} \|\nabla_{A_i} f\|_F^2 + "
    r"\|\nabla_{B_i} f\|_F^2 = 0,\qquad \mathcal{S} = \{A_i = a_i \Sigma^{-1},\; B_i = b_i I\}",
)
def ray_holds_critical_points_with_transforms(scale: Scale) -> Verdict:
    task = on_the_ray(2, 6)
    starts = vector(0.5, 1.5, 5.0, 0.3, 0.7), vector(0.5, 2.0, 0.5), vector(0.7)
    (value, three), (_, two), (_, one) = (settings.minimum_of_ray(6, 2, s) for s in starts)
    longer = {"L = 3, the last step 1% longer": (task, three * vector(1, 1, 1.01, 1, 1))}
    other_w = {"L = 2, but w ~ N(0, I)": (LinearRegression(task.covariance, 6), two)}

    def norm(case: tuple[LinearRegression, Tensor]) -> Tensor:
        return torch.cat(gradients(*case)).norm()

    def gap(case: tuple[LinearRegression, Tensor]) -> float:
        return relative(ExactLoss.of(task, 26)(*weights13(*point(*case))), value)

    name = "norm of the gradient at the best point of the ray"
    cases = {"L = 3": (task, three), "L = 2": (task, two), "L = 1": (task, one)}
    loss = "relative difference of the loss of the ray from that of the forward pass"
    return Verdict(
        checks(name, FLAT, cases, unlike=longer | other_w, measure=norm)
        + checks(loss, ROUNDING, {"L = 3": (task, three)}, unlike=longer, measure=gap),
        settings={"task": task, "L = 3: a, then b": [round(v, 5) for v in three.tolist()]},
        remarks=["The last transform changes nothing and is 0."],
    )


@claim(
    "ahn2023/theorem5-direction",
    "In the proof: moving in S lowers the loss as fast as any direction, the flow as gradient flow",
    source="Proof of Theorem 5, Eqs. 34 to 37",
    formula=r"\frac{d}{dt} A_i = -r_i \Sigma^{-1},\; \frac{d}{dt} B_i = -s_i \Sigma^{-1} "
    r"\;\Rightarrow\; \frac{d}{dt} f \le -\sum_i \|\nabla_{A_i} f\|_F^2 + \|\nabla_{B_i} f\|_F^2",
)
def descent_direction_with_transforms(scale: Scale) -> Verdict:
    task = on_the_ray(2, 6, scale=10.0)
    inverse, unit = task.covariance.inverse(), identity(2)
    generic = gradients(task, vector(0.4, 1.5, 0.8))
    risk = partial(theory.linear.ray_risk, n=6, d=2, transforms=vector(0.8, 0.0))
    # The steps that are best for this transform: there only the gradient in B is left.
    _, steps = theory.flow.descend(risk, vector(0.4, 1.5))
    a, b = gradients(task, torch.cat([steps, vector(0.8)]))

    def slower(case: tuple[int, Tensor]) -> float:
        """Eqs. 36 (0, of A) and 37 (1, of B), where Tr(Sigma^-1/2 S Sigma^1/2) = Tr S."""
        which, direction = case
        size = settings.traces if which else partial(rates, task)
        return excess(generic[which], lambda r: matrices(size(r) / 2, direction))

    def speed(direction: Tensor) -> Tensor:
        """-df/dt over |grad f|^2, the flow of B along this direction."""
        along_a, along_b = rates(task, a), settings.traces(b)
        fall = (a * matrices(along_a, inverse)).sum() + (b * matrices(along_b, direction)).sum()
        return fall / (a.square().sum() + b.square().sum())

    near = {"S~ = s I without the 1/d in s": (1, 2 * unit)}
    name = "how much slower the loss falls than along any R, S"
    moved = partial(checks, name, ROUNDING, unlike=near, measure=slower)
    flow = "speed of descent over |grad f|^2 (Eq. 35), where the steps are the best for b = 0.8"
    third = {"B along -s_i I / 3": unit / 3}
    speeds = partial(checks, flow, FROM_BELOW, unlike=third, measure=speed)
    slow = speeds({"B along -s_i Sigma^-1": inverse})
    return Verdict(
        moved({"Eq. 34: R~ = r I": (0, unit), "Eq. 37: S~ = s Sigma^-1": (1, inverse)}) + slow,
        moved({"R~ = r Sigma^-1": (0, inverse), "S~ = s I": (1, unit)})
        + speeds({"B along -s_i I": unit}),
        Correction(
            r"\tilde R_i = r_i I,\quad \tilde S_i = s_i \Sigma^{-1},\quad"
            r" \frac{d}{dt} B_i = -s_i \Sigma^{-1}",
            r"\tilde R_i = r_i \Sigma^{-1},\quad \tilde S_i = s_i I,\quad"
            r" \frac{d}{dt} B_i = -s_i I",
            "On the ray the gradient in B is a multiple of I: s Sigma^-1 has the derivative of S "
            "times Tr(Sigma^-1)/d, and does not lie in S. With s I the proof goes through.",
            Kind.PROOF,
            "Eigenvalues 10 and 3, two layers, b = 0.8 and its best steps: df/dt = "
            f"-{slow[0].measured:.2f} |grad f|^2, where at most -1 is claimed.",
        ),
        settings={"task": task, "directions": 20, "best steps for b = 0.8": steps.tolist()},
    )


def gd_plus_plus(prompt: Prompt, steps: Tensor, rates: Tensor, moved_first: bool = False) -> Tensor:
    """GD++ of von Oswald 2022, in its own form: data are transformed, nothing is learned.

    x_j <- x_j - gamma X X^T x_j and y_j <- y_j - (eta/n) sum_i y_i x_i^T x_j, both from the data
    as they are (or, a near miss, `moved_first`); it predicts minus the query's y, at first 0.
    """
    n = prompt.n
    x, y = torch.cat([prompt.x, prompt.x_query], 1), torch.cat([prompt.y, 0 * prompt.y_query], 1)
    for eta, gamma in zip(steps.tolist(), rates.tolist(), strict=True):
        new = x - gamma * x @ x[:, :n].mT @ x[:, :n]
        seen = new if moved_first else x
        y = y - eta / n * torch.einsum("bjd,bid,bi->bj", seen, seen[:, :n], y[:, :n])
        x = new
    return -y[:, n:]


@claim(
    "ahn2023/theorem5-gd++",
    "On isotropic data, with A_i = a_i I and B_i = b_i I, it is GD++ of von Oswald et al. (2022)",
    source="Section 6, after Theorem 5",
    formula=r"\eta_i = -a_i,\qquad \gamma_i = -a_i b_i / n",
)
def equals_gd_plus_plus(scale: Scale) -> Verdict:
    d, n = 3, 6
    a, b = -0.2 + 0.1 * normal(0, 3), 0.5 * normal(1, 3)
    white, skewed = LinearRegression.isotropic(d, n), on_the_ray(d, n)
    prompt, skewed_prompt = (task.sample(32, generator=generator(0)) for task in (white, skewed))

    def layers(prompt: Prompt, matrix: Tensor) -> Tensor:
        return AHN.predict(*weights13(matrices(a, matrix), matrices(b, identity(d))), prompt)

    stated = partial(gd_plus_plus, steps=-a, rates=-a * b / n)
    transformer, ours = layers(prompt, identity(d)), GDPlusPlus((-a).tolist(), b.tolist())(prompt)
    on_skewed = layers(skewed_prompt, skewed.covariance.inverse())
    return Verdict(
        checks(
            "largest relative difference of predictions from GD++, three layers",
            ROUNDING,
            {
                "Sigma = I": relative(transformer, stated(prompt)),
                "innerloop's GD++": relative(ours, stated(prompt)),
            },
            unlike={
                "covariates moved first": relative(transformer, stated(prompt, moved_first=True)),
                "A_i = a_i Sigma^-1, skewed Sigma": relative(on_skewed, stated(skewed_prompt)),
            },
        ),
        settings={"d": d, "n": n, "layers": 3, "prompts": 32},
    )


def identity_of_weights13(name: str, gap: Callable[[Tensor, Tensor, Tensor], float]) -> Verdict:
    """Of all tokens from label slot 0 and from label slot y_q, and of y_q."""
    task = LinearRegression(rotated([1.2, 0.8, 0.5, 0.3], seed=0), 9)
    prompt = task.sample(32, generator=generator(0))
    y, z = prompt.y_query[:, 0], prompt.token_matrix()
    with_label = z.clone()
    with_label[:, -1, -1] = y

    def measure(case: tuple[int, float]) -> float:
        """Of so many layers; so much noise in the last column of the Q_i, which (13) has at 0."""
        layers, column = case
        p, q = weights13(-0.2 * symmetric(normal(1, layers, 4, 4)), 0.2 * normal(2, layers, 4, 4))
        q[:, :-1, -1] += column * normal(3, layers, 4)
        return gap(AHN.layers(p, q, z), AHN.layers(p, q, with_label), y)

    cases = {"1 layer": (1, 0.0), "3 layers": (3, 0.0)}
    near = {"3 layers, last column of Q not 0 but 0.01 N(0, 1)": (3, 0.01)}
    return Verdict(
        checks(name, ROUNDING, cases, unlike=near, measure=measure),
        settings={"d": 4, "n": 9, "prompts": 32, "Sigma": "rotated"},
        remarks=["In Lemma 10, C has n + 1 columns and one row; it is printed as (d + 1) x 1."],
    )


@claim(
    "ahn2023/lemma9",
    "With weights (13) the loss is the mean square of the query's last entry, its label put in",
    source="Lemma 9",
    formula=r"f = \mathbf{E}\left[\mathrm{Tr}\left((I-M) \bar Y_k^\top \bar Y_k "
    r"(I-M)\right)\right]",
)
def reformulated_loss(scale: Scale) -> Verdict:
    def gap(z: Tensor, with_label: Tensor, y: Tensor) -> float:
        stated = with_label[:, -1, -1].square()  # I - M leaves the query's entry of Y
        return relative(stated, (AHN.readout_sign * z[:, -1, -1] - y).square())  # Eq. 5

    return identity_of_weights13("largest difference of the two losses of a prompt, relative", gap)


@claim(
    "ahn2023/lemma10",
    "With weights (13), a number added to the query's label slot is added to its output alone",
    source="Lemma 10",
    formula=r"F_X(X_0, Y_0 + C) = F_X(X_0, Y_0),\qquad F_Y(X_0, Y_0 + C) = F_Y(X_0, Y_0) + C",
)
def label_slot_is_additive(scale: Scale) -> Verdict:
    def gap(z: Tensor, with_label: Tensor, y: Tensor) -> float:
        z[:, -1, -1] += y
        return relative(with_label, z)

    return identity_of_weights13("largest relative change of any entry beyond the stated one", gap)
