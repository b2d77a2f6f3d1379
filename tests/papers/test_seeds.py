"""Other random numbers: the same verdicts, or the word that they cannot be told."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
FIRST_NORMAL = "from innerloop.papers.common import normal; print(normal(0, 1).item())"


def printed(script: str, block: str) -> str:
    environment = {**os.environ, "INNERLOOP_SEED_BLOCK": block}
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_every_block_draws_other_numbers_and_the_same_ones_again():
    drawn = [printed(FIRST_NORMAL, block) for block in ("0", "1", "2", "1")]
    assert len(set(drawn)) == 3
    assert drawn[1] == drawn[3]


@pytest.mark.slow
def test_every_verdict_is_the_same_for_five_blocks_of_seeds(tmp_path):
    command = [sys.executable, "tools/portable.py", "--seeds", "--folder", str(tmp_path)]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout
