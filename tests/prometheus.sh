#!/usr/bin/env bash
# Builds Prometheus 3.16 from its Go module and runs it against the series store: one sends by remote
# write, and another answers queries by remote read. Its promtool tests the alerts.
# usage: prometheus.sh
#   HOLDFAST_BIN  the program (target/debug/holdfast)
#   PROMETHEUS    a Prometheus to run instead of building one
set -euo pipefail
cd "$(dirname "$0")/.."
command -v go >/dev/null || {
    tests/skip.sh prometheus "go is not installed"
    exit 0
}
bin=$(realpath "${HOLDFAST_BIN:-target/debug/holdfast}")
prometheus=$(realpath -m "${PROMETHEUS:-target/prometheus/prometheus}")
cd tests/promqltest
if [ ! -x "$prometheus" ]; then
    # The module's folder is read-only, and its workspace names folders that it does not contain.
    folder=$(mktemp -d)
    trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
    go mod download github.com/prometheus/prometheus
    cp -r "$(go list -m -f '{{.Dir}}' github.com/prometheus/prometheus)/." "$folder"
    chmod -R u+w "$folder"
    mkdir -p "$(dirname "$prometheus")"
    (cd "$folder" && GOWORK=off go build -tags remove_all_sd -o "$prometheus" ./cmd/prometheus)
    (cd "$folder" && GOWORK=off go build -tags remove_all_sd -o "${prometheus%/*}/promtool" ./cmd/promtool)
fi
if promtool=${prometheus%/*}/promtool && [ -x "$promtool" ]; then
    "$promtool" check rules ../../packaging/prometheus/holdfast.rules.yml
    "$promtool" test rules ../../packaging/prometheus/holdfast.rules.test.yml
fi
HOLDFAST=$bin PROMETHEUS=$prometheus go test -count=1 -v -run 'TestPrometheus$' . "$@"
