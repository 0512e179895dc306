#!/usr/bin/env bash
# Compares PromQL with that of Prometheus 3.16, whose module is downloaded. HOLDFAST_BIN names the program.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v go >/dev/null || {
    tests/skip.sh promqltest "go is not installed"
    exit 0
}
bin=$(realpath "${HOLDFAST_BIN:-target/debug/holdfast}")
folder=$(mktemp -d)
coproc server { exec "$bin" series serve --data "$folder/data" --http 127.0.0.1:0 --resp off --udp off --opentsdb off; }
pid=$server_PID
trap 'kill "$pid" 2>/dev/null || true; wait "$pid" || true; rm -rf "$folder"' EXIT
address=
while [ -z "$address" ] && read -r line <&"${server[0]}"; do
    case $line in "ready: "*) address=${line#ready: } ;; esac
done
[ -n "$address" ] || { echo "the series store did not start"; exit 1; }
cd tests/promqltest
HOLDFAST=$bin HOLDFAST_SERIES=${address%/} go test -count=1 -v ./... "$@"
