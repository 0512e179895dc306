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

.PHONY: help up build install packages uninstall test quick check unit loom page fuzz-api promqltest prometheus netdata machines soak bench-all fuzz clean

help: ## This list
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

up: build ## Build and run server and local agent in ./data (more flags: ARGS="--watch /srv")
	./target/release/holdfast up $(ARGS)

build: ## The release binary, target/release/holdfast, with its debug symbols in a file beside it
	cargo build --release --bin holdfast
	@./packaging/split_debug.sh target/release/holdfast

install: ## The program with units, completions, manual pages, dashboards and alerts (PREFIX, DESTDIR, BIN)
	$(if $(BIN),,cargo build --release --bin holdfast)
	@$(INSTALL) install

packages: ## A .deb, a .rpm, an OCI image, a tarball and debug symbols in dist/, for glibc 2.28 on (BIN, OUT, FORMATS)
	$(if $(BIN),,./packaging/build.sh)
	@BIN="$(or $(BIN),target/portable/holdfast)" OUT="$(OUT)" ./packaging/packages.sh

uninstall: ## Take it away again; configuration and data stay
	@$(INSTALL) uninstall

test: ## Everything that must pass before a change lands
	@./tests/run.sh check unit "loom page fuzz-api promqltest"

quick: ## Formatting, lints, checks of the tree and the unit tests that start no process
	cargo fmt --all --check
	cargo clippy --workspace -- $(LINT)
	@./tests/unit.sh --workspace --lib --bins

check: ## Formatting, lints, spelling, licences, documentation, dashboard files; fuzzers and benches build
	@./tests/check.sh

unit: ## All Rust tests: units, models, crash images, real processes
	@./tests/unit.sh

loom: ## The hand-offs between writers of journal and queue in every order of events
	cargo test -p holdfast-journal -p holdfast-queue -p holdfast-writers \
		--features holdfast-journal/loom,holdfast-queue/loom --lib model

# The program that the next targets start: BIN, or a debug build.
program = $(if $(BIN),,cargo build --quiet --bin holdfast)
with_program = HOLDFAST_BIN="$(abspath $(or $(BIN),target/debug/holdfast))"

page: ## The dashboard in a real Chromium against the real program (BIN)
	$(program)
	@$(with_program) ./tests/page.sh

fuzz-api: ## A client and property-based requests from the OpenAPI document (BIN)
	$(program)
	@$(with_program) ./tests/fuzz_api.sh

promqltest: ## PromQL against that of Prometheus 3.16, whose Go module is downloaded (BIN)
	$(program)
	@$(with_program) ./tests/promqltest.sh

prometheus: ## A real Prometheus 3.16, built from its Go module, that writes to the series store and reads it; the alerts
	$(program)
	@$(with_program) ./tests/prometheus.sh

netdata: ## A real netdata (Debian) against the series store's OpenTSDB port
	./tests/netdata.sh

machines: ## Install, enrol, change, upgrade and remove on two fresh Debian machines in namespaces (BIN)
	$(if $(BIN),,cargo build --release --bin holdfast)
	@BIN="$(or $(BIN),target/release/holdfast)" ./tests/two_machines.sh

soak: ## The same tests with much larger numbers (hours; SOAK=N scales them)
	HOLDFAST_SOAK=$(SOAK) HOLDFAST_KILLS=$$(( 200 * $(SOAK) )) HOLDFAST_DOCUMENTS=100000 \
	HOLDFAST_STOPS=$$(( 60 * $(SOAK) )) HOLDFAST_SERIES=100000 HOLDFAST_CRASHES=$$(( 100000 * $(SOAK) )) \
	HOLDFAST_SAMPLES=18000000 PROPTEST_CASES=$$(( 256 * $(SOAK) )) cargo test --workspace --release -- --nocapture
	HOLDFAST_SOAK=$(SOAK) $(MAKE) loom
	QUICK=1 $(MAKE) bench-all

bench-all: ## Every comparison, one after the other (QUICK=1 for a short run of each)
	@set -e; for name in scan queue journal amplification sync series cache api realtime promql; do \
		echo "== bench-$$name"; ./bench/run.sh $$name; done

bench-%: ## One comparison with peers, e.g. bench-scan (QUICK=1 for a short one)
	./bench/run.sh $*

fuzz: ## Fuzz every reader of hostile bytes, each for SECONDS_EACH=60 (MERGE=1 minimises the corpus)
	./fuzz/run.sh

clean: ## Forget everything built
	cargo clean
	rm -rf ui/node_modules tests/page/node_modules
