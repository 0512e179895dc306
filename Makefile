# The project's commands. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
ARGS ?=
SOAK ?= 100
# Warnings are errors wherever a person or a machine decides whether a change is good.
LINT := -D warnings

# Where `make install` puts things; BIN installs that program instead of building one.
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
DESTDIR ?=
BIN ?=
INSTALL = PREFIX="$(PREFIX)" SYSCONFDIR="$(SYSCONFDIR)" DESTDIR="$(DESTDIR)" \
	BIN="$(or $(BIN),target/release/holdfast)" ./packaging/install.sh

.PHONY: help up build install packages uninstall test quick check unit loom page fuzz-api promqltest prometheus netdata machines soak fuzz clean

help: ## This list
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

up: ## Build and run server and local agent in ./data (more flags: ARGS="--watch /srv")
	cargo build --release --bin holdfast
	./target/release/holdfast up $(ARGS)

build: ## The release binary, target/release/holdfast
	cargo build --release --bin holdfast

install: ## The program with units, completions, manual pages and dashboards (PREFIX, DESTDIR, BIN)
	$(if $(BIN),,cargo build --release --bin holdfast)
	@$(INSTALL) install

packages: ## A .deb, a .rpm, an OCI image, a tarball and the debug symbols in dist/ (BIN, OUT, FORMATS)
	$(if $(BIN),,cargo build --release --bin holdfast)
	@BIN="$(or $(BIN),target/release/holdfast)" OUT="$(OUT)" ./packaging/packages.sh

uninstall: ## Take it away again; configuration and data stay
	@$(INSTALL) uninstall

test: check unit loom page fuzz-api promqltest ## Everything that must pass before a change lands
	@echo "make test: all passed"

quick: ## Formatting, lints and the unit tests that start no process
	cargo fmt --all --check
	cargo clippy --workspace -- $(LINT)
	cargo test --workspace --lib --bins --quiet

check: ## Formatting, lints, documentation, dashboard files, and that the fuzzers build
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- $(LINT)
	RUSTDOCFLAGS="$(LINT)" cargo doc --workspace --no-deps --document-private-items --quiet
	./tests/packages.sh c++ g++
	RUSTFLAGS="--cfg fuzzing $(LINT)" cargo check --quiet --locked --manifest-path fuzz/Cargo.toml --target-dir target/fuzz
	./tests/ui.sh

unit: ## All Rust tests: units, models, crash images, real processes
	cargo test --workspace

loom: ## The hand-offs between writers of journal and queue, and who tells, in every order of events
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p holdfast-journal --lib model
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p holdfast-queue -p holdfast-writers --lib model

page: ## The dashboard in a real Chromium against the real binary
	cargo build --bin holdfast
	./tests/page.sh

fuzz-api: ## A client and property-based requests from the OpenAPI document, against the real binary
	cargo build --bin holdfast
	./tests/fuzz_api.sh

promqltest: ## PromQL against that of Prometheus 3.16, whose Go module is downloaded
	cargo build --bin holdfast
	./tests/promqltest.sh

prometheus: ## A real Prometheus 3.16, built from its Go module, that writes to the series store and reads it
	cargo build --bin holdfast
	./tests/prometheus.sh

netdata: ## A real netdata (Debian) against the series store's OpenTSDB port
	./tests/netdata.sh

machines: ## Install, enrol, change, upgrade and remove on two fresh Debian machines in namespaces (BIN)
	$(if $(BIN),,cargo build --release --bin holdfast)
	@BIN="$(or $(BIN),target/release/holdfast)" ./tests/two_machines.sh

soak: ## The same tests with much larger numbers (hours; SOAK=N scales them)
	HOLDFAST_SOAK=$(SOAK) HOLDFAST_KILLS=$$(( 200 * $(SOAK) )) HOLDFAST_DOCUMENTS=100000 \
	HOLDFAST_STOPS=$$(( 60 * $(SOAK) )) HOLDFAST_SERIES=100000 HOLDFAST_CRASHES=$$(( 100000 * $(SOAK) )) \
	HOLDFAST_SAMPLES=18000000 PROPTEST_CASES=$$(( 256 * $(SOAK) )) cargo test --workspace --release -- --nocapture

bench-%: ## One comparison with peers, e.g. bench-scan (QUICK=1 for a short one)
	./bench/run.sh $*

fuzz: ## Fuzz every reader of hostile bytes, each for SECONDS_EACH=60 (MERGE=1 minimises the corpus)
	./fuzz/run.sh

clean: ## Forget everything built
	cargo clean
	rm -rf ui/node_modules tests/page/node_modules
