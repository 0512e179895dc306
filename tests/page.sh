#!/usr/bin/env bash
# Tests the dashboard in a real Chromium, with the real binary on real files.
set -euo pipefail
cd "$(dirname "$0")"
./packages.sh chromium chromium
./packages.sh python3 python3
cd page
npm ci --no-audit --no-fund --loglevel=error
node --test --test-reporter=spec --test-timeout=1200000 page.test.mjs items.test.mjs causes.test.mjs
