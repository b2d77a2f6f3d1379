import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import _pytree as pytree

from innerloop.algorithms import GDPlusPlus, GradientDescent, curve_answers
from innerloop.models import (
    DenseWeights,
    GDPlusPlusWeights,
    GradientDescentWeights,
    LinearAttention,
    SingleLayerWeights,
    associative_forward,
    attention_matrix_forward,
)
from innerloop.prompt import Prompt
from tests.models.forms import FORMS, SPARSE, weights
from tests.samples import normal, query, random_prompt, relative_error, rotation, seeded

forms = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
sparse = pytest.mark.parametrize("form", SPARSE, ids=lambda form: form.__name__)
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def token_loop(p, q, prompt, *, masked=True, loops=1):
    """Every token by itself, for one query: z <- z - (1/n) sum_j P z_j z_j^T Q z, j seen."""
    answers = []
    for b in range(len(prompt)):
        tokens = [torch.cat([x, y[None]]) for x, y in zip(prompt.x[b], prompt.y[b], strict=True)]
        tokens.append(torch.cat([prompt.x_query[b, 0], torch.zeros(1, dtype=p.dtype)]))
        for _ in range(loops):
            for p_layer, q_layer in zip(p, q, strict=True):
                seen = tokens[:-1] if masked else tokens
                tokens = [
                    z - sum((t @ q_layer @ z) * (p_layer @ t) for t in seen) / prompt.n
                    for z in tokens
                ]
        answers.append(-tokens[-1][-1])
    return torch.stack(answers).unsqueeze(1)


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "unmasked"])
@pytest.mark.parametrize("seed", range(5))
def test_gram_space_is_token_space_for_dense_weights(seed, masked):
    prompt = random_prompt(batch=4, n=9, d=4, seed=seed)
    dense = weights(DenseWeights, seed=seed)
    with torch.no_grad():
        value = LinearAttention(dense, masked=masked)(prompt)
        expected = token_loop(*dense.matrices(), prompt, masked=masked)
    assert relative_error(value, expected) < 1e-12


@forms
@pytest.mark.parametrize("masked", [True, False], ids=["masked", "unmasked"])
@pytest.mark.parametrize("loops", [1, 2, 3])
def test_every_form_is_its_matrices_in_token_space(form, masked, loops):
    prompt = random_prompt(batch=3, n=6, d=3, seed=1)
    model = LinearAttention(weights(form, d=3, layers=2), loops, masked=masked)
    with torch.no_grad():
        expected = token_loop(*model.weights.matrices(), prompt, masked=masked, loops=loops)
        assert relative_error(model(prompt), expected) < 1e-12


def test_the_mask_changes_the_prediction():
    prompt = random_prompt(batch=3, n=6, d=3, seed=1)
    dense = weights(DenseWeights, d=3)
    masked, unmasked = (LinearAttention(dense, masked=m)(prompt) for m in (True, False))
    assert relative_error(masked, unmasked) > 1e-3


@forms
def test_every_form_is_its_attention_matrix_written_out(form):
    prompt = random_prompt(batch=4, n=9, d=4)
    model = LinearAttention(weights(form))
    p, q = model.weights.matrices()
    assert p.shape == q.shape == (model.weights.layers, 5, 5)
    assert relative_error(model(prompt), attention_matrix_forward(p, q, prompt)) < 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_multiplying_in_the_other_order_changes_nothing(seed):
    prompt = random_prompt(batch=4, n=9, d=4, seed=seed)
    p, q = weights(DenseWeights, seed=seed).matrices()
    one, other = (f(p, q, prompt) for f in (associative_forward, attention_matrix_forward))
    assert relative_error(one, other) < 1e-12


@forms
def test_loops_repeat_the_whole_stack(form):
    prompt = random_prompt(batch=3, n=6, d=3)
    single = weights(form, d=3, layers=2)
    p, q = single.matrices()
    repeated = LinearAttention(DenseWeights(p.repeat(3, 1, 1), q.repeat(3, 1, 1)))
    assert relative_error(LinearAttention(single, 3)(prompt), repeated(prompt)) < 1e-12


@pytest.mark.parametrize("loops", [1, 2])
def test_gradient_descent_weights_are_gradient_descent(loops):
    prompt = random_prompt(batch=4, n=9, d=4)
    model = LinearAttention(weights(GradientDescentWeights), loops)
    algorithm = GradientDescent(list(model.weights.preconditioners.detach()) * loops)
    torch.testing.assert_close(model(prompt), algorithm(prompt), **CLOSE)


@pytest.mark.parametrize("loops", [1, 2])
def test_gd_plus_plus_weights_are_gd_plus_plus(loops):
    prompt = random_prompt(batch=4, n=9, d=4)
    model = LinearAttention(weights(GDPlusPlusWeights), loops)
    algorithm = GDPlusPlus(
        list(model.weights.preconditioners.detach()) * loops,
        list(model.weights.transforms.detach()) * loops,
    )
    torch.testing.assert_close(model(prompt), algorithm(prompt), **CLOSE)


