from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import _pytree as pytree

from innerloop.prompt import Prompt
from innerloop.tasks import DictionaryRegression, LinearRegression
from tests.samples import normal, query, random_prompt, seeded, shared_prompt, written_out

leaves = pytree.tree_leaves
sizes = {
    "batch": st.integers(1, 3),
    "n": st.integers(1, 6),
    "d": st.integers(1, 4),
    "seed": st.integers(0, 2**16),
}


def tensors(batch=2, n=3, d=4, queries=2):
    return {
        "x": normal(batch, n, d, seed=1),
        "y": normal(batch, n, seed=2),
        "x_query": normal(batch, queries, d, seed=3),
        "y_query": normal(batch, queries, seed=4),
    }


def test_sizes_are_read_off_the_covariates():
    prompt = Prompt(**tensors(batch=2, n=3, d=4, queries=5))
    assert (len(prompt), prompt.n, prompt.d, prompt.queries) == (2, 3, 4, 5)
    assert prompt.targets is prompt.y_query


def test_covariates_that_are_shared_leave_the_batch_to_the_labels():
    prompt = shared_prompt(batch=7, n=3, d=4, queries=5)
    assert prompt.x.shape == (1, 3, 4)
    assert prompt.x_query.shape == (1, 5, 4)
    assert (len(prompt), prompt.n, prompt.d, prompt.queries) == (7, 3, 4, 5)


def test_views_of_shared_covariates_are_those_of_the_prompt_written_out():
    shared = shared_prompt(batch=3, n=4, d=2)
    own = written_out(shared)
    close = {"rtol": 1e-13, "atol": 1e-14}
    torch.testing.assert_close(shared.gram(), own.gram(), **close)
    torch.testing.assert_close(shared.token_matrix(), own.token_matrix(), **close)
    torch.testing.assert_close(shared.moments()[1], own.moments()[1], **close)
    for one, other in zip(leaves(shared.interleave()), leaves(own.interleave()), strict=True):
        assert torch.equal(one, other)
    for k in (0, 2, 4):
        one, other = shared.next_example(k), own.next_example(k)
        assert torch.equal(written_out(one).x_query, other.x_query)
        assert torch.equal(one.y_query, other.y_query)


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


def test_token_matrix_has_tokens_as_columns_and_zero_in_the_queries_label_slots():
    prompt = random_prompt(batch=2, n=3, d=4, queries=2)
    z = prompt.token_matrix()
    assert z.shape == (2, 5, 5)
    for b in range(2):
        for i in range(3):
            assert torch.equal(z[b, :4, i], prompt.x[b, i])
            assert z[b, 4, i] == prompt.y[b, i]
        assert torch.equal(z[b, :4, 3:], prompt.x_query[b].mT)
        assert (z[b, 4, 3:] == 0).all()


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
        assert torch.equal(sequence.tokens[b, 6, :4], prompt.x_query[b, 0])
        assert sequence.tokens[b, 6, 4] == 0


def test_interleaving_reads_out_every_covariate_against_its_label():
    prompt = random_prompt(batch=2, n=3, d=4)
    sequence = prompt.interleave()
    assert sequence.readout.tolist() == [0, 2, 4, 6]
    assert torch.equal(sequence.targets[:, :3, 0], prompt.y)
    assert torch.equal(sequence.targets[:, 3], prompt.y_query)
    assert sequence.targets.shape == (2, 4, 1)


def test_interleaving_several_queries_gives_each_a_sequence_of_its_own():
    prompt = random_prompt(batch=2, n=3, d=4, queries=3)
    sequence = prompt.interleave()
    assert len(sequence) == 6
    for i in range(3):
        alone = query(prompt, i).interleave()
        assert torch.equal(sequence.tokens[i::3], alone.tokens)
        assert torch.equal(sequence.targets[i::3], alone.targets)
        assert torch.equal(sequence.readout, alone.readout)


def test_interleaving_reads_out_clean_labels_everywhere_or_noisy_ones_everywhere():
    prompt = random_prompt(batch=2, n=3, d=4)
    clean = replace(prompt, y_clean=prompt.y + 1)
    assert torch.equal(prompt.interleave().targets[:, :3, 0], prompt.y)
    assert torch.equal(clean.interleave().targets[:, :3, 0], prompt.y + 1)
    assert torch.equal(clean.interleave().tokens, prompt.interleave().tokens)


