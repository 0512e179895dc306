#!/usr/bin/env bash
# The API against its own description: a client written from the documented examples, and
# property-based requests made from the OpenAPI document, both against the real binary.
set -euo pipefail
cd "$(dirname "$0")"
venv=${HOLDFAST_FUZZ_VENV:-../target/fuzz-venv}
if ! cmp -s fuzz/requirements.txt "$venv/requirements.txt"; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r fuzz/requirements.txt
  cp fuzz/requirements.txt "$venv/requirements.txt"
fi
"$venv/bin/python" fuzz/client.py
"$venv/bin/python" fuzz/fuzz.py
