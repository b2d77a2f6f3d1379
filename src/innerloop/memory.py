"""Whether something fits into memory, asked before it is made."""

from __future__ import annotations

import os

FLOAT64 = 8
"""Bytes of a number in double precision."""
SHARE = 0.8
"""Of the memory that is free; the rest is for what one does not count."""


def available_bytes() -> int:
    """Memory that is free now; a limit of the process's group counts where Linux tells it."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with open("/proc/meminfo") as file:
            fields = dict(line.split(":", 1) for line in file)
        free = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass  # not Linux: what sysconf says will do
    return free


def require_memory(what: str, size: int | float) -> None:
    """Refuses what would need more bytes than there are, with the estimate."""
    free = available_bytes()
    if size > SHARE * free:
        raise ValueError(
            f"{what} would need about {_amount(size)} of memory, of which {_amount(free)} are free"
        )


def _amount(size: int | float) -> str:
    size = min(size, 10**30)  # what is beyond a float has no digits that matter
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:,.1f} {unit}"
    return f"{size / 1e3:,.0f} kB"
