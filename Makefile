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
# The forms of the broker that a test runs on: one, all, or a name (tests/conftest.py).
BROKERS ?= one
PURE_TESTS := tests/unit tests/loadtest tests/benchmarks tests/hosts

BIN := $(CURDIR)/.venv/bin
CACHE := $(CURDIR)/.cache
NATS_SERVER := $(CACHE)/go/bin/nats-server
NATS_TOP := $(CACHE)/go/bin/nats-top
NATS_TOP_VERSION := v0.6.4
NATS_JS := $(CACHE)/npm/node_modules/@nats-io/nats-core/package.json
COUNTER := $(CACHE)/gungraun/bin/gungraun-runner
# The environment holds one of two installs: the wheel as users get it, or the working tree itself.
INSTALLED := $(CURDIR)/.venv/installed
DEVELOPED := $(CURDIR)/.venv/developed
LOGS := $(CACHE)/logs
RUST_SOURCES := $(shell find rust_core/crates -type f) rust_core/Cargo.toml rust_core/Cargo.lock pyproject.toml
SOURCES := $(shell find subjectbus loadtest -name __pycache__ -prune -o -type f ! -name '*.so' -print) $(RUST_SOURCES)

# What pip installs here comes in the versions that the project was tried with.
export PIP_CONSTRAINT := $(CURDIR)/constraints-dev.txt
# Tools beside the extra `dev`: Zig takes 400 MB, and the others are seldom needed.
MORE_TOOLS := pip-audit uv ziglang
CARGO_DENY := cargo-deny@0.20.2

# The same environment that maturin gives cargo, so that nothing is built twice.
CARGO := PYO3_BUILD_EXTENSION_MODULE=1 PYO3_PYTHON=$(BIN)/python cargo

WHEELS ?= dist
PROFILE ?= release
# All unless some are named.
PLATFORMS ?=
WHEEL_TARGETS := $(foreach cpu,x86_64 aarch64,$(foreach libc,gnu musl,$(cpu)-unknown-linux-$(libc)))

.PHONY: help setup setup-wheels wheels test-wheels test-wheels-quickly constraints audit develop build format lint lint-rust lint-python check \
	test test-rust test-python test-instructions instructions simulate mutants loom miri valgrind fuzz \
	notebooks notebook-data bench docs pictures clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(BIN)/python $(NATS_SERVER) $(NATS_TOP) $(NATS_JS) ## make the virtual environment, fetch the counterparts of the tests

develop: $(DEVELOPED) ## install the working tree, editable, with its development tools into .venv; again when Rust changed

build: $(INSTALLED) ## build the wheel as users get it and install it with the development tools into .venv

$(LOGS):
	@mkdir -p $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=...")'
	$(PYTHON) -m venv .venv

$(INSTALLED): $(SOURCES) | $(BIN)/python
	$(BIN)/python -m pip install --quiet '.[dev]'
	@rm -f $(DEVELOPED) && mkdir -p $(@D) && touch $@

# The extension is built by cargo's profile `develop`: optimised, but without the slow optimisation of the whole.
$(DEVELOPED): $(RUST_SOURCES) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@rm -f $(INSTALLED) && mkdir -p $(@D) && touch $@

# Either install has the tools; the quicker one is made if there is none.
$(BIN)/ruff $(BIN)/sphinx-build:
	@$(MAKE) develop

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

format: $(BIN)/ruff ## rewrite the sources in the project's format
	cd rust_core && cargo fmt --all && cargo fmt --manifest-path fuzz/Cargo.toml
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: lint-rust lint-python ## rustfmt, clippy, ruff, mypy and the import rules, all with warnings denied

lint-rust: | $(BIN)/python
	cd rust_core && cargo fmt --all --check && cargo fmt --manifest-path fuzz/Cargo.toml --check
	cd rust_core && $(CARGO) clippy --workspace --all-targets --locked --quiet -- -D warnings

lint-python: $(BIN)/ruff
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks
	$(BIN)/mypy notebooks
	$(BIN)/mypy docs
	$(BIN)/lint-imports

check: $(DEVELOPED) lint ## the quick one: lint, and the tests that start no process
	$(BIN)/pytest -n 2 --quiet -m 'not process' $(PURE_TESTS)

# The wheel comes first: it brings the tools of `lint`. The runners' own closing lines come last.
test: setup build lint test-rust loom simulate test-instructions fuzz test-wheels-quickly test-python ## set up what is needed and run every test
	@echo && awk '/^test result:/ { passed += $$4; failed += $$6; ignored += $$8 } \
		END { printf "cargo test: %d passed, %d failed, %d ignored\n", passed, failed, ignored }' $(LOGS)/test-rust
	@tail -qn 1 $(LOGS)/simulate $(LOGS)/test-python

test-rust: $(BIN)/python | $(LOGS) ## unit and property tests of the crates
	cd rust_core && $(CARGO) test --workspace --locked | tee $(LOGS)/$@

