"""A command as a user types it, in a folder of its own."""

import sys

import pytest

from innerloop.cli import main


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs a command that must end with this code; returns what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(*words, code=0):
        found = main(list(words))
        said = capsys.readouterr()
        assert found == code, said.err
        return said.out + said.err

    yield run
    sys.modules.pop("mine", None)
