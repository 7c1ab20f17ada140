# Two commands do everything on a fresh machine: `make up` starts the whole system, `make test` tests it.
.DEFAULT_GOAL := help
.PHONY: help setup tools up demo test test-long torture check bench clean

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
    command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' && echo $$p && break; done)
VENV := .venv
RUN := $(VENV)/.ready-to-run
DEVELOP := $(VENV)/.ready-to-develop
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
ARGS ?=
SEED ?= 1
MINUTES ?= 20
FAULT ?=

help:  ## show this
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(RUN)  ## make .venv with a working detent in it

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "detent needs Python 3.11 or newer: install it, or name one with PYTHON=…" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	    echo "this Python cannot make a virtual environment: install its venv package (Debian: apt install python3-venv)" >&2; exit 1; }

$(RUN): pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing detent and PostgreSQL into $(VENV), once; this takes about a minute" >&2
	@$(PIP) -e .
	@touch $(RUN)

# What tests, checks and measurements need besides.
$(DEVELOP): pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing what tests and checks need into $(VENV), once; this takes about two minutes" >&2
	@$(PIP) -e '.[dev]'
	@touch $(RUN) $(DEVELOP)

# What the tests need beyond Python packages, where it may be installed; elsewhere those tests say why they skip.
tools:
	@{ command -v chromium && command -v faketime; } >/dev/null || ! command -v apt-get >/dev/null || test "$$(id -u)" != 0 || { \
	    echo "installing chromium and faketime, for the tests of pages and clocks" >&2; \
	    export DEBIAN_FRONTEND=noninteractive; \
	    apt-get update -qq >/dev/null && \
	    apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core faketime >/dev/null; } || true

up: setup  ## start the whole system (ARGS="--port 9000 --import my.tasks")
	@exec $(VENV)/bin/detent up $(ARGS)

demo: setup  ## see jobs happen on a temporary system, for half a minute at most
	@$(VENV)/bin/detent demo $(ARGS)

test: $(DEVELOP) tools  ## run the tests
	@$(VENV)/bin/python -m pytest -q -m "not long" $(ARGS)

test-long: $(DEVELOP) tools  ## run the tests and the whole sweeps
	@$(VENV)/bin/python -m pytest -q $(ARGS)

torture: $(DEVELOP)  ## kill, stop and starve running systems for a while (SEED=1 MINUTES=20 FAULT="one worker")
	@FAULT="$(FAULT)" $(VENV)/bin/python tests/fault/torture.py $(SEED) $(MINUTES)

check: $(DEVELOP)  ## lint, types, architecture
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check -q .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports

bench: $(DEVELOP)  ## measure, beside the raw database and other schedulers
	@$(VENV)/bin/python -m bench $(ARGS)

clean:  ## remove what was built; data folders stay
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
