#!/usr/bin/env bash
# A real netdata from Debian against the series store's OpenTSDB port. Without it the test says why
# it is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v netdata > /dev/null; then
  apt-get install -y -qq --no-install-recommends netdata-core > /dev/null || {
    echo "SKIPPED: netdata-core cannot be installed here"
    exit 0
  }
fi
cargo test --test series_tools a_real_netdata -- --nocapture
