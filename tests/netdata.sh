#!/usr/bin/env bash
# Runs a real netdata from Debian against the series store's OpenTSDB port. Without netdata the test
# is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
tests/packages.sh netdata netdata-core || {
  tests/skip.sh netdata "netdata-core cannot be installed here"
  exit 0
}
cargo test --test it real_netdata_charts_are_stored -- --nocapture
