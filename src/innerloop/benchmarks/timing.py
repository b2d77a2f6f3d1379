"""Timing of a call: the least of several repeats, which disturbs least on a shared machine."""

from __future__ import annotations

import time
from collections.abc import Callable


def seconds(call: Callable[[], object], repeats: int = 5) -> float:
    """After one call that warms up, the shortest of `repeats`."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
