# Targets for people who try or change imgcheck. Each sets up what it needs; `make demo` and `make test` are enough.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# A half-made environment is made anew.
.DELETE_ON_ERROR:

.PHONY: help demo test test-unit lint seeds bench docs schema clean

help:
	@echo "make demo       install into $(VENV) and check a small bundled image against two hosts"
	@echo "make test       install what the tests need and run all of them with real peers"
	@echo "make test-unit  the quick tests, offline"
	@echo "make lint       ruff and mypy"
	@echo "make seeds      print the table of recorded failures and what imgcheck says of each"
	@echo "make bench      measure imgcheck beside the tools used today"
	@echo "make docs       write docs/real-image.md again from real runs"
	@echo "make schema     write docs/schema/*.json again"
	@echo "make clean      remove $(VENV) and caches in this directory"

# python3 of Debian comes without ensurepip, which `python3 -m venv` needs.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("imgcheck needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || .ci/apt-install python3-venv
	@$(PYTHON) -m venv --clear $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml hatch_build.py $(wildcard imgcheck/binaries/kernels/*.[ch])
	@echo "installing imgcheck into $(VENV)"
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.test-installed: $(VENV)/.installed
	@echo "installing the libraries of the tests into $(VENV)"
	@$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@

.PHONY: peers
peers: $(VENV)/.test-installed
	@.ci/apt-install $$($(BIN)/python -m tests.tools)

demo: $(VENV)/.installed
	@$(BIN)/python demo/run.py

# What the tests of a file share is made once, so a file stays with one process; some of them take a GB.
PYTEST := $(BIN)/python -m pytest -q --numprocesses auto --maxprocesses 4 --dist loadfile

test: peers
	IMGCHECK_REQUIRE_TOOLS=1 $(PYTEST)

test-unit: $(VENV)/.test-installed
	$(PYTEST) -m "not slow"

lint: $(VENV)/.test-installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

seeds: peers
	@$(BIN)/python -m tests.seeds

bench: peers
	@$(BIN)/python -m bench.tf112
	@$(BIN)/python -m bench.speed
	@$(BIN)/python -m bench.gpu
	@$(BIN)/python -m bench.convert
	@$(BIN)/python -m bench.loader
	@$(BIN)/python -m bench.preflight

docs: peers
	@$(BIN)/python -m tests.end_to_end.record

schema: $(VENV)/.installed
	@$(BIN)/python docs/schema/generate.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis imgcheck/binaries/kernels/kernels.so
