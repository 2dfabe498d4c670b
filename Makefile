# Two commands matter: `make serve` and `make test`. `make help` lists the rest.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
VLLM   := .venv-vllm
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help serve test test-vllm check format bench mutants nano lock clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

serve: $(VENV)/.gateway  ## run the gateway with the embedded engine (CONFIG=file for your own)
	@$(BIN)/manners serve $(if $(CONFIG),--config $(CONFIG))

test: $(VENV)/.dev  ## the tests; what a missing component skips says how to install it
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-vllm: $(VENV)/.dev $(VLLM)/.installed  ## the conformance suite over a real vLLM on the CPU (installs it: 2.4 GB)
	CONFORMANCE=vllm $(BIN)/python -m pytest -s tests/conformance $(PYTEST_ARGS)

check: $(VENV)/.dev  ## format, lint, types, architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py

format: $(VENV)/.dev  ## put the format right
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

mutants: $(VENV)/.dev  ## break the stream core 26 times and see that a test notices
	$(BIN)/python -m tests.mutants

bench: $(VENV)/.dev  ## measure against a bare pass-through, LiteLLM, smg and nginx (installs them)
	$(BIN)/python -m tests.bench --install
	$(BIN)/python -m tests.bench

nano: $(VENV)/.quantizer  ## rebuild the nano models from nothing (a GPU makes it minutes)
	$(BIN)/python -m quantizer.nano build

quantizer: $(VENV)/.quantizer  ## install what model builders need, into the same environment

lock: $(VENV)/.dev  ## resolve the pinned requirements again
	$(BIN)/uv pip compile -q --universal --generate-hashes --python-version 3.11 --extra embedded pyproject.toml -o requirements/gateway.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --python-version 3.11 --extra embedded --group dev pyproject.toml -c requirements/gateway.txt -o requirements/dev.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --python-version 3.11 requirements/quantizer.in -c requirements/dev.txt -o requirements/quantizer.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --python-version 3.11 requirements/vllm.in --excludes requirements/vllm-excluded.txt -o requirements/vllm.txt

clean:  ## remove the environment and every cache
	rm -rf $(VENV) $(VLLM) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.gateway: $(BIN)/python requirements/gateway.txt pyproject.toml
	$(PIP) --require-hashes -r requirements/gateway.txt
	$(PIP) --no-deps --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.gateway requirements/dev.txt
	$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.quantizer: $(VENV)/.dev requirements/quantizer.txt
	$(PIP) torch==2.13.0
	$(PIP) --require-hashes -r requirements/quantizer.txt
	@touch $@

$(VLLM)/.installed: $(BIN)/python requirements/vllm.txt
	$(BIN)/python -m venv --clear $(VLLM)
	$(VLLM)/bin/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(VLLM)/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/vllm.txt
	@touch $@
