"""What is installed is what is here: records and pages ship in the wheel."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EVALUATED = """
from innerloop.cli import main
import innerloop, sys
assert innerloop.__file__.startswith(sys.argv[1]), innerloop.__file__
raise SystemExit(main(["evaluate", "zhang2023/gpt2-random", "--samples", "100"]))
"""


@pytest.mark.slow
def test_a_wheel_carries_the_records_and_answers_from_them(tmp_path):
    copy = tmp_path / "source"  # a build leaves files beside what it builds
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", tmp_path, copy], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "site")
        inside = set(file.namelist())
    records = [p for p in (ROOT / "src/innerloop/records").rglob("*") if p.is_file()]
    assert {p.relative_to(ROOT / "src").as_posix() for p in records} <= inside
    said = subprocess.run(
        [sys.executable, "-c", EVALUATED, tmp_path / "site"],
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert "the model" in said.stdout
