"""Deliberate errors that the claims of zhang2023 must notice."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

MUTATIONS: list[Mutation] = []

EXCUSED: dict[tuple[str, str], str] = {}
"""Mutations that a claim rightly does not notice, and why: (what, id) to the reason."""
