# Sesame: raw text to downstream scores. `make help` lists the targets. Each target that needs .venv creates it first.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?=
PYTHONS := python3.13 python3.12 python3.11 python3
VENV ?= .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# No package may send usage data.
export RAY_USAGE_STATS_ENABLED := 0
export MLFLOW_DISABLE_TELEMETRY := true
export DO_NOT_TRACK := true
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := true

RECIPE ?= bert_base
SCALE ?= tiny
OUT ?= work
ARGS ?=
PROMPTS ?= Return the,If the file,The name of the
READY := $(VENV)/.ready

# The path of the first Python of PYTHONS that is one of 3.11 to 3.13 and has venv, or of PYTHON. A command may exist and
# fail: pyenv puts one of each installed version on PATH.
define CREATE_VENV
found=; bare=; \
for name in $(if $(PYTHON),"$(PYTHON)",$(PYTHONS)); do \
	path=$$("$$name" -c 'import sys; print(sys.executable if (3, 11) <= sys.version_info < (3, 14) else "")' 2>/dev/null) || path=; \
	test -n "$$path" || continue; \
	if "$$path" -c 'import ensurepip, venv' 2>/dev/null; then found=$$path; break; fi; \
	bare=$${bare:-$$path}; \
done; \
if test -z "$$found$$bare"; then \
	echo "setup: no Python 3.11, 3.12 or 3.13: got $(or $(PYTHON),none of $(PYTHONS)); install one, or set its path with 'make setup PYTHON=/path/to/python'" >&2; exit 2; \
fi; \
if test -z "$$found"; then \
	echo "setup: $$bare has no module venv or ensurepip: install it, on Debian and Ubuntu with 'apt install $$("$$bare" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')-venv'" >&2; exit 2; \
fi; \
echo "setup: creating $(VENV) with $$("$$found" --version) ($$found)"; \
"$$found" -m venv "$(VENV)"
endef

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(READY) ## Create .venv and install all pinned packages
$(READY): pyproject.toml constraints.txt
	@test -w . -a \( ! -e "$(VENV)" -o -w "$(VENV)" \) || { echo "setup: $(CURDIR) is not writable: ask its owner to run 'make setup', or clone the repository into your own directory" >&2; exit 2; }
	@test -x "$(VENV)/bin/python" || { $(CREATE_VENV); }
	@echo "setup: installing the pinned packages for $$(python --version) (minutes; about 2.5 GB, or 6 GB if the index has the CUDA build of torch)"
	@python -m pip install --quiet --disable-pip-version-check --no-compile torch==2.13.0 -c constraints.txt
	@python -m pip uninstall --quiet --quiet --disable-pip-version-check --yes sesame # the former name of the distribution, if installed
	@python -m pip install --quiet --disable-pip-version-check --no-compile --use-pep517 -e '.[pipeline,training,orchestration,fast,dev,docs]' -c constraints.txt
	@echo "setup: compiling them to bytecode (about a minute)"
	@python -W ignore::SyntaxWarning -m compileall -qq -j 0 $(VENV)/lib preprocessing pipeline training orchestration sesame.py || true # some packages have test files with invalid syntax
	@echo "setup: compiling kernels (half a minute)"
	@python -m orchestration.compile_kernels >/dev/null || echo "setup: kernels are not compiled; the first jobs compile theirs" >&2
	@touch $@

# One process per core, at most four. Tests of one module run in one process, because they share costly fixtures. Pytest
# may write __pycache__, because each process imports all test modules. Tests that run make get no variables of this one.
PYTEST := env -u MAKEFLAGS -u MAKEOVERRIDES -u MFLAGS -u VENV -u PYTHON -u VERSION PYTHONDONTWRITEBYTECODE= python -m pytest -q -n logical --maxprocesses 4 --dist loadscope

demo: $(READY) ## Pretrain a tiny GPT-2 on the installed documentation, and log its scores to MLflow (minutes on two cores)
	@sesame run gpt2 --scale tiny --data demo --output-dir $(OUT) "eval_tasks=[source_classification,cloze]" "cluster.sample_prompts=[$(PROMPTS)]" $(ARGS)
	@echo "show the run: make ui    (or $(VENV)/bin/sesame inspect gpt2 --scale tiny --data demo --step 100)"

run: $(READY) ## Run all stages of RECIPE at SCALE: make run RECIPE=gpt2 ARGS="--data PATH"
	@sesame run $(RECIPE) --scale $(SCALE) --output-dir $(OUT) $(ARGS)

corpus: $(READY) ## Build the tokenizer and the Arrow corpus of RECIPE
	@sesame corpus $(RECIPE) --scale $(SCALE) --output-dir $(OUT) $(ARGS)

train: $(READY) ## Pretrain RECIPE, or resume its run
	@sesame train $(RECIPE) --scale $(SCALE) --output-dir $(OUT) $(ARGS)

eval: $(READY) ## Evaluate the run of RECIPE on downstream tasks
	@sesame eval $(RECIPE) $(if $(wildcard $(RECIPE)/),,--scale $(SCALE)) --output-dir $(OUT) $(ARGS)