def test_gd_plus_plus_weights_without_transforms_are_gradient_descent_weights():
    prompt = random_prompt(batch=4, n=9, d=4)
    a = 0.3 * normal(3, 4, 4)
    plain = LinearAttention(GradientDescentWeights(a.clone()))
    moved = LinearAttention(GDPlusPlusWeights(a.clone(), torch.zeros_like(a)))
    torch.testing.assert_close(plain(prompt), moved(prompt), **CLOSE)


def test_a_single_layer_predicts_with_one_bilinear_form():
    prompt = random_prompt(batch=4, n=9, d=4)
    single = weights(SingleLayerWeights)
    expected = torch.einsum("i,bij,jk,bqk->bq", single.b, prompt.gram(), single.a, prompt.x_query)
    torch.testing.assert_close(LinearAttention(single)(prompt), expected, **CLOSE)


@sparse
@pytest.mark.parametrize("loops", [1, 2])
def test_operators_are_what_answer_computes(form, loops):
    prompt = random_prompt(batch=4, n=9, d=4)
    model = LinearAttention(weights(form), loops)
    gram = prompt.gram()
    s, m = gram[:, :4, :4], gram[:, 4, :4]
    j, k = model.weights.operators(s, loops)
    predicted = torch.einsum("bij,bj,bqi->bq", k, m, prompt.x_query)
    torch.testing.assert_close(predicted, model(prompt), **CLOSE)
    identity = torch.eye(4, dtype=torch.float64)
    torch.testing.assert_close(j, identity - k @ s, **CLOSE)


@sparse
def test_operators_give_the_error_on_noiseless_labels(form):
    w, x = normal(5, 3, seed=1), normal(5, 6, 3, seed=2)
    labels = torch.einsum("bnd,bd->bn", x, w)
    prompt = Prompt(x, labels, normal(5, 2, 3, seed=3), normal(5, 2, seed=4))
    model = LinearAttention(weights(form, d=3))
    j, _ = model.weights.operators(prompt.gram()[:, :3, :3], 1)
    left = torch.einsum("bij,bj,bqi->bq", j, w, prompt.x_query)
    exact = torch.einsum("bi,bqi->bq", w, prompt.x_query)
    torch.testing.assert_close(exact - model(prompt), left, **CLOSE)


@forms
@pytest.mark.parametrize("masked", [True, False], ids=["masked", "unmasked"])
def test_several_queries_are_answered_like_one_at_a_time(form, masked):
    prompt = random_prompt(batch=3, n=6, d=4, queries=5)
    model = LinearAttention(weights(form), 2, masked=masked)
    together = model(prompt)
    assert together.shape == (3, 5)
    for i in range(5):
        torch.testing.assert_close(together[:, i : i + 1], model(query(prompt, i)), **CLOSE)


@forms
def test_token_space_too_answers_several_queries_each_for_itself(form):
    prompt = random_prompt(batch=3, n=6, d=4, queries=3)
    model = LinearAttention(weights(form))
    for reference in (attention_matrix_forward, associative_forward):
        value = reference(*model.weights.matrices(), prompt)
        assert relative_error(value, model(prompt)) < 1e-12


@forms
@pytest.mark.parametrize("masked", [True, False], ids=["masked", "unmasked"])
def test_a_model_can_be_mapped_over_prompts(form, masked):
    prompts = [random_prompt(batch=2, n=3, d=4, seed=s, queries=2) for s in range(3)]
    model = LinearAttention(weights(form, layers=2), masked=masked)
    stacked = pytree.tree_map(lambda *t: torch.stack(t), *prompts)
    for one, prompt in zip(torch.func.vmap(model)(stacked), prompts, strict=True):
        torch.testing.assert_close(one, model(prompt), **CLOSE)


@forms
def test_a_learning_curve_begins_at_zero_and_ends_with_the_prediction(form):
    prompt = random_prompt(batch=3, n=5, d=4)
    model = LinearAttention(weights(form))
    curve = curve_answers(model, prompt)
    assert curve.shape == (3, 6)
    assert (curve[:, 0] == 0).all()
    torch.testing.assert_close(curve[:, 5:], model(prompt), **CLOSE)


@forms
def test_every_parameter_has_the_gradient_of_token_space(form):
    prompt = random_prompt(batch=4, n=6, d=3)
    model = LinearAttention(weights(form, d=3, layers=2))
    parameters = list(model.parameters())
    ours = torch.autograd.grad(model(prompt).square().sum(), parameters, allow_unused=True)
    p, q = model.weights.matrices()
    loss = attention_matrix_forward(p, q, prompt).square().sum()
    theirs = torch.autograd.grad(loss, parameters, allow_unused=True)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


