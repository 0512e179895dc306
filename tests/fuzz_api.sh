#!/usr/bin/env bash
# Checks the API of the real binary against its description: with a client written from the
# documented examples, with a published client of the 4.x API, and with property-based requests
# generated from the OpenAPI document. The tools are installed in a virtual environment below
# target/.
# HOLDFAST_FUZZ_SECONDS sets the duration in seconds (default 60).
set -euo pipefail
cd "$(dirname "$0")"
./packages.sh python3 python3
python3 -c 'import ensurepip, venv' 2>/dev/null || ./packages.sh python3-venv python3-venv
venv=${HOLDFAST_FUZZ_VENV:-../target/fuzz-venv}
# Copy the requirements last, so that an interrupted installation is repeated.
if ! cmp -s fuzz/requirements.txt "$venv/requirements.txt"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r fuzz/requirements.txt
  cp fuzz/requirements.txt "$venv/requirements.txt"
fi
"$venv/bin/python" fuzz/client.py
"$venv/bin/python" fuzz/published.py
"$venv/bin/python" fuzz/fuzz.py
