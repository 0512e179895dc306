#!/usr/bin/env bash
# The dashboard's sources: types, style, unit tests; and the committed ui/dist is what they build.
set -euo pipefail
cd "$(dirname "$0")/../ui"
npm ci --no-audit --no-fund --loglevel=error
npm run --silent check
npm run --silent build -- --outDir ../target/ui-dist --emptyOutDir >/dev/null
if ! diff -r dist ../target/ui-dist; then
  echo "ui/dist is not what ui/src builds: run 'npm run build' in ui/ and commit it" >&2
  exit 1
fi
