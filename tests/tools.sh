#!/usr/bin/env bash
# Installs the binaries that LIST pins into a folder of target/tools. Prints the path of TOOL, or fails
# where there is none: without pip, or on another machine than x86-64.
# usage: tools.sh TOOL [LIST]
#   LIST  file with names, versions and digests (tests/tools.txt)
set -euo pipefail
cd "$(dirname "$0")/.."
list=${2:-tests/tools.txt}
folder=target/tools/$(dirname "$list")
mkdir -p target/tools
# Parts of the tests run at the same time.
exec 9> target/tools.lock
flock 9
if ! cmp -s "$list" "$folder/tools.txt"; then
  tests/packages.sh python3 python3
  python3 -m pip --version > /dev/null 2>&1 || tests/packages.sh pip3 python3-pip || true
  rm -rf "$folder"
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
    --root-user-action=ignore --target "$folder" -r "$list" > /dev/null || true
  mkdir -p "$folder"
  # Last, so that an interrupted installation is repeated.
  cp "$list" "$folder/tools.txt"
fi
[ -x "$folder/bin/$1" ] || exit 1
echo "$PWD/$folder/bin/$1"
