#!/usr/bin/env bash
# Runs a real netdata from Debian against the series store's OpenTSDB port. Without netdata the test
# prints why it is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
tests/packages.sh netdata netdata-core || {
  echo "SKIPPED: netdata-core cannot be installed here"
  exit 0
}
cargo test --test series_tools a_real_netdata -- --nocapture
