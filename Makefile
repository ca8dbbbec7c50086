# Commands of the project. A line's ## comment is its help.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
FUZZ_SECONDS ?= 10
SEEDS ?= 300
# Tests wait more than they compute.
PYTEST_PROCESSES ?= 3

BIN := $(CURDIR)/.venv/bin
CACHE := $(CURDIR)/.cache
NATS_SERVER := $(CACHE)/go/bin/nats-server
NATS_TOP := $(CACHE)/go/bin/nats-top
NATS_TOP_VERSION := v0.6.4
NATS_JS := $(CACHE)/npm/node_modules/@nats-io/nats-core/package.json
COUNTER := $(CACHE)/gungraun/bin/gungraun-runner
INSTALLED := $(CACHE)/installed
SOURCES := $(shell find subjectbus loadtest rust_core -name target -prune -o -type f \
	\( -name '*.py' -o -name '*.pyi' -o -name '*.rs' -o -name '*.toml' -o -name '*.j2' \) -print) \
	rust_core/Cargo.lock pyproject.toml

# The same environment that maturin gives cargo, so that nothing is built twice.
CARGO := PYO3_BUILD_EXTENSION_MODULE=1 PYO3_PYTHON=$(BIN)/python cargo

.PHONY: help setup build format lint test test-rust test-python test-instructions instructions simulate mutants loom miri \
	valgrind fuzz notebooks notebook-data bench clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(BIN)/python $(NATS_SERVER) $(NATS_TOP) $(NATS_JS) ## make the virtual environment, fetch the counterparts of the tests

build: $(INSTALLED) ## build the extension and install the project with its development tools into .venv

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=...")'
	$(PYTHON) -m venv .venv

$(INSTALLED): $(SOURCES) | $(BIN)/python
	$(BIN)/python -m pip install --quiet '.[dev]'
	@mkdir -p $(@D) && touch $@

# Without Go or Node, or the network, the tests against these say so and are skipped; with CI=true they fail.
$(NATS_SERVER):
	@if command -v go >/dev/null; then \
		echo "installing nats-server"; GOBIN=$(@D) go install github.com/nats-io/nats-server/v2@latest \
			|| echo "that failed: the tests against nats-server will be skipped"; \
	else echo "no Go: the tests against nats-server will be skipped"; fi

# In a module that requires this one version: `go install` would ask for the list of all, which not every proxy has.
$(NATS_TOP):
	@if command -v go >/dev/null; then \
		echo "installing nats-top"; dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; cd "$$dir"; \
		{ go mod init tools && go mod edit -require=github.com/nats-io/nats-top@$(NATS_TOP_VERSION) \
			&& go build -mod=mod -o $@ github.com/nats-io/nats-top; } >log 2>&1 \
			|| { cat log; echo "that failed: the test with nats-top will be skipped"; }; \
	else echo "no Go: the test with nats-top will be skipped"; fi

$(NATS_JS):
	@if command -v npm >/dev/null; then \
		echo "installing nats.js"; \
		npm install --silent --no-audit --no-fund --no-save --no-package-lock --prefix $(CACHE)/npm @nats-io/nats-core@3 \
			|| echo "that failed: the test with nats.js will be skipped"; \
	else echo "no npm: the test with nats.js will be skipped"; fi

format: $(INSTALLED) ## rewrite the sources in the project's format
	cd rust_core && cargo fmt --all && cargo fmt --manifest-path fuzz/Cargo.toml
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(INSTALLED) ## rustfmt, clippy, ruff, mypy and the import rules, all with warnings denied
	cd rust_core && cargo fmt --all --check && cargo fmt --manifest-path fuzz/Cargo.toml --check
	cd rust_core && $(CARGO) clippy --workspace --all-targets --locked --quiet -- -D warnings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks
	$(BIN)/mypy notebooks
	$(BIN)/lint-imports

test: lint test-rust loom simulate test-python test-instructions fuzz ## set up what is needed and run every test

test-rust: $(BIN)/python ## unit and property tests of the crates
	cd rust_core && $(CARGO) test --workspace --locked

