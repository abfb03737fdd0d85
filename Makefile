# make demo | test | bench | lint | types: each works on a fresh machine that has only Python >= 3.11 and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TORCH  := $(VENV)/.torch
#: Where the test clusters of `make cluster-slurm` and `make cluster-k8s` live.
CLUSTER ?= $(or $(TMPDIR),/tmp)/compass-slurm
K8S     ?= $(or $(TMPDIR),/tmp)/compass-k8s

.PHONY: test-engines install-torch cluster-slurm cluster-slurm-down cluster-k8s cluster-k8s-real cluster-k8s-down help native bench-native install demo live test test-slow test-nightly bench lint types check lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed 's/:.*## /\t/' | expand -t 16

$(STAMP): requirements/locked.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/locked.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

install: $(STAMP) ## the locked environment, in .venv

demo: $(STAMP) ## schedulers side by side on the bundled sample, as a table and an HTML report
	$(BIN)/compass demo

# Not in the lock: its builds differ by accelerator.
$(TORCH): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "torch==2.13.0"
	@touch $@

install-torch: $(TORCH) ## PyTorch beside it, for real training jobs

live: $(TORCH) ## the live system: controller, dashboard, a small Phys-Mix, real migrations
	$(BIN)/compass live

test: $(STAMP) ## the fast suite
	$(BIN)/python -m pytest -n auto

test-engines: $(STAMP) ## on real servers (Slurm, Ray), one after another; skips what isn't installed
	$(BIN)/python -m pytest -m "engine and not nightly"

test-slow: $(STAMP) ## the suite that takes minutes
	$(BIN)/python -m pytest -n auto -m "slow and not engine"

test-nightly: $(STAMP) ## everything
	$(BIN)/python -m pytest -n auto -m "(slow or nightly) and not engine"
	$(BIN)/python -m pytest -m "nightly and engine"

bench: $(STAMP) ## every performance claim, measured again
	$(BIN)/python -m benchmarks $(ONLY)

native: $(STAMP) ## a wheel in dist/ with the hot modules compiled by mypyc
	rm -rf build/lib* build/bdist* build/temp* build/native dist/*.whl
	COMPASS_NATIVE=1 $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation -w dist .

bench-native: native ## the schedulers' benchmarks, plain and compiled, in one run
	$(BIN)/python -m pip install --quiet --no-deps --target build/native dist/compass_abs-*-cp3*.whl
	$(BIN)/python -m benchmarks compass_abs schedulers
	PYTHONPATH=build/native $(BIN)/python -m benchmarks compass_abs schedulers

cluster-slurm: ## a real Slurm with NODES=4 nodes of 8 pretended GPUs, on this machine (Debian, root to install)
	deploy/test-clusters/slurm-up.sh "$(CLUSTER)" $(or $(NODES),4)

cluster-slurm-down: ## ends it without a trace; PURGE=1: and the packages that it installed
	deploy/test-clusters/slurm-down.sh "$(CLUSTER)" $(if $(PURGE),--purge)

cluster-k8s: ## a real API server with NODES=4 nodes of 8 pretended GPUs, on this machine (Debian; built once, no root)
	deploy/test-clusters/k8s-up.sh "$(K8S)" $(or $(NODES),4)

cluster-k8s-real: ## the same with kubelets and containers, in network namespaces (root)
	deploy/test-clusters/k8s-up.sh "$(K8S)" $(or $(NODES),4) --real

cluster-k8s-down: ## ends it without a trace; PURGE=1: and what was built for it
	deploy/test-clusters/k8s-down.sh "$(K8S)" $(if $(PURGE),--purge)

lint: $(STAMP) ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

check: lint types test ## what CI runs

lock: ## resolves requirements/*.txt anew
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile -q --generate-hashes --no-annotate --no-header --universal --python-version 3.11 \
	  --extra live --extra sweep pyproject.toml requirements/dev.in -o requirements/locked.txt
	$(BIN)/uv pip compile -q --generate-hashes --no-annotate --no-header --universal --python-version 3.11 \
	  --extra live -c requirements/locked.txt pyproject.toml requirements/image.in -o requirements/image.txt

clean: ## removes the environment and all caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist demo runs
