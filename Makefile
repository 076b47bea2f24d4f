# Every target that a person or CI needs; `make help` lists them.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# The open benchmark of whole logs, as `python -m corpus.wild rebuild CLONES build/wild` makes it.
WILD ?= build/wild
# Further logs that the models of form and place learn from (`python -m corpus.form rebuild CLONES build/form`), and
# folders of whole logs that are not public.
FORM ?= build/form
WHOLE ?= $(wildcard ../shared/cases/whole ../shared/cases/injected ../shared/cases/seeds)
CASES ?= $(wildcard ../shared/cases/whole ../shared/cases/seeds ../shared/cases/dev ../shared/cases/injected) corpus/recorded corpus/written

.DEFAULT_GOAL := help
# One more than there are processors: tests with Ray, deadlines and a browser wait a third of their time.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
.PHONY: help setup test lint format types check rules corpus model similar evaluate accuracy verify-faults hostile fuzz endure bench docs man reports wheel pyz dist clean golden gate earned house relations blind wild

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# Not compiled while it is installed, which is done file by file in one process: COMPILE does it in all, and only what
# our tools import.
INSTALL := $(BIN)/pip install --quiet --no-compile
SELDOM := /(tests|rllib|tune|serve|llm|_inductor|onnx)/
COMPILE = $(BIN)/python -m compileall -q -j 0 -x '$(SELDOM)' $(VENV)/lib >/dev/null || true

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip

$(BIN)/nccl-triage: setup.cfg pyproject.toml | $(BIN)/pip
	$(INSTALL) --editable '.[dev]'
	@$(COMPILE)
	@touch $@

# The verifier's tests need PyTorch and Ray, which are large: only what runs them installs them.
$(VENV)/.with-torch: setup.cfg pyproject.toml | $(BIN)/pip
	$(INSTALL) --editable '.[dev,test]'
	@$(COMPILE)
	@touch $(BIN)/nccl-triage $@

setup: $(BIN)/nccl-triage  ## Create the virtual environment .venv with everything for development

# Compiled once here: every command that the tests start would compile what it imports, where nothing may be written.
test: $(VENV)/.with-torch  ## Run the tests (no GPU, no network)
	$(BIN)/python -m compileall -q analyzer corpus tests
	$(BIN)/python -m pytest -n $(WORKERS)

lint: setup  ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup  ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.with-torch  ## Check types
	$(BIN)/mypy

rules: setup  ## Test every rule by its samples and over the corpus
	$(BIN)/nccl-triage rules test --corpus corpus/recorded --corpus corpus/written

check: lint types rules test  ## Everything that must pass before a commit

CORPUS_VENV ?= .venv-corpus
$(CORPUS_VENV)/bin/torchrun: corpus/scenarios/requirements.txt
	$(PYTHON) -m venv $(CORPUS_VENV)
	$(CORPUS_VENV)/bin/pip install --quiet --upgrade pip
	$(CORPUS_VENV)/bin/pip install --quiet --requirement $<

corpus: $(CORPUS_VENV)/bin/torchrun  ## Record the scenarios that this machine allows (root for namespaces; hours), WHAT='ids'
	$(CORPUS_VENV)/bin/python -m corpus.scenarios $(WHAT)

model: setup  ## Train the shipped models again: the same logs give the same bytes, WILD=build/wild FORM=build/form WHOLE=FOLDERS
	PYTHONPATH=analyzer:. $(BIN)/python -m corpus.form train $(WHOLE) $(WILD) $(FORM) corpus/recorded --excerpts corpus/written \
		--output analyzer/nccl_triage/learned/form.json
	rm -rf build/generated
	$(BIN)/python -m corpus.generate set build/generated --count 300 --seed 1
	$(BIN)/nccl-triage model train corpus/recorded corpus/written build/generated --alone --force \
		--output analyzer/nccl_triage/classifier/model.json --examples analyzer/nccl_triage/classifier/examples.json.gz

similar: setup  ## Make the index of public threads again from corpus/written, WHAT=--measure scores what is shown of it
	PYTHONPATH=analyzer:. $(BIN)/python -m corpus.similar $(WHAT)

