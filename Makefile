# Everything is installed into .venv, the peers of the benchmarks into .venv-peers, from the exact versions of
# constraints.txt and constraints-peers.txt; nothing outside this folder changes.

PYTHON ?= python3
WORKERS ?= 2
PYTEST_ARGS ?=

BIN := .venv/bin
# Byte-compiling what is never imported would take as long as the rest: modules are compiled on their first import.
INSTALL := $(BIN)/pip install -qq --no-input --disable-pip-version-check --progress-bar off --no-compile
INSTALL_PEERS := $(subst $(BIN),.venv-peers/bin,$(INSTALL))
TORCH := $(shell grep '^torch==' constraints.txt)
PIN_PIP := $(shell grep '^pip==' constraints.txt)
# One thread per test process: the processes already share the cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS)

# That first import has to be kept, or every start of a command would compile anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help quickstart install install-dev peers test test-all lint format build clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

quickstart: install ## Install, train the English-German phrases model on the CPU, show how to translate
	$(BIN)/transformer-train
	@bundle=$$(dirname "$$(ls -t $$(find runs -name model.safetensors) | head -n 1)") && \
	printf '\nTranslate with your model:\n  echo "we meet on Sunday, May 11, 2031 at 7:21 AM" | %s %s\n' $(BIN)/transformer-translate "$$bundle"

install: .venv/.runtime ## Install the package and what it needs at run time

install-dev: .venv/.dev ## Install also the loggers, the tests and the linters

peers: .venv-peers/.installed ## Install what the benchmarks compare with into .venv-peers

test: lint ## Run the linters and all fast tests
	$(PYTEST) -m "not slow and not gpu" $(PYTEST_ARGS)

test-all: lint ## Run the linters and all tests, also slow ones (those for a GPU skip where there is none)
	$(PYTEST) $(PYTEST_ARGS)

lint: install-dev ## Check style, types and the import order of the layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install-dev ## Format the code and fix what can be fixed automatically
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

build: install-dev ## Build the wheel into dist/
	$(BIN)/python -m build --wheel --no-isolation

clean: ## Remove the environment, caches and built files (keeps runs/)
	rm -rf .venv .venv-peers build dist .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis

# The current pip resolves twice as fast as the one that Python brings along. torch goes first, by its exact version:
# resolved along with the rest, a build for CUDA of several gigabytes may be chosen on a machine without a GPU.
.venv/.runtime: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python must be 3.11 or newer, but $(PYTHON) is %d.%d. Choose another: make PYTHON=python3.12 ..." % sys.version_info[:2])'
	@echo "Installing into .venv (about a minute) ..."
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@$(INSTALL) $(PIN_PIP)
	@$(INSTALL) -c constraints.txt $(TORCH)
	@$(INSTALL) -c constraints.txt -e .
	@touch $@

.venv/.dev: .venv/.runtime
	@echo "Installing the development tools into .venv ..."
	@$(INSTALL) -c constraints.txt -e '.[dev]'
	@touch $@

# In an environment of its own, for the peers want older versions of what the project needs:
#   .venv-peers/bin/python scripts/benchmark.py ...
.venv-peers/.installed: pyproject.toml constraints-peers.txt
	@echo "Installing the project and what the benchmarks compare with into .venv-peers ..."
	@test -x .venv-peers/bin/pip || $(PYTHON) -m venv .venv-peers
	@$(INSTALL_PEERS) $(shell grep '^pip==' constraints-peers.txt)
	@$(INSTALL_PEERS) -c constraints-peers.txt $(shell grep '^torch==' constraints-peers.txt)
	@$(INSTALL_PEERS) -c constraints-peers.txt -e '.[peers]'
	@touch $@
