#!/usr/bin/env bash
# Formatting, lints, spelling, licences, documentation, dashboard files, and that the fuzzers and benches
# build. Warnings are errors here: this decides whether a change is good.
set -euo pipefail
cd "$(dirname "$0")/.."
step() {
  local started=$SECONDS
  "$@"
  echo "check: $* ($((SECONDS - started)) s)"
}
step cargo fmt --all --check
step cargo clippy --quiet --workspace --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" step cargo doc --workspace --no-deps --document-private-items --quiet
if typos=$(tests/tools.sh typos); then
  step "$typos"
else
  tests/skip.sh spelling "there is no ready binary of typos for this machine"
fi
if deny=$(tests/tools.sh cargo-deny); then
  cargo fetch --quiet --locked
  step "$deny" --offline --log-level error check licenses bans sources
  if [ -d "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs" ]; then
    step "$deny" --offline --log-level error check advisories
  else
    tests/skip.sh advisories "there is no copy of the advisory database"
  fi
else
  tests/skip.sh licences "there is no ready binary of cargo-deny for this machine"
fi
tests/packages.sh c++ g++
RUSTFLAGS="-D warnings" step cargo check --quiet --locked --manifest-path fuzz/Cargo.toml --target-dir target/others
RUSTFLAGS="-D warnings" step cargo check --quiet --locked --manifest-path bench/Cargo.toml --all-features --target-dir target/others
step tests/ui.sh
