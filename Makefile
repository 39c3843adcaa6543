# privbench: `make help` lists the targets. Needs make and Python 3.11 to 3.14 with venv; everything else goes into .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOG    := $(VENV)/pip.log
HOME_OF_DAGSTER := $(CURDIR)/.dagster_home

# pip compiles nothing (see below); if Python could not keep what it compiles either, every command that a test starts
# would compile all of its libraries again, which takes four times as long as the rest of a short command.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

.PHONY: demo
demo: $(VENV)/.runtime ## Run the whole pipeline on an example and say where the bundle is (eight tables: make demo EXAMPLE=shop).
	@$(BIN)/privbench demo --example $(or $(EXAMPLE),households)

.PHONY: test
test: $(VENV)/.dev ## Lint, types, layers, documentation, and all tests beside them.
	@$(MAKE) --no-print-directory --jobs=2 lint tests

# Two processes test, so each has one thread for products of matrices. With as many as there are processors, they wait for
# each other: tests of copulas and of columns that follow others take 2.7 times the CPU.
ONE_EACH := OPENBLAS_NUM_THREADS=1

.PHONY: tests
tests: $(VENV)/.dev
	@$(ONE_EACH) $(BIN)/python -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder --durations=20

.PHONY: coverage
coverage: $(VENV)/.dev ## Run all tests and show the lines that none reaches; fails below 90%, and takes half as long again.
	@$(ONE_EACH) $(BIN)/python -m pytest --numprocesses=2 --dist=loadfile --cov --cov-report=term

.PHONY: slow
slow: $(VENV)/.dev ## Run the slow tests: bigger audits, two hundred kills, all combinations, other examples.
	@$(BIN)/python -m pytest -m slow
	@$(BIN)/python -m pytest --hypothesis-profile=exploring tests/property

.PHONY: lint
lint: $(VENV)/.dev ## Check style, formatting, types, the layers of the packages, and the documentation.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(MAKE) --no-print-directory docs

.PHONY: docs
docs: $(VENV)/.dev ## Build the documentation site into site/; a broken link fails.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.PHONY: fmt
fmt: $(VENV)/.dev ## Format the code, and fix what can be fixed automatically.
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

# A shell that starts `make ui &` makes it ignore interrupts, and Dagster gives SIGTERM the handler of interrupts. Without
# either nothing ends it, so interrupts are heard again. `exec` passes SIGTERM on: it would end the shell of this line alone.
DAGSTER := import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); runpy.run_module("dagster")

.PHONY: ui
ui: $(VENV)/.ui ## Open Dagster's user interface on http://127.0.0.1:3000 (another port: make ui PORT=3001).
	@mkdir -p $(HOME_OF_DAGSTER)
	@cp dagster.yaml $(HOME_OF_DAGSTER)/dagster.yaml
	@DAGSTER_HOME=$(HOME_OF_DAGSTER) PATH="$(CURDIR)/$(BIN):$$PATH" \
		exec $(BIN)/python -c '$(DAGSTER)' dev --workspace workspace.yaml --host 127.0.0.1 --port $(or $(PORT),3000)

.PHONY: bench
bench: $(VENV)/.dev $(VENV)/.peers ## Run the benchmarks and write the tables of benchmarks/results.
	@$(BIN)/python -m benchmarks

.PHONY: clean
clean: ## Remove the environment, caches, the demo and the local state of Dagster; ledgers beside specs stay.
	rm -rf $(VENV) .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	rm -rf build dist demo demo-shop site .dagster_home .tmp_dagster_home_*
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# A stamp file per set of packages: installed again only when what is to be installed has changed.
# What pip says goes to a log; the end of it is shown if pip fails. Python compiles what it imports, a small part of all.
install = $(1)/python -m pip --disable-pip-version-check --no-color install --no-compile --progress-bar off $(2) > $(LOG) 2>&1 || \
	{ tail -n 15 $(LOG) >&2; echo "make: pip failed with $$($(1)/python --version); all it said is in $(LOG). Tested are Python 3.11 to 3.14: make clean, then make PYTHON=python3.11" >&2; exit 1; }

$(VENV)/.python:
	@command -v $(PYTHON) > /dev/null || { echo "make: there is no $(PYTHON). Install Python 3.11, or say which one to use: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: $(PYTHON) is $$($(PYTHON) --version 2>&1), too old. Python 3.11 to 3.14 is needed: make PYTHON=python3.11" >&2; exit 1; }
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || \
		{ rm -rf $(VENV); echo "make: $(PYTHON) cannot make a virtual environment. On Debian: apt install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.runtime: $(VENV)/.python pyproject.toml constraints.txt
	@echo "Installing privbench into $(VENV) (about a minute the first time) ..."
	@$(call install,$(BIN),--constraint constraints.txt --editable .)
	@touch $@

$(VENV)/.ui: $(VENV)/.python pyproject.toml constraints.txt
	@echo "Installing privbench and Dagster's user interface into $(VENV) (about a minute the first time) ..."
	@$(call install,$(BIN),--constraint constraints.txt --editable '.[ui]')
	@touch $@ $(VENV)/.runtime

$(VENV)/.dev: $(VENV)/.python pyproject.toml constraints.txt
	@echo "Installing privbench and its tools into $(VENV) (about a minute the first time) ..."
	@$(call install,$(BIN),--constraint constraints.txt --editable '.[dev]')
	@touch $@ $(VENV)/.runtime $(VENV)/.ui

# The peers pin old versions of what privbench needs in new ones, so they have an environment of their own inside of it.
$(VENV)/.peers: $(VENV)/.python benchmarks/peers.txt
	@echo "Installing what the benchmarks compare with into $(VENV)/peers ..."
	@$(PYTHON) -m venv $(VENV)/peers
	@$(call install,$(VENV)/peers/bin,--requirement benchmarks/peers.txt)
	@touch $@
