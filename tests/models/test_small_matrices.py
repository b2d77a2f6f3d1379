import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, vmap

from innerloop.models.linear_attention.small_matrices import batch_last, product
from tests.samples import normal

# Shapes of x and y; a batch axis of length 1 is repeated.
SHAPES = [
    ((2, 3, 5), (3, 4, 5)),
    ((2, 3, 1), (3, 4, 5)),
    ((2, 3, 5), (3, 4, 1)),
    ((1, 1, 5), (1, 1, 5)),
    ((3, 1, 2), (1, 3, 2)),
]


def einsum(x, y):
    batch = max(x.shape[-1], y.shape[-1])
    return torch.einsum(
        "ijb,jkb->ikb", x.expand(*x.shape[:2], batch), y.expand(*y.shape[:2], batch)
    )


@pytest.mark.parametrize(("x_shape", "y_shape"), SHAPES)
def test_the_product_is_a_matrix_product_for_every_element(x_shape, y_shape):
    x, y = normal(*x_shape, seed=1), normal(*y_shape, seed=2)
    torch.testing.assert_close(product(x, y), einsum(x, y), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize(("x_shape", "y_shape"), SHAPES)
def test_its_gradient_is_that_of_einsum(x_shape, y_shape):
    x, y = (normal(*s, seed=i).requires_grad_() for i, s in enumerate((x_shape, y_shape)))
    target = normal(*einsum(x, y).shape, seed=3)
    ours = torch.autograd.grad((product(x, y) * target).sum(), (x, y))
    theirs = torch.autograd.grad((einsum(x, y) * target).sum(), (x, y))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("x_shape", "y_shape"), SHAPES)
def test_its_derivatives_match_finite_differences(x_shape, y_shape):
    x, y = (normal(*s, seed=i).requires_grad_() for i, s in enumerate((x_shape, y_shape)))
    assert gradcheck(product, (x, y))
    assert gradgradcheck(product, (x, y))


AXES = [(i, j) for i in (0, 1, 2, 3, None) for j in (0, 1, 2, 3, None) if (i, j) != (None, None)]


@pytest.mark.parametrize(("x_axis", "y_axis"), AXES)
@pytest.mark.parametrize("batches", [(5, 5), (1, 5), (5, 1)])
def test_it_can_be_mapped_over_any_axis(x_axis, y_axis, batches):
    x, y = normal(4, 2, 3, batches[0], seed=1), normal(4, 3, 4, batches[1], seed=2)
    xs = x[0] if x_axis is None else x.movedim(0, x_axis)
    ys = y[0] if y_axis is None else y.movedim(0, y_axis)
    mapped = vmap(product, in_dims=(x_axis, y_axis))(xs, ys)
    for i in range(4):
        expected = einsum(x[0 if x_axis is None else i], y[0 if y_axis is None else i])
        torch.testing.assert_close(mapped[i], expected, rtol=1e-13, atol=1e-14)


def test_two_uses_in_one_mapped_function_have_the_gradient_of_a_loop():
    x, y = normal(4, 3, 3, 5, seed=1), normal(3, 3, 5, seed=2)

    def loss(x, multiply):
        once = multiply(x, y)
        return multiply(multiply(once, x), once).square().sum()

    mapped = vmap(grad(lambda x: loss(x, product)))(x)
    for i in range(4):
        torch.testing.assert_close(
            mapped[i], grad(lambda x: loss(x, einsum))(x[i]), rtol=1e-11, atol=1e-11
        )


def test_maps_can_be_nested():
    x, y = normal(4, 6, 2, 3, 5, seed=1), normal(6, 3, 4, 5, seed=2)
    mapped = vmap(vmap(product), in_dims=(0, None))(x, y)
    expected = torch.einsum("mnijb,njkb->mnikb", x, y)
    torch.testing.assert_close(mapped, expected, rtol=1e-13, atol=1e-14)


def test_batch_last_moves_the_batch_to_the_end():
    matrices = normal(5, 2, 3)
    moved = batch_last(matrices)
    assert moved.shape == (2, 3, 5)
    assert moved.is_contiguous()
    for b in range(5):
        assert torch.equal(moved[..., b], matrices[b])


def test_inputs_are_left_unchanged():
    x, y = normal(2, 3, 5, seed=1), normal(3, 4, 5, seed=2)
    before = x.clone(), y.clone()
    product(x, y)
    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])
