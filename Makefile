# Sesame: raw text to downstream scores. `make help` lists the targets; each of them sets up .venv by itself.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3.11
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Nothing phones home, and compiled helpers stay inside the checkout (of another user: in the cache folder of this one).
export RAY_USAGE_STATS_ENABLED := 0
export MLFLOW_DISABLE_TELEMETRY := true
export DO_NOT_TRACK := true
export HF_HUB_OFFLINE := 1
export TORCH_EXTENSIONS_DIR := $(CURDIR)/.venv/torch_extensions
export TOKENIZERS_PARALLELISM := true

RECIPE ?= bert_base
SCALE ?= tiny
OUT ?= work
ARGS ?=
PROMPTS ?= Return the,If the file,The name of the
READY := .venv/.ready

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(READY) ## create .venv and install everything, pinned
$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "Sesame needs Python 3.11: name it with 'make setup PYTHON=/path/to/python3.11'" >&2; exit 2; }
	@test -w . -a \( ! -e .venv -o -w .venv \) || { echo "setup: $(CURDIR) is not yours to write to: its owner runs 'make setup', or clone it into a folder of yours" >&2; exit 2; }
	@test -x .venv/bin/python || { echo "setup: creating .venv"; $(PYTHON) -m venv .venv; }
	@echo "setup: installing the pinned packages (a few minutes; 2 GB, or 6.4 GB where the index has the CUDA build of torch)"
	@python -m pip install --quiet --disable-pip-version-check --no-compile torch==2.13.0 -c constraints.txt
	@python -m pip uninstall --quiet --quiet --disable-pip-version-check --yes sesame # what Sesame was called before; not there: no matter
	@python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[pipeline,training,orchestration,dev,docs]' -c constraints.txt
	@echo "setup: compiling them, so that no process does it anew (a minute)"
	@python -m compileall -qq -j 0 .venv/lib preprocessing pipeline training orchestration sesame.py || true # some are examples of bad syntax
	@DS_ACCELERATOR=cpu python -c 'from training.engines import ops; ops.setup()'
	@touch $@

# a process for each core, four at most; tests of one module stay together, as they share what is costly to make; what
# pytest makes of the tests is kept in __pycache__, as each of these processes reads all of them
PYTEST := PYTHONDONTWRITEBYTECODE= python -m pytest -q -n logical --maxprocesses 4 --dist loadscope

demo: $(READY) ## the main job on real text, from documentation to scores in MLflow (minutes on two cores)
	@sesame run gpt2 --scale tiny --data demo --output-dir $(OUT) "eval_tasks=[source_classification,cloze]" "cluster.sample_prompts=[$(PROMPTS)]" $(ARGS)
	@echo "look at it with: make ui    (or .venv/bin/sesame inspect gpt2 --scale tiny --data demo --step 100)"

run: $(READY) ## every stage of RECIPE at SCALE: make run RECIPE=gpt2 ARGS="--data PATH"
	@sesame run $(RECIPE) --scale $(SCALE) --output-dir $(OUT) $(ARGS)

corpus: $(READY) ## tokenizer and Arrow corpus of RECIPE
	@sesame corpus $(RECIPE) --scale $(SCALE) --output-dir $(OUT) $(ARGS)

train: $(READY) ## pretrain RECIPE; resumes by itself
	@sesame train $(RECIPE) --scale $(SCALE) --output-dir $(OUT) $(ARGS)

eval: $(READY) ## downstream scores of RECIPE's run
	@sesame eval $(RECIPE) $(if $(wildcard $(RECIPE)/),,--scale $(SCALE)) --output-dir $(OUT) $(ARGS)

table: $(READY) ## a table of the literature at SCALE: make table TABLE=albert-sp
	@sesame ablation $(TABLE) --scale $(SCALE) --output-dir $(OUT) $(ARGS)

cluster-up: $(READY) ## a Ray cluster of this machine alone: a head and two raylets on 127.0.0.1, with a token
	@python -m orchestration.launch.local_cluster up

