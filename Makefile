# `make demo` and `make test` are all a newcomer needs; both set everything up first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := all demo dev docs
READY := $(VENV)/.ready
NATIVE := native/Cargo.toml native/Cargo.lock $(shell find native/src -name '*.rs')
# uv installs in a tenth of pip's time; the index and the certificates are those that pip is configured with.
INSTALL = UV_DEFAULT_INDEX="$$($(BIN)/pip config get global.index-url 2>/dev/null || echo "$${PIP_INDEX_URL:-https://pypi.org/simple}")" \
    $(BIN)/uv pip install --quiet --system-certs --python $(BIN)/python
CARGO := PYO3_PYTHON=$(CURDIR)/$(BIN)/python cargo

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
# rustup's folder, in case the shell that installed it is still the one in use.
export PATH := $(PATH):$(HOME)/.cargo/bin
# The tests start many processes, which compile the modules that they import unless an earlier one kept the result.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-slow test-all test-native test-tsan test-checked format lint audit docs bench clean

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY) ## Virtual environment, dependencies and the Rust core, in .venv

# Dependencies are installed again only when their lists changed; after a change in native/ only the core is built.
$(READY): pyproject.toml constraints.txt $(NATIVE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "$(PYTHON) is older than Python 3.11: name another, as in 'make PYTHON=python3.12 $(MAKECMDGOALS)'"; exit 2; }
	@command -v cargo >/dev/null || { echo "no Rust toolchain: install one from https://rustup.rs"; exit 2; }
	@test -x $(BIN)/python || { \
	    echo "1/3 Creating the environment $(VENV): some seconds"; $(PYTHON) -m venv $(VENV); }
	@if [ ! -e $@ ] || [ pyproject.toml -nt $@ ] || [ constraints.txt -nt $@ ]; then \
	    echo "2/3 Installing packages, 6 GB of which PyTorch is most: 2 to 8 minutes the first time"; \
	    $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt uv; \
	    $(INSTALL) --constraint constraints.txt --requirements pyproject.toml $(EXTRAS:%=--extra %); \
	fi
	@echo "3/3 Building the Rust core: about a minute"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@
	@echo "Ready: source $(BIN)/activate; superbpe"

demo: $(READY) ## The main job on the embedded corpus, with a report at the end
	$(BIN)/superbpe pipeline

test: $(READY) ## The tests, without the slow ones
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not slow"

test-slow: $(READY) ## The slow tests only
	$(BIN)/python -m pytest -n auto --dist loadfile -m slow

test-all: $(READY) ## Every test, of Python and of Rust
	$(BIN)/python -m pytest -n auto --dist loadfile
	$(MAKE) --no-print-directory test-native

test-native: $(READY) ## The tests of the Rust core, which need no Python
	$(CARGO) test --lib --manifest-path native/Cargo.toml

test-tsan: $(READY) ## The tests of the Rust core's threads, with ThreadSanitizer (requires nightly with rust-src)
	TSAN_OPTIONS=allocator_may_return_null=1 RUSTFLAGS=-Zsanitizer=thread CARGO_TARGET_DIR=native/target/tsan \
	    $(CARGO) +nightly test -Zbuild-std --target $$(rustc -vV | sed -n 's/^host: //p') \
	    --manifest-path native/Cargo.toml -- runtime:: text:: train:: encode::preparation

# The tests run in a copy of the code, so that the core in use is not replaced.
test-checked: $(READY) ## The Python tests of the core, with overflow checks and debug assertions
	$(CARGO) build --profile checked --features python --manifest-path native/Cargo.toml
	copy=$$(mktemp -d); trap "rm -rf '$$copy'" EXIT; \
	    cp -r configs docs experiments lm superbpe tests tokenizer pyproject.toml "$$copy"; \
	    cp native/target/checked/lib_native.so "$$copy"/tokenizer/_native.abi3.so; \
	    cd "$$copy" && PYTHONPATH=$$copy $(CURDIR)/$(BIN)/python -m pytest -n auto --dist loadfile -m "not slow" \
	    tests/tokenizer tests/superbpe tests/parity

format: $(READY) ## Format Python and Rust
	$(BIN)/ruff format
	$(BIN)/ruff check --fix
	cargo fmt --manifest-path native/Cargo.toml

lint: $(READY) ## What CI checks about the code: style, types, warnings
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy & $(BIN)/mypy --platform win32 --cache-dir .mypy_cache/windows; wait $$!
	$(BIN)/python -m mypy.stubtest tokenizer._native
	cargo fmt --manifest-path native/Cargo.toml --check
	$(CARGO) clippy --manifest-path native/Cargo.toml --all-targets -- -D warnings
	$(CARGO) clippy --manifest-path native/Cargo.toml --features python -- -D warnings

audit: $(READY) ## Known vulnerabilities of the dependencies, where the databases can be reached
	@test -x .audit/bin/pip-audit || { $(PYTHON) -m venv .audit && .audit/bin/pip install --quiet --disable-pip-version-check pip-audit; } || true
	@$(BIN)/python .ci/audit.py .audit/bin/pip-audit "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

docs: $(READY) ## The documentation's site, in site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(READY) ## Speed and memory beside other people's software, on your text: make bench TEXT=FILES
	@test -n "$(TEXT)" || { echo 'make bench needs text: make bench TEXT="data/*.jsonl.zst"' >&2; exit 2; }
	$(BIN)/python -m experiments.benchmarks.train $(TEXT)
	$(BIN)/python -m experiments.benchmarks.encode $(TEXT)

clean: ## Remove what can be built again, except .venv and artifacts
	rm -rf native/target tokenizer/_native*.so build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis $(READY)
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
