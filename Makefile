# make test | test-matrix | demo | bench | docs | lint | fuzz | clean, in a virtual environment that is rebuilt when the packaging
# changes. With an NVIDIA GPU it has CuPy, and `make test` runs the tests of the GPU.
# make test-matrix LEGS="jazzy arm64": some of the systems that test/matrix.py stands in for; by default all.
# make fuzz SECONDS=60: random inputs for so long, shared by both targets; SEED=1 TARGET=messages chooses.
# PYTHON: the interpreter to build it with; by default the first one of at least 3.10, for which ROS 2 wheels exist.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.10; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$python && exit; \
	done; echo python3)
VERSION := $(shell $(PYTHON) -c 'import platform; print(platform.python_version())')
# Processes that run the tests, each file in one of them, and the cameras of all files in one: two more than cores, as
# those of ROS mostly wait; at most 8. WORKERS=0: no process but one.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(len(os.sched_getaffinity(0)) + 2)' 2>/dev/null || echo auto)
RUN := .venv/bin/python -m
# The tests start some hundred Python processes: compiled once, each takes a third less time.
unexport PYTHONDONTWRITEBYTECODE
# pip compiles nothing ahead, which takes 15 s: Python compiles the modules that are used. pip wants a "no" here.
export PIP_NO_COMPILE := no
# OpenBLAS has its threads wait busily for 2^26 cycles after each piece of work, the start of a process among it, and the
# tests' cores have other work.
export OPENBLAS_THREAD_TIMEOUT := 4
# The extra for this machine's GPU, by the CUDA version of its driver: cuda11, cuda12 or cuda13; none without a GPU.
GPU := $(shell $(PYTHON) -c 'import ctypes; cuda, version = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(); \
	cuda.cuInit(0) or cuda.cuDriverGetVersion(ctypes.byref(version)) or print(f"cuda{version.value // 1000}")' 2>/dev/null)
INSTALLED := .venv/installed-$(VERSION)$(GPU:%=-%)

# The CPU's kernels, which an editable installation builds, again where a source is newer; the tests do so themselves.
KERNELS := .venv/kernels

.PHONY: test test-matrix lint demo bench docs fuzz clean

# The linters run beside the tests, on one core for a minute; what they find is shown at the end.
test: $(INSTALLED)
	@$(MAKE) --no-print-directory lint >.venv/lint.log 2>&1 & lint=$$!; \
	$(RUN) pytest -n $(WORKERS) --maxprocesses 8 --dist loadfile $(TESTS); tests=$$?; \
	wait $$lint && { grep '^lint: ' .venv/lint.log; exit $$tests; } || { cat .venv/lint.log; exit 1; }

test-matrix: $(INSTALLED)
	$(PYTHON) test/matrix.py $(LEGS)

# The linters need Python 3.10 themselves; what they check holds for 3.8 on (ruff's target, vermin).
lint: $(INSTALLED)
	@if $(RUN) ruff --version >/dev/null 2>&1; then set -ex; \
	$(RUN) ruff format --check .; \
	$(RUN) ruff check .; \
	$(RUN) mypy; \
	.venv/bin/vermin -q -t=3.8- --violations --no-tips --eval-annotations --exclude str.decode polar_pipeline launch setup.py; \
	.venv/bin/clang-format --dry-run --Werror kernels/*.cu kernels/*.cuh kernels/*.h kernels/cpu/* test/helpers/host/*; \
	echo "lint: passed"; \
	else echo "lint: skipped on Python $(VERSION); it needs 3.10 or newer"; fi

demo: $(INSTALLED) $(KERNELS)
	$(RUN) demo

# What it compares with comes without dependencies: they would put a second OpenCV over the first.
bench: $(INSTALLED) $(KERNELS)
	cd .venv && bin/python -m pip install --quiet --no-deps polanalyser eari-demosaic
	cd .venv && bin/python -m pip install --quiet matplotlib
	.venv/bin/python benchmarks/accuracy.py
	.venv/bin/python benchmarks/cpu.py
	.venv/bin/python benchmarks/node.py

# The documentation site, in site/. MkDocs Material and mkdocstrings need Python 3.10; once installed, it builds offline.
# Not with --quiet, by which --strict finds nothing.
docs: .venv/installed-docs
	@$(RUN) mkdocs --version >/dev/null 2>&1 || { echo "docs: Python $(VERSION) is too old; it needs 3.10" >&2; exit 1; }
	NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict
	@echo "docs: site/index.html"

.venv/installed-docs: $(INSTALLED)
	cd .venv && bin/python -m pip install --quiet --editable '$(CURDIR)[docs]'
	touch $@

fuzz: $(INSTALLED) $(KERNELS)
	FUZZ_SECONDS=$(or $(SECONDS),60) FUZZ_SEED=$(or $(SEED),$$(date +%s)) \
	    .venv/bin/python -m pytest -q -s -p no:cacheprovider test/test_fuzz.py -k "random_inputs and ($(or $(TARGET),messages or recordings))"

$(KERNELS): $(INSTALLED) polar_pipeline/polarimetry/coefficients.py kernels/formulas.h $(wildcard kernels/cpu/*)
	.venv/bin/python setup.py -q build_ext --inplace
	touch $@

$(INSTALLED): setup.py pyproject.toml
	@test -n "$(VERSION)" || { echo "no Python at '$(PYTHON)'; name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	rm -rf .venv
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --upgrade pip
	.venv/bin/python -m pip install --quiet --editable '.[dev,ros$(GPU:%=,%)]'
	touch $@

clean:
	rm -rf .venv .matrix build dist install log site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf demo/*.html demo/*.png demo/output polar_pipeline/backends/cpu/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
