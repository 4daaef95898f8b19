# Every target makes and uses .venv by itself; nothing but Python 3.11+ is needed.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= $(shell command -v python3.11 || command -v python3)
SUITE ?= core
MINUTES ?= 60
BIN := .venv/bin
STAMP := .venv/.made-by-make
LINTED := whiflash services tests protos deploy

.PHONY: help venv demo test test-gpu check fix bench bench-full soak

help:  ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "make: Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade -c constraints.txt pip setuptools
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

venv: $(STAMP)  ## make .venv

demo: $(STAMP)  ## agent sessions with and without drafting, the same text
	$(BIN)/whiflash demo $(ARGS)

test: $(STAMP)  ## all tests but `soak`, in parts
	$(BIN)/python tests/parts.py $(ARGS)

test-gpu:  ## tests marked gpu, in the current interpreter, without .venv
	python3 -m pytest -m gpu -p no:cacheprovider $(ARGS)

check: $(STAMP)  ## format, lint, types, import order, stubs, rendered benchmarks; changes no source
	$(BIN)/ruff format --check $(LINTED)
	$(BIN)/ruff check $(LINTED)
	$(BIN)/lint-imports
	$(BIN)/python protos/generate.py --check
	$(BIN)/python protos/buf.py --check
	$(BIN)/python -m whiflash.bench.render --check
	$(BIN)/python -m whiflash.serving.openai.render --check
	$(BIN)/mypy

fix: $(STAMP)  ## format, mend what can be mended, write stubs, render the benchmarks
	$(BIN)/ruff check --fix $(LINTED)
	$(BIN)/ruff format $(LINTED)
	$(BIN)/python protos/generate.py
	$(BIN)/python protos/buf.py
	$(BIN)/python -m whiflash.bench.render
	$(BIN)/python -m whiflash.serving.openai.render

bench: $(STAMP)  ## run SUITE=core and render its results
	$(BIN)/whiflash bench $(SUITE) $(ARGS)
	$(BIN)/python -m whiflash.bench.render

bench-full: $(STAMP)  ## the suite routing for hours, with all rules; goes on where it was ended
	$(BIN)/whiflash bench routing --full $(ARGS)
	$(BIN)/python -m whiflash.bench.render

soak: $(STAMP)  ## random exactness runs and faults, MINUTES=60 each, resumable
	$(BIN)/python -m pytest -m soak --timeout=0 -s --soak-minutes=$(MINUTES) $(ARGS)
	$(BIN)/python -m whiflash.bench.render
