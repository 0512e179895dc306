#!/usr/bin/env bash
# Builds WiredTiger once, as a library, from the source that its Python package carries. Says why
# it cannot where it cannot; the comparison then goes without it.
# usage: wiredtiger.sh FOLDER
set -euo pipefail
version=11.3.1
folder=$1
[ -f "$folder/done" ] && exit 0
skip() { echo "wiredtiger: $1; compared without it" >&2; exit 0; }
for tool in cmake make cc; do command -v "$tool" >/dev/null || skip "$tool is missing"; done
pip=$(command -v pip3 || command -v pip || true)
[ -n "$pip" ] || skip "pip is missing"
mkdir -p "$folder"
log=$folder/build.log
if [ ! -f "$folder/wiredtiger-$version.tar.gz" ]; then
  "$pip" download --quiet --no-deps --no-binary :all: --dest "$folder" "wiredtiger==$version" \
    >"$log" 2>&1 || skip "its source cannot be fetched (see $log)"
fi
rm -rf "$folder/source" "$folder/build"
mkdir -p "$folder/source" "$folder/build"
tar -xzf "$folder/wiredtiger-$version.tar.gz" -C "$folder/source" --strip-components 1
(
  cd "$folder/build"
  cmake ../source -DCMAKE_BUILD_TYPE=Release -DENABLE_STATIC=1 -DENABLE_SHARED=0 -DENABLE_PYTHON=0 \
    -DENABLE_STRICT=0 -DENABLE_TCMALLOC=0 -DENABLE_LZ4=0 -DENABLE_SNAPPY=0 -DENABLE_ZLIB=0 \
    -DENABLE_ZSTD=0 -DENABLE_CPPSUITE=0 -DHAVE_UNITTEST=0
  make -j"$(nproc)" wiredtiger_static
) >"$log" 2>&1 || skip "it does not build here (see $log)"
library=$(find "$folder/build" -name 'libwiredtiger*.a' | head -n 1)
header=$(find "$folder/build" -name wiredtiger.h | head -n 1)
[ -n "$library" ] && [ -n "$header" ] || skip "its build made no library (see $log)"
cp "$library" "$folder/libwiredtiger.a"
cp "$header" "$folder/wiredtiger.h"
rm -rf "$folder/source" "$folder/build"
touch "$folder/done"