loom: $(BIN)/python ## try all interleavings of shards that wait and of threads that post mail to them
	cd rust_core && RUSTFLAGS='--cfg loom' $(CARGO) test --quiet --locked -p subjectbus-reactor \
		--lib --target-dir target/loom -- modelled

# Not part of `make test`: a stable toolchain has no Miri.
miri: ## the slab, and the reactor's outputs, mail, receive buffers and sends under Miri, which finds undefined behaviour
	@cargo +nightly miri --version >/dev/null 2>&1 || { echo \
		"Miri is needed: rustup toolchain install nightly --component miri,rust-src"; exit 1; }
	cd rust_core && MIRIFLAGS=-Zmiri-permissive-provenance cargo +nightly miri test --quiet --locked \
		-p subjectbus-reactor --lib --target-dir target/miri -- output:: mail:: mailbox:: buffers:: flights::
	cd rust_core && MIRIFLAGS=-Zmiri-permissive-provenance cargo +nightly miri test --quiet --locked \
		-p subjectbus-slab --lib --target-dir target/miri

simulate: $(BIN)/python ## try SEEDS seeds of a broker on a simulated network; SEED=n repeats one and tells what happens in it
	cd rust_core && $(CARGO) run --quiet --locked -p subjectbus-simulation -- --seeds $(SEEDS)

mutants: $(BIN)/python ## break the broker on purpose, and count the seeds until the simulation finds it
	$(BIN)/python benchmarks/mutants.py

test-python: setup $(INSTALLED) ## unit, conformance, integration, load and packaging tests
	$(BIN)/pytest -n $(PYTEST_PROCESSES) --dist loadgroup

# Without valgrind this says so and is skipped; with CI=true it fails.
test-instructions:
	@if command -v valgrind >/dev/null || [ "$${CI:-}" = true ]; then $(MAKE) instructions UPDATE=; \
	else echo "no valgrind: the instruction counts are not compared"; fi

instructions: valgrind $(BIN)/python $(COUNTER) ## compare the hot functions' instruction counts with their record; UPDATE=1 rewrites it
	GUNGRAUN_RUNNER=$(COUNTER) $(BIN)/python benchmarks/instructions.py $(if $(UPDATE),--update)

valgrind:
	@command -v valgrind >/dev/null || { echo "valgrind is needed (Debian: apt-get install valgrind)"; exit 1; }

# The harness wants its runner in exactly its own version. A debug build does, and is made soonest.
$(COUNTER): rust_core/Cargo.lock
	id=$$(cargo pkgid --locked --manifest-path rust_core/Cargo.toml gungraun-runner) && CARGO_PROFILE_DEV_DEBUG=0 \
		cargo install --quiet --locked --debug --root $(CACHE)/gungraun --version "$${id##*@}" gungraun-runner
	@touch $@

fuzz: ## each fuzz target for FUZZ_SECONDS, on stable Rust
	cd rust_core/fuzz && mkdir -p artifacts && for target in frames handshake http_requests nats_ops; do \
		cargo run --release --locked --target "$$(rustc --print host-tuple)" --bin $$target -- \
			-max_total_time=$(FUZZ_SECONDS) -artifact_prefix=artifacts/ >artifacts/log 2>&1 \
			|| { cat artifacts/log; exit 1; }; \
		echo "$$target: $$(tail -n 1 artifacts/log)"; \
	done

notebooks: $(INSTALLED) ## run the notebooks and write their pages to docs/notebooks
	$(BIN)/python notebooks/render.py

notebook-data: setup $(INSTALLED) ## make the notebooks' result folders anew, with nothing else running; NAMES="05_million" some
	PATH=$(CACHE)/go/bin:$$PATH $(BIN)/python notebooks/record.py $(NAMES)

bench: setup $(INSTALLED) ## the recorded benchmark, on two cores with nothing else running; writes to docs/benchmarks
	$(BIN)/python benchmarks/run.py

clean: ## remove everything that was built or fetched
	rm -rf .venv .cache dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache \
		rust_core/target rust_core/fuzz/target rust_core/fuzz/artifacts rust_core/fuzz/corpus