accuracy: setup  ## Measure rules alone, classifier alone and both; write docs/accuracy.md
	$(BIN)/python docs/build.py --ablation

evaluate: setup  ## Score the labelled cases, beside two naive baselines
	$(BIN)/nccl-triage evaluate --advice corpus/advice.jsonl $(CASES)

blind: setup  ## Score the logs of the open benchmark that nobody has seen, totals only, WILD=build/wild WHAT="--nvrx PYTHON --write"
	@PYTHONPATH=analyzer:. $(BIN)/python -m corpus.wild run $(WILD) --split blind --split sealed $(WHAT)

wild: setup  ## Score the open third of the benchmark and list what was wrong, WILD=build/wild WHAT=--write
	@PYTHONPATH=analyzer:. $(BIN)/python -m corpus.wild run $(WILD) --split open --misses $(WHAT)

relations: setup  ## Change recorded logs in ways that must not change the answer, and write the table (five minutes), WHAT=--misses
	PYTHONPATH=analyzer:. $(BIN)/python -m corpus.relations --write docs/accuracy.md $(WHAT)

verify-faults: $(VENV)/.with-torch  ## Prove the verifier on faulty worlds made for real (root for namespaces; half an hour), WHAT="--table eight --runs 2"
	$(BIN)/python -m corpus.verifier --write docs/verifier.md $(WHAT)

hostile: setup  ## Try the inputs that are far too large, whole (an hour), WHAT='one-line'
	PYTHONPATH=analyzer:. $(BIN)/python -m tests.hostile $(WHAT)

fuzz: setup  ## Fuzz with atheris a minute for each target, WHAT='rules --seconds 600'
	$(BIN)/pip install --quiet atheris
	PYTHONPATH=analyzer:. $(BIN)/python -m tests.fuzz $(WHAT)

endure: setup  ## Fuzz logs, dumps and reports in one process for an hour, follow a day, share history and cache, WHAT='--minutes 5'
	NCCL_TRIAGE_HISTORY=off PYTHONPATH=analyzer:. $(BIN)/python -m tests.endure $(WHAT)

golden: setup  ## Compare the documents of all labelled cases with those of a commit, BASE=HEAD
	$(BIN)/python -m corpus.gate.golden --base $(or $(BASE),HEAD)

gate: setup  ## Score the cases that no rule may be fitted to, WHAT=--misses
	@$(BIN)/python -m corpus.gate.scores $(WHAT)

earned: setup  ## Count the incidents that need each row, fact, method and signature (five minutes), WHAT=rows lists the rest
	@PYTHONPATH=analyzer:. $(BIN)/python -m corpus.gate.earned $(WHAT)

house: setup  ## Show how large the tree is and how it changed, SINCE=REV (the newest tag), WHAT='--format json'
	@PYTHONPATH=analyzer:. $(BIN)/python -m corpus.gate.house $(if $(SINCE),--since $(SINCE)) $(WHAT)

bench: setup  ## Compare the speed with public tools on generated logs of all kinds (an hour), see --help of both programs
	$(BIN)/pip install --quiet drain3
	$(BIN)/python tests/bench.py
	$(BIN)/python tests/bench_kinds.py

docs: setup  ## Rebuild the generated parts of the documentation, and the site in build/docs
	$(BIN)/pip install --quiet --editable '.[dev,docs]'
	$(BIN)/python docs/build.py
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs

man: setup  ## Write the man pages into build/man, for packagers
	$(BIN)/python docs/man.py build/man

reports: setup  ## Render the example reports again, with pictures of them (needs Chromium)
	$(BIN)/pip install --quiet --editable '.[browser]'
	$(BIN)/python -m reports.examples.render

wheel: setup  ## Build wheel and sdist in dist
	rm -rf build dist
	$(BIN)/python -m build --quiet

pyz: wheel  ## Build dist/nccl-triage-VERSION.pyz too: all but PyTorch in one file, for Python 3.10 to 3.13
	PYTHONPATH=analyzer $(BIN)/python docs/pyz/build.py dist/*.whl

dist: pyz  ## Build both, and try them in fresh environments of each Python that is here
	PYTHONPATH=analyzer:. $(BIN)/python -m tests.packages dist

clean:  ## Remove what the other targets made
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache analyzer/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
