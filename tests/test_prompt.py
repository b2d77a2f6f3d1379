import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import _pytree as pytree

from innerloop.prompt import Prompt
from tests.samples import normal, random_prompt, seeded

sizes = {
    "batch": st.integers(1, 3),
    "n": st.integers(1, 6),
    "d": st.integers(1, 4),
    "seed": st.integers(0, 2**16),
}


def tensors(batch=2, n=3, d=4):
    return {
        "x": normal(batch, n, d, seed=1),
        "y": normal(batch, n, seed=2),
        "x_query": normal(batch, d, seed=3),
        "y_query": normal(batch, seed=4),
    }


def test_sizes_are_read_off_the_covariates():
    prompt = Prompt(**tensors(batch=2, n=3, d=4))
    assert (len(prompt), prompt.n, prompt.d) == (2, 3, 4)


def test_gram_is_the_mean_of_outer_products_of_the_context_tokens():
    prompt = random_prompt(batch=3, n=5, d=4)
    expected = torch.zeros(3, 5, 5, dtype=torch.float64)
    for b in range(3):
        for i in range(5):
            z = torch.cat([prompt.x[b, i], prompt.y[b, i : i + 1]])
            expected[b] += torch.outer(z, z) / 5
    torch.testing.assert_close(prompt.gram(), expected, rtol=0, atol=1e-14)


def test_gram_is_differentiable_in_the_prompt_even_after_a_look_without_gradients():
    made = tensors()
    x = made["x"].requires_grad_()
    prompt = Prompt(**made)
    with torch.no_grad():
        prompt.gram()
    (gradient,) = torch.autograd.grad(prompt.gram().diagonal(dim1=1, dim2=2).sum(), x)
    torch.testing.assert_close(gradient, 2 * x.detach() / 3)  # of (1/n) sum_i |x_i|^2


def test_gram_of_no_examples_is_zero():
    gram = random_prompt(batch=2, n=4, d=3).prefix(0).gram()
    assert gram.shape == (2, 4, 4)
    assert (gram == 0).all()


def test_token_matrix_has_tokens_as_columns_and_zero_in_the_querys_label_slot():
    prompt = random_prompt(batch=2, n=3, d=4)
    z = prompt.token_matrix()
    assert z.shape == (2, 5, 4)
    for b in range(2):
        for i in range(3):
            assert torch.equal(z[b, :4, i], prompt.x[b, i])
            assert z[b, 4, i] == prompt.y[b, i]
        assert torch.equal(z[b, :4, 3], prompt.x_query[b])
        assert z[b, 4, 3] == 0


def test_interleaving_alternates_covariates_and_labels_and_ends_with_the_query():
    prompt = random_prompt(batch=2, n=3, d=4)
    sequence = prompt.interleave()
    assert sequence.tokens.shape == (2, 7, 5)
    for b in range(2):
        for i in range(3):
            assert torch.equal(sequence.tokens[b, 2 * i, :4], prompt.x[b, i])
            assert sequence.tokens[b, 2 * i, 4] == 0
            assert (sequence.tokens[b, 2 * i + 1, :4] == 0).all()
            assert sequence.tokens[b, 2 * i + 1, 4] == prompt.y[b, i]
        assert torch.equal(sequence.tokens[b, 6, :4], prompt.x_query[b])
        assert sequence.tokens[b, 6, 4] == 0


def test_interleaving_reads_out_every_covariate_against_its_label():
    prompt = random_prompt(batch=2, n=3, d=4)
    sequence = prompt.interleave()
    assert sequence.readout.tolist() == [0, 2, 4, 6]
    assert torch.equal(sequence.targets[:, :3], prompt.y)
    assert torch.equal(sequence.targets[:, 3], prompt.y_query)


def test_interleaving_no_examples_leaves_the_query_alone():
    prompt = random_prompt(batch=2, n=3, d=4).prefix(0)
    sequence = prompt.interleave()
    assert sequence.tokens.shape == (2, 1, 5)
    assert sequence.readout.tolist() == [0]
    assert torch.equal(sequence.targets[:, 0], prompt.y_query)


def test_prefix_keeps_the_first_examples_and_the_query():
    prompt = random_prompt(batch=2, n=5, d=3)
    start = prompt.prefix(2)
    assert torch.equal(start.x, prompt.x[:, :2])
    assert torch.equal(start.y, prompt.y[:, :2])
    assert torch.equal(start.x_query, prompt.x_query)
    assert torch.equal(start.y_query, prompt.y_query)
    assert torch.equal(prompt.prefix(5).x, prompt.x)


@pytest.mark.parametrize("k", [-1, 6])
def test_a_prefix_outside_the_prompt_is_refused(k):
    with pytest.raises(ValueError, match=rf"k must be between 0 and n = 5, got {k}"):
        random_prompt(n=5).prefix(k)