loom: $(BIN)/python ## try all interleavings of shards that wait and of threads that post mail to them
	cd rust_core && RUSTFLAGS='--cfg loom' $(CARGO) test --quiet --locked -p subjectbus-reactor \
		--lib --target-dir target/loom -- modelled

docs: $(BIN)/sphinx-build ## build the documentation site into .cache/docs/site, with warnings denied
	rm -rf $(CACHE)/docs
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --jobs 2 --doctree-dir $(CACHE)/docs/doctrees \
		docs $(CACHE)/docs/site

pictures: $(INSTALLED) ## draw the pages' pictures anew from real runs, with Chromium; writes to docs/images
	$(BIN)/python docs/pictures.py

# Not part of `make test`: a stable toolchain has no Miri.
miri: ## the slab, and the reactor's outputs, mail, receive buffers and sends under Miri, which finds undefined behaviour
	@cargo +nightly miri --version >/dev/null 2>&1 || { echo \
		"Miri is needed: rustup toolchain install nightly --component miri,rust-src"; exit 1; }
	cd rust_core && MIRIFLAGS=-Zmiri-permissive-provenance cargo +nightly miri test --quiet --locked \
		-p subjectbus-reactor --lib --target-dir target/miri -- output:: mail:: mailbox:: buffers:: flights::
	cd rust_core && MIRIFLAGS=-Zmiri-permissive-provenance cargo +nightly miri test --quiet --locked \
		-p subjectbus-slab --lib --target-dir target/miri

simulate: $(BIN)/python | $(LOGS) ## try SEEDS seeds of a broker on a simulated network; SEED=n repeats one and tells what happens in it
	cd rust_core && $(CARGO) run --quiet --locked -p subjectbus-simulation -- --seeds $(SEEDS) | tee $(LOGS)/$@

mutants: $(BIN)/python ## break the broker on purpose, and count the seeds until the simulation finds it
	$(BIN)/python benchmarks/mutants.py

test-python: setup $(INSTALLED) | $(LOGS) ## unit, conformance, integration, load and packaging tests; BROKERS=all on all forms
	$(BIN)/pytest -n $(PYTEST_PROCESSES) --dist loadgroup --brokers $(BROKERS) \
		--color=$(if $(MAKE_TERMOUT),yes,auto) | tee $(LOGS)/$@

# Without valgrind this says so and is skipped; with CI=true it fails.
test-instructions:
	@if command -v valgrind >/dev/null || [ "$${CI:-}" = true ]; then $(MAKE) instructions UPDATE=; \
	else echo "no valgrind: the instruction counts are not compared"; fi

setup-wheels: $(BIN)/python
	@if command -v rustup >/dev/null; then rustup --quiet target add $(WHEEL_TARGETS); \
	else echo "no rustup: Rust needs the targets $(WHEEL_TARGETS)"; fi
	$(BIN)/python -m pip install --quiet ziglang

wheels: setup-wheels $(INSTALLED) ## build the wheels of all platforms and the source archive, with checksums, into WHEELS (dist)
	$(BIN)/python release/wheels.py --out $(WHEELS) --profile $(PROFILE) $(PLATFORMS)

test-wheels: wheels ## build the wheels of all platforms and test them
	SUBJECTBUS_WHEELS=$(WHEELS) SUBJECTBUS_PLATFORMS='$(PLATFORMS)' $(BIN)/pytest tests/packaging/test_wheels.py

# Both C libraries and both processors, without the optimisations that take long.
test-wheels-quickly:
	$(MAKE) test-wheels WHEELS=.cache/wheels PROFILE=quick PLATFORMS='manylinux-x86_64 musllinux-aarch64'

constraints: $(BIN)/python ## take the newest versions of the development tools into constraints-dev.txt
	env -u PIP_CONSTRAINT $(BIN)/python -m pip install --quiet --upgrade uv
	printf '%s\n' $(MORE_TOOLS) | $(BIN)/uv pip compile --quiet --universal --upgrade --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links --extra dev --output-file constraints-dev.txt pyproject.toml -

# Both ask databases on the network, and cargo-deny is compiled first, so this is not part of `make test`.
audit: $(BIN)/python ## ask for known defects of what we depend on; check licences and sources of the crates
	command -v cargo-deny >/dev/null || cargo install --quiet --locked $(CARGO_DENY)
	cargo deny --manifest-path rust_core/Cargo.toml --locked check bans licenses sources
	cargo deny --manifest-path rust_core/Cargo.toml --locked check advisories
	$(BIN)/python -m pip install --quiet pip-audit
	$(BIN)/pip-audit --strict --disable-pip --no-deps --progress-spinner off --requirement constraints-dev.txt

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
	PATH=$(CACHE)/go/bin:$$PATH $(BIN)/python benchmarks/notebook_data.py $(NAMES)

bench: setup $(INSTALLED) ## the recorded benchmark, on two cores with nothing else running; writes to docs/benchmarks
	$(BIN)/python benchmarks/run.py

clean: ## remove everything that was built or fetched
	rm -rf .venv .cache dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache \
		rust_core/target rust_core/fuzz/target rust_core/fuzz/artifacts rust_core/fuzz/corpus
