#!/usr/bin/env bash
# One comparison: builds it, installs the peers it needs from Debian, runs it, prints its table.
# usage: run.sh NAME   (QUICK=1 for a short one)
set -euo pipefail
cd "$(dirname "$0")"
name=$1
case "$name" in
  scan) ../tests/packages.sh aide aide ;;
esac
cargo build --release --quiet --bin "$name"
exec ./target/release/"$name"
