# make demo: a first result.  make test: everything that must hold.  Each installs what it needs, no more, into .venv.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
DEMO := $(VENV)/.demo
INSTALLED := $(VENV)/.installed
# Two cores: one thread a worker is faster and steadier than two that share.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false

.PHONY: demo test docs lint format install browser bench clean

install: $(INSTALLED)

$(DEMO): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[cli]"
	touch $@

$(INSTALLED): $(DEMO)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[all,export,huggingface,docs,dev]"
	touch $@

demo: $(DEMO)
	$(BIN)/posterity demo

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The report is tested in a real browser; installing one needs an administrator's rights, and is done once.
browser:
	@command -v chromium || command -v chromium-browser || command -v google-chrome || \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium) || \
		echo "Without Chromium the tests of the report in a browser are left out: install it, for example from your distribution."

test: lint browser
	$(TEST_ENV) $(BIN)/python -m pytest -n 2

# The site, in build/docs/html: every page is run, and a warning is an error.
docs: install
	$(TEST_ENV) $(BIN)/python -m sphinx -W --keep-going -q -d build/docs/trees docs build/docs/html
	@echo "Open build/docs/html/index.html."

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# What it costs on one thread, beside other libraries too (each in an environment of its own); writes docs/results/speed.md.
bench: install
	for part in training_step scores predict_memory peers speed_page; do \
		OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m benchmarks.$$part || exit 1; \
	done

clean:
	rm -rf $(VENV) demo build dist
