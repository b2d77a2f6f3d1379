"""`python -m tests.mutations`: the score, and what a mutation should have moved and did not."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from itertools import chain

from innerloop import papers
from innerloop.papers import Outcome
from tests.mutations.runner import Trial, automatic, baseline, public_functions, run

NOT_SHOWN = (Outcome.INCONCLUSIVE, Outcome.FAILS)
"""What trainings do not show cannot be lost: such figures are mutated on records that are made for
it, in tests/papers."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*", help="papers or claims; none means all")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--table", action="store_true", help="without the automatic mutations")
    options = parser.parse_args()
    chosen = {entry.id for entry in papers.select(options.ids)}
    tables = [import_module(f"tests.mutations.{key}") for key in papers.PAPERS]
    mutations = list(chain.from_iterable(table.MUTATIONS for table in tables))
    excused = {pair: why for table in tables for pair, why in table.EXCUSED.items()}
    known = baseline(chosen, options.workers)
    trials = [(m, id) for m in mutations for id in m.ids if id in chosen]
    trials += [] if options.table else automatic(known)
    trials = [(m, id) for m, id in trials if known[id][0] not in NOT_SHOWN]
    done = []
    for trial in run(trials, known, options.workers):
        done.append(trial)
        if sys.stderr.isatty():
            print(f"\r{len(done)} of {len(trials)}", end="", file=sys.stderr)
    if not options.ids:
        called = set().union(*(functions for _, functions in known.values()))
        for name in sorted(set(public_functions()) - called):
            print(f"UNCALLED  {name}: by no claim")
    return report(done, excused, known)


def report(
    done: list[Trial], excused: dict[tuple[str, str], str], known: dict[str, tuple[str, frozenset]]
) -> int:
    """Prints what survived, what nothing touches, and the score; 1 if anything should not be so."""
    survived = [t for t in done if not t.noticed and (t.what, t.id) not in excused]
    touched = {t.id for t in done if t.noticed}
    not_shown = {id: outcome for id, (outcome, _) in known.items() if outcome in NOT_SHOWN}
    untouched = sorted(set(known) - touched - set(not_shown))
    stale = [t for t in done if t.noticed and (t.what, t.id) in excused]
    for trial in sorted(survived, key=lambda t: (t.id, t.what)):
        print(f"SURVIVED  {trial.id}: {trial.what} ({trial.target}); still {trial.after}")
    for id in untouched:
        print(f"UNTOUCHED {id}: no mutation moves it")
    for id, outcome in sorted(not_shown.items()):
        print(f"NOT SHOWN {id}: {outcome} before any mutation")
    for trial in stale:
        print(f"STALE     {trial.id}: {trial.what} is excused and was noticed")
    count = sum(t.noticed for t in done)
    due = count + len(survived)
    mutations = len({t.what for t in done})
    print(
        f"{count} of {due} noticed ({count / max(due, 1):.1%}), {len(done) - due} excused, "
        f"{mutations} mutations, {len(untouched)} claims untouched"
    )
    return 1 if survived or untouched or stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
