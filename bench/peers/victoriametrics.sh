#!/usr/bin/env bash
# Builds VictoriaMetrics once from its Go module. Says why it cannot where it cannot; the
# comparison then goes without it.
# usage: victoriametrics.sh FOLDER
set -euo pipefail
version=v1.150.0
module=github.com/VictoriaMetrics/VictoriaMetrics
folder=$1
[ -x "$folder/victoria-metrics" ] && exit 0
skip() { echo "victoriametrics: $1; compared without it" >&2; exit 0; }
command -v go >/dev/null || skip "go is missing"
mkdir -p "$folder"
cd "$folder"
# A module that needs nothing but this version: the sums of everything below stand in its go.sum.
cat > go.mod <<MOD
module peer
go 1.24
require $module $version
MOD
export GOFLAGS="-buildvcs=false -mod=mod -p=${JOBS:-$(nproc)}"
go build -o victoria-metrics "$module/app/victoria-metrics" >build.log 2>&1 ||
  skip "it does not build here (see $folder/build.log)"