def test_each_query_has_a_prompt_of_its_own_those_of_a_prompt_in_a_row():
    prompt = replace(random_prompt(batch=2, n=4, d=3, queries=3), y_clean=normal(2, 4, seed=9))
    each = prompt.each_query()
    assert (len(each), each.queries) == (6, 1)
    for i in range(3):
        alone = query(prompt, i)
        for name in ("x", "y", "x_query", "y_query", "y_clean"):
            assert torch.equal(getattr(each, name)[i::3], getattr(alone, name))


def test_each_query_of_shared_covariates_still_shares_its_examples():
    prompt = shared_prompt(batch=2, n=4, d=3, queries=3)
    each, own = prompt.each_query(), written_out(prompt).each_query()
    assert each.x.shape == (1, 4, 3)
    assert torch.equal(written_out(each).x, own.x)
    assert torch.equal(each.x_query, own.x_query)
    assert torch.equal(each.y_query, own.y_query)


@pytest.mark.parametrize("k", [0, 2, 4])
def test_the_next_example_is_asked_for_after_the_first_k(k):
    prompt = random_prompt(batch=2, n=5, d=3, queries=2)
    asked = prompt.next_example(k)
    assert torch.equal(asked.x, prompt.x[:, :k])
    assert torch.equal(asked.y, prompt.y[:, :k])
    assert torch.equal(asked.x_query, prompt.x[:, k : k + 1])
    assert torch.equal(asked.y_query, prompt.y[:, k : k + 1])


def test_after_all_examples_the_first_query_is_next():
    prompt = random_prompt(batch=2, n=5, d=3, queries=2)
    asked = prompt.next_example(5)
    assert torch.equal(asked.x, prompt.x)
    assert torch.equal(asked.x_query, prompt.x_query[:, -1:])
    assert torch.equal(asked.y_query, prompt.y_query[:, -1:])


def test_the_next_example_is_compared_with_its_clean_label_where_the_query_is_clean():
    prompt = random_prompt(batch=2, n=5, d=3)
    clean = replace(prompt, y_clean=prompt.y + 1)
    asked = clean.next_example(2)
    assert torch.equal(asked.y, prompt.y[:, :2])
    assert torch.equal(asked.y_clean, prompt.y[:, :2] + 1)
    assert torch.equal(asked.y_query, prompt.y[:, 2:3] + 1)


@pytest.mark.parametrize("noise_std", [0.0, 0.5])
def test_the_targets_of_a_learning_curve_are_clean_where_the_querys_label_is(noise_std):
    # Least squares on d noiseless labels knows every label: those of the curve are all clean.
    task = LinearRegression.isotropic(3, 8, noise_std)
    noisy, exact = (
        replace(task, noise_std=s).sample(4, generator=seeded()) for s in (noise_std, 0.0)
    )
    assert torch.equal(noisy.curve_targets(), exact.curve_targets())
    assert (noisy.y_clean is None) == (noise_std == 0)


def test_the_targets_of_a_learning_curve_are_noisy_where_the_querys_label_is():
    task = DictionaryRegression.gaussian(3, 2, 6, 4, 0.3, generator=seeded())
    prompt = task.sample(3, generator=seeded())
    assert prompt.y_clean is None
    assert torch.equal(prompt.curve_targets(), torch.cat([prompt.y, prompt.y_query[:, -1:]], 1))


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


def test_to_takes_the_clean_labels_along():
    prompt = replace(random_prompt(), y_clean=normal(3, 5)).to(dtype=torch.float32)
    assert prompt.y_clean.dtype == torch.float32


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
            r"x must have shape \[2, 5, 4\] .* to go with y of shape \[2, 5\], got \[2, 3, 4\]",
        ),
        ("y", (2, 3, 1), r"y must have shape \[batch, n\], got \[2, 3, 1\]"),
        ("x", (3, 3, 4), r"x must have shape \[2, 3, 4\] \(or 1 in place of the batch.*got \[3, 3"),
        ("x_query", (2, 4), r"x_query must have shape \[2, 2, 4\] .* got \[2, 4\]"),
        ("x_query", (2, 3, 4), r"x_query must have shape \[2, 2, 4\] .* got \[2, 3, 4\]"),
        ("y_query", (2,), r"y_query must have shape \[batch, queries\], got \[2\]"),
        ("y_query", (1, 2), r"y_query must have shape \[2, 2\] .* got \[1, 2\]"),
        ("y_clean", (2, 4), r"y_clean must have shape \[2, 3\] to go with y .* got \[2, 4\]"),
    ],
)
def test_a_wrong_shape_is_refused_by_name(name, shape, sentence):
    with pytest.raises(ValueError, match=sentence):
        Prompt(**{**tensors(), name: normal(*shape)})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("name", "index"), [("x", (1, 2, 3)), ("y", (0, 1)), ("x_query", (1, 0, 2))]
)
def test_a_value_that_is_not_finite_is_refused_with_its_index(name, index, value):
    given_tensors = tensors()
    given_tensors[name][index] = value
    with pytest.raises(ValueError, match=rf"^{name} must be finite, got {value} at index") as error:
        Prompt(**given_tensors)
    assert str(error.value).endswith(f"at index {list(index)}")


