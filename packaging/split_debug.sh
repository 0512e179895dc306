#!/usr/bin/env bash
# Moves the debug symbols of a program to PROGRAM.debug next to it. The program names that file, so that
# backtraces and debuggers still show functions and line numbers as long as both lie in one folder.
# usage: split_debug.sh PROGRAM
set -euo pipefail
program=${1:?usage: split_debug.sh PROGRAM}
if ! command -v objcopy > /dev/null || ! command -v strip > /dev/null; then
  echo "$0: no objcopy or strip (Debian's package binutils): $program keeps its debug symbols" >&2
  exit
fi
# Split before: cargo has not linked the program again.
if ! readelf -WS "$program" | grep -F .debug_line > /dev/null; then exit; fi
part=$program.part
trap 'rm -f "$part"' EXIT
objcopy --only-keep-debug "$program" "$program.debug"
strip -o "$part" "$program"
objcopy --add-gnu-debuglink="$program.debug" "$part"
# Replaced, not rewritten: cargo's own copy is the same file under another name, and stays complete.
mv "$part" "$program"
