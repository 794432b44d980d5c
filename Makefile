# make demo: a first result.  make test: everything that must hold.  Both install what they need into .venv.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Two cores: one thread a worker is faster and steadier than two that share.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false

.PHONY: demo test lint format install bench clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[all,dev]"
	touch $@

demo: install
	$(BIN)/posterity demo

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: lint
	$(TEST_ENV) $(BIN)/python -m pytest -n 2

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.training_step

clean:
	rm -rf $(VENV) demo build dist
