# Every target that a person or CI needs; `make help` lists them.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
CASES ?= $(wildcard ../shared/cases/seeds ../shared/cases/dev ../shared/cases/injected) corpus

.DEFAULT_GOAL := help
.PHONY: help setup test lint format types check rules evaluate bench docs dist clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(BIN)/nccl-triage: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@

setup: $(BIN)/nccl-triage  ## Create the virtual environment .venv with everything for development

test: setup  ## Run the tests (no GPU, no network)
	$(BIN)/python -m pytest -n auto

lint: setup  ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup  ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup  ## Check types
	$(BIN)/mypy

rules: setup  ## Test every rule by its samples and over healthy logs
	$(BIN)/nccl-triage rules test --healthy corpus/healthy

check: lint types rules test  ## Everything that must pass before a commit

evaluate: setup  ## Score the labelled cases, beside two naive baselines
	$(BIN)/nccl-triage evaluate $(CASES)

bench: setup  ## Compare the speed with grep on generated logs
	$(BIN)/python tests/bench.py

docs: setup  ## Rebuild the generated parts of the documentation
	$(BIN)/python docs/build.py

dist: setup  ## Build wheel and sdist
	rm -rf build dist
	$(BIN)/python -m build --quiet

clean:  ## Remove what the other targets made
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache analyzer/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