@forms
def test_gaussian_weights_have_independent_entries_of_the_stated_size(form):
    size = {"d": 30} if form is SingleLayerWeights else {"d": 20, "layers": 3}
    made, again = (form.gaussian(**size, std=0.5, generator=seeded(s)) for s in (1, 1))
    entries = torch.cat([p.detach().flatten() for p in made.parameters()])
    z = entries.mean() / (0.5 / len(entries) ** 0.5)
    assert z.abs() < 4
    # The variance of a sample variance is 2 std^4 / count.
    z = (entries.square().mean() - 0.25) / (0.25 * (2 / len(entries)) ** 0.5)
    assert z.abs() < 4
    assert made.d == size["d"]
    for one, other in zip(made.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


@given(form=st.sampled_from(FORMS), seed=st.integers(0, 2**16), n=st.integers(1, 6))
def test_prediction_ignores_the_order_of_examples(form, seed, n):
    prompt = random_prompt(batch=2, n=n, d=3, seed=seed)
    order = torch.randperm(n, generator=seeded(seed))
    shuffled = Prompt(prompt.x[:, order], prompt.y[:, order], prompt.x_query, prompt.y_query)
    model = LinearAttention(weights(form, d=3, layers=2, scale=0.2, seed=seed))
    torch.testing.assert_close(model(shuffled), model(prompt), rtol=1e-9, atol=1e-10)


@given(form=st.sampled_from(SPARSE), seed=st.integers(0, 2**16), factor=st.floats(-3, 3))
def test_prediction_of_sparse_forms_is_linear_in_the_labels(form, seed, factor):
    prompt, other = (random_prompt(batch=2, n=4, d=3, seed=seed + i) for i in range(2))
    model = LinearAttention(weights(form, d=3, layers=2, scale=0.2, seed=seed))
    labels = factor * prompt.y + other.y

    def answer(y):
        return model(Prompt(prompt.x, y, prompt.x_query, prompt.y_query))

    torch.testing.assert_close(
        answer(labels), factor * answer(prompt.y) + answer(other.y), rtol=1e-9, atol=1e-10
    )


@given(seed=st.integers(0, 2**16), layers=st.integers(1, 3))
def test_gradient_descent_turns_with_its_covariates(seed, layers):
    prompt, u = random_prompt(batch=2, n=4, d=3, seed=seed), rotation(3, seed)
    a = 0.3 * normal(layers, 3, 3, seed=seed)
    turned = Prompt(prompt.x @ u.mT, prompt.y, prompt.x_query @ u.mT, prompt.y_query)
    value = LinearAttention(GradientDescentWeights(a.clone()))(prompt)
    turned_value = LinearAttention(GradientDescentWeights(u @ a @ u.mT))(turned)
    torch.testing.assert_close(turned_value, value, rtol=1e-9, atol=1e-10)


def test_no_loops_are_refused():
    with pytest.raises(ValueError, match="loops must be at least 1, got 0"):
        LinearAttention(weights(GradientDescentWeights), 0)


def test_covariates_of_another_dimension_are_refused():
    model = LinearAttention(weights(GradientDescentWeights, d=4))
    with pytest.raises(ValueError, match="reads covariates of dimension 4, got 3"):
        model(random_prompt(d=3))


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 4), (0, 3, 3)])
@pytest.mark.parametrize("form", FORMS[:3], ids=lambda form: form.__name__)
def test_weights_that_are_not_square_matrices_by_layer_are_refused(form, shape):
    name = "p" if form is DenseWeights else "preconditioners"
    given_matrices = [torch.zeros(shape)] * (1 if form is GradientDescentWeights else 2)
    sentence = rf"{name} must be square matrices, one per layer, \[layers, d, d\], got shape \["
    with pytest.raises(ValueError, match=sentence):
        form(*given_matrices)


@pytest.mark.usefixtures("shapes_unchecked")
def test_weights_of_different_shapes_are_refused():
    with pytest.raises(
        ValueError, match=r"q must have the shape \[2, 3, 3\] of p, got \[1, 3, 3\]"
    ):
        DenseWeights(torch.zeros(2, 3, 3), torch.zeros(1, 3, 3))
    sentence = r"transforms must have the shape \[2, 3, 3\] of preconditioners, got \[2, 4, 4\]"
    with pytest.raises(ValueError, match=sentence):
        GDPlusPlusWeights(torch.zeros(2, 3, 3), torch.zeros(2, 4, 4))


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize(("b", "a"), [((4,), (4, 4)), ((4, 1), (4, 3)), ((3,), (4, 3))])
def test_single_layer_weights_of_wrong_shapes_are_refused(b, a):
    with pytest.raises(ValueError, match=r"b must have shape \[d \+ 1\] and a \[d \+ 1, d\], got"):
        SingleLayerWeights(torch.zeros(b), torch.zeros(a))
