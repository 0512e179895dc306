#!/bin/bash
# Builds the fuzzers and runs each for SECONDS_EACH seconds on one core at low priority. Failing
# inputs are written to fuzz/artifacts/TARGET, new inputs to fuzz/corpus/TARGET (MERGE=1 merges
# them).
# The project's own toolchain is sufficient: it contains the coverage passes, and the tested code is
# safe Rust, so no sanitizer is needed.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${SECONDS_EACH:-60}
targets=${TARGETS:-segment damage session record registry_rows frames notices messages series_codec series_readers series_query}
host=$(rustc -vV | sed -n 's/^host: //p')
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
nice -n 19 cargo build --release --target "$host" --target-dir target --quiet
for target in $targets; do
    mkdir -p "target/corpus/$target" "corpus/$target" "artifacts/$target"
    program="target/$host/release/$target"
    if [ -n "${MERGE:-}" ]; then
        rm -rf "target/merged/$target"
        mkdir -p "target/merged/$target"
        nice -n 19 "$program" -merge=1 -max_len=4096 "target/merged/$target" "corpus/$target" \
            "target/corpus/$target" 2>/dev/null
        rm -rf "corpus/$target"
        cp -r "target/merged/$target" "corpus/$target"
        continue
    fi
    echo "fuzz: $target for $seconds s"
    nice -n 19 "$program" -max_total_time="$seconds" -max_len=4096 -timeout=60 -report_slow_units=60 -rss_limit_mb=2048 \
        -artifact_prefix="artifacts/$target/" -print_final_stats=1 "target/corpus/$target" \
        "corpus/$target" 2>&1 | grep -E '^stat::|ERROR|panicked|SUMMARY|Test unit' || true
    if [ -n "$(ls -A "artifacts/$target")" ]; then
        echo "fuzz: $target failed on $(ls "artifacts/$target")" >&2
        exit 1
    fi
done
