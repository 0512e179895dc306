#!/usr/bin/env bash
# One comparison: builds it, installs the peers it needs from Debian, runs it, prints its table.
# usage: run.sh NAME   (QUICK=1 for a short one)
set -euo pipefail
# Paths are relative to the caller's folder, as everywhere.
for path in HOLDFAST_BIN HOLDFAST_BIN_BEFORE PROMETHEUS_BIN VICTORIAMETRICS_BIN TREE; do
  [ -z "${!path:-}" ] || export "$path=$(realpath -- "${!path}")"
done
cd "$(dirname "$0")"
name=$1
case "$name" in
  scan) ../tests/packages.sh aide aide ;;
  queue)
    # Without them those file systems are left out.
    if [ "${QUICK:-0}" = 0 ]; then
      ../tests/packages.sh mkfs.xfs xfsprogs || true
      ../tests/packages.sh mkfs.btrfs btrfs-progs || true
    fi ;;
  api)
    # The product's own release binary, as everybody builds it.
    [ -n "${HOLDFAST_BIN:-}" ] || (cd .. && cargo build --release --quiet --bin holdfast)
    features=(--features api)
    ;;
  cache)
    # No peer: the server with and without what it keeps.
    [ -n "${HOLDFAST_BIN:-}" ] || (cd .. && cargo build --release --quiet --bin holdfast)
    exec ./cache.sh ;;
  decisions)
    # The peer is the version before, HOLDFAST_BIN_BEFORE.
    [ -n "${HOLDFAST_BIN:-}" ] || (cd .. && cargo build --release --quiet --bin holdfast)
    shift
    exec ./decisions.py "$@" ;;
  realtime)
    [ -n "${HOLDFAST_BIN:-}" ] || (cd .. && cargo build --release --quiet --bin holdfast)
    case " ${*:2} " in
      "  " | *" upgrade "*)
        for needed in dpkg-scanpackages:dpkg-dev adduser:adduser ucf:ucf setcap:libcap2-bin \
          deb-systemd-helper:init-system-helpers; do
          ../tests/packages.sh "${needed%:*}" "${needed#*:}"
        done ;;
    esac
    shift
    exec ./realtime.py "$@" ;;
  promql)
    [ -n "${HOLDFAST_BIN:-}" ] || (cd .. && cargo build --release --quiet --bin holdfast)
    ./peers/victoriametrics.sh "$PWD/target/peers/victoriametrics"
    # `make prometheus` builds the reference; Debian's has other windows.
    for peer in "$PWD/target/peers/victoriametrics/victoria-metrics" "$PWD/../target/prometheus/prometheus"; do
      [ -x "$peer" ] || continue
      case $peer in
        */prometheus) export PROMETHEUS_BIN=${PROMETHEUS_BIN:-$peer} ;;
        *) export VICTORIAMETRICS_BIN=${VICTORIAMETRICS_BIN:-$peer} ;;
      esac
    done
    shift
    exec ./promql.py "$@" ;;
  journal)
    # A comparison without one of them is still one: who is missing is said.
    [ -e /usr/include/rocksdb/c.h ] || ../tests/packages.sh rocksdb-headers librocksdb-dev || true
    ./peers/wiredtiger.sh target/peers/wiredtiger
    features=(--features journal)
    ;;
  series)
    # A comparison without one of them is still one: who is missing is said.
    ./peers/victoriametrics.sh "$PWD/target/peers/victoriametrics"
    ./peers/prometheus.sh
    ./peers/questdb.sh "$PWD/target/peers/questdb"
    features=(--features series)
    ;;
  amplification) features=(--features amplification) ;;
  sync) features=(--features sync) ;;
esac
cargo build --release --quiet --bin "$name" ${features[@]+"${features[@]}"}
shift
exec ./target/release/"$name" "$@"
