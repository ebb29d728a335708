# Two commands matter on a fresh machine: `make demo` and `make test`. Each does its own set-up (requirements/setup.sh),
# names what the machine lacks before it changes anything, and starts within 3 seconds when called again.
# PYTHON=python3.12 picks an interpreter; GRIDOPS_WORKERS=1 runs the tests in one process. Three on two cores: the
# tests with real processes wait more than they compute.

.DEFAULT_GOAL := help
.PHONY: help demo test soak test-vllm lint checks unit bench docs lock venv venv-run clean

ifdef PYTHON
export PYTHON
endif

PY := .venv/bin/python
WORKERS := $(or $(GRIDOPS_WORKERS),3)
SEEDS ?= 20000
FIRST ?= 1

help:            ## this list
	@sed -n 's/^\([a-z-]*\): .*## /  make \1: /p; s/^\(help\): *## /  make \1: /p' Makefile

demo: venv-run   ## ten steps from a commit to a model that answers, with real parts
	@$(PY) -m examples.demo

test: checks     ## all checks, then every test
	@$(MAKE) --no-print-directory unit

unit: venv       ## every test (the tidy tests among them), without the checks
	@$(PY) -m pytest tests -n $(WORKERS) --dist loadfile

lint: checks     ## all checks and the tidy tests
	@$(PY) -m pytest tests/tidy -q

checks: venv     ## ruff, mypy --strict, import contracts
	@$(PY) -m ruff check .
	@$(PY) -m mypy
	@$(PY) -c 'from importlinter.cli import lint_imports_command as run; run()'

soak: venv       ## the long run: SEEDS of the simulator, each durable step of it, then every failpoint, damaged file and kill (over an hour)
	@$(PY) -m gridops.lab --talk $(FIRST) $$(($(SEEDS) * 4 / 5))
	@$(PY) -m gridops.lab $(FIRST) $$(($(SEEDS) / 5))
	@for story in 2 3; do $(PY) -m gridops.lab --every-write $$story || exit 1; done
	@$(PY) -m pytest tests/crash -q -s -o 'python_files=soak_*.py'

test-vllm: venv  ## the real vLLM on this CPU: installs 3.5 GB of its own, once, in .venv-vllm
	@sh requirements/vllm.sh
	@TEST_VLLM_PYTHON=$(CURDIR)/.venv-vllm/bin/python $(PY) -m pytest tests/vllm -q

bench: venv      ## measurements; numbers, never a verdict
	@$(PY) -m pytest bench -q -o 'python_files=bench_*.py' -o 'python_functions=bench_*' --benchmark-only --benchmark-disable-gc

docs: venv       ## renew docs/reference and docs/map.md from the code
	@$(PY) docs/generate.py

lock: venv       ## renew the locks in requirements/
	@sh requirements/lock.sh

venv:            ## .venv with everything
	@sh requirements/setup.sh all

venv-run:        ## .venv with what the product needs
	@sh requirements/setup.sh run

clean:           ## remove .venv and every cache
	rm -rf .venv .venv-vllm build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .benchmarks *.egg-info agent/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
