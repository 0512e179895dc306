#!/usr/bin/env bash
# Runs the tests in Rust side by side: with cargo-nextest, or with cargo test where there is no ready
# binary of it. Then runs the examples in documentation.
# usage: unit.sh [OPTION OF CARGO...]   (--workspace and the examples)
set -euo pipefail
cd "$(dirname "$0")/.."
examples=no
[ $# -gt 0 ] || { set -- --workspace; examples=yes; }
if nextest=$(tests/tools.sh cargo-nextest); then
  "$nextest" nextest run "$@"
else
  echo "no cargo-nextest for this machine: cargo test runs one program at a time" >&2
  RUST_TEST_THREADS=${RUST_TEST_THREADS:-6} cargo test --no-fail-fast "$@"
  exit
fi
[ "$examples" = no ] || cargo test --quiet --doc "$@"
