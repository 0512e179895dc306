#!/usr/bin/env bash
# Checks types, style and unit tests of the dashboard's sources, and that they build to the
# committed ui/dist.
set -euo pipefail
cd "$(dirname "$0")/../ui"
npm ci --no-audit --no-fund --loglevel=error
npm run --silent check
npx vite build --outDir ../target/ui-dist --emptyOutDir >/dev/null
node compress.mjs ../target/ui-dist
if ! diff -r dist ../target/ui-dist; then
  echo "ui/dist is not what ui/src builds: run 'npm run build' in ui/ and commit it" >&2
  exit 1
fi
