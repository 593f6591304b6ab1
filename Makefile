# `make demo` and `make test` are all a newcomer needs: they set up what they use.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A second environment, for the newest versions of everything: the newest JAX needs a newer Python.
LATEST_PYTHON ?= $(shell for p in python3.12 python3.13 \
  ~/.pyenv/versions/3.12.*/bin/python3 ~/.pyenv/versions/3.13.*/bin/python3; do \
  $$p --version >/dev/null 2>&1 && echo $$p && break; done)
LATEST := .venv-latest
# What of the tests, and of those that compile for accelerators; CI takes a part.
LATEST_TESTS ?= tests
LATEST_COMPILED ?= tests
# The tests of one file share what they train and compile, so they stay in one worker.
WORKERS := -n auto --maxprocesses=4 --dist loadfile

# On Linux memory comes in huge pages: training on CPU takes up to a fifth less time
# (docs/benchmarks.md).
export GLIBC_TUNABLES ?= glibc.malloc.hugetlb=1

# Shapes and types are checked against the annotations of these modules while the tests run.
TYPED := capsjax.functional,capsjax.losses,capsjax.routing,capsjax.layers,capsjax.models,$\
capsjax.evaluation,capsjax.data.accuracy,capsjax.data.images,capsjax.data.splits,$\
capsjax.data.transforms,capsjax.runs.history,capsjax.training.optimizers,capsjax.training.step
TYPES := --jaxtyping-packages=$(TYPED),beartype.beartype

.PHONY: help demo test test-all latest-python test-latest test-accelerators compile-accelerators reproduce-smoke \
  docs clean

help: ## Lists the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The environment is up to date while it is newer than what defines it.
$(VENV)/installed: setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "capsjax needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

demo: $(VENV)/installed ## Trains on handwritten digits, reports and evaluates: three minutes on two cores
	$(BIN)/python experiments/train.py --config=configs/digits.py --workdir=runs/demo
	$(BIN)/python experiments/report.py runs/demo
	$(BIN)/python experiments/evaluate.py --checkpoint=runs/demo

test: $(VENV)/installed ## Lint, types and the default test suite, annotations checked
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest $(WORKERS) $(TYPES) -m 'not slow and not accelerators'

test-all: $(VENV)/installed ## The slow tests too, with programs compiled as users compile them
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(BIN)/python -m pytest $(WORKERS) $(TYPES) -m 'not accelerators'

latest-python:
	@test -n "$(LATEST_PYTHON)" && echo "$(LATEST_PYTHON)"

$(LATEST)/installed: setup.cfg pyproject.toml
	@test -n "$(LATEST_PYTHON)" || \
	  { echo "no python3.12 or python3.13 here; set LATEST_PYTHON=/path/to/python3.13"; exit 1; }
	$(LATEST_PYTHON) -m venv $(LATEST)
	$(LATEST)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade \
	  --upgrade-strategy eager --editable '.[test]'
	$(LATEST)/bin/python experiments/compile.py --fetch
	@touch $@

test-latest: $(LATEST)/installed ## The default suite and the compilations, with the newest versions of everything
	$(LATEST)/bin/python -m pytest $(WORKERS) -m 'not slow and not accelerators' $(LATEST_TESTS)
	$(LATEST)/bin/python -m pytest $(WORKERS) -m accelerators $(LATEST_COMPILED)

test-accelerators: $(VENV)/installed ## Compiles for TPUs and GPUs (no device needed; fetches 1.3 GB once)
	$(BIN)/python experiments/compile.py --fetch
	$(BIN)/python -m pytest $(WORKERS) -m accelerators tests

compile-accelerators: test-accelerators ## The list behind docs/accelerators.md; resumes if stopped
	$(BIN)/python experiments/compile.py --list

reproduce-smoke: $(VENV)/installed ## All 25 tables and figures, at the smallest scale
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(BIN)/python -m pytest -n 2 -m slow -k every_name_at_smoke_scale tests/experiments/test_reproduce.py

docs: $(VENV)/installed-docs ## Builds docs/_build/html and runs its notebooks, warnings as errors
	$(BIN)/sphinx-build -W --keep-going -q docs docs/_build/html

clean: ## Removes the environment and everything that was built
	rm -rf $(VENV) $(LATEST) build dist *.egg-info docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
