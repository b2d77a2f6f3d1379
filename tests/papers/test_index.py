"""Each paper's `__init__` says which module holds which statement."""

import re
from importlib import import_module

import pytest

from innerloop import index
from innerloop.papers import PAPERS


def listed(key):
    """The modules of a paper's docstring, and the ids that stand behind each."""
    text = import_module(f"innerloop.papers.{key}").__doc__
    _, *parts = re.split(r"^\s*(?:\w+/)*(\w+\.py):", text, flags=re.MULTILINE)
    blocks = (block.split("\n\n")[0] for block in parts[1::2])
    ids = (re.split(r"[,\s]+", block.strip(" \n.")) for block in blocks)
    return dict(zip(parts[::2], ids, strict=True))


@pytest.mark.parametrize("key", PAPERS)
def test_the_index_of_a_paper_names_every_entry_in_the_module_that_holds_it(key):
    found = {}
    for entry in index.entries().values():
        if entry.paper == key:
            found.setdefault(entry.file.rpartition("/")[2], []).append(entry.id.split("/")[1])
    stated = listed(key)
    for module, ids in found.items():
        assert sorted(stated.get(module, [])) == sorted(ids), (
            f"the docstring of papers/{key}/__init__.py must have the line "
            f"{module}: {', '.join(ids)}"
        )
    assert set(stated) == set(found), f"papers/{key}/__init__.py names a module without entries"
