"""Which exceptions are the user's or the machine's, and which are ours."""

import errno

import pytest
import torch

from innerloop.cli.refusals import refusal


def raised(function):
    with pytest.raises(Exception) as error:  # noqa: PT011
        function()
    return error.value


def test_memory_that_torch_cannot_have_is_stated_in_gigabytes():
    error = raised(lambda: torch.empty(10**13, dtype=torch.float64))
    assert refusal(error).startswith("not enough memory for 80,000.0 GB;")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError(), "not enough memory; ask for less"),
        (raised(lambda: torch.empty(10**10, 10**10)), "a number is too large: Storage size"),
        (raised(lambda: float(10**400)), "a number is too large: int too large to convert"),
        (OSError(errno.ENOSPC, "No space left on device", "a/b"), "the disk is full: a/b"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), "Permission denied: x"),
        (FloatingPointError("the loss became nan in step 1"), "the loss became nan in step 1"),
        (ValueError("d must be at least 1, got 0"), "d must be at least 1, got 0"),
    ],
)
def test_an_error_of_input_or_machine_has_a_sentence(error, sentence):
    assert refusal(error).startswith(sentence)


@pytest.mark.parametrize(
    "error", [KeyError("x"), ZeroDivisionError(), RuntimeError("shapes differ"), AssertionError()]
)
def test_anything_else_is_a_defect(error):
    assert refusal(error) is None
