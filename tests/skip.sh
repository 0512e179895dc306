#!/usr/bin/env bash
# Reports that a test cannot run here, as `needs::skip` does for tests in Rust.
# usage: skip.sh NAME REASON
echo "skipped: $1: $2"
if [ -n "${HOLDFAST_SKIPPED:-}" ]; then
  echo "$1: $2" >> "$HOLDFAST_SKIPPED"
fi
