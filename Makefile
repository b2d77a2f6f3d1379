# Every target sets up what it needs. `make reproduce` and `make test` work first on a fresh clone.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup reproduce test test-slow check portable seeds mutate bench clean

setup: $(STAMP)

# torch first and by its pin alone, so that nothing else can ask for another build of it.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $(STAMP)

reproduce: $(STAMP)
	$(BIN)/innerloop reproduce

test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q

test-slow: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q -m slow

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Every entry under other vector instructions and threads: about an hour.
portable: $(STAMP)
	$(BIN)/python tools/portable.py

# Every entry with five disjoint blocks of seeds: about half an hour.
seeds: $(STAMP)
	$(BIN)/python tools/portable.py --seeds --folder runs/seeds

# Deliberate errors, and the claims that must notice them: the score.
mutate: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutations

bench: $(STAMP)
	$(BIN)/innerloop bench

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache runs report
