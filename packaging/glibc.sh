#!/usr/bin/env bash
# Prints the oldest glibc with which a program starts: the highest version among the symbols that it needs.
# Fails if that is above MAX.
# usage: glibc.sh PROGRAM [MAX]
set -euo pipefail
program=${1:?usage: glibc.sh PROGRAM [MAX]} max=${2:-}
symbols=$(objdump -T "$program" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//')
highest() { sort -uV | tail -n 1; }
needed=$(highest <<< "$symbols")
if [ -n "$max" ] && [ "$(printf '%s\n' "$needed" "$max" | highest)" != "$max" ]; then
  echo "$0: $program needs glibc $needed, which is newer than $max" >&2
  exit 1
fi
echo "$needed"
