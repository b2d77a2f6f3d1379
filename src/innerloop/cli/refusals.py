"""Which errors are answers to what was asked or to the state of the machine, and their sentence."""

from __future__ import annotations

import errno
import re

FULL = (errno.ENOSPC, errno.EDQUOT)
MEMORY = re.compile(r"out of memory|n[o']t (?:enough|allocate) memory|bad alloc", re.IGNORECASE)
BYTES = re.compile(r"(?:tried|trying) to allocate ([\d.]+) ?(\w+)")
SIZE = re.compile(r"size calculation overflow|integer multiplication overflow|Overflow when unpack")


def refusal(error: BaseException) -> str | None:
    """What to tell the user about an error; None if it can only be a defect of ours."""
    text = str(error)
    if isinstance(error, OSError):
        return _operating_system(error)
    if "No space left on device" in text:
        return f"the disk is full: {text}"
    told = isinstance(error, RuntimeError | ValueError) and MEMORY.search(text)
    if isinstance(error, MemoryError) or told:
        return f"not enough memory{_size(text)}; ask for less at once, or for smaller sizes"
    if isinstance(error, OverflowError) or SIZE.search(text):
        return f"a number is too large: {text.splitlines()[0]}"
    if isinstance(error, ValueError | FloatingPointError):
        return text
    return None


def _operating_system(error: OSError) -> str | None:
    if error.errno is None:  # it carries a sentence of ours
        return str(error)
    reason = "the disk is full" if error.errno in FULL else error.strerror
    return f"{reason}: {error.filename}" if error.filename is not None else reason


def _size(text: str) -> str:
    found = BYTES.search(text)
    if found is None:
        return f": {text}" if text else ""
    amount, unit = found.groups()
    if unit != "bytes":
        return f" for {amount} {unit}"
    return f" for {float(amount) / 1e9:,.1f} GB"