table: $(READY) ## Reproduce an ablation table of a paper at SCALE: make table TABLE=albert-sp
	@sesame ablation $(TABLE) --scale $(SCALE) --output-dir $(OUT) $(ARGS)

cluster-up: $(READY) ## Start a local Ray cluster on 127.0.0.1: a head and two raylets, with a token
	@python -m orchestration.launch.local_cluster up

cluster-down: $(READY) ## Stop the local Ray cluster
	@python -m orchestration.launch.local_cluster down

submit: $(READY) ## Submit RECIPE at SCALE to the local Ray cluster: make submit RECIPE=gpt2 ARGS="--data PATH"
	@RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$$(python -c 'from orchestration.launch.local_cluster import FOLDER; print(FOLDER)')/token" \
		sesame submit $(RECIPE) --scale $(SCALE) --output-dir $(OUT) --address http://127.0.0.1:8265 $(ARGS)

ui: $(READY) ## Serve the MLflow UI on 127.0.0.1
	@sesame ui --output-dir $(OUT) $(ARGS)

doctor: $(READY) ## Check this machine, and print a remedy for each problem
	@sesame doctor $(ARGS)

test: $(READY) ## Run the fast tests and the doctests
	@$(PYTEST) $(ARGS)

test-all: $(READY) ## Run all tests that need no GPU (hours)
	@$(PYTEST) -m "not gpu" $(ARGS)

test-python: ## Run the fast tests with another Python, in build/: make test-python VERSION=3.12
	@test -n "$(VERSION)" || { echo "test-python: missing version: got none, expected 3.11, 3.12 or 3.13; run 'make test-python VERSION=3.12'" >&2; exit 2; }
	@$(MAKE) --no-print-directory test VENV=build/python-$(VERSION) PYTHON="$(or $(PYTHON),python$(VERSION))"

family: $(READY) ## Run every recipe from text to scores at tiny scale, and print a table
	@python -m tests.family_run $(ARGS)

# Each recipe trains for six steps on a megabyte of text, in an empty output directory.
third: $(READY) ## Run one third of the recipes from text to scores; the day selects which third
	@rm -rf work/third
	@python -m tests.family_run --third $$(date +%-j) --text python,numpy --max-steps 6 --output-dir work/third $(ARGS)

parity: $(READY) ## Compare the losses of all parallel layouts with one process (ten minutes on two cores)
	@python -m tests.parity $(ARGS)

# Some faults need root, for a small disk, networks and control groups. Without root they are skipped and named.
chaos: $(READY) ## Inject faults into small runs, and compare the results with undisturbed runs
	@python -m tests.chaos $(ARGS)

check: $(READY) ## Check format, lint, types and import contracts
	@ruff format --check . && ruff check . && mypy && MYPYPATH=benchmarks/peers mypy benchmarks/peers/sesame_*.py && lint-imports --no-logo --no-cache

docs: $(READY) ## Build the documentation site in build/docs; fail if a generated page was out of date
	@python -m docs.generate
	@python -m sphinx -q -W --keep-going -j auto -b html docs build/docs
	@echo "docs: build/docs/index.html"

pictures: $(READY) ## Draw docs/pictures from real output (two pictures need chromium)
	@python -m docs.draw $(ARGS)

fix: $(READY) ## Format the code, and apply the corrections of ruff
	@ruff format . && ruff check --fix .

golden: $(READY) ## Rewrite tests/golden; read the difference before you commit it
	@python -m tests.golden.write

release: $(READY) ## Check version, tag and changelog, then build and test the wheel (ARGS=--dry-run needs no tag)
	@python -m tests.release $(ARGS)

bench: $(READY) ## Measure the speed of masking on this machine
	@python benchmarks/masking.py $(ARGS)

bench-corpus: $(READY) ## Compare the corpus job with datatrove, megatron-core and datasets (needs ../shared/data)
	@python benchmarks/corpus.py --make-envs
	@python benchmarks/corpus.py $(ARGS)
	@python benchmarks/beam.py

bench-step: $(READY) ## Compare a training step with transformers, at the published sizes
	@python benchmarks/step.py $(ARGS)

bench-scale: $(READY) ## Measure memory, communication and time of ZeRO stages, checkpoints and startup, and compare them with the plans
	@python -m benchmarks.memory $(ARGS)
	@python -m benchmarks.scale $(ARGS)

witness: $(READY) ## Compare likelihoods with lm-eval and minicons, in a separate environment (needs ../shared/data)
	@python benchmarks/witness.py

pin: $(READY) ## Rewrite constraints.txt from .venv
	@{ echo '# Every package that `make setup` installs, pinned; tested together. Written by `make pin`.'; python -m pip freeze --exclude-editable | sed 's/+cpu//'; } >constraints.txt

clean: ## Remove .venv, caches and build directories; keep work/
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build *.egg-info

.PHONY: help setup demo family third parity chaos run corpus train eval table ui cluster-up cluster-down submit doctor test test-python test-all check docs pictures fix golden release bench bench-corpus bench-step bench-scale witness pin clean
