# Needs only python3, make and git. Another interpreter: make test PYTHON=python3.12 VENV=.venv312

PYTHON ?= python3
VENV ?= .venv
PYTEST_FLAGS ?= -n auto --maxprocesses=4 --dist loadgroup
FAST ?= not slow and not gpu_compile
CUDA_VENV ?= .venv-cuda
TORCH ?= torch>=2.6

.PHONY: demo demo-gpu cluster-demo test test-slow test-all test-large test-arm64 test-gpu-compile attack lint docs bench clean
.SECONDARY:

demo: $(VENV)/.installed-examples
	$(VENV)/bin/python examples/demo.py

# Every operator, pass, example and strategy.
test: $(VENV)/.installed-test
	$(VENV)/bin/python -m pytest $(PYTEST_FLAGS) -m "$(FAST)"

# What `test` leaves out: larger models, more devices and dtypes, many processes.
test-slow: $(VENV)/.installed-test
	$(VENV)/bin/python -m pytest $(PYTEST_FLAGS) -m slow

# Both in one run: tests are collected once.
test-all:
	$(MAKE) --no-print-directory test FAST="not gpu_compile"

# What needs PyTorch and Ray, which it installs: together several GB, if PyTorch comes with CUDA.
test-large: $(VENV)/.installed-test
	$(VENV)/bin/python -m pip install --quiet '$(TORCH)' 'ray>=2.40'
	RAY_AUTH_MODE=disabled $(VENV)/bin/python -m pytest $(PYTEST_FLAGS) -m "not exhaustive" tests/importers/torch tests/cluster/parameter_servers tests/cluster/remote_tasks

# Runs modules for Android under qemu (Debian: qemu-user-static libc6-arm64-cross
# libstdc++6-arm64-cross), with IREE's compiler and its runtime for arm64, which it downloads.
test-arm64: $(VENV)/.installed-test,iree
	$(VENV)/bin/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/arm64 --only-binary=:all: --platform manylinux_2_28_aarch64 iree-base-runtime
	GRAPHC_IREE_ARM64=$(VENV)/arm64 $(VENV)/bin/python -m pytest tests/exporters/test_iree_arm64.py

# Compiles for GPUs that are not here: downloads JAX's CUDA libraries (5.5 GB) when it first runs.
test-gpu-compile:
	$(MAKE) --no-print-directory $(CUDA_VENV)/.installed-test,cuda VENV=$(CUDA_VENV)
	JAX_PLATFORMS=cpu $(CUDA_VENV)/bin/python -m pytest $(PYTEST_FLAGS) -m gpu_compile

# For 8 H100 that are not here: the largest batch of an example, and a folder of executables for
# them. Downloads what test-gpu-compile does.
demo-gpu:
	$(MAKE) --no-print-directory $(CUDA_VENV)/.installed-test,cuda VENV=$(CUDA_VENV)
	JAX_PLATFORMS=cpu $(CUDA_VENV)/bin/graphc plan examples/transformer_lm.py --machine 8xh100 --largest-batch
	JAX_PLATFORMS=cpu $(CUDA_VENV)/bin/graphc compile examples/transformer_lm.py --machine 8xh100 --cache-dir build/shipped
	ls build/shipped

# The digits CNN on two processes; one is killed in the middle, and the result is the same.
cluster-demo: $(VENV)/.installed-examples
	JAX_PLATFORMS=cpu $(VENV)/bin/python examples/cluster.py

# The attacks of docs/reliability.md with their full numbers of rounds: hours.
attack: $(VENV)/.installed-test
	$(VENV)/bin/python -m pytest --long -s tests/reliability

# The layering test needs none of what conftest.py imports.
lint: $(VENV)/.installed-lint
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/python -m pytest -q --noconftest tests/test_layering.py

# The site, in build/site: open build/site/index.html. Any warning is an error.
docs: $(VENV)/.installed-docs
	JAX_PLATFORMS=cpu NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(VENV)/bin/mkdocs build --quiet

bench: $(VENV)/.installed-examples
	$(VENV)/bin/python -m benchmarks.run $(BENCH_FLAGS)

clean:
	rm -rf $(VENV) .venv* build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each set of extras, so that an unchanged pyproject.toml installs nothing.
$(VENV)/.installed-%: pyproject.toml | $(VENV)/bin/python
	@echo "Installing graphc and its dependencies ($*) into $(VENV). This takes 1 to 3 minutes, once; the CUDA libraries take longer."
	$(VENV)/bin/python -m pip install --quiet --editable '.[$*]'
	touch $@

$(VENV)/bin/python:
	@echo "Creating the virtual environment $(VENV)."
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
