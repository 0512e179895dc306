#!/usr/bin/env bash
# Runs the tests in Rust side by side: with cargo-nextest, or with cargo test where there is no ready
# binary of it. Then runs the examples in documentation.
# usage: unit.sh [OPTION OF CARGO...]   (--workspace and the examples)
set -euo pipefail
cd "$(dirname "$0")/.."
# File systems on which some tests cut the power; without them those tests are skipped.
tests/packages.sh mkfs.xfs xfsprogs || true
tests/packages.sh mkfs.btrfs btrfs-progs || true
examples=no
[ $# -gt 0 ] || { set -- --workspace; examples=yes; }
if nextest=$(tests/tools.sh cargo-nextest); then
  # The examples are tested even where a test fails.
  code=0
  "$nextest" nextest run "$@" || code=$?
else
  echo "no cargo-nextest for this machine: cargo test runs one program at a time" >&2
  RUST_TEST_THREADS=${RUST_TEST_THREADS:-6} cargo test --no-fail-fast "$@"
  exit
fi
if [ "$examples" = yes ]; then
  cargo test --quiet --doc "$@" || code=$?
fi
exit "$code"
