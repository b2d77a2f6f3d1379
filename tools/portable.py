"""Do the verdicts depend on the CPU, or on the seeds? Everything measured in other settings.

    python tools/portable.py              every entry at quick, all capabilities, 1 and 2 threads
    python tools/portable.py --seeds      every entry at quick, five disjoint blocks of seeds
    python tools/portable.py --ci         what continuous integration runs: the verdicts of
                                          `make reproduce` against ATEN_CPU_CAPABILITY=default

PyTorch chooses its vector instructions by ATEN_CPU_CAPABILITY. Rounding differs with them, and a
training that is chaotic turns the last digit into another result: a verdict must be about the
method. The same with other random numbers; there a verdict may also say *inconclusive*, which is
what a standard error that is too large is for. Exit code 1 if an entry has no verdict, or another
one than the reference.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from innerloop import papers
from innerloop.reproduction.dependencies import modules_behind

TRAINING = ("innerloop.training.trainer", "innerloop.training.lbfgs")
NO_VERDICT = "error"
Verdicts = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Setting:
    """How a machine is made to compute."""

    capability: str
    """default, avx2, ..., or "" for what the machine has."""
    threads: int = 1
    seeds: int = 0
    """Which block of seeds."""

    def __str__(self) -> str:
        threads = f"{self.threads} thread" + "s" * (self.threads > 1)
        seeds = f", seeds {self.seeds}" if self.seeds else ""
        return f"{self.capability or 'native'}, {threads}{seeds}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ci", action="store_true", help="smoke, and trained entries at quick")
    parser.add_argument("--seeds", action="store_true", help="blocks of seeds, as the machine is")
    parser.add_argument("ids", nargs="*", help="papers or entries; none means all")
    parser.add_argument("--folder", type=Path, default=Path("runs/portable"))
    options = parser.parse_args()
    native = Setting("")
    if options.ci:
        # Found on disk after `make reproduce`: nothing is measured twice.
        reference = measured(native, "quick", [], options.folder / "reference", runs=Path("runs"))
        other = Setting("default")
        compared = {
            f"{other}, smoke": measured(other, "smoke", [], options.folder / "default"),
            f"{other}, quick": measured(other, "quick", trained(), options.folder / "default"),
        }
    else:
        machines = [Setting(c, t) for c in ("", "avx2", "default") for t in (1, 2)]
        settings = [Setting("", seeds=k) for k in range(5)] if options.seeds else machines
        every = {
            str(s): measured(s, "quick", options.ids, options.folder / str(s)) for s in settings
        }
        reference = every.pop(str(settings[0]))
        compared = every
    faults = [f"reference: {id} has no verdict" for id in without_verdict(reference)]
    for name, verdicts in compared.items():
        faults += differences(name, reference, verdicts, or_undecided=options.seeds)
    print("\n".join(faults) or "every entry has a verdict, and the same in every setting")
    return 1 if faults else 0


def trained() -> list[str]:
    """The entries behind which there is a training."""
    behind = {id: modules_behind(entry.function) for id, entry in papers.entries().items()}
    return [id for id, modules in behind.items() if not modules.isdisjoint(TRAINING)]


def measured(
    setting: Setting, scale: str, ids: Sequence[str], folder: Path, runs: Path | None = None
) -> Verdicts:
    """Verdicts and numbers by id, of a process that computes in this way."""
    file = folder / f"{scale}.json"
    command = [sys.executable, "-m", "innerloop", "reproduce", *ids, "--scale", scale]
    command += ["--threads", str(setting.threads), "--json", str(file)]
    command += ["--runs", str(runs or folder / "runs"), "--report", str(folder / "report")]
    environment = dict(os.environ, INNERLOOP_SEED_BLOCK=str(setting.seeds))
    if setting.capability:
        environment["ATEN_CPU_CAPABILITY"] = setting.capability
    print(f"{setting}: {len(ids) or 'all'} entries at {scale}", flush=True)
    subprocess.run(command, env=environment, check=False, stdout=subprocess.DEVNULL)
    if not file.is_file():
        raise SystemExit(f"{' '.join(command)} wrote no verdicts")
    return {record["id"]: record for record in json.loads(file.read_text())}


def without_verdict(verdicts: Verdicts) -> list[str]:
    return [id for id, record in verdicts.items() if record["verdict"] == NO_VERDICT]


def differences(
    name: str, reference: Verdicts, verdicts: Verdicts, *, or_undecided: bool = False
) -> list[str]:
    """What is not the same, and, printed, how far numbers are apart."""
    excused = {"inconclusive"} if or_undecided else set()
    faults = [
        f"{name}: {id} is {record['verdict']!r}, not {reference[id]['verdict']!r}"
        for id, record in verdicts.items()
        if not {record["verdict"]} <= {reference[id]["verdict"], *excused}
    ]
    apart = {id: farthest(reference[id], record) for id, record in verdicts.items()}
    far = sorted((share, id) for id, share in apart.items() if share > 1e-6)[::-1]
    print(f"{name}: {len(far)} of {len(verdicts)} entries differ by more than 1e-6 of a tolerance")
    for share, id in far[:10]:
        print(f"  {id}: {share:.1e} of its tolerance")
    return faults


def farthest(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """The largest difference of a measurement, in units of its tolerance (or of itself)."""
    shares = [0.0]
    for quantity, value in one["measured"].items():
        again = other["measured"].get(quantity)
        if value is None or again is None:
            continue
        unit = max(abs(one["tolerance"][quantity] or 0.0), abs(value), 1e-300)
        shares.append(abs(value - again) / unit)
    return max(shares)


if __name__ == "__main__":
    raise SystemExit(main())
