#!/usr/bin/env bash
# Builds the release for packages: target/portable/holdfast. It runs with every glibc from $glibc on, also if
# this machine's is newer.
# usage: build.sh
set -euo pipefail
# That of RHEL 8 and Debian 10.
glibc=2.28
cd "$(dirname "$0")/.."
zigbuild=$(tests/tools.sh cargo-zigbuild packaging/tools.txt) || {
  echo "$0: there is no cargo-zigbuild for this machine: name a program of your own (make packages BIN=...)" >&2
  exit 1
}
tools=$(dirname "$(dirname "$zigbuild")")
export CARGO_ZIGBUILD_ZIG_PATH=$tools/ziglang/zig
export CARGO_ZIGBUILD_CACHE_DIR=$tools/cache ZIG_GLOBAL_CACHE_DIR=$tools/cache
machine=$(rustc -vV | sed -n 's/^host: //p')
"$zigbuild" zigbuild --release --bin holdfast --target "$machine.$glibc"
program=target/$machine/release/holdfast
packaging/glibc.sh "$program" "$glibc" > /dev/null
mkdir -p target/portable
ln -f "$program" target/portable/holdfast
