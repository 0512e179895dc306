#!/usr/bin/env bash
# Installs Debian's Prometheus without starting it. Says why it cannot where it cannot.
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v prometheus >/dev/null && exit 0
skip() { echo "prometheus: $1; compared without it" >&2; exit 0; }
# Its package starts a service where a service manager runs; here it is only a program.
[ ! -d /run/systemd/system ] || skip "install it yourself and stop its service"
./tests/packages.sh prometheus prometheus >/dev/null 2>&1 || skip "its package cannot be installed"
