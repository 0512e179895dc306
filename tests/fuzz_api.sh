#!/usr/bin/env bash
# The API against its own description: a client written from the documented examples, a published one
# of the 4.x line, and property-based requests made from the OpenAPI document, against the real binary.
# Their tools go into a virtual environment under target/. HOLDFAST_FUZZ_SECONDS: how long (60).
set -euo pipefail
cd "$(dirname "$0")"
./packages.sh python3 python3
python3 -c 'import ensurepip, venv' 2>/dev/null || ./packages.sh python3-venv python3-venv
venv=${HOLDFAST_FUZZ_VENV:-../target/fuzz-venv}
# The requirements are copied last: an installation that was cut short is made again.
if ! cmp -s fuzz/requirements.txt "$venv/requirements.txt"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r fuzz/requirements.txt
  cp fuzz/requirements.txt "$venv/requirements.txt"
fi
"$venv/bin/python" fuzz/client.py
"$venv/bin/python" fuzz/published.py
"$venv/bin/python" fuzz/fuzz.py
