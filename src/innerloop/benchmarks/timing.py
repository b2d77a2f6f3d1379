"""Timing of a call: the least of several repeats, which disturbs least on a shared machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


def seconds(call: Callable[[], object], repeats: int = 5) -> float:
    """After one call that warms up, the shortest of `repeats`."""
    return in_turn({"": call}, repeats)[""]


def in_turn(calls: Mapping[str, Callable[[], object]], repeats: int = 5) -> dict[str, float]:
    """The same of several, one after the other again and again: what disturbs the machine for a
    while then disturbs all of them, and their ratio less."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: min(found) for name, found in times.items()}
