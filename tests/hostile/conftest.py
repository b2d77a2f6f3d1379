import pytest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty present folder, and a terminal wide enough for a sentence."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    return tmp_path
