#!/usr/bin/env bash
# Installs Debian packages that the tests need, unless COMMAND already exists.
# usage: packages.sh COMMAND PACKAGE...
set -euo pipefail
command=$1; shift
command -v "$command" >/dev/null && exit 0
if [ "$(id -u)" != 0 ]; then
  echo "the tests need $command: apt-get install $*" >&2
  exit 1
fi
# Tests run at the same time, and apt-get does not wait for another one.
exec 9< "$0"
flock 9
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "$@" >/dev/null
