"""Ids as a user types them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class UnknownIdError(ValueError):
    """No claim, figure or paper has this id."""


def choose(ids: Iterable[str], known: Iterable[str]) -> list[str]:
    """The known ids that are asked for, each once.

    A paper's key stands for all ids that begin with it; to ask for nothing is to ask for all.
    """
    every, wanted = list(known), list(ids)
    chosen: dict[str, None] = {}
    for id in wanted:
        matches = [key for key in every if key == id or key.split("/")[0] == id]
        if not matches:
            papers = dict.fromkeys(key.split("/")[0] for key in every)
            hint = nearest(id, [*every, *papers]) or "see `innerloop list`"
            raise UnknownIdError(f"no claim, figure or paper is called {id!r}; {hint}")
        chosen |= dict.fromkeys(matches)
    return list(chosen) if wanted else every


def nearest(name: str, candidates: Sequence[str]) -> str:
    """Says which names are nearest to one that is not known; empty if none is near."""
    near = difflib.get_close_matches(name, candidates, n=3, cutoff=0.4)
    near += [key for key in candidates if name and name in key and key not in near][: 3 - len(near)]
    return f"the nearest are {', '.join(near)}" if near else ""
