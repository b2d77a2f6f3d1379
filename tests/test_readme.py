"""The README's Python example runs, and prints what it says."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_python_example_is_short_and_prints_agreeing_numbers(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(code.strip().splitlines()) <= 15
    exec(compile(code, str(README), "exec"), {})
    theory, measured = capsys.readouterr().out.strip().splitlines()
    mean, error = (float(part) for part in measured.split("±"))
    assert abs(mean - float(theory)) < 4 * error
    assert f"{float(theory):.5f}" in README.read_text()