def test_to_changes_the_dtype_of_every_tensor():
    prompt = random_prompt().to(dtype=torch.float32)
    assert {t.dtype for t in pytree.tree_leaves(prompt)} == {torch.float32}


def test_to_a_device_keeps_dtype_and_values():
    prompt = random_prompt()
    moved = prompt.to("cpu")
    for before, after in zip(pytree.tree_leaves(prompt), pytree.tree_leaves(moved), strict=True):
        assert after.dtype == torch.float64
        assert torch.equal(before, after)


def test_to_nothing_changes_nothing():
    prompt = random_prompt()
    assert torch.equal(prompt.to().x, prompt.x)


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize(
    ("name", "shape", "sentence"),
    [
        ("x", (2, 3), r"x must have shape \[batch, n, d\], got \[2, 3\]"),
        ("x", (2, 3, 4, 1), r"x must have shape \[batch, n, d\], got \[2, 3, 4, 1\]"),
        (
            "y",
            (2, 5),
            r"y must have shape \[2, 3\] to go with x of shape \[2, 3, 4\], got \[2, 5\]",
        ),
        ("y", (2, 3, 1), r"y must have shape \[2, 3\] .* got \[2, 3, 1\]"),
        ("x_query", (2, 3), r"x_query must have shape \[2, 4\] .* got \[2, 3\]"),
        ("y_query", (1,), r"y_query must have shape \[2\] .* got \[1\]"),
        ("y_query", (2, 1), r"y_query must have shape \[2\] .* got \[2, 1\]"),
    ],
)
def test_a_wrong_shape_is_refused_by_name(name, shape, sentence):
    with pytest.raises(ValueError, match=sentence):
        Prompt(**{**tensors(), name: normal(*shape)})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(("name", "index"), [("x", (1, 2, 3)), ("y", (0, 1)), ("x_query", (1, 0))])
def test_a_value_that_is_not_finite_is_refused_with_its_index(name, index, value):
    given_tensors = tensors()
    given_tensors[name][index] = value
    with pytest.raises(ValueError, match=rf"^{name} must be finite, got {value} at index") as error:
        Prompt(**given_tensors)
    assert str(error.value).endswith(f"at index {list(index)}")


def test_the_querys_label_may_be_unknown():
    prompt = Prompt(**{**tensors(), "y_query": torch.full((2,), float("nan"), dtype=torch.float64)})
    assert prompt.gram().isfinite().all()
    assert prompt.token_matrix().isfinite().all()


def test_a_prompt_survives_being_taken_apart_and_put_together():
    prompt = random_prompt()
    leaves, spec = pytree.tree_flatten(prompt)
    again = pytree.tree_unflatten(leaves, spec)
    assert isinstance(again, Prompt)
    for before, after in zip(leaves, pytree.tree_leaves(again), strict=True):
        assert before is after


def test_prompts_can_be_mapped_over():
    prompts = [random_prompt(batch=2, n=3, d=2, seed=s) for s in range(4)]
    stacked = pytree.tree_map(lambda *t: torch.stack(t), *prompts)
    grams = torch.func.vmap(lambda prompt: prompt.gram())(stacked)
    for gram, prompt in zip(grams, prompts, strict=True):
        torch.testing.assert_close(gram, prompt.gram(), rtol=0, atol=1e-14)


@given(**sizes)
def test_gram_ignores_the_order_of_examples(batch, n, d, seed):
    prompt = random_prompt(batch, n, d, seed)
    order = torch.randperm(n, generator=seeded(seed))
    shuffled = Prompt(prompt.x[:, order], prompt.y[:, order], prompt.x_query, prompt.y_query)
    torch.testing.assert_close(shuffled.gram(), prompt.gram(), rtol=1e-12, atol=1e-13)


@given(**sizes, factor=st.floats(-4, 4))
def test_scaling_the_labels_scales_the_gram_by_blocks(batch, n, d, seed, factor):
    prompt = random_prompt(batch, n, d, seed)
    scaled = Prompt(prompt.x, factor * prompt.y, prompt.x_query, prompt.y_query).gram()
    gram = prompt.gram()
    close = {"rtol": 1e-12, "atol": 1e-13}
    torch.testing.assert_close(scaled[:, :d, :d], gram[:, :d, :d], **close)
    torch.testing.assert_close(scaled[:, :d, d], factor * gram[:, :d, d], **close)
    torch.testing.assert_close(scaled[:, d, d], factor**2 * gram[:, d, d], **close)


@given(**sizes)
def test_gram_is_symmetric_and_has_no_negative_eigenvalue(batch, n, d, seed):
    gram = random_prompt(batch, n, d, seed).gram()
    torch.testing.assert_close(gram, gram.mT, rtol=0, atol=1e-14)
    assert torch.linalg.eigvalsh(gram).min() > -1e-12