def test_the_querys_label_may_be_unknown():
    prompt = Prompt(
        **{**tensors(), "y_query": torch.full((2, 2), float("nan"), dtype=torch.float64)}
    )
    assert prompt.gram().isfinite().all()
    assert prompt.token_matrix().isfinite().all()


@pytest.mark.parametrize("y_clean", [None, normal(3, 5, seed=9)], ids=["noisy", "clean"])
def test_a_prompt_survives_being_taken_apart_and_put_together(y_clean):
    prompt = replace(random_prompt(), y_clean=y_clean)
    parts, spec = pytree.tree_flatten(prompt)
    again = pytree.tree_unflatten(parts, spec)
    assert isinstance(again, Prompt)
    assert len(parts) == (4 if y_clean is None else 5)
    for name in ("x", "y", "x_query", "y_query", "y_clean"):
        assert getattr(again, name) is getattr(prompt, name)


@pytest.mark.parametrize("clean", [False, True])
def test_what_is_read_off_a_prompt_can_be_mapped_too(clean):
    prompts = [random_prompt(batch=2, n=3, d=2, seed=s, queries=2) for s in range(4)]
    if clean:
        prompts = [replace(prompt, y_clean=2 * prompt.y) for prompt in prompts]
    stacked = pytree.tree_map(lambda *t: torch.stack(t), *prompts)

    def views(prompt):
        return (
            prompt.prefix(2).gram(),
            prompt.next_example(1).curve_targets(),
            prompt.each_query().token_matrix(),
        )

    mapped = torch.func.vmap(views)(stacked)
    for i, prompt in enumerate(prompts):
        for one, other in zip(mapped, views(prompt), strict=True):
            torch.testing.assert_close(one[i], other, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", ["x", "y"])
def test_moments_follow_a_change_in_place(name):
    made = tensors()
    prompt = Prompt(**made)
    before = prompt.gram()
    made[name].mul_(2)
    fresh = Prompt(**made)
    for kept, exact in zip(prompt.moments(), fresh.moments(), strict=True):
        assert torch.equal(kept, exact)
    assert torch.equal(prompt.gram(), fresh.gram())
    assert not torch.equal(prompt.gram(), before)


def test_moments_follow_a_change_of_the_tensor_that_a_prompt_is_part_of():
    z = normal(2, 6, 3)
    prompt = Prompt(z[:, :4], z[:, :4, 0].clone(), z[:, 4:], z[:, 4:, 0].clone())
    prompt.moments()
    z.mul_(2)
    torch.testing.assert_close(prompt.moments()[0], prompt.x.mT @ prompt.x / 4)


def test_moments_are_kept_while_nothing_changes():
    prompt = random_prompt()
    assert prompt.moments()[0] is prompt.moments()[0]


def test_moments_of_inference_tensors_are_computed_as_they_cannot_say_when_they_change():
    with torch.inference_mode():
        made = tensors()
        prompt = Prompt(**made)
        prompt.moments()
        made["x"].mul_(2)
        torch.testing.assert_close(prompt.moments()[0], made["x"].mT @ made["x"] / 3)


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize("name", ["x", "y", "x_query", "y_query", "y_clean"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex128])
def test_integers_and_complex_numbers_are_refused(name, dtype):
    made = {**tensors(), "y_clean": normal(2, 3)}
    sentence = rf"^{name} must be of a real floating dtype such as torch.float32, got {dtype}"
    with pytest.raises(ValueError, match=sentence):
        Prompt(**{**made, name: made[name].to(dtype)})


@pytest.mark.parametrize("name", ["y", "x_query", "y_query", "y_clean"])
def test_two_dtypes_in_one_prompt_are_refused(name):
    made = {**tensors(), "y_clean": normal(2, 3)}
    sentence = rf"^{name} must have the dtype torch.float64 of x, got torch.float32"
    with pytest.raises(ValueError, match=sentence):
        Prompt(**{**made, name: made[name].float()})


def test_a_prompt_without_a_query_is_refused():
    with pytest.raises(ValueError, match="x_query must hold at least one query, got none"):
        Prompt(**tensors(queries=0))


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