cluster-down: $(READY) ## end it
	@python -m orchestration.launch.local_cluster down

submit: $(READY) ## send RECIPE at SCALE to it: make submit RECIPE=gpt2 ARGS="--data PATH"
	@RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$$(python -c 'from orchestration.launch.local_cluster import FOLDER; print(FOLDER)')/token" \
		sesame submit $(RECIPE) --scale $(SCALE) --output-dir $(OUT) --address http://127.0.0.1:8265 $(ARGS)

ui: $(READY) ## the MLflow UI on 127.0.0.1
	@sesame ui --output-dir $(OUT) $(ARGS)

doctor: $(READY) ## what this machine has and lacks, each with its remedy
	@sesame doctor $(ARGS)

test: $(READY) ## the fast tests, doctests among them
	@$(PYTEST) $(ARGS)

test-all: $(READY) ## every test, slow ones too
	@$(PYTEST) -m "not gpu" $(ARGS)

family: $(READY) ## every recipe end to end at tiny scale, and a table of it
	@python -m tests.family_run $(ARGS)

# each day another third, six steps of each, on a megabyte of text, from the start
third: $(READY) ## a third of the recipes end to end, as CI does it
	@rm -rf work/third
	@python -m tests.family_run --third $$(date +%-j) --text python,numpy --max-steps 6 --output-dir work/third $(ARGS)

parity: $(READY) ## every layout beside one process: a table of their losses (ten minutes on two cores)
	@python -m tests.parity $(ARGS)

# as root, as it mounts a small disk and makes networks and control groups; else those points are left out, by name
chaos: $(READY) ## runs that are killed, stopped, cut off, starved and damaged, and must end as if nothing had been
	@python -m tests.chaos $(ARGS)

check: $(READY) ## format, lint, types, import contracts; doctests are among the tests
	@ruff format --check . && ruff check . && mypy && lint-imports --no-logo --no-cache

docs: $(READY) ## build the documentation site in build/docs; fail if a generated page differed
	@python -m docs.generate
	@python -m sphinx -q -W --keep-going -j auto -b html docs build/docs
	@echo "docs: build/docs/index.html"

pictures: $(READY) ## draw the pictures of docs/pictures from real output; two of them need chromium
	@python -m docs.draw $(ARGS)

fix: $(READY) ## format and mend what ruff can
	@ruff format . && ruff check --fix .

golden: $(READY) ## rewrite tests/golden; read the difference before you commit it
	@python -m tests.golden.write

release: $(READY) ## check version, tag and changelog, build the wheel and try it in an empty environment (ARGS=--dry-run: no tag)
	@python -m tests.release $(ARGS)

bench: $(READY) ## the figures of the README, measured here
	@python benchmarks/masking.py $(ARGS)

bench-corpus: $(READY) ## the corpus job beside datatrove, megatron-core, datasets; needs ../shared/data
	@python benchmarks/corpus.py --make-envs
	@python benchmarks/corpus.py $(ARGS)
	@python benchmarks/beam.py

bench-step: $(READY) ## a training step beside transformers, at the published sizes
	@python benchmarks/step.py $(ARGS)

bench-scale: $(READY) ## memory, bytes and time of ZeRO's stages, checkpoints, Ray's overhead and the start, beside their plans
	@python -m benchmarks.memory $(ARGS)
	@python -m benchmarks.scale $(ARGS)

witness: $(READY) ## likelihoods beside lm-eval and minicons, in an environment of their own; needs ../shared/data
	@python benchmarks/witness.py

pin: $(READY) ## write constraints.txt anew from .venv
	@{ echo '# Every package that `make setup` installs, pinned; tried together. Written by `make pin`.'; python -m pip freeze --exclude-editable | sed 's/+cpu//'; } >constraints.txt

clean: ## remove what was built, .venv too; work/ stays
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build *.egg-info

.PHONY: help setup demo family third parity chaos run corpus train eval table ui cluster-up cluster-down submit doctor test test-all check docs pictures fix golden release bench bench-corpus bench-step bench-scale witness pin clean
