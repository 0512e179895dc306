#!/usr/bin/env bash
# Runs targets of the Makefile and counts their tests. The last line is `N passed, N failed, N skipped`.
# A target without counted tests counts as one test. With CI=true a skipped test that tests/skips.txt
# does not list is a failure.
# usage: run.sh "TARGET..."...   (targets in one argument run at the same time)
set -uo pipefail
cd "$(dirname "$0")/.."
out=$PWD/target/tests
rm -rf "$out"
mkdir -p "$out"
export HOLDFAST_SKIPPED=$out/skipped
: > "$HOLDFAST_SKIPPED"

# Prints passed and failed tests from the output of nextest, cargo test, node and go on stdin.
counts() {
  sed 's/\x1b\[[0-9;]*m//g' | awk '
    function number(word) { return match($0, "[0-9]+ " word) ? substr($0, RSTART, RLENGTH) + 0 : 0 }
    /^ *Summary \[/ || /^test result: / { passed += number("passed"); failed += number("(failed|timed out)") }
    /^(ℹ|#) pass [0-9]+$/ { passed += $3 }
    /^(ℹ|#) fail [0-9]+$/ { failed += $3 }
    /^--- PASS: / { passed++ }
    /^--- FAIL: / { failed++ }
    END { print passed + 0, failed + 0 }'
}

# Runs a target, and keeps its exit code and duration next to its output.
run() {
  local started=$SECONDS code=0
  make --no-print-directory "$1" > "$out/$1.log" 2>&1 || code=$?
  echo "$code $((SECONDS - started))" > "$out/$1.end"
}

passed=0 failed=0
for group in "$@"; do
  read -ra targets <<< "$group"
  for target in "${targets[@]}"; do
    echo "== $target"
    if [ "${#targets[@]}" = 1 ]; then
      run "$target" &
      tail --pid=$! -n +1 -F "$out/$target.log" 2> /dev/null
      wait
    else
      run "$target" &
    fi
  done
  wait
  for target in "${targets[@]}"; do
    [ "${#targets[@]}" = 1 ] || { echo "== output of $target"; cat "$out/$target.log"; }
    code=1 seconds=0
    [ ! -e "$out/$target.end" ] || read -r code seconds < "$out/$target.end"
    read -r good bad < <(counts < "$out/$target.log")
    if [ "$code" = 0 ]; then
      [ $((good + bad)) -gt 0 ] || good=1
    elif [ "$bad" = 0 ]; then
      bad=1
    fi
    passed=$((passed + good)) failed=$((failed + bad))
    echo "== $target: $good passed, $bad failed in $seconds s"
    # The next targets test the program that was built with the tests.
    [ "$target" != unit ] || export BIN=target/debug/holdfast
  done
done

# A test in Rust that was skipped returned, so its harness counted it as passed.
names=$(sed 's/: .*//' "$HOLDFAST_SKIPPED" | sort -u)
skipped=$(grep -c . <<< "$names")
passed=$((passed - $(grep -c '::' <<< "$names")))
if [ "$skipped" -gt 0 ]; then
  echo "== skipped"
  sort -u "$HOLDFAST_SKIPPED"
fi
if [ "${CI:-}" = true ]; then
  unlisted=$(grep . <<< "$names" \
    | grep -vxFf <(sed -n 's/^\([^#: ]*\(::[^: ]*\)*\): .*/\1/p' tests/skips.txt))
  if [ -n "$unlisted" ]; then
    printf 'skipped, but not listed in tests/skips.txt:\n%s\n' "$unlisted"
    failed=$((failed + $(wc -l <<< "$unlisted")))
  fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
